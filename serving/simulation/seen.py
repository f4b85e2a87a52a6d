"""What the outside sees of each replica's numbers when its page is late, frozen or missing.

Keeps copies of telemetry, not of pages: a page or a reading made from a copy is the one that was
there at that time. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from serving.simulation.replica import SimulatedReplica
from serving.simulation.telemetry import Histogram, ReplicaTelemetry


class SeenTelemetry:
    """Remembers each replica's numbers of the last `keep_s` virtual seconds.

    Call `note` before and after every step of the tier: a fault begins at the first note that
    sees it. A late page of a replica with no memory that old is its oldest one.
    """

    def __init__(self, *, keep_s: float = 60.0, spacing_s: float = 1.0) -> None:
        self._keep_s = keep_s
        self._spacing_s = spacing_s
        self._now_s = 0.0
        self._memory: dict[str, deque[tuple[float, ReplicaTelemetry]]] = {}
        self._frozen: dict[str, ReplicaTelemetry] = {}

    def note(self, replicas: Iterable[SimulatedReplica], now_s: float) -> None:
        """Look at every replica at this instant; forget those that are gone."""
        self._now_s = now_s
        present = set()
        for replica in replicas:
            present.add(replica.name)
            if replica.telemetry is not None:
                self._remember(replica.name, replica.telemetry)
                self._freeze_or_thaw(replica)
        for name in self._memory.keys() - present:
            del self._memory[name]
            self._frozen.pop(name, None)

    def of(self, replica: SimulatedReplica) -> ReplicaTelemetry | None:
        """The numbers that the replica's page shows now; None where there is no page."""
        if replica.telemetry is None or replica.page_fault == "missing":
            return None
        match replica.page_fault:
            case "frozen":
                return self._frozen.get(replica.name, replica.telemetry)
            case ("late", seconds):
                return self._remembered(replica, self._now_s - seconds)
            case _:
                return replica.telemetry

    def remembered_s(self) -> dict[str, tuple[float, ...]]:
        """When each replica was looked at, as far as that is remembered."""
        return {
            name: tuple(noted_s for noted_s, _ in memory) for name, memory in self._memory.items()
        }

    def _freeze_or_thaw(self, replica: SimulatedReplica) -> None:
        if replica.page_fault != "frozen":
            self._frozen.pop(replica.name, None)
        elif replica.name not in self._frozen and replica.telemetry is not None:
            self._frozen[replica.name] = copy_of(replica.telemetry)

    def _remember(self, name: str, telemetry: ReplicaTelemetry) -> None:
        memory = self._memory.setdefault(name, deque())
        if memory and self._now_s - memory[-1][0] < self._spacing_s:
            return
        memory.append((self._now_s, copy_of(telemetry)))
        while len(memory) > 1 and memory[1][0] <= self._now_s - self._keep_s:
            memory.popleft()

    def _remembered(self, replica: SimulatedReplica, at_s: float) -> ReplicaTelemetry | None:
        memory = self._memory.get(replica.name)
        if not memory:
            return replica.telemetry
        earlier = [telemetry for noted_s, telemetry in memory if noted_s <= at_s]
        return earlier[-1] if earlier else memory[0][1]


def copy_of(telemetry: ReplicaTelemetry) -> ReplicaTelemetry:
    """A copy that later iterations do not touch; by plain assignments, as `copy.copy` is slow."""
    result = ReplicaTelemetry.__new__(ReplicaTelemetry)
    for name, value in vars(telemetry).items():
        setattr(result, name, _copy_of(value) if isinstance(value, Histogram) else value)
    return result


def _copy_of(histogram: Histogram) -> Histogram:
    result = Histogram.__new__(Histogram)
    result.bounds = histogram.bounds
    result.counts = histogram.counts.copy()
    result.sum = histogram.sum
    result.count = histogram.count
    return result
