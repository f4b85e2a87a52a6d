"""The front end of a simulated tier: it picks replicas and counts what the user sees.

Both replicas of a disaggregated request are picked at its arrival. Without a ready replica in
every phase it holds requests, first come first served. It retries nothing.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import random
from collections import deque
from operator import attrgetter

from serving.simulation.outcomes import Outcomes
from serving.simulation.plan import RouterPolicy
from serving.simulation.replica import SimulatedReplica
from serving.simulation.sequence import Flight, Leg
from serving.simulation.telemetry import RouterTelemetry
from serving.types import Phase

_load = attrgetter("load")


class Router:
    """Where requests go, and the counters of `RouterTelemetry`.

    `least_load` picks the least outstanding prompt tokens (prefill) or requests (decode and
    aggregated), the older replica on a tie; `power_of_two` the lesser of two drawn ones.
    """

    def __init__(
        self, *, policy: RouterPolicy, aggregated: bool, outcomes: Outcomes, seed: int
    ) -> None:
        self.telemetry = RouterTelemetry()
        self.outcomes = outcomes
        self.aggregated = aggregated
        self.ready: dict[Phase, list[SimulatedReplica]] = {phase: [] for phase in Phase}
        self.held: deque[Flight] = deque()
        self._policy = policy
        self._rng = random.Random(seed)
        self._turn = {phase: 0 for phase in Phase}

    def add(self, replica: SimulatedReplica) -> None:
        """A replica is ready: it may be picked."""
        self.ready[replica.phase].append(replica)
        telemetry = self.telemetry
        telemetry.attempts.setdefault(replica.name, 0)
        if replica.phase is Phase.PREFILL:
            telemetry.active_prefill_requests[replica.name] = 0
            telemetry.active_prefill_tokens[replica.name] = 0
            telemetry.prefill_requests.setdefault(replica.name, 0)
        else:
            telemetry.active_decode_requests[replica.name] = 0
            telemetry.pending_decode_requests[replica.name] = 0
            telemetry.decode_requests.setdefault(replica.name, 0)

    def remove(self, replica: SimulatedReplica) -> None:
        """Send it nothing new: it drains, or is gone."""
        if replica in self.ready[replica.phase]:
            self.ready[replica.phase].remove(replica)

    def forget(self, replica: SimulatedReplica) -> None:
        """A replica has vanished, and with it its gauges."""
        self.remove(replica)
        self.telemetry.active_prefill_requests.pop(replica.name, None)
        self.telemetry.active_prefill_tokens.pop(replica.name, None)
        self.telemetry.active_decode_requests.pop(replica.name, None)
        self.telemetry.pending_decode_requests.pop(replica.name, None)

    def can_route(self) -> bool:
        """Whether every phase has a ready replica."""
        if self.aggregated:
            return bool(self.ready[Phase.BOTH])
        return bool(self.ready[Phase.PREFILL] and self.ready[Phase.DECODE])

    def hold(self, flight: Flight) -> None:
        """Keep a request until replicas are ready."""
        self.telemetry.failed_attempts += 1
        self.held.append(flight)
        self.telemetry.held = len(self.held)

    def pop_held(self) -> Flight:
        """The request that has been held longest."""
        flight = self.held.popleft()
        self.telemetry.held = len(self.held)
        return flight

    def assign(self, flight: Flight, now_s: float) -> SimulatedReplica:
        """Pick the replicas of a request, and return the one that it goes to first."""
        telemetry = self.telemetry
        flight.dispatched_s = now_s
        if self.aggregated:
            telemetry.decode_only_decisions += 1
            replica = self._pick(Phase.BOTH)
            telemetry.attempts[replica.name] += 1
            self._enter_decode(flight, replica)
            return replica
        telemetry.disaggregated_decisions += 1
        prefill, decode = self._pick(Phase.PREFILL), self._pick(Phase.DECODE)
        telemetry.attempts[prefill.name] += 1
        telemetry.attempts[decode.name] += 1
        telemetry.prefill_requests[prefill.name] += 1
        telemetry.active_prefill_requests[prefill.name] += 1
        telemetry.active_prefill_tokens[prefill.name] += flight.input_tokens
        telemetry.pending_decode_requests[decode.name] += 1
        flight.leg, flight.prefill, flight.decode = Leg.PREFILL, prefill, decode
        prefill.load += flight.input_tokens
        decode.load += 1
        decode.expected += 1
        return prefill

    def hand_over(self, flight: Flight, now_s: float) -> SimulatedReplica:
        """Prefill has answered: on to decode, even if that replica drains by now."""
        self._exit_prefill(flight)
        self.telemetry.decode_pending_s_sum += now_s - flight.dispatched_s
        self.telemetry.decode_pending_count += 1
        decode = flight.decode
        assert decode is not None
        decode.load -= 1  # counted as pending until now
        self._enter_decode(flight, decode)
        return decode

    def first_token(self, flight: Flight, now_s: float) -> None:
        """The user has the first token."""
        ttft_s = now_s - flight.arrival_s
        flight.first_token_s = now_s
        self.outcomes.ttft_s[flight.index] = ttft_s
        self.telemetry.ttft.observe(ttft_s)

    def finish(self, flight: Flight, now_s: float) -> None:
        """The user has the whole answer."""
        telemetry, gaps = self.telemetry, flight.output_tokens - 1
        self._exit_decode(flight)
        self.outcomes.finished[flight.index] = 1
        telemetry.running -= 1
        telemetry.input_tokens.observe(flight.input_tokens)
        telemetry.cached_tokens.observe(0)
        telemetry.output_tokens.observe(flight.output_tokens)
        telemetry.request_duration.observe(now_s - flight.arrival_s)
        if gaps:
            mean_itl_s = (now_s - flight.first_token_s) / gaps
            self.outcomes.mean_itl_s[flight.index] = mean_itl_s
            telemetry.tpot.observe(mean_itl_s)

    def fail(self, flight: Flight) -> None:
        """The request ends with an error, wherever it is; nothing is tried again."""
        if flight.leg is Leg.PREFILL:
            self.telemetry.prefill_errors += 1
            self._exit_prefill(flight)
            if flight.decode is not None:
                flight.decode.load -= 1
        elif flight.leg is Leg.DECODE:
            self.telemetry.decode_errors += 1
            self._exit_decode(flight)
        flight.leg = Leg.ENDED
        self.outcomes.failed[flight.index] = 1
        self.telemetry.failed += 1
        self.telemetry.running -= 1

    def _pick(self, phase: Phase) -> SimulatedReplica:
        ready = self.ready[phase]
        if self._policy == "least_load" or len(ready) == 1:
            return min(ready, key=_load)
        if self._policy == "power_of_two":
            return min(self._rng.sample(ready, 2), key=_load)
        self._turn[phase] += 1
        return ready[self._turn[phase] % len(ready)]

    def _enter_decode(self, flight: Flight, replica: SimulatedReplica) -> None:
        flight.leg, flight.decode = Leg.DECODE, replica
        replica.load += 1
        self.telemetry.decode_requests[replica.name] += 1
        if replica.name in self.telemetry.active_decode_requests:
            self.telemetry.active_decode_requests[replica.name] += 1

    def _exit_prefill(self, flight: Flight) -> None:
        prefill, decode, telemetry = flight.prefill, flight.decode, self.telemetry
        assert prefill is not None
        assert decode is not None
        prefill.load -= flight.input_tokens
        decode.expected -= 1
        if prefill.name in telemetry.active_prefill_tokens:
            telemetry.active_prefill_requests[prefill.name] -= 1
            telemetry.active_prefill_tokens[prefill.name] -= flight.input_tokens
        if decode.name in telemetry.pending_decode_requests:
            telemetry.pending_decode_requests[decode.name] -= 1

    def _exit_decode(self, flight: Flight) -> None:
        decode = flight.decode
        assert decode is not None
        flight.leg = Leg.ENDED
        decode.load -= 1
        if decode.name in self.telemetry.active_decode_requests:
            self.telemetry.active_decode_requests[decode.name] -= 1
