"""`phasewise demo-vllm`: real vLLM, real NIXL, a real trace, and the loop that sizes both pools.

Brings a local tier up, asks it and one aggregated engine the same, then lets phasewise steer it
while the mix of the load flips; takes it down and says in one sentence what was shown.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from autoscaler.types import TierSettings
from phasewise.api import Api, ApiSettings
from phasewise.comparison import trace_path
from phasewise.console import Show, open_browser, show_nowhere
from phasewise.own_metrics import OwnMetrics
from phasewise.tier_setup import tier_settings
from phasewise.vllm_demo.local_process import LocalProcess
from phasewise.vllm_demo.moved import Moved, moved_by_nixl
from phasewise.vllm_demo.scenario import (
    STRETCHES,
    load_of,
    paced,
    slo_words,
)
from phasewise.vllm_demo.shown import PoolChange, Shown
from phasewise.vllm_demo.steering import Steering
from serving.load.asking import Prompts
from serving.load.generator import LoadSettings, play
from serving.load.outcomes import Outcomes, attainment_ratio
from serving.load.parity import Parity, compare
from serving.local.keeper import processes_of
from serving.local.run_state import read_state
from serving.schema.tier import Tier, load_tier
from serving.simulation.traffic import load_trace

TIER_FILE = Path(__file__).with_name("tier.yaml")
_PROMPTS, _ANSWER_TOKENS, _SETTLE_S = 50, 5, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmDemoRequest:
    """The options of the command, as given."""

    seed: int = 1
    headless: bool = False
    json_file: Path | None = None
    ledger_file: Path = Path("out/demo-vllm.sqlite")
    folder: Path = Path(".cache/local-demo")


async def _loaded(
    asked: VllmDemoRequest,
    tier: Tier,
    settings: TierSettings,
    process: LocalProcess,
    console: Console,
) -> tuple[Outcomes, list[PoolChange]]:
    """The whole load, under phasewise."""
    traces = [(s, load_trace(trace_path(s.trace))) for s in STRETCHES]
    schedule = load_of(traces, seed=asked.seed)
    steering = Steering(settings, process, console)
    async with AsyncExitStack() as stack:
        own = OwnMetrics(version=version("phasewise"))
        api = await stack.enter_async_context(Api((), ApiSettings(port=0, metrics=own.page)))
        console.print(f"console: {api.address} while this plays")
        if not asked.headless:
            await open_browser(api.address)
        show: Show = api.show if api.address else show_nowhere
        run = asyncio.create_task(steering.run(asked.ledger_file, show, own, tier.spec.model))
        console.print(
            f"load: {len(schedule)} requests in {sum(s.seconds for s in STRETCHES):.0f} s, "
            f"{STRETCHES[0].trace} then {STRETCHES[1].trace}; {slo_words(tier.slo)}"
        )
        sending = asyncio.create_task(
            play(
                process.router,
                schedule,
                LoadSettings(model=tier.spec.model, prompts=Prompts(seed=asked.seed)),
            )
        )
        try:
            done, _ = await asyncio.wait({run, sending}, return_when=asyncio.FIRST_COMPLETED)
            if run in done:
                run.result()
            outcomes = await sending
            await asyncio.sleep(_SETTLE_S)
        finally:
            for task in (run, sending):
                task.cancel()
            await asyncio.gather(run, sending, return_exceptions=True)
    return outcomes, steering.changes


async def _parity(process: LocalProcess, tier: Tier, seed: int, console: Console) -> Parity:
    """Greedy answers through prefill, NIXL and decode, against those of one engine alone."""
    replicas = (await process.ask("/status"))["replicas"]
    alone = next(r["address"] for r in replicas if r["phase"] == "decode")
    prompts = Prompts(seed=seed + 1000)
    asked = [prompts.ids(i, 20 + 37 * i % 200) for i in range(_PROMPTS)]
    parity = await compare(
        process.router,
        f"http://{alone}",
        asked,
        model=tier.spec.model,
        output_tokens=_ANSWER_TOKENS,
    )
    console.print(f"one request at a time: {parity.words}")
    return parity


async def _demo(asked: VllmDemoRequest, console: Console) -> tuple[Shown, dict[str, Any]]:
    tier = load_tier(TIER_FILE)
    settings = paced(tier_settings(tier))
    process = LocalProcess(TIER_FILE, asked.folder, say=console.print)
    listening_s = time.monotonic()

    def on_listening() -> None:
        nonlocal listening_s
        listening_s = time.monotonic()

    run_id = ""
    try:
        await process.start(on_listening=on_listening)
        ready_after_s = time.monotonic() - listening_s
        run_id = str((read_state(asked.folder) or {}).get("run", ""))
        parity = await _parity(process, tier, asked.seed, console)
        outcomes, changes = await _loaded(asked, tier, settings, process, console)
        events: list[dict[str, Any]] = await process.ask("/events")
        moved = await moved_by_nixl(process.control, now_s=0.0)
    finally:
        await process.stop()
    left = [str(pid) for pid in processes_of(run_id)] if run_id else []
    shown = _shown(
        parity, outcomes, changes, events, moved, tier=tier, ready_after_s=ready_after_s, left=left
    )
    for request in [r for r in outcomes.requests if r.failure is not None][:10]:
        console.print(f"failed: {request.request_id}: {request.failure}, {request.words}")
    return shown, {"events": events, "requests": len(outcomes.requests)}


def _shown(
    parity: Parity,
    outcomes: Outcomes,
    changes: Sequence[PoolChange],
    events: Sequence[dict[str, Any]],
    moved: Moved | None,
    *,
    tier: Tier,
    ready_after_s: float,
    left: Sequence[str],
) -> Shown:
    requests = outcomes.requests
    return Shown(
        ready_after_s=ready_after_s,
        requests=len(requests),
        failed_requests=sum(1 for r in requests if r.failure is not None),
        output_tokens=sum(r.counted_tokens for r in requests),
        attainment_ratio=attainment_ratio(requests, tier.slo),
        compared_answers=parity.compared,
        equal_answers=parity.equal,
        transfers=None if moved is None else moved.transfers,
        transferred_bytes=None if moved is None else moved.transferred_bytes,
        changes=tuple(changes),
        flips=sum(1 for event in events if event["kind"] == "flipped"),
        left=tuple(left),
    )


def run_vllm_demo(asked: VllmDemoRequest, console: Console) -> bool:
    """The whole demo; its last line is one sentence. True if all of it was shown."""
    asked.ledger_file.parent.mkdir(parents=True, exist_ok=True)
    shown, more = asyncio.run(_demo(asked, console))
    if asked.json_file is not None:
        asked.json_file.parent.mkdir(parents=True, exist_ok=True)
        document = {**asdict(shown), "faults": shown.faults(), **more}
        asked.json_file.write_text(json.dumps(document, indent=1) + "\n")
    console.print(shown.sentence(), soft_wrap=True)
    return not shown.faults()
