"""Read the wanted series of a Prometheus text page, fast, and never trust a broken line.

Only names in `wanted` are looked at; all other lines, HELP and TYPE are skipped. On those names it
gives what `prometheus_client.parser` gives for a page that is whole, about 30 times faster. A
wanted line that cannot be read, or that contradicts another, makes its series unknown (`broken`);
a page that cannot be read at all is `Unavailable`. It does not know what the series mean.
Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text format 0.0.4).
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import re
from functools import lru_cache

from serving.dialects.page import Labels, Page
from serving.errors import Unavailable

_BLANK = " \t"
_LABEL = re.compile(
    r'[ \t]*("?)([a-zA-Z_][a-zA-Z0-9_]*)\1[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*', re.S
)
_QUOTED_NAME = re.compile(r'[ \t]*"([^"\\]*)"[ \t]*(?:,|(?=\}))')
_CLOSE = re.compile(r'[^"}]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"}]*)*\}', re.S)
_ESCAPE = re.compile(r'\\[\\n"]')
_UNESCAPED = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}
_MAX_LINE_CHARS = 16384
_MAX_LINES = 250_000
_CACHED_LABEL_CHARS = 2048


def read_page(body: bytes, wanted: frozenset[str]) -> Page:
    """The wanted series of one page; raises `Unavailable` if the page as a whole is unreadable.

    A page whose last line has no line end was cut off: even series that look whole may lack a
    label set then, so nothing of it is used. The caller bounds the size of `body`.
    """
    text = _text(body)
    samples: dict[str, dict[Labels, float]] = {}
    problems: dict[str, str] = {}
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        head, brace, tail = line.partition("{")
        name = head
        if name not in wanted:
            found = _unusual_name(line, head, brace, tail, wanted)
            if found is None:
                continue
            name, brace, tail = found
        labels: Labels | None
        value: float | None
        if len(line) > _MAX_LINE_CHARS:
            labels, value = None, None
        elif brace:
            inside, _, rest = tail.rpartition("}")
            labels = _labels(inside) if len(inside) <= _CACHED_LABEL_CHARS else _read_labels(inside)
            value = _value(rest) if labels is not None else None
            if value is None:
                labels, value = _with_exemplar(tail)
        else:
            labels, value = (), _value(tail)
        if labels is None or value is None:
            problems.setdefault(name, f"{name}: a line cannot be read: {line.strip()[:80]!r}")
            continue
        series = samples.get(name)
        if series is None:
            series = samples[name] = {}
        if series.setdefault(labels, value) != value and not (
            value != value and series[labels] != series[labels]  # NaN twice is no contradiction
        ):
            problems.setdefault(name, f"{name}: two values for one label set")
    for name in problems:
        samples.pop(name, None)
    return Page(
        samples=samples, broken=frozenset(problems), problems=tuple(sorted(problems.values()))
    )


def _text(body: bytes) -> str:
    if not body:
        raise Unavailable("the page is empty")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unavailable(f"the page is not UTF-8 at byte {error.start}") from error
    if "\x00" in text:
        raise Unavailable(f"the page is binary: a zero byte at character {text.index(chr(0))}")
    if not text.endswith("\n"):
        raise Unavailable(f"the page is cut off: its last line of {len(body)} bytes has no end")
    if text.count("\n") > _MAX_LINES:
        raise Unavailable(f"the page has more than {_MAX_LINES} lines")
    return text


def _unusual_name(
    line: str, head: str, brace: str, tail: str, wanted: frozenset[str]
) -> tuple[str, str, str] | None:
    """The name of a line that does not start with `name{`, if it is wanted: name, brace, tail.

    That is: no labels, blanks around the name, or the name quoted inside the braces.
    """
    stripped = head.strip()
    if not brace or any(blank in stripped for blank in _BLANK):
        # no labels, or a brace far behind the value (an exemplar)
        parts = re.split(r"[ \t]+", line.strip(), maxsplit=1)
        if len(parts) == 2 and parts[0] in wanted:
            return parts[0], "", parts[1]
        return (parts[0], "", "") if parts[0] in wanted else None
    if stripped in wanted:
        return stripped, brace, tail
    if not stripped:
        quoted = _QUOTED_NAME.match(tail)
        if quoted is not None and quoted[1] in wanted:
            return quoted[1], brace, tail[quoted.end() :]
    return None


def _value(rest: str) -> float | None:
    """The number in front of an optional timestamp or exemplar, or `None` if it is none."""
    try:
        if "_" not in rest:  # Python would read 1_000 as a thousand
            return float(rest)
    except ValueError:
        pass
    parts = re.split(r"[ \t]+", rest.strip())
    if len(parts) < 2 or (len(parts) > 2 and "#" not in parts[1:3]):
        return None
    numbers = parts[:1] if parts[1] == "#" else parts[:2]
    if any("_" in part for part in numbers):
        return None
    try:
        value, *_ = map(float, numbers)
    except ValueError:
        return None
    return value


def _with_exemplar(tail: str) -> tuple[Labels | None, float | None]:
    """Labels and value of a line that goes on with other braces behind its value."""
    closed = _CLOSE.match(tail)
    if closed is None:
        return None, None
    return _read_labels(tail[: closed.end() - 1]), _value(tail[closed.end() :])


def _read_labels(text: str) -> Labels | None:
    """The label set between the braces, sorted by name; `None` if it cannot be read whole."""
    pairs: dict[str, str] = {}
    at = 0
    comma = True
    while comma and (found := _LABEL.match(text, at)) is not None:
        _, key, value = found.groups()
        if key in pairs:
            return None
        pairs[key] = _ESCAPE.sub(_unescape, value) if "\\" in value else value
        at = found.end()
        comma = text.startswith(",", at)
        at += comma
    return None if text[at:].strip() else tuple(sorted(pairs.items()))


def _unescape(found: re.Match[str]) -> str:
    return _UNESCAPED[found[0]]


_labels = lru_cache(maxsize=4096)(_read_labels)
