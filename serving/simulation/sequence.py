"""One request's way through the tier, and its stay on one replica. Plain mutable records."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving.simulation.replica import SimulatedReplica


class Leg(IntEnum):
    """Where a request is, as the router sees it."""

    HELD = 0
    PREFILL = 1
    DECODE = 2
    ENDED = 3


class Flight:
    """One request as the router sees it: where it goes, and how far it has come."""

    __slots__ = (
        *("arrival_s", "decode", "dispatched_s", "first_token_s", "index", "input_tokens", "leg"),
        *("output_tokens", "prefill"),
    )

    def __init__(
        self, *, index: int, arrival_s: float, input_tokens: int, output_tokens: int
    ) -> None:
        self.index = index
        self.arrival_s = arrival_s
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.leg = Leg.HELD
        self.dispatched_s = arrival_s
        self.first_token_s = 0.0
        self.prefill: SimulatedReplica | None = None
        self.decode: SimulatedReplica | None = None


class Sequence:
    """A request on one replica, in the engine's own words.

    `context_tokens` is what must be in the KV cache before its next token: the prompt, and after a
    preemption also what had been generated. `computed_tokens` of them are done. `source` is, on
    decode, the prefill sequence whose KV is pulled; that one knows its lease and whether somebody
    pulls it.
    """

    __slots__ = (
        *("arrived_s", "being_pulled", "computed_tokens", "context_tokens", "finish_step"),
        *("first_token_s", "flight", "generated_tokens", "joined_step", "last_token_s"),
        *("lease_end_s", "max_tokens", "preemptions", "prompt_tokens", "pull_start_s", "replica"),
        *("scheduled_s", "source"),
    )

    def __init__(
        self,
        flight: Flight,
        replica: SimulatedReplica,
        *,
        arrived_s: float,
        max_tokens: int,
        source: Sequence | None = None,
    ) -> None:
        self.flight = flight
        self.replica = replica
        self.arrived_s = arrived_s
        self.prompt_tokens = flight.input_tokens
        self.context_tokens = flight.input_tokens
        self.max_tokens = max_tokens
        self.source = source
        self.computed_tokens = 0
        self.generated_tokens = 0
        self.preemptions = 0
        self.scheduled_s = -1.0
        self.first_token_s = -1.0
        self.last_token_s = -1.0
        self.joined_step = 0
        self.finish_step = 0
        self.pull_start_s = 0.0
        self.lease_end_s = 0.0
        self.being_pulled = False
