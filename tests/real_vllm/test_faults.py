"""What becomes of a real tier, and of its requests, when something of it dies or its link is slow.

Requests come in an open loop while phasewise steers. Each fault must be stated within 15 s and be
mended where it can be; only requests that were in the hands of what died may fail.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from rich.console import Console

from serving.load.asking import Prompts
from serving.load.outcomes import Failure, RequestOutcome
from serving.load.parity import answer
from serving.load.schedule import Mix, Planned, mixed
from tests.real_vllm.live import LivePair, environment, live_pair
from tests.real_vllm.steered import (
    Load,
    Steered,
    blamed,
    command,
    in_own_network,
    steered_tier,
    unix_s,
)

pytestmark = pytest.mark.vllm

SCREEN = Console(width=180, markup=False, highlight=False)
STATED_WITHIN_S = 15.0
HEALED_WITHIN_S = 180.0
TAKEN_OVER_S = 1.0
"""By then something else answers at the address of a dead process."""
COMPUTED = 'vllm:prompt_tokens_by_source_total{engine="0",model_name="tiny",source="local_compute"}'
TIER = """
apiVersion: phasewise.dev/v1alpha1
kind: Tier
metadata: {name: faults}
spec:
  model: tiny
  slo: {ttftSeconds: 5, itlSeconds: 0.2}
  variants:
    - name: cpu
      acceleratorType: CPU
      # 32 blocks: decode is soon full, and prefill keeps the KV of those that wait for it
      engine: {maxNumSeqs: 16, maxModelLenTokens: 2048, kvCapacityTokens: 4096}
      local:
        model: {layers: LAYERS, hiddenSize: 128, attentionHeads: 8, kvHeads: 8, headDim: 128}
        stepDelay: {baseSeconds: DELAY, secondsPerPrefillToken: 0.0002}
  pools:
    - {name: prefill, phase: prefill, variant: cpu, replicas: {min: EACH, max: EACH}}
    - {name: decode, phase: decode, variant: cpu, replicas: {min: EACH, max: EACH}}
  kvTransfer: {bytesPerSecondPerReplica: DECLARED}
  router: {kind: vllm-router, policy: round_robin}
"""
DECLARED_BYTES_PER_S = 300e6
"""Less than loopback carries by TCP, more than twice of what 1 Gbit/s does."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """A row of the table in docs/local.md, as measured."""

    fault: str
    stated_s: float
    healed_s: float
    sent: int
    lost: tuple[RequestOutcome, ...]

    def show(self) -> None:
        """Print the row, and every lost request."""
        SCREEN.print(
            f"\n{self.fault}: stated after {self.stated_s:.1f} s, healed after "
            f"{self.healed_s:.1f} s, {len(self.lost)} of {self.sent} requests lost"
        )
        for one in self.lost:
            SCREEN.print(f"  lost: {one.request_id} sent at {one.sent_s:.1f} s, {one.words[:200]}")
        SCREEN.print(f"  {dict(Counter(str(one.failure) for one in self.lost))}")


def load_of(
    rate_per_s: float, seconds: float, tokens: tuple[int, int], *, seed: int
) -> list[Planned]:
    """Poisson arrivals of so many prompt and answer tokens, give or take a quarter or a half."""
    prompt, answer = tokens
    mix = Mix(
        rate_per_s=rate_per_s,
        input_tokens_mean=prompt,
        input_tokens_spread=prompt // 4,
        output_tokens_mean=answer,
        output_tokens_spread=answer // 2,
        seconds=seconds,
    )
    return list(mixed([mix], seed=seed))


def tier_file(folder: Path, **words: object) -> Path:
    """The tier document with its figures."""
    text = TIER.replace("DECLARED", str(round(DECLARED_BYTES_PER_S)))
    for word, value in words.items():
        text = text.replace(word, str(value))
    file = folder / "tier.yaml"
    file.write_text(text)
    return file


async def until(holds: Callable[[], bool], *, within_s: float, what: str) -> float:
    """Wait; how long it took."""
    began_s = time.monotonic()
    while not holds():
        assert time.monotonic() - began_s < within_s, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(0.1)
    return time.monotonic() - began_s


async def serves_all(tier: Steered, *, seed: int) -> None:
    """A little load of which nothing may fail."""
    load = Load(tier, load_of(2.0, 4.0, (600, 20), seed=seed), seed=seed)
    assert [one.words for one in await load.done() if one.failure is not None] == []


async def replica_killed(tier: Steered, phase: str, *, seed: int) -> Told:
    """One of two replicas of a phase killed while decode is full and prefill keeps KV for it."""
    load = Load(tier, load_of(2.5, 14.0, (700, 80), seed=seed), seed=seed)
    await asyncio.sleep(4.0)
    while True:
        kept = await tier.replica("prefill", most="kv_ratio")
        full = await tier.replica("decode", most="requests")
        if kept["kv_ratio"] > 0.3 and full["requests"] > 4:
            break
        assert load.under_way, "decode was never full"
        await asyncio.sleep(0.2)
    victim = kept if phase == "prefill" else full
    computed_before = await tier.sums("decode", COMPUTED)
    killed_s = await tier.kill(victim["replica"])
    stated = await tier.until_event({"lost"}, killed_s, within_s=STATED_WITHIN_S)
    assert stated["replica"] == victim["replica"]
    outcomes = await load.done()
    computed = await tier.sums("decode", COMPUTED) - computed_before
    healed = await tier.until_event({"ready"}, killed_s, within_s=HEALED_WITHIN_S)
    await serves_all(tier, seed=seed + 1)
    told = Told(
        fault=f"{phase} killed",
        stated_s=stated["at_s"] - killed_s,
        healed_s=healed["at_s"] - killed_s,
        sent=load.sent,
        lost=tuple(one for one in outcomes if one.failure is not None),
    )
    told.show()
    SCREEN.print(f"  {stated['words']}")
    for event in await tier.events(killed_s):
        if event["kind"] == "stood-in":
            SCREEN.print(f"  {event['words']}")
    at_s = killed_s - load.began_s
    for one in told.lost:
        assert blamed(one) in (victim["address"], None), one
        assert one.sent_s < at_s + TAKEN_OVER_S, one
        assert at_s - 0.5 < one.ended_s < at_s + STATED_WITHIN_S, one
    # its page is a second old when it dies, and a few more may have come since
    assert len(told.lost) <= stated["lost_requests"] + 5
    if phase == "prefill":
        SCREEN.print(f"  decode computed {computed:,.0f} prompt tokens itself")
        assert computed > 100  # of those whose KV was still at the dead prefill
        said = [p for plan in tier.plans if plan.at_s > killed_s - 2.0 for p in plan.problems]
        SCREEN.print(f"  plan: {said[:1]}")
        assert any("KV transfers to decode failed" in words for words in said)
    return told


async def router_killed(tier: Steered, *, seed: int) -> Told:
    """All that it had is lost; what comes while it starts again is held."""
    load = Load(tier, load_of(2.5, 10.0, (400, 30), seed=seed), seed=seed)
    await asyncio.sleep(5.0)
    killed_s = await tier.kill("router")
    at_s = killed_s - load.began_s
    stated = await tier.until_event({"router-lost"}, killed_s, within_s=STATED_WITHIN_S)
    healed = await tier.until_event({"router-ready"}, killed_s, within_s=HEALED_WITHIN_S)
    outcomes = await load.done()
    await serves_all(tier, seed=seed + 1)
    told = Told(
        fault="router killed",
        stated_s=stated["at_s"] - killed_s,
        healed_s=healed["at_s"] - killed_s,
        sent=load.sent,
        lost=tuple(one for one in outcomes if one.failure is not None),
    )
    told.show()
    SCREEN.print(f"  {stated['words']}")
    for one in told.lost:
        assert one.sent_s < at_s + TAKEN_OVER_S, one
        assert at_s - 0.5 < one.ended_s < at_s + TAKEN_OVER_S, one
        assert one.failure in (Failure.CONNECTION, Failure.CUT_SHORT), one
    return told


async def kills(folder: Path) -> None:
    """One tier, three deaths."""
    file = tier_file(folder, LAYERS=4, DELAY=0.04, EACH=2)
    async with steered_tier(file, folder / "up") as tier:
        await serves_all(tier, seed=1)
        for told in (
            await replica_killed(tier, "prefill", seed=10),
            await replica_killed(tier, "decode", seed=20),
            await router_killed(tier, seed=30),
        ):
            assert told.stated_s <= STATED_WITHIN_S


def test_a_killed_process_is_stated_and_replaced_and_only_what_it_held_is_lost(
    tmp_path: Path,
) -> None:
    environment()
    asyncio.run(kills(tmp_path))


def slow_words(tier: Steered) -> str | None:
    """What the newest plan says of the link."""
    if not tier.plans:
        return None
    return next((p for p in tier.plans[-1].problems if "link between" in p), None)


async def shaped(folder: Path) -> None:
    """Long prompts whose KV goes by TCP over loopback, which is made slow and fast again."""
    file = tier_file(folder, LAYERS=8, DELAY=0.002, EACH=1)
    async with steered_tier(file, folder / "up", "--ucx-tls", "tcp,self") as tier:
        load = Load(tier, load_of(1.2, 100.0, (700, 6), seed=40), seed=40)
        await asyncio.sleep(20.0)
        await until(lambda: slow_words(tier) is None, within_s=30.0, what="a link that is fast")
        command("tc qdisc add dev lo root tbf rate 1gbit burst 256kb latency 50ms")
        shaped_s = unix_s()
        await until(
            lambda: slow_words(tier) is not None, within_s=STATED_WITHIN_S, what="it is said"
        )
        stated_s, words = unix_s() - shaped_s, slow_words(tier)
        await asyncio.sleep(5.0)
        command("tc qdisc del dev lo root")
        healed_s = await until(
            lambda: slow_words(tier) is None, within_s=60.0, what="it is said no more"
        )
        outcomes = await load.done()
        told = Told(
            fault="KV link at 1 Gbit/s",
            stated_s=stated_s,
            healed_s=healed_s,
            sent=load.sent,
            lost=tuple(one for one in outcomes if one.failure is not None),
        )
        told.show()
        SCREEN.print(f"  {words}")
        assert told.lost == ()
        desired = {d.pool.name: d.replicas for plan in tier.plans for d in plan.decisions}
        assert set(desired.values()) <= {1, None}


def test_a_slow_kv_link_is_stated_and_no_longer_once_it_is_fast_again(tmp_path: Path) -> None:
    environment()
    in_own_network(lambda: shaped(tmp_path))


async def completion(address: str, **body: Any) -> dict[str, Any]:
    """An engine's whole answer, which must be one."""
    body = {"model": "tiny", "temperature": 0.0, "ignore_eos": True, **body}
    async with (
        aiohttp.ClientSession(trust_env=False) as session,
        session.post(f"http://{address}/v1/completions", json=body) as response,
    ):
        found: dict[str, Any] = await response.json()
        assert response.status == 200, found
        return found


def kill_listener(port: int) -> None:
    """SIGKILL to an engine and all that came from it."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"--port\0%d\0" % port in line:
            os.killpg(os.getpgid(int(entry.name)), signal.SIGKILL)
            return
    raise AssertionError(f"nobody listens at {port}")


async def handed_over_by_the_dead(pair: LivePair) -> tuple[list[str], list[str]]:
    """Answers to prompts whose prefill died with their KV, and those of an engine alone."""
    prefill, decode = pair.engines
    prompts = [Prompts(seed=5).ids(number, 60 + 400 * number) for number in range(4)]
    handed = [
        await completion(
            prefill.address,
            prompt=prompt,
            max_tokens=1,
            kv_transfer_params={"do_remote_decode": True, "do_remote_prefill": False},
        )
        for prompt in prompts
    ]
    kill_listener(prefill.http_port)
    answers = [
        await completion(
            decode.address,
            prompt=prompt,
            max_tokens=24,
            kv_transfer_params=one["kv_transfer_params"],
        )
        for prompt, one in zip(prompts, handed, strict=True)
    ]
    alone = [
        await answer(pair.alone_url, prompt, model="tiny", output_tokens=24) for prompt in prompts
    ]
    return [one["choices"][0]["text"] for one in answers], [one.text for one in alone]


def test_decode_answers_rightly_where_prefill_died_with_the_kv(tmp_path: Path) -> None:
    with live_pair(tmp_path, with_alone=True) as pair:
        answers, alone = asyncio.run(handed_over_by_the_dead(pair))

    assert answers == alone
    assert len(set(answers)) == len(answers)
