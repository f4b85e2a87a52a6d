"""When a draining replica owes nobody anything any more. Pure: no clock, no network, no log.

First the router must have stopped to choose it; then the router must have nothing under way for it
(a request is given its decode replica when it comes, long before that hears of it); then the engine
must be empty. Prefill keeps KV until decode has fetched it, or until its lease is over.
"""

from __future__ import annotations

from dataclasses import dataclass

from serving.local.figures import Figures
from serving.types import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainLook:
    """What was seen of a draining replica in one look, the router first.

    `router_has` is `None` if the router did not answer, 0 if it is dead: so is what it had.
    `empty_for_s`: how long no request was running or waiting, as far as looks tell.
    """

    forgotten: bool
    router_has: float | None
    figures: Figures | None
    empty_for_s: float


def waits_for(look: DrainLook, phase: Phase, *, lease_s: float) -> str | None:
    """What the drain still waits for, in words; `None` when it is over."""
    if not look.forgotten:
        return "the router to stop choosing it"
    if look.router_has is None:
        return "the router to say what is under way"
    if look.router_has > 0.0:
        return f"{look.router_has:g} requests that the router has for it"
    if look.figures is None or look.figures.requests is None:
        return "its page"
    if look.figures.requests > 0.0:
        return f"{look.figures.requests:g} requests"
    keeps = phase is Phase.PREFILL and (look.figures.kv_ratio is None or look.figures.kv_ratio > 0)
    if keeps and look.empty_for_s < lease_s:
        return "decode to fetch its KV, or the lease to end"
    return None
