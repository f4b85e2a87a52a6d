"""What to do next: tables of single looks, and properties of any sequence of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.local.actions import Action, CancelStart, Drain, Flip, Resume, Start, Stop, Turn
from serving.local.reconcile import reconcile
from serving.local.states import MOST_FAILED_STARTS, FailedStarts, LocalState, Replica, Wanted
from serving.types import Phase

STARTING, READY, DRAINING = LocalState.STARTING, LocalState.READY, LocalState.DRAINING


def wanted(prefill: int, decode: int, *, flips: bool = True) -> tuple[Wanted, ...]:
    return (
        Wanted(pool="prefill", phase=Phase.PREFILL, variant="v", replicas=prefill, may_flip=flips),
        Wanted(pool="decode", phase=Phase.DECODE, variant="v", replicas=decode, may_flip=flips),
    )


def one(
    name: str,
    state: LocalState = READY,
    *,
    requests: float | None = 0.0,
    kv: float | None = 0.0,
    at_s: float = 0.0,
    flip_to: str | None = None,
    drained: bool = False,
    ending: bool = False,
) -> Replica:
    pool = {"p": "prefill", "d": "decode"}[name[0]]
    return Replica(
        name=name,
        pool=pool,
        state=state,
        asked_s=at_s,
        ready_s=at_s if state is not STARTING else None,
        requests=requests,
        kv_ratio=kv,
        flip_to=flip_to,
        drained=drained,
        ending=ending,
    )


LOOKS: dict[str, tuple[tuple[Wanted, ...], list[Replica], list[Action]]] = {
    "nothing-there": (wanted(1, 2), [], [Start("prefill"), Start("decode"), Start("decode")]),
    "all-as-wanted": (wanted(1, 1), [one("p1"), one("d1")], []),
    "a-start-counts": (wanted(1, 1), [one("p1", STARTING), one("d1")], []),
    "the-lost-and-the-gone-count-for-nothing": (
        wanted(1, 1),
        [one("p1", LocalState.LOST), one("p2", LocalState.GONE), one("d1")],
        [Start("prefill")],
    ),
    "surplus-drains-the-one-with-least-kv-then-fewest-requests": (
        wanted(1, 1),
        [one("p1"), one("d1", kv=0.5), one("d2", kv=0.1, requests=9), one("d3", kv=0.1)],
        [Drain("d3"), Drain("d2")],
    ),
    "what-is-not-known-drains-last": (
        wanted(1, 1),
        [one("p1"), one("d1", kv=None), one("d2", kv=0.9)],
        [Drain("d2")],
    ),
    "a-start-is-given-up-before-a-ready-one": (
        wanted(1, 1),
        [one("p1"), one("d1"), one("d2", STARTING)],
        [CancelStart("d2")],
    ),
    "the-youngest-start-is-given-up": (
        wanted(1, 1),
        [one("p1"), one("d1", STARTING, at_s=1.0), one("d2", STARTING, at_s=2.0)],
        [CancelStart("d2")],
    ),
    "surplus-there-and-deficit-here-is-a-flip": (
        wanted(2, 1),
        [one("p1"), one("d1"), one("d2", requests=3)],
        [Flip("d1", "prefill")],
    ),
    "of-equal-work-the-youngest-flips": (
        wanted(2, 1),
        [one("p1"), one("d1", at_s=5.0), one("d2", at_s=9.0)],
        [Flip("d2", "prefill")],
    ),
    "no-flip-where-roles-are-fixed": (
        wanted(2, 1, flips=False),
        [one("p1"), one("d1"), one("d2")],
        [Drain("d1"), Start("prefill")],
    ),
    "what-has-not-started-cannot-flip-and-none-that-is-needed-does": (
        wanted(2, 1),
        [one("p1"), one("d1"), one("d2", STARTING)],
        [CancelStart("d2"), Start("prefill")],
    ),
    "a-flip-under-way-counts-where-it-goes": (
        wanted(2, 1),
        [one("p1"), one("d1"), one("d2", DRAINING, flip_to="prefill")],
        [],
    ),
    "a-drained-flip-turns": (
        wanted(2, 1),
        [one("p1"), one("d1"), one("d2", DRAINING, flip_to="prefill", drained=True)],
        [Turn("d2", "prefill")],
    ),
    "a-flip-that-nobody-wants-any-more-ends": (
        wanted(1, 1),
        [one("p1"), one("d1"), one("d2", DRAINING, flip_to="prefill")],
        [Drain("d2")],
    ),
    "what-is-leaving-serves-where-it-is-missed": (
        wanted(1, 1),
        [one("p1"), one("p2", DRAINING, drained=False)],
        [Flip("p2", "decode")],
    ),
    "a-start-that-has-just-begun-gives-way-to-a-flip": (
        wanted(1, 2),
        [one("p1"), one("p2"), one("d1"), one("d2", STARTING, at_s=9.0)],
        [CancelStart("d2"), Flip("p1", "decode")],
    ),
    "a-start-that-has-gone-on-for-a-while-does-not": (
        wanted(1, 2),
        [one("p1"), one("p2"), one("d1"), one("d2", STARTING, at_s=2.0)],
        [Drain("p1")],
    ),
    "a-flip-goes-back-where-it-is-missed": (
        wanted(1, 2),
        [one("p1"), one("d1"), one("d2", DRAINING, flip_to="prefill")],
        [Resume("d2")],
    ),
    "a-drained-one-stops": (
        wanted(1, 1),
        [one("p1"), one("d1"), one("d2", DRAINING, drained=True)],
        [Stop("d2")],
    ),
    "a-draining-one-is-taken-back-before-another-starts": (
        wanted(1, 2),
        [one("p1"), one("d1"), one("d2", DRAINING)],
        [Resume("d2")],
    ),
    "one-that-ends-cannot-be-taken-back": (
        wanted(1, 2),
        [one("p1"), one("d1"), one("d2", DRAINING, ending=True)],
        [Start("decode")],
    ),
    "none-wanted-drains-all": (
        wanted(0, 0),
        [one("p1"), one("d1", STARTING)],
        [Drain("p1"), CancelStart("d1")],
    ),
}


@pytest.mark.parametrize(("want", "there", "actions"), LOOKS.values(), ids=LOOKS)
def test_one_look(want: tuple[Wanted, ...], there: list[Replica], actions: list[Action]) -> None:
    assert list(reconcile(want, there, now_s=10.0)) == actions


def test_flips_can_be_forbidden_for_a_look() -> None:
    there = [one("p1"), one("d1"), one("d2")]

    assert reconcile(wanted(2, 1), there, now_s=10.0, flips=False) == (
        Drain("d1"),
        Start("prefill"),
    )


@pytest.mark.parametrize(
    ("count", "waits_s"), [(0, None), (1, 2.0), (2, 4.0), (3, 8.0), (4, 16.0), (5, None)]
)
def test_failed_starts_wait_longer_each_time(count: int, waits_s: float | None) -> None:
    failed = {"decode": FailedStarts(count=count, last_s=100.0)}

    def starts(now_s: float) -> bool:
        return bool(reconcile(wanted(0, 1), [], now_s=now_s, failed=failed))

    if count == 0:
        assert starts(100.0)
    elif waits_s is None:
        assert count == MOST_FAILED_STARTS
        assert not starts(1e12)
    else:
        assert not starts(100.0 + waits_s - 0.01)
        assert starts(100.0 + waits_s)


def done(there: Sequence[Replica], actions: Sequence[Action], numbers: list[int]) -> list[Replica]:
    """The replicas after the actions, as the supervisor leaves them at once."""
    by_name = {replica.name: replica for replica in there}
    for action in actions:
        match action:
            case Start(pool):
                numbers[0] += 1
                name = f"{pool[0]}-new-{numbers[0]}"
                by_name[name] = one(name, STARTING, at_s=100.0)
            case CancelStart(name):
                del by_name[name]
            case Drain(name):
                by_name[name] = replace(by_name[name], state=DRAINING, flip_to=None)
            case Flip(name, to):
                by_name[name] = replace(by_name[name], state=DRAINING, flip_to=to)
            case Resume(name):
                by_name[name] = replace(by_name[name], state=READY, flip_to=None, drained=False)
            case Turn(name, to):
                by_name[name] = replace(
                    by_name[name], state=READY, pool=to, flip_to=None, drained=False
                )
            case Stop(name):
                by_name[name] = replace(by_name[name], ending=True)
    return list(by_name.values())


@st.composite
def replicas(draw: st.DrawFn) -> list[Replica]:
    found = []
    for index in range(draw(st.integers(0, 8))):
        pool = draw(st.sampled_from(["prefill", "decode"]))
        state = draw(st.sampled_from([STARTING, READY, READY, DRAINING]))
        draining = state is DRAINING
        other = "decode" if pool == "prefill" else "prefill"
        found.append(
            one(
                f"{pool[0]}{index}",
                state,
                requests=draw(st.sampled_from([None, 0.0, 1.0, 5.0])),
                kv=draw(st.sampled_from([None, 0.0, 0.5])),
                at_s=float(draw(st.integers(0, 3))),
                flip_to=draw(st.sampled_from([None, other])) if draining else None,
                drained=draining and draw(st.booleans()),
            )
        )
    return found


@given(there=replicas(), prefill=st.integers(0, 5), decode=st.integers(0, 5), flips=st.booleans())
def test_asked_again_it_only_ends_what_it_had_to_let_drain(
    there: list[Replica], prefill: int, decode: int, flips: bool
) -> None:
    want, numbers = wanted(prefill, decode, flips=flips), [0]
    first = reconcile(want, there, now_s=10.0)
    after = done(there, first, numbers)
    again = reconcile(want, after, now_s=10.0)

    assert all(isinstance(action, Stop | Turn) for action in again)
    after = done(after, again, numbers)
    assert reconcile(want, after, now_s=10.0) == ()
    for pool in want:
        own = sum(
            1
            for r in after
            if not r.ending
            and (r.flip_to == pool.pool or (r.pool == pool.pool and r.state is not DRAINING))
        )
        assert own == pool.replicas


@given(there=replicas(), prefill=st.integers(0, 5), decode=st.integers(0, 5))
def test_no_pool_gives_away_a_ready_replica_that_it_wants(
    there: list[Replica], prefill: int, decode: int
) -> None:
    want = wanted(prefill, decode)
    after = done(there, reconcile(want, there, now_s=10.0), [0])
    for pool in want:
        before, kept = (
            sum(1 for r in group if r.pool == pool.pool and r.state is READY)
            for group in (there, after)
        )
        assert kept >= min(before, pool.replicas)


@given(there=replicas(), prefill=st.integers(0, 5), decode=st.integers(0, 5))
def test_it_never_starts_in_one_pool_what_another_could_flip(
    there: list[Replica], prefill: int, decode: int
) -> None:
    actions = reconcile(wanted(prefill, decode), there, now_s=10.0)
    starts = {action.pool for action in actions if isinstance(action, Start)}
    drained_ready = {
        r.pool
        for r in there
        if r.state is READY and any(isinstance(a, Drain) and a.name == r.name for a in actions)
    }
    assert not (starts and drained_ready)
