"""A NIXL agent of a probe: one backend, one registered buffer; and why a backend does not load.

Runs in the engine environment, imported by `nixl_probe.py` from beside it.
"""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

from probe_channel import ProbeError
from probe_memory import Memory


def nixl_errors() -> tuple[type[BaseException], ...]:
    """What NIXL raises; its errors have no parent of their own."""
    import nixl._bindings as bindings

    named = (getattr(bindings, name) for name in dir(bindings) if name.endswith("Error"))
    return (RuntimeError, KeyError, ValueError, *named)


def why_not_loaded(backend: str, error: BaseException) -> str:
    """Why a backend does not load: the system library that it misses, where that is the reason."""
    import nixl._bindings as bindings

    roots = {Path(bindings.__file__).parent, Path(bindings.__file__).parents[1]}
    name = f"libplugin_{backend}.so"
    plugins = [p for root in roots for p in root.glob(f"*.libs/plugins/{name}")]
    plugins += [p for root in roots for p in root.glob(f".*.libs/plugins/{name}")]
    if not plugins:
        return f"this NIXL has no plugin {name} ({error})"
    try:
        ctypes.CDLL(str(plugins[0]))
    except OSError as missing:
        return f"its plugin does not load: {missing}"
    return f"its plugin loads, but NIXL does not take it: {error}"


class Agent:
    """A NIXL agent with one backend and one registered buffer."""

    def __init__(self, name: str, backend: str, size: int) -> None:
        try:
            from nixl._api import nixl_agent, nixl_agent_config
        except ImportError as error:
            raise ProbeError(f"NIXL cannot be imported in this environment ({error})") from error

        self.errors = nixl_errors()
        began_s = time.perf_counter()
        # telemetry of each transfer; the backend apart, so that its refusal is heard
        self.nixl = nixl_agent(name, nixl_agent_config(backends=[], capture_telemetry=True))
        try:
            self.nixl.create_backend(backend)
        except self.errors as error:
            raise ProbeError(why_not_loaded(backend, error)) from error
        self.created_s = time.perf_counter() - began_s
        self.backend = backend
        self.memory = Memory(size)
        self.registered = self.nixl.register_memory(
            [(self.memory.address, size, 0, "")], mem_type="DRAM", backends=[backend]
        )

    def pieces(self, base: int, size: int, handles: int) -> tuple[object, int]:
        """Descriptors of ranges that follow one another, each in pieces of about 1 MiB."""
        each = max(1, min(64, size >> 20))
        edges = [size // 8 * k // each * 8 for k in range(each + 1)]
        ranges = [
            (base + handle * size + edges[k], edges[k + 1] - edges[k], 0)
            for handle in range(handles)
            for k in range(each)
        ]
        return self.nixl.get_xfer_descs(ranges, mem_type="DRAM"), each
