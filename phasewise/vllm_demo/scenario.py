"""The load of the demo on real engines: two real traces, scaled to two cores, one after the other.

First one of code completion (long prompts, short answers), then one of conversation (short prompts,
long answers): the mix flips at once. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoscaler.types import TierSettings
from serving.load.schedule import Planned, Scaling, Timed, scaled
from serving.types import Slo

SCRAPE_INTERVAL_S = 1.0
TICK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a trace and what makes it fit: `requests_per_s` is the mean that is sent."""

    trace: str
    from_s: float
    seconds: float
    requests_per_s: float
    input_factor: float
    output_factor: float
    input_cap_tokens: int
    output_cap_tokens: int


STRETCHES = (
    Stretch(
        trace="azure2023_code",
        from_s=600.0,
        seconds=50.0,
        requests_per_s=1.2,
        input_factor=0.4,
        output_factor=0.5,
        input_cap_tokens=1400,
        output_cap_tokens=24,
    ),
    Stretch(
        trace="azure2023_conv",
        from_s=600.0,
        seconds=45.0,
        requests_per_s=1.7,
        input_factor=0.15,
        output_factor=0.5,
        input_cap_tokens=400,
        output_cap_tokens=160,
    ),
)


def load_of(stretches: Sequence[tuple[Stretch, Sequence[Timed]]], *, seed: int) -> list[Planned]:
    """What is sent when, from each stretch and its trace's requests."""
    found: list[Planned] = []
    begins_s = 0.0
    for stretch, requests in stretches:
        ends_s = stretch.from_s + stretch.seconds
        within = sum(1 for r in requests if stretch.from_s <= r.arrival_s < ends_s)
        rate_factor = stretch.requests_per_s * stretch.seconds / max(1, within)
        scaling = Scaling(
            rate_factor=rate_factor,
            input_factor=stretch.input_factor,
            output_factor=stretch.output_factor,
            input_cap_tokens=stretch.input_cap_tokens,
            output_cap_tokens=stretch.output_cap_tokens,
            from_s=stretch.from_s,
            seconds=stretch.seconds,
        )
        found += [
            planned._replace(arrival_s=planned.arrival_s + begins_s)
            for planned in scaled(requests, scaling, seed=seed)
        ]
        begins_s += stretch.seconds
    return found


def paced(settings: TierSettings) -> TierSettings:
    """The tier's settings for minutes instead of hours: every window is a quarter or a third.

    A flip that takes an hour in a day's traffic takes two minutes here, so what is remembered of
    the past, and how long less must be enough, are shortened alike.
    """
    return replace(
        settings,
        tick_s=TICK_S,
        level_window_s=15.0,
        down_window_s=20.0,
        backlog_drain_s=20.0,
        fresh_s=6.0,
    )


def slo_words(slo: Slo) -> str:
    """The targets, for a person."""
    return f"first token within {slo.ttft_s:g} s, gaps of {slo.itl_s * 1000:g} ms"
