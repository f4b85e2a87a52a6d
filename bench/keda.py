"""How quickly KEDA is answered while every tick of 50 tiers runs back to back in another process.

    python bench/keda.py

Three processes: the ticks (plan, ledger and published plan of each tier, one after another with no
pause), `phasewise serve`, and this one, which asks 200 times a second as KEDA does: for each pool
GetMetricSpec, GetMetrics, IsActive. A call's time runs from when it was due, so that one which
waits for another counts too; only calls due while ticks ran are counted. A fourth process does
nothing but wake up, and tells how late the machine itself is. Exits 1 over the target.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import yaml

from autoscaler.keda import externalscaler_pb2 as messages
from autoscaler.keda import externalscaler_pb2_grpc as calls
from autoscaler.ledger import Ledger
from autoscaler.state import LearnedState
from autoscaler.tick import Phasewise
from autoscaler.types import Plan
from phasewise.places import ledger_path
from phasewise.recording import LedgerRecorder
from phasewise.settings import load_settings
from serving.schema.strict_yaml import read_mapping
from serving.schema.tier import demo_tier_path

TIERS = 50
PER_S = 200.0
LASTS_S = 20.0
TARGET_P99_S = 0.025


def write_settings(folder: Path) -> Path:
    """Settings of 50 tiers that are all like the demo's but for their names."""
    names = [f"tier-{number:02d}" for number in range(TIERS)]
    for name in names:
        document: Any = read_mapping(demo_tier_path())
        document["metadata"]["name"] = name
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document))
    file = folder / "phasewise.yaml"
    settings = {
        "tiers": [{"file": f"{name}.yaml", "mode": "act"} for name in names],
        "source": {"httpSd": "http://127.0.0.1:1/sd"},
        "actuator": {"kind": "keda", "url": "http://127.0.0.1:1"},
    }
    file.write_text(yaml.safe_dump(settings))
    return file


def _planning() -> Any:
    spec = importlib.util.spec_from_file_location("planning", Path(__file__).parent / "planning.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _named(plan: Plan, tier: str) -> Plan:
    decisions = tuple(replace(d, pool=replace(d.pool, tier=tier)) for d in plan.decisions)
    return replace(plan, tier=tier, decisions=decisions)


def run_ticks(file: Path) -> None:
    """Tick every tier in turn until the input closes; then say when that was, and how often."""
    planning = _planning()
    policy, at_s = Phasewise(planning.TIER), 0.0

    def scrapes(at_s: float) -> list[Any]:
        return [planning.seen(at_s + offset_s) for offset_s in (5.0, 10.0, 15.0)]

    warm: LearnedState = policy.start()
    for _ in range(planning.WARM_TICKS):
        warm, _plan = policy.tick(warm, scrapes(at_s))
        at_s += 15.0
    settings = load_settings(file)
    states, recorders = {}, {}
    for number in range(TIERS):
        name = f"tier-{number:02d}"
        states[name] = warm
        recorders[name] = LedgerRecorder(
            Ledger(ledger_path(settings, name)),
            planning.TIER,
            warm,
            acts=True,
            max_age_s=86400.0,
            max_bytes=1 << 30,
        )
    print("ready", flush=True)
    sys.stdin.readline()
    ticks, begin_s = 0, time.monotonic()
    end_s = begin_s + LASTS_S
    while time.monotonic() < end_s:
        observations = scrapes(at_s)
        for name, recorder in recorders.items():
            states[name], plan = policy.tick(states[name], observations)
            recorder.record(observations, _named(plan, name), states[name])
            ticks += 1
        at_s += 15.0
    print(json.dumps({"begin_s": begin_s, "end_s": time.monotonic(), "ticks": ticks}), flush=True)


def sleep_lightly() -> None:
    """Wake up every 5 ms until the ticks must be over; print how late, sorted."""
    late_s, end_s = [], time.monotonic() + LASTS_S
    while time.monotonic() < end_s:
        due_s = time.monotonic() + 0.005
        time.sleep(0.005)
        late_s.append(time.monotonic() - due_s)
    print(json.dumps(late_s), flush=True)


class Asker:
    """KEDA's three calls of a poll, in turn, over every pool; keeps when each was due and ended."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = calls.ExternalScalerStub(channel)
        self.times: list[tuple[float, float, float, str]] = []

    async def ask(self, number: int, due_s: float) -> None:
        pool = ("prefill", "decode")[number // 3 % 2]
        tier = f"tier-{number // 6 % TIERS:02d}"
        reference = messages.ScaledObjectRef(scalerMetadata={"tier": tier, "pool": pool})
        sent_s = time.monotonic()
        status = "OK"
        try:
            match number % 3:
                case 0:
                    await self._stub.GetMetricSpec(reference)
                case 1:
                    request = messages.GetMetricsRequest(
                        scaledObjectRef=reference, metricName=f"phasewise-{tier}-{pool}"
                    )
                    await self._stub.GetMetrics(request)
                case _:
                    await self._stub.IsActive(reference)
        except grpc.aio.AioRpcError as error:
            status = error.code().name
        self.times.append((due_s, sent_s, time.monotonic(), status))


async def ask_steadily(address: str, ended: asyncio.Event) -> list[tuple[float, float, float, str]]:
    """Ask 200 times a second, whether or not earlier calls have been answered."""
    async with grpc.aio.insecure_channel(address) as channel:
        asker, number, running = Asker(channel), 0, set()
        begin_s = time.monotonic()
        while not ended.is_set():
            due_s = begin_s + number / PER_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            call = asyncio.ensure_future(asker.ask(number, due_s))
            running.add(call)
            call.add_done_callback(running.discard)
            number += 1
        await asyncio.gather(*running)
        return asker.times


def quantile(values: list[float], ratio: float) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(ratio * len(ranked)))]


async def measure(folder: Path) -> bool:
    file = write_settings(folder)
    pipe = asyncio.subprocess.PIPE
    ticking = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "ticks", str(file), stdin=pipe, stdout=pipe
    )
    serving = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "phasewise", "serve", "-c", str(file), "--port", "0"),
        stdout=pipe,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert ticking.stdin is not None
    assert ticking.stdout is not None
    assert serving.stdout is not None
    try:
        address = json.loads(await serving.stdout.readline())["keda"]
        assert (await ticking.stdout.readline()).strip() == b"ready"
        ended = asyncio.Event()
        asking = asyncio.ensure_future(ask_steadily(address, ended))
        sleeping = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, "sleep"), stdout=pipe, limit=1 << 24
        )
        ticking.stdin.write(b"go\n")
        told = json.loads(await ticking.stdout.readline())
        ended.set()
        times = await asking
        late = json.loads((await sleeping.communicate())[0])
    finally:
        for process in (ticking, serving):
            if process.returncode is None:
                process.terminate()
            await process.wait()
    begin_s = told["begin_s"] + 2.0  # serve has seen every tier's first plan by then
    counted = [t for t in times if begin_s <= t[0] <= told["end_s"]]
    due = [end_s - due_s for due_s, _, end_s, _ in counted]
    sent = [end_s - sent_s for _, sent_s, end_s, _ in counted]
    refused = sum(status != "OK" for *_, status in counted)
    spent_s = told["end_s"] - told["begin_s"]
    print(
        f"{told['ticks']} ticks of {TIERS} tiers in {spent_s:.1f} s, "
        f"{spent_s / told['ticks'] * 1000:.1f} ms each; {os.cpu_count()} CPUs, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print(f"{len(counted)} calls counted at {PER_S:g}/s, {refused} refused")
    for name, values in (
        ("from when due", due),
        ("from when sent", sent),
        ("a sleeper wakes late by", late),
    ):
        print(
            f"{name}: p50 {quantile(values, 0.5) * 1000:.2f} ms, "
            f"p99 {quantile(values, 0.99) * 1000:.2f} ms, worst {max(values) * 1000:.1f} ms"
        )
    good = quantile(due, 0.99) < TARGET_P99_S and refused == 0
    print(
        f"target p99 under {TARGET_P99_S * 1000:g} ms, none refused: {'kept' if good else 'MISSED'}"
    )
    return good


def main() -> int:
    if len(sys.argv) == 3 and sys.argv[1] == "ticks":
        run_ticks(Path(sys.argv[2]))
        return 0
    if sys.argv[1:] == ["sleep"]:
        sleep_lightly()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return 0 if asyncio.run(measure(Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
