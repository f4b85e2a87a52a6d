"""How three metric libraries write a number, and a page whose text is made once and filled often.

Knows nothing of engines or routers. Every form reads back exactly through `float()`.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from math import isinf, isnan

from serving.simulation.telemetry import Histogram

Labels = Mapping[str, str]

_LARGEST_PLAIN = 1_000_000
"""From here on Python's and Go's clients write an exponent."""


def python_text(value: float) -> str:
    """The form of prometheus-client for Python: `102.0`, `2.097152e+06`, `-1e-05`.

    Positive values of more than six integer digits get an exponent, as in its `floatToGoString`;
    negative ones do not.
    """
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(float(value))
    dot = text.find(".")
    if value > 0 and dot > 6:
        digits = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0").rstrip(".")
        return f"{digits}e+{dot - 1:02d}"
    return text


def go_text(value: float) -> str:
    """The form of client_golang: as Python's, but whole numbers without a point: `102`."""
    return python_text(value).removesuffix(".0")


def rust_text(value: float) -> str:
    """The form of Rust's exporters: `102`, `0.0000001`, `2097152`; never an exponent."""
    if isnan(value) or isinf(value):
        return go_text(value)
    return format(Decimal(repr(float(value))), "f").removesuffix(".0")


def python_counts(counts: Iterable[int]) -> list[str]:
    """Counts of separate buckets, cumulated, in Python's form: the hot path of a page."""
    return [
        f"{count}.0" if count < _LARGEST_PLAIN else python_text(count)
        for count in accumulate(counts)
    ]


def go_counts(counts: Iterable[int]) -> list[str]:
    """Counts of separate buckets, cumulated, in Go's form."""
    return [
        str(count) if count < _LARGEST_PLAIN else go_text(count) for count in accumulate(counts)
    ]


def label_set(labels: Labels, *, ordered: bool = True) -> str:
    """`{a="1",b="2"}` with the values escaped; sorted by name unless told; empty for no labels."""
    if not labels:
        return ""
    items = sorted(labels.items()) if ordered else list(labels.items())
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in items) + "}"


def go_family(name: str, kind: str, text: str, samples: Iterable[tuple[Labels, float]]) -> str:
    """A counter or gauge with its headers, as client_golang writes it."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{label_set(labels)} {go_text(value)}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def go_histogram_family(name: str, text: str, labels: Labels, histogram: Histogram) -> str:
    """A histogram of one label set: `le` behind the sorted labels, the sum before the count."""
    bounds = [*(go_text(bound) for bound in histogram.bounds), "+Inf"]
    counts = go_counts(histogram.counts)
    head = f"{name}_bucket{label_set(labels)[:-1]},le="
    lines = [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
    lines += [f'{head}"{bound}"}} {n}' for bound, n in zip(bounds, counts, strict=True)]
    lines.append(f"{name}_sum{label_set(labels)} {go_text(histogram.sum)}")
    lines.append(f"{name}_count{label_set(labels)} {counts[-1]}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class PageTemplate:
    """Lines of a page, some of which end in a hole for a number."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._format = ""

    def header(self, name: str, kind: str, text: str) -> None:
        """The HELP and TYPE lines of one family."""
        self.fixed(f"# HELP {name} {text}")
        self.fixed(f"# TYPE {name} {kind}")

    def fixed(self, line: str) -> None:
        """A line that never changes."""
        self._lines.append(line.replace("%", "%%"))

    def hole(self, series: str) -> None:
        """A series whose number is given at each fill, in the order of these calls."""
        self._lines.append(series.replace("%", "%%") + " %s")

    def fill(self, numbers: Sequence[str]) -> str:
        """The page with these numbers; raises TypeError where their number does not match."""
        if not self._format:
            self._format = "\n".join(self._lines) + "\n"
        return self._format % tuple(numbers)
