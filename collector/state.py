"""What the observer remembers between two steps, and its form in JSON.

A checkpoint that is not what `to_json` wrote is `Unavailable`: the observer then begins anew, which
costs one window. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from collector.timeline import History, Track
from serving.errors import Unavailable
from serving.types import HistogramReading, ReplicaReading, ReplicaState, RouterReading

R = TypeVar("R", ReplicaReading, RouterReading)
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverState:
    """Plain values only; a new install starts from `ObserverState()`.

    `states` holds each replica's state at the last step, `known_at_s` per pool when each
    measurement was last known, `said` the sentences that are said only once.
    """

    at_s: float | None = None
    replicas: Mapping[str, Track[ReplicaReading]] = field(default_factory=dict)
    states: Mapping[str, ReplicaState] = field(default_factory=dict)
    router: Track[RouterReading] | None = None
    known_at_s: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    said: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The state in dicts, lists, strings and numbers, for `json.dumps`."""
        return {
            "version": VERSION,
            "at_s": self.at_s,
            "replicas": {name: _track_to_json(track) for name, track in self.replicas.items()},
            "states": {name: state.value for name, state in self.states.items()},
            "router": None if self.router is None else _track_to_json(self.router),
            "known_at_s": {pool: dict(known) for pool, known in self.known_at_s.items()},
            "said": list(self.said),
        }

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> ObserverState:
        """The state that `to_json` wrote; `Unavailable` for anything else."""
        try:
            if document["version"] != VERSION:
                raise Unavailable(
                    f"the observer's checkpoint is of version {document['version']}, not {VERSION}"
                )
            router = document["router"]
            return ObserverState(
                at_s=document["at_s"],
                replicas={
                    name: _track_from_json(track, _replica_reading)
                    for name, track in document["replicas"].items()
                },
                states={n: ReplicaState(state) for n, state in document["states"].items()},
                router=None if router is None else _track_from_json(router, _router_reading),
                known_at_s={pool: dict(known) for pool, known in document["known_at_s"].items()},
                said=tuple(document["said"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unavailable(f"the observer's checkpoint cannot be read: {error!r}") from error


def _track_to_json(track: Track[R]) -> dict[str, Any]:
    return {
        "base": _reading_to_json(track.base),
        "base_at_s": track.base_at_s,
        "read_at_s": track.read_at_s,
        "start_s": track.start_s,
        "cpu_s": track.cpu_s,
        "history": _history_to_json(track.history),
        "before": _history_to_json(track.before),
        "late_s": track.late_s,
        "still_windows": track.still_windows,
    }


def _track_from_json(
    document: Mapping[str, Any], read: Callable[[Mapping[str, Any]], R]
) -> Track[R]:
    history = _history(document["history"])
    if not history:
        raise ValueError("a history without a page")
    return Track(
        base=read(document["base"]),
        base_at_s=document["base_at_s"],
        read_at_s=document["read_at_s"],
        start_s=document["start_s"],
        cpu_s=document["cpu_s"],
        history=history,
        before=_history(document["before"]),
        late_s=document["late_s"],
        still_windows=document["still_windows"],
    )


def _history_to_json(history: History) -> list[Any]:
    return [[at_s, list(progress)] for at_s, progress in history]


def _history(document: Sequence[Any]) -> History:
    return tuple((at_s, tuple(progress)) for at_s, progress in document)


def _reading_to_json(reading: ReplicaReading | RouterReading) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in fields(reading):
        value = getattr(reading, one.name)
        if isinstance(value, HistogramReading):
            value = {
                "bounds": list(value.bounds),
                "cumulative": list(value.cumulative),
                "sum": value.sum,
                "count": value.count,
            }
        if value is not None:
            found[one.name] = value
    return found


def _values(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _histogram(value) if isinstance(value, Mapping) else value
        for name, value in document.items()
    }


def _histogram(document: Mapping[str, Any]) -> HistogramReading:
    return HistogramReading(
        bounds=tuple(document["bounds"]),
        cumulative=tuple(document["cumulative"]),
        sum=document["sum"],
        count=document["count"],
    )


def _replica_reading(document: Mapping[str, Any]) -> ReplicaReading:
    return ReplicaReading(**_values(document))


def _router_reading(document: Mapping[str, Any]) -> RouterReading:
    return RouterReading(**_values(document))
