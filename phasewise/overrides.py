"""What people asked of pools: checked when it comes, in force until its time, seen by the loop.

Held in memory; every tick writes it into the ledger, from where it is taken up after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from autoscaler.ports import Source
from autoscaler.types import PoolSettings, TierSettings
from serving.errors import Misconfigured
from serving.types import Observation, Override, OverrideKind

LONGEST_S = 7 * 86400.0
_LONGEST_NAME = 64
_FIELDS = ("kind", "pool", "replicas", "for_s", "by")


def override_from(body: object, settings: TierSettings, *, now_s: float) -> Override:
    """An override from a request's JSON; Misconfigured says in one sentence what is wrong."""
    if not isinstance(body, Mapping):
        raise _wrong("body", "not a mapping", f"a mapping with {', '.join(_FIELDS)}")
    unknown = sorted(str(key) for key in body if key not in _FIELDS)
    if unknown:
        raise _wrong(unknown[0][:_LONGEST_NAME], "an unknown field", f"one of {', '.join(_FIELDS)}")
    kinds = [kind.value for kind in OverrideKind]
    kind = body.get("kind")
    if kind not in kinds:
        raise _wrong("kind", repr(kind)[:_LONGEST_NAME], f"one of {', '.join(kinds)}")
    pool = pool_of(body.get("pool"), settings)
    for_s = body.get("for_s")
    if not isinstance(for_s, int | float) or isinstance(for_s, bool) or not 0 < for_s <= LONGEST_S:
        raise _wrong("for_s", repr(for_s)[:_LONGEST_NAME], f"seconds, over 0 to {LONGEST_S:.0f}")
    by = body.get("by")
    if not isinstance(by, str) or not by.strip() or len(by) > _LONGEST_NAME or not by.isprintable():
        raise _wrong(
            "by", repr(by)[:_LONGEST_NAME], f"who asks, in 1 to {_LONGEST_NAME} characters"
        )
    return Override(
        kind=OverrideKind(str(kind)),
        pool=pool.pool.name,
        replicas=_replicas(OverrideKind(str(kind)), body.get("replicas"), pool),
        until_s=now_s + float(for_s),
        by=by.strip(),
    )


def pool_of(name: object, settings: TierSettings) -> PoolSettings:
    """The settings of the pool of that name; Misconfigured names the pools that there are."""
    for pool in settings.pools:
        if pool.pool.name == name:
            return pool
    names = ", ".join(pool.pool.name for pool in settings.pools)
    raise _wrong("pool", repr(name)[:_LONGEST_NAME], f"one of {names}")


def _replicas(kind: OverrideKind, found: object, pool: PoolSettings) -> int | None:
    if kind is OverrideKind.PAUSE:
        if found is not None:
            raise _wrong("replicas", repr(found)[:_LONGEST_NAME], "nothing with a pause")
        return None
    low, high = pool.min_replicas, pool.max_replicas
    if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
        raise _wrong(
            "replicas", repr(found)[:_LONGEST_NAME], f"a whole number from {low} to {high}"
        )
    return found


def _wrong(where: str, found: str, expected: str) -> Misconfigured:
    return Misconfigured("no such override", where=where, found=found, expected=expected)


class OverrideBook:
    """The overrides of one tier, at most one for each pool; a new one takes the old one's place.

    Its time is that of the last look at the tier, virtual in a simulation; `None` before it.
    """

    def __init__(self, known: Iterable[Override] = ()) -> None:
        self._by_pool = {each.pool: each for each in known}
        self.now_s: float | None = None

    def put(self, override: Override) -> None:
        """Let it hold from the next look on."""
        self._by_pool[override.pool] = override

    def drop(self, pool: str) -> bool:
        """Take a pool's override back; whether there was one."""
        return self._by_pool.pop(pool, None) is not None

    def look(self, now_s: float) -> tuple[Override, ...]:
        """Those in force now, by the pools' names; what has ended is forgotten."""
        self.now_s = now_s
        self._by_pool = {k: each for k, each in self._by_pool.items() if now_s < each.until_s}
        return self.known()

    def known(self) -> tuple[Override, ...]:
        """Those that the next look will see, unless they end before it."""
        return tuple(self._by_pool[pool] for pool in sorted(self._by_pool))


class OverriddenSource:
    """A source whose observations carry what people asked for."""

    def __init__(self, source: Source, book: OverrideBook) -> None:
        self._source = source
        self._book = book

    async def observe(self, now_s: float) -> Observation:
        """One look at everything, and at the book."""
        seen = await self._source.observe(now_s)
        return replace(seen, overrides=self._book.look(now_s))
