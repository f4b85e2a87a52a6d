"""The two suppliers of `phase:*` agree: recording rules in a real Prometheus, and our observer.

A simulated tier plays ten virtual minutes, in which one pool grows and the other shrinks. Every
page is written down at its virtual time, loaded into Prometheus's own storage by promtool, and the
rules' expressions are asked at virtual times. Prometheus reads each page at its own second of an
interval, as it does, or all at once with the observer: nobody waits, nothing is rounded.
"""

from __future__ import annotations

import math
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from alerts.recording import recording_groups
from autoscaler.types import PoolSettings
from collector.aggregates import aggregate
from collector.observe import Member, ObserverState, step
from phasewise.pool_states import pool_states
from serving.catalogue import Unit
from serving.dialects import epp, vllm
from serving.recorded import RECORDED_BY_NAME, Over
from serving.simulation.faults import Fault, FaultKind
from serving.simulation.pages_epp import EppPage
from serving.simulation.pages_vllm import VllmPage
from serving.simulation.profile import load_profile
from serving.simulation.readings import reading_of, router_reading_of
from serving.simulation.tier import PoolPlan, SimulatedTier, TierPlan
from serving.simulation.traffic import Request
from serving.types import Observation, Phase, PoolId, Slo

if TYPE_CHECKING:
    from tests.real.conftest import StartPrometheus

START_S = 1_800_000_000.0
MINUTES = 10
INTERVAL_S = 5
WANTED = vllm.WANTED | epp.WANTED
# the gap on a bound of decode, not of the picker; TTFT on one of the picker's, and between two
SLO = Slo(ttft_s=0.6, itl_s=0.05, attainment_ratio=0.95)
SLO_BETWEEN = Slo(ttft_s=0.7, itl_s=0.05, attainment_ratio=0.95)
HELD_RATIO = 0.02
# a gauge of what lasts milliseconds depends on the instant at which it was read
HELD_READ_IN_TURN = {Unit.REQUESTS: 0.5, Unit.RATIO: 0.005, Unit.REPLICAS: 0.0}
# vLLM adds its host's uptime to these when a pull fails: each supplier leaves out what it can tell
SPOILT = ("phase:queue_time_seconds:mean1m", "phase:prefill_time_seconds:mean1m")
Key = tuple[str, tuple[str, ...]]
Values = Mapping[Key, Mapping[float, float]]
_LINE = re.compile(r"([^{ ]+)(?:\{(.*)\})? (\S+)$")


def _tier(decode_kv_tokens: int) -> SimulatedTier:
    profile = load_profile("llama-3.1-8b-l40s")
    pools = tuple(
        PoolPlan(
            name=phase.value,
            phase=phase,
            variant="l40s",
            profile=profile,
            initial_replicas=4,
            max_model_len=8192,
            kv_capacity_tokens=60_000 if phase is Phase.PREFILL else decode_kv_tokens,
            start_s=40.0,
        )
        for phase in (Phase.PREFILL, Phase.DECODE)
    )
    rng = random.Random(11)
    requests, at_s = [], 0.0
    while at_s < MINUTES * 60.0:
        at_s += rng.expovariate(9.0)
        requests.append(Request(at_s, rng.randint(200, 2500), rng.randint(20, 300)))
    plan = TierPlan(name="demo", model="llama", pools=pools, router_policy="least_load")
    return SimulatedTier(plan, requests, seed=3, start_s=START_S)


def _lines(page: bytes, labels: Mapping[str, str], at_s: float) -> Iterator[str]:
    """A page as OpenMetrics lines with the target's labels and the time, of what is read."""
    target = ",".join(f'{name}="{value}"' for name, value in labels.items())
    for line in page.decode().splitlines():
        found = _LINE.match(line)
        if found is None or found[1] not in WANTED:
            continue
        own = f"{found[2]}," if found[2] else ""
        yield f"{found[1]}{{{own}{target}}} {found[3]} {at_s:.0f}"


@dataclass(frozen=True)
class Played:
    """What the two saw: OpenMetrics text for one, observations for the other."""

    slo: Slo
    text: str
    observations: Sequence[Observation]


def _play(*, in_turn: bool, troubled: bool) -> Played:
    """Play the tier second by second.

    The observer reads all pages every fifth second; Prometheus too, or (`in_turn`) each page at a
    second of its own. In a `troubled` tier decode preempts and KV pulls fail.
    """
    tier = _tier(24_000 if troubled else 60_000)
    slo = SLO if troubled else SLO_BETWEEN
    settings = tuple(
        PoolSettings(
            pool=PoolId(tier="demo", name=plan.name, phase=plan.phase, variant=plan.variant),
            min_replicas=1,
            max_replicas=16,
        )
        for plan in tier.plan.pools
    )
    picker = EppPage(model="llama", inference_pool="demo")
    pages: dict[str, VllmPage] = {}
    state, observations = ObserverState(), []
    lines: list[str] = []
    for second in range(1, MINUTES * 60 + 1):
        tier.advance(1.0)
        now_s = START_S + second
        if second == 150:
            tier.scale("prefill", 5)
        if second == 300:
            tier.scale("decode", 3)
        if troubled and second == 390:  # long enough for leases to run out, so that pulls fail
            tier.inject(Fault(kind=FaultKind.SLOW_LINK, pool="decode", factor=1e-3))
        if troubled and second == 450:
            tier.inject(Fault(kind=FaultKind.CLEAR, pool="decode"))
        replicas = tier.replicas()
        for replica in replicas:
            own = second + int(replica.name[-4:]) * in_turn
            if replica.telemetry is None or own % INTERVAL_S:
                continue
            page = pages.get(replica.name)
            if page is None:
                page = pages[replica.name] = VllmPage(
                    replica.telemetry,
                    model="llama",
                    phase=replica.phase,
                    kv_capacity_tokens=replica.kv_capacity_tokens,
                    block_size_tokens=16,
                    max_model_len=8192,
                )
            labels = {
                **{"instance": replica.name, "replica": replica.name, "job": "vllm"},
                **{"tier": "demo", "pool": replica.pool, "phase": replica.phase.value},
            }
            lines += _lines(page.render(replica.telemetry), labels, now_s)
        if (second + 3 * in_turn) % INTERVAL_S == 0:
            labels = {"instance": "router", "job": "router", "tier": "demo"}
            lines += _lines(picker.render(tier.router, replicas), labels, now_s)
        if second % INTERVAL_S == 0:
            members = {
                r.name: Member(pool=r.pool, state=r.state, created_s=r.created_s) for r in replicas
            }
            readings = {r.name: reading for r in replicas if (reading := reading_of(r, now_s))}
            state, seen = step(
                state,
                now_s=now_s,
                readings=readings,
                router=router_reading_of(tier.router, now_s, source="epp"),
                pools=pool_states(settings, members, {}, now_s=now_s),
                members=members,
                slo=slo,
            )
            observations.append(seen)
    return Played(slo=slo, text="\n".join([*lines, "# EOF\n"]), observations=observations)


def _of_ours(played: Played) -> Values:
    found: dict[Key, dict[float, float]] = defaultdict(dict)
    for index, newest in enumerate(played.observations):
        for one in aggregate(played.observations[max(0, index - 20) : index + 1], tier="demo"):
            found[one.spec.name, one.labels][newest.at_s] = one.value
    return found


def _of_rules(played: Played, start: StartPrometheus, folder: Path) -> Values:
    text, blocks = folder / "pages.txt", folder / "blocks"
    text.write_text(played.text)
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(blocks)],
        check=True,
        capture_output=True,
    )
    # a page that went away is stale after one interval; blocks made of text cannot say that
    flags = ["--storage.tsdb.retention.time=100y", f"--query.lookback-delta={INTERVAL_S + 1}s"]
    prometheus = start({}, data=blocks, flags=flags)
    found: dict[Key, dict[float, float]] = {}
    end_s = START_S + MINUTES * 60.0
    for group in recording_groups([("demo", played.slo)]):
        for rule in group["rules"]:
            names = RECORDED_BY_NAME[rule["record"]].labels
            for row in prometheus.query_range(
                rule["expr"], start_s=START_S + INTERVAL_S, end_s=end_s, step_s=INTERVAL_S
            ):
                labels = tuple(row["metric"][name] for name in names)
                found[rule["record"], labels] = {
                    float(at_s): float(value) for at_s, value in row["values"]
                }
    return found


def _mean(values: Mapping[float, float], since_s: float) -> float | None:
    inside = [v for at_s, v in values.items() if since_s < at_s <= since_s + 300.0]
    return math.fsum(inside) / len(inside) if inside else None


@dataclass(frozen=True)
class Compared:
    """One series over five minutes, from a minute on: ours, the rules', and how far apart."""

    key: Key
    since_min: float
    ours: float | None
    rules: float | None

    @property
    def deviation(self) -> float:
        """Relative to the larger; 0 if both or neither has data and nothing differs."""
        if self.ours is None or self.rules is None:
            return 0.0 if self.ours is self.rules else math.inf
        largest = max(abs(self.ours), abs(self.rules))
        return abs(self.ours - self.rules) / largest if largest else 0.0

    def __str__(self) -> str:
        name = f"{self.key[0]}{{{','.join(self.key[1])}}}"
        return f"{self.deviation:8.3%} {self.ours!s:>22} {self.rules!s:>22}  {name}"


def _compare(ours: Values, rules: Values) -> list[Compared]:
    """Five minutes from minute 2 (prefill grows) and from 5 (decode shrinks), and print them."""
    found = [
        Compared(key, since_min, _mean(ours.get(key, {}), at_s), _mean(rules.get(key, {}), at_s))
        for key in sorted(ours.keys() | rules.keys())
        for since_min in (2.0, 5.0)
        for at_s in [START_S + since_min * 60.0]
    ]
    finite = [one.deviation for one in found if math.isfinite(one.deviation)]
    rows = [str(one) for one in sorted(found, key=lambda one: -one.deviation)]
    rows += [f"worst {max(finite):.3%}, mean {sum(finite) / len(finite):.3%} of {len(found)}\n"]
    sys.stdout.write("\n".join(rows))
    return found


def test_of_pages_read_at_the_same_instant_they_agree_even_in_trouble(
    start_prometheus: StartPrometheus, tmp_path: Path
) -> None:
    played = _play(in_turn=False, troubled=True)
    ours, rules = _of_ours(played), _of_rules(played, start_prometheus, tmp_path)
    compared = _compare(ours, rules)
    spoilt = [
        one
        for one in compared
        if one.key[0] in SPOILT and "decode" in one.key[1] and one.since_min == 5.0
    ]

    assert {name for name, _ in ours} == {name for name, _ in rules} == set(RECORDED_BY_NAME)
    assert [str(c) for c in compared if c.deviation > HELD_RATIO and c not in spoilt] == []
    for supplier in (ours, rules):  # no uptime of a host in any mean, at any time
        times = [v for key, series in supplier.items() if key[0] in SPOILT for v in series.values()]
        assert min(times) >= 0.0
        assert max(times) < MINUTES * 60.0


def test_of_pages_read_in_turn_they_agree_within_two_per_cent(
    start_prometheus: StartPrometheus, tmp_path: Path
) -> None:
    played = _play(in_turn=True, troubled=False)
    ours, rules = _of_ours(played), _of_rules(played, start_prometheus, tmp_path)

    def held(one: Compared) -> bool:
        spec = RECORDED_BY_NAME[one.key[0]]
        if spec.over is not Over.NEWEST or one.ours is None or one.rules is None:
            return one.deviation <= HELD_RATIO
        room = HELD_READ_IN_TURN[spec.unit]
        return one.deviation <= HELD_RATIO or abs(one.ours - one.rules) <= room

    assert [str(one) for one in _compare(ours, rules) if not held(one)] == []
