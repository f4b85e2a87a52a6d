"""Whether KV moves as fast as it should, from the engines' own pages.

What is known is how long transfers took and how many bytes they moved: the rate at which one
transfer ran. That is not the link's throughput when several run at once, so the mean number in
flight is taken into account as far as it is known; what cannot be told is not said. A decode
engine pulls, so only decode pools tell. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from serving.types import PhaseSample

LINK_WINDOW_S = 15.0  # what is judged: the transfers that ended in so many seconds
LEAST_TRANSFERS = 10.0  # in a window, before anything is said of it
SLOW_RATIO = 0.5  # of what is declared or usual
LATENCY_S = 0.005  # of one transfer, whatever its size: small ones are not slow for that
USUAL_AFTER_WINDOWS = 24  # scrapes with transfers, two minutes of them, before a rate is usual
_USUAL_KEPT = 0.98  # of what was learned, at each window: half of it is gone after 34


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPoint:
    """The transfers of one scrape interval, as far as they were seen: sums over the replicas."""

    at_s: float
    window_s: float
    replicas: int
    transfers: float
    sent_bytes: float
    spent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPulls:
    """Transfers that failed in one interval, and the prompt tokens that decode computed in it."""

    at_s: float
    transfers: int
    computed_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkModel:
    """The newest intervals, and what transfers usually did, forgotten slowly."""

    points: tuple[LinkPoint, ...] = ()
    failed: tuple[FailedPulls, ...] = ()
    usual_bytes: float = 0.0
    usual_s: float = 0.0
    usual_windows: int = 0

    @property
    def usual_bytes_per_s(self) -> float | None:
        """What one transfer usually runs at; `None` before enough was seen."""
        if self.usual_windows < USUAL_AFTER_WINDOWS or self.usual_s <= 0.0:
            return None
        return self.usual_bytes / self.usual_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReading:
    """What one transfer ran at in the window. `at_once` is how many ran on a replica, at least 1:
    the mean over the window, so less than in a burst.
    """

    bytes_per_s: float
    transfers: float
    sent_bytes: float
    spent_s: float
    at_once: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink:
    """A link that is slow: what a transfer runs at, and what it should."""

    bytes_per_s: float
    expected_bytes_per_s: float
    is_declared: bool


def point_of(sample: PhaseSample, *, at_s: float) -> LinkPoint | None:
    """The transfers of a sample; `None` where bytes, times or their number are not known."""
    rate = sample.kv_transfer_bytes_per_s
    mean_s = sample.kv_transfer_time_mean_s.value
    transfers = dict(sample.counted).get("kv_transfer_time_mean_s")
    if rate.value is None or mean_s is None or not transfers or sample.window_s <= 0.0:
        return None
    if rate.value <= 0.0 or mean_s <= 0.0 or rate.coverage_ratio <= 0.0:
        return None
    return LinkPoint(
        at_s=at_s,
        window_s=sample.window_s,
        replicas=max(1, sample.replicas_reporting),
        transfers=transfers,
        # the rate is scaled up to replicas that did not report, times and numbers are not
        sent_bytes=rate.value * sample.window_s * min(1.0, rate.coverage_ratio),
        spent_s=mean_s * transfers,
    )


def failed_of(sample: PhaseSample, *, at_s: float) -> FailedPulls | None:
    """The failed pulls of a sample; `None` if none is known to have failed."""
    transfers = round((sample.kv_transfer_failures_per_s.value or 0.0) * sample.window_s)
    if transfers < 1:
        return None
    computed = round((sample.computed_prompt_tokens_per_s.value or 0.0) * sample.window_s)
    return FailedPulls(at_s=at_s, transfers=transfers, computed_tokens=computed)


def learn_link(
    model: LinkModel, sample: PhaseSample, *, at_s: float, declared_bytes_per_s: float | None
) -> LinkModel:
    """The model after one sample of a decode pool. What is slow does not become usual."""
    points = tuple(p for p in model.points if at_s - LINK_WINDOW_S < p.at_s < at_s)
    failed = tuple(f for f in model.failed if at_s - LINK_WINDOW_S < f.at_s < at_s)
    new = failed_of(sample, at_s=at_s)
    model = replace(model, failed=failed if new is None else (*failed, new))
    point = point_of(sample, at_s=at_s)
    if point is None:
        return replace(model, points=points)
    model = replace(model, points=(*points, point))
    if slow_link(model, now_s=at_s, declared_bytes_per_s=declared_bytes_per_s) is not None:
        return model
    return replace(
        model,
        usual_bytes=model.usual_bytes * _USUAL_KEPT + point.sent_bytes,
        usual_s=model.usual_s * _USUAL_KEPT + point.spent_s,
        usual_windows=model.usual_windows + 1,
    )


def earlier_link(model: LinkModel, at_s: float) -> LinkModel:
    """The model without what is later than a time."""
    return replace(
        model,
        points=tuple(p for p in model.points if p.at_s <= at_s),
        failed=tuple(f for f in model.failed if f.at_s <= at_s),
    )


def link_reading(model: LinkModel, *, now_s: float) -> LinkReading | None:
    """The transfers of the last window; `None` where they are too few to tell."""
    recent = [p for p in model.points if p.at_s > now_s - LINK_WINDOW_S]
    transfers = sum(p.transfers for p in recent)
    if transfers < LEAST_TRANSFERS:
        return None
    sent = sum(p.sent_bytes for p in recent)
    spent_s = sum(p.spent_s for p in recent)
    present_s = sum(p.window_s * p.replicas for p in recent)
    return LinkReading(
        bytes_per_s=sent / spent_s,
        transfers=transfers,
        sent_bytes=sent,
        spent_s=spent_s,
        at_once=max(1.0, spent_s / present_s),
    )


def slow_link(
    model: LinkModel, *, now_s: float, declared_bytes_per_s: float | None
) -> SlowLink | None:
    """The link if it is slow; `None` if it is not, and where that is not known.

    Slow: the transfers took longer than at half of the declared rate (the usual one where none is
    declared), with a latency for each, and shared among as many as ran at once.
    """
    usual = model.usual_bytes_per_s
    expected = usual if declared_bytes_per_s is None else declared_bytes_per_s
    seen = link_reading(model, now_s=now_s)
    if seen is None or expected is None or expected <= 0.0:
        return None
    allowed_s = seen.transfers * LATENCY_S + seen.sent_bytes / (SLOW_RATIO * expected)
    if seen.spent_s / seen.at_once <= allowed_s:
        return None
    return SlowLink(
        bytes_per_s=seen.bytes_per_s,
        expected_bytes_per_s=expected,
        is_declared=declared_bytes_per_s is not None,
    )


def slow_link_words(found: SlowLink, pool: str) -> str:
    """The link as a problem, for a person."""
    told = "declared" if found.is_declared else "usual"
    return (
        f"KV transfers to {pool} run at {gigabytes(found.bytes_per_s)} GB/s, "
        f"{gigabytes(found.expected_bytes_per_s)} GB/s {told}: the link between prefill and "
        "decode is slow, which more decode replicas do not mend"
    )


def failed_transfers_words(model: LinkModel, pool: str, *, now_s: float) -> str | None:
    """Pulls that failed in the last window as a problem; `None` if none is known to have failed.

    All looks of the window count, not only the one that a tick ends with. A decode engine that is
    told to recompute makes the KV of such a prompt itself; one that is not answers with an error.
    """
    recent = [f for f in model.failed if now_s - LINK_WINDOW_S < f.at_s <= now_s]
    if not recent:
        return None
    computed = sum(f.computed_tokens for f in recent)
    words = (
        f"{sum(f.transfers for f in recent)} KV transfers to {pool} failed within the last "
        f"{LINK_WINDOW_S:.0f} s: prefill that had the KV has died, or the link is broken"
    )
    return words + (f"; {pool} computed {computed:,} prompt tokens itself" if computed else "")


def gigabytes(amount_bytes: float) -> str:
    """Bytes in units of 1e9, with two digits that say something."""
    amount = amount_bytes / 1e9
    return f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.2g}"
