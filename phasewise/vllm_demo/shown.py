"""What the demo on real engines must have shown, and the one sentence that says whether it did.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChange:
    """One size that phasewise asked of a pool, `at_s` after the load began."""

    at_s: float
    pool: str
    before: int
    after: int

    @property
    def words(self) -> str:
        """The change, as `prefill 1 to 2 at 12 s`."""
        return f"{self.pool} {self.before} to {self.after} at {self.at_s:.0f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What was seen. `None`: it was not looked at, which shows nothing.

    `flips` are replicas that changed their role without a restart, `transfers` the KV pulls that
    NIXL made and `transferred_bytes` what they moved; `left` are processes that outlived the tier.
    """

    ready_after_s: float
    requests: int
    failed_requests: int
    output_tokens: int
    attainment_ratio: float | None
    compared_answers: int
    equal_answers: int
    transfers: int | None
    transferred_bytes: int | None
    changes: Sequence[PoolChange]
    flips: int
    left: Sequence[str] = ()

    def faults(self) -> tuple[str, ...]:
        """What did not hold, in words; none if the demo showed what it is for."""
        found: list[str] = []
        if self.requests == 0:
            found.append("no request was sent")
        if self.failed_requests:
            found.append(f"{self.failed_requests} requests failed")
        if self.compared_answers == 0 or self.equal_answers != self.compared_answers:
            found.append(
                f"only {self.equal_answers} of {self.compared_answers} answers are those of one "
                "aggregated engine"
            )
        if not self.transfers or not self.transferred_bytes:
            found.append("no KV was seen to move through NIXL")
        if not any(c.after > c.before for c in self.changes):
            found.append("phasewise made no pool larger")
        if not any(c.after < c.before for c in self.changes) and not self.flips:
            found.append("phasewise made no pool smaller and flipped none")
        if self.left:
            found.append(f"processes were left behind: {', '.join(self.left)}")
        return tuple(found)

    def sentence(self) -> str:
        """The last line of the demo."""
        faults = self.faults()
        verdict = "shown" if not faults else f"NOT shown ({'; '.join(faults)})"
        within = (
            "unknown"
            if self.attainment_ratio is None
            else f"{self.attainment_ratio:.1%} within both targets"
        )
        moved = (
            "unknown bytes"
            if self.transferred_bytes is None
            else f"{self.transferred_bytes / 1e6:,.0f} MB in {self.transfers} transfers"
        )
        return (
            f"{verdict}: two real vLLM engines served after {self.ready_after_s:.0f} s; "
            f"{self.equal_answers} of {self.compared_answers} greedy answers equal one aggregated "
            f"engine's; {self.requests} requests, {self.failed_requests} failed, "
            f"{self.output_tokens:,} tokens, {within}; NIXL moved {moved}; phasewise changed "
            f"{_listed(c.words for c in self.changes)}, with {self.flips} flipped without a restart"
        )


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words) or "nothing"
