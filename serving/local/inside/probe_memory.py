"""The memory of one side of a probe, with a pattern by which every byte is checked.

Runs in the engine environment, imported by `nixl_probe.py` from beside it; numpy only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probe_channel import ProbeError

PATTERN_BYTES = 4 << 20
ODD = 0x9E3779B97F4A7C15  # spreads neighbours over all bits; odd, so that no two words are equal
MASK = (1 << 64) - 1
MEMORY_SHARE = 0.4  # of what is available, for one of two processes


def available_bytes() -> int | None:
    """Memory that can be had without swapping, as the kernel sees it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


class Memory:
    """A buffer that both sides can fill with, and hold against, the pattern of a repetition.

    Each 8-byte word depends on its place and on the repetition, so bytes of another place or of an
    earlier repetition are noticed.
    """

    def __init__(self, size: int) -> None:
        import numpy as np

        known = available_bytes()
        if known is not None and size > MEMORY_SHARE * known:
            raise ProbeError(
                f"{size / 1e9:.1f} GB of memory are needed on each side, and {known / 1e9:.1f} GB "
                "are available here: smaller sizes or less at once"
            )
        self.np = np
        # ordinary pages, as an engine's KV cache has: for an empty array numpy asks for huge ones,
        # and TCP between those was a fifth faster
        self.words = np.zeros(size // 8, dtype=np.uint64)
        self.address = self.words.ctypes.data
        self.size = size
        self.base = np.arange(PATTERN_BYTES // 8, dtype=np.uint64) * np.uint64(ODD)
        self.fill(0, size)

    def _parts(self, seed: int, size: int) -> Iterator[tuple[int, int, Any]]:
        for start in range(0, size // 8, len(self.base)):
            end = min(start + len(self.base), size // 8)
            shift = (start * ODD + seed * 0xD1B54A32D192ED03) & MASK
            yield start, end, self.base[: end - start] + self.np.uint64(shift)

    def fill(self, seed: int, size: int) -> None:
        """Write the pattern of a repetition into the first `size` bytes."""
        for start, end, pattern in self._parts(seed, size):
            self.words[start:end] = pattern

    def first_wrong_byte(self, seed: int, size: int) -> int | None:
        """Where the first `size` bytes first differ from the pattern; `None`: they do not."""
        for start, end, pattern in self._parts(seed, size):
            wrong = self.words[start:end] != pattern
            if wrong.any():
                first: int = start + int(wrong.argmax())
                return first * 8
        return None
