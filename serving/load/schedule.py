"""When to send which request: a trace scaled to a machine, or mixes of lengths one after another.

Whoever has a trace hands its requests over; how files look is not known here. A schedule is a
plain sequence, sorted by time, so that two runs with one seed ask for the same.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from serving.errors import Misconfigured

SPREAD_S = 1.0
"""How far (±) a copy of a request is moved, where the rate is raised: copies are no bursts."""
MAX_REQUESTS = 1_000_000
MAX_SECONDS = 366 * 86_400.0
"""No load lasts longer than a year."""
_MIX = "rate=5,input=512/128,output=64/16,seconds=60"


class Timed(Protocol):
    """A request of a trace, as whoever reads traces has it."""

    @property
    def arrival_s(self) -> float:
        """Seconds since the trace began."""

    @property
    def input_tokens(self) -> int:
        """Length of its prompt."""

    @property
    def output_tokens(self) -> int:
        """Length of its answer."""


class Planned(NamedTuple):
    """One request to send: when (s since the start of the load), and how long both sides are."""

    arrival_s: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How a trace is made to fit a machine.

    `rate_factor` is the multiple of the trace's own requests per second, as played: below 1 a share
    of the requests is taken, above 1 there are copies. `time_factor` is how many seconds of the
    trace pass in one second of load, so that a drift of an hour can be seen in minutes; it does not
    change the rate. Lengths are multiplied, rounded, and kept between 1 and their caps.
    `from_s` is where in the trace the load begins, `seconds` how long it lasts; `None` is to its
    end.
    """

    rate_factor: float = 1.0
    time_factor: float = 1.0
    input_factor: float = 1.0
    output_factor: float = 1.0
    input_cap_tokens: int | None = None
    output_cap_tokens: int | None = None
    from_s: float = 0.0
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """One stretch of made-up traffic: Poisson arrivals, lengths uniform within mean ± spread."""

    rate_per_s: float
    input_tokens_mean: int
    input_tokens_spread: int = 0
    output_tokens_mean: int
    output_tokens_spread: int = 0
    seconds: float


def scaled(requests: Sequence[Timed], scaling: Scaling, *, seed: int) -> tuple[Planned, ...]:
    """A trace's requests by a scaling, from 0 s on. Raises Misconfigured, also if none is left."""
    _check(scaling)
    rng = random.Random(seed)
    share = scaling.rate_factor / scaling.time_factor
    whole, part = math.floor(share), share - math.floor(share)
    end_s = math.inf if scaling.seconds is None else scaling.seconds
    last_s = (requests[-1].arrival_s - scaling.from_s) / scaling.time_factor if requests else 0.0
    planned: list[Planned] = []
    for request in requests:
        at_s = (request.arrival_s - scaling.from_s) / scaling.time_factor
        # chance is drawn for every request, so that a window shows the same ones as the whole
        copies = whole + (rng.random() < part)
        moved = [rng.uniform(-SPREAD_S, SPREAD_S) for _ in range(copies - 1)]
        if copies == 0 or not 0.0 <= at_s < end_s:
            continue
        prompt = _length(request.input_tokens, scaling.input_factor, scaling.input_cap_tokens)
        answer = _length(request.output_tokens, scaling.output_factor, scaling.output_cap_tokens)
        planned.append(Planned(at_s, prompt, answer))
        for by_s in moved:
            # a copy that would leave the window goes the other way
            stays = 0.0 <= at_s + by_s < end_s and at_s + by_s <= last_s
            there_s = at_s + by_s if stays else at_s - by_s
            if 0.0 <= there_s < end_s:
                planned.append(Planned(there_s, prompt, answer))
        if len(planned) > MAX_REQUESTS:
            raise _bad("too many requests", "the scaled trace", f"over {MAX_REQUESTS:,}", "fewer")
    if not planned:
        raise _bad(
            "nothing is left to send",
            "the scaled trace",
            "no requests",
            "a window and a rate factor that leave some",
        )
    return tuple(sorted(planned))


def mixed(mixes: Sequence[Mix], *, seed: int) -> tuple[Planned, ...]:
    """Made-up traffic, one mix after another. Raises Misconfigured, also if none comes of it."""
    rng = random.Random(seed)
    planned: list[Planned] = []
    begins_s = 0.0
    for number, mix in enumerate(mixes, start=1):
        _check_mix(mix, f"mix {number}")
        planned.extend(_poisson(mix, begins_s, rng))
        begins_s += mix.seconds
    if not planned:
        raise _bad("nothing is left to send", "the mixes", "no requests", "more seconds or rate")
    return tuple(planned)


def parse_mix(text: str) -> Mix:
    """A mix as written on a command line, such as `rate=5,input=512/128,output=64,seconds=60`.

    A length is its mean, or mean/spread. Raises Misconfigured.
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        key, is_there, value = part.strip().partition("=")
        if not is_there or key in found:
            raise _bad("not a mix", "--mix", repr(text), f"something like {_MIX}")
        found[key] = value
    if found.keys() != {"rate", "input", "output", "seconds"}:
        raise _bad("not a mix", "--mix", repr(text), f"something like {_MIX}")
    prompt, answer = _mean_and_spread(found["input"]), _mean_and_spread(found["output"])
    mix = Mix(
        rate_per_s=_number(found["rate"]),
        input_tokens_mean=prompt[0],
        input_tokens_spread=prompt[1],
        output_tokens_mean=answer[0],
        output_tokens_spread=answer[1],
        seconds=_number(found["seconds"]),
    )
    _check_mix(mix, "--mix")
    return mix


def _poisson(mix: Mix, begins_s: float, rng: random.Random) -> Iterator[Planned]:
    at_s = rng.expovariate(mix.rate_per_s)
    while at_s < mix.seconds:
        yield Planned(
            begins_s + at_s,
            _around(mix.input_tokens_mean, mix.input_tokens_spread, rng),
            _around(mix.output_tokens_mean, mix.output_tokens_spread, rng),
        )
        at_s += rng.expovariate(mix.rate_per_s)


def _around(mean: int, spread: int, rng: random.Random) -> int:
    return mean + rng.randint(-spread, spread)


def _length(tokens: int, factor: float, cap: int | None) -> int:
    length = max(1, round(tokens * factor))
    return length if cap is None else min(length, cap)


def _check(scaling: Scaling) -> None:
    for name in ("rate_factor", "time_factor", "input_factor", "output_factor"):
        value = getattr(scaling, name)
        if not (math.isfinite(value) and 0.0 < value <= 1e6):
            raise _bad("no such factor", _option(name), f"{value:g}", "above 0, at most 1e6")
    for name in ("input_cap_tokens", "output_cap_tokens"):
        cap = getattr(scaling, name)
        if cap is not None and cap < 1:
            raise _bad("no such cap", _option(name), str(cap), "tokens, 1 or more")
    if not (math.isfinite(scaling.from_s) and scaling.from_s >= 0.0):
        raise _bad("no such time", "--from", f"{scaling.from_s:g}", "seconds, 0 or more")
    seconds = scaling.seconds
    if seconds is not None and not 0.0 < seconds <= MAX_SECONDS:
        raise _bad("no such time", "--seconds", f"{seconds:g}", f"above 0, at most {MAX_SECONDS:g}")


def _check_mix(mix: Mix, where: str) -> None:
    if not (math.isfinite(mix.rate_per_s) and mix.rate_per_s > 0.0):
        raise _bad("no such rate", where, f"{mix.rate_per_s:g}", "requests per second above 0")
    if not 0.0 < mix.seconds <= MAX_SECONDS:
        raise _bad("no such time", where, f"{mix.seconds:g}", f"above 0, at most {MAX_SECONDS:g}")
    if mix.rate_per_s * mix.seconds > MAX_REQUESTS:
        found = f"{mix.rate_per_s * mix.seconds:,.0f}"
        raise _bad("too many requests", where, found, f"at most {MAX_REQUESTS:,}")
    for what, mean, spread in (
        ("input", mix.input_tokens_mean, mix.input_tokens_spread),
        ("output", mix.output_tokens_mean, mix.output_tokens_spread),
    ):
        if not 0 <= spread < mean:
            raise _bad(
                f"no such length of {what}",
                where,
                f"{mean} ± {spread} tokens",
                "a mean of 1 or more, and a spread of 0 or more below it",
            )


def _number(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, flags=re.ASCII):
        raise _bad("not a number", "--mix", repr(text), f"something like {_MIX}")
    return float(text)


def _mean_and_spread(text: str) -> tuple[int, int]:
    if not re.fullmatch(r"[0-9]{1,9}(/[0-9]{1,9})?", text, flags=re.ASCII):
        raise _bad("not a length", "--mix", repr(text), "tokens, as 512 or 512/128")
    mean, _, spread = text.partition("/")
    return int(mean), int(spread or 0)


def _option(name: str) -> str:
    return "--" + name.removesuffix("_tokens").replace("_", "-")


def _bad(what: str, where: str, found: str, expected: str) -> Misconfigured:
    return Misconfigured(what, where=where, found=found, expected=expected)
