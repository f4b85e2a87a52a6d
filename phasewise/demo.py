"""`phasewise demo`: the main job, end to end, in a few minutes on a laptop.

Our policy steers a simulated tier over real HTTP on a real trace; its peers play the same requests
beside it. Ends with one table; what each row means is in `docs/demo.md`.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from autoscaler.types import Plan
from phasewise.api import Api, ApiSettings
from phasewise.backtesting import end_of
from phasewise.comparison import (
    BEST_STATIC_RUNS,
    HEADROOM_RUNS,
    STATIC_PEAK_RUNS,
    Loaded,
    Peers,
    Workload,
    comparison_json,
    likely_size,
    load_workload,
    peak_sizes,
    resolve_volume,
    trace_path,
)
from phasewise.console import Show, open_browser, show_nowhere
from phasewise.live import outcome, start_tier, steer
from phasewise.own_metrics import OwnMetrics
from phasewise.scoring import Score, changes_of, score
from phasewise.table import comparison_table
from phasewise.tier_setup import simulation_plan, tier_settings
from serving.schema.tier import demo_tier_path, load_tier
from serving.simulation.traffic import load_trace
from serving.types import Observation

PEERS = ("best_static", "pinned_ratio", "last_value")
_PEER_RUNS = STATIC_PEAK_RUNS + BEST_STATIC_RUNS + (len(PEERS) - 1) * HEADROOM_RUNS


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRequest:
    """The options of the command, as given."""

    trace: str = "azure2023_conv"
    seed: int = 1
    speed: float | None = 60.0
    headless: bool = False
    json_file: Path | None = None
    ledger_file: Path = Path("out/demo.sqlite")
    serves_console: bool = True


class _Screen:
    """Two progress bars; silent when headless but for a line now and then."""

    def __init__(self, console: Console, *, headless: bool, until_s: float) -> None:
        self._console = console
        self._headless = headless
        self._until_s = until_s
        self._last_line_s = -1e9
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            console=console,
            disable=headless,
        )
        self._ours: TaskID = self._progress.add_task("phasewise", total=until_s, words="starts")
        self._peers: TaskID = self._progress.add_task("peers", total=_PEER_RUNS, words="wait")
        self._played = 0

    def __enter__(self) -> _Screen:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tick(self, plan: Plan, observations: tuple[Observation, ...]) -> None:
        ready = {state.pool.name: state.ready_replicas for state in observations[-1].pools}
        words = f"minute {plan.at_s / 60:4.1f}  " + "  ".join(
            f"{d.pool.name} {ready[d.pool.name]} ready, {d.replicas} wanted" for d in plan.decisions
        )
        self._progress.update(self._ours, completed=plan.at_s, words=words)
        if self._headless and plan.at_s - self._last_line_s >= 300.0:
            self._last_line_s = plan.at_s
            self._console.print(words)

    def played(self, row: Score) -> None:
        self._played += 1
        words = f"{row.policy}: {row.attainment_ratio:.2%} at {row.total_hours:.2f} hours"
        self._progress.update(self._peers, completed=self._played, words=words)
        if self._headless:
            self._console.print(words)

    def done(self) -> None:
        self._progress.update(self._peers, completed=_PEER_RUNS)


async def _ours(
    asked: DemoRequest,
    workload: Workload,
    loaded: Loaded,
    screen: _Screen,
    show: Show,
    own: OwnMetrics,
) -> Score:
    settings = tier_settings(loaded.tier)
    sizes = loaded.need.initial(loaded.tier)
    changes: list[tuple[float, str, int]] = []

    def on_tick(plan: Plan, observations: tuple[Observation, ...]) -> None:
        present = {p.pool.name: p.desired_replicas for p in observations[-1].pools}
        changes.extend(changes_of(plan, present))
        screen.tick(plan, observations)

    tier = await start_tier(
        [
            *("--tier", str(workload.tier_file), "--trace", workload.trace),
            *("--volume", repr(workload.volume), "--seed", str(workload.seed), "--lockstep"),
            *("--initial", ",".join(f"{name}={number}" for name, number in sizes.items())),
        ]
    )
    try:
        await steer(
            settings,
            tier,
            ledger_file=asked.ledger_file,
            until_s=end_of(loaded.requests),
            speed=asked.speed,
            on_tick=on_tick,
            show=show,
            sinks=(own,),
        )
        account = await outcome(tier, settings)
    finally:
        await tier.stop()
    plan = simulation_plan(loaded.tier, sizes)
    return score(account, plan.pools, policy="phasewise", changes=changes)


async def _rows(
    asked: DemoRequest, workload: Workload, loaded: Loaded, screen: _Screen, console: Console
) -> list[Score]:
    """Ours first, then the peers; the console page stays until the last of them is played."""
    peak = peak_sizes(loaded.requests, loaded.need.capacity)
    peers = Peers(
        workload,
        processes=max(1, min(4, (os.cpu_count() or 2))),
        on_played=screen.played,
        say=console.print,
    )
    async with AsyncExitStack() as stack:
        stack.callback(peers.close)
        static_peak = peers.submit(peers.static_peak, peak)
        show: Show = show_nowhere
        own = OwnMetrics(version=version("phasewise"))
        if asked.serves_console:
            api = await stack.enter_async_context(Api((), ApiSettings(port=0, metrics=own.page)))
            show = api.show
            console.print(f"console: {api.address} while this plays")
            if not asked.headless:
                await open_browser(api.address)
        ours = await _ours(asked, workload, loaded, screen, show, own)
        found = await asyncio.to_thread(
            peers.rows, ours.attainment_ratio, peers=PEERS, start=likely_size(peak, loaded.need)
        )
        return [ours, static_peak.result(), *(found[name] for name in PEERS)]


def run_demo(asked: DemoRequest, console: Console) -> dict[str, Any]:
    """The whole demo; prints the table, writes the JSON file if asked, and returns the document."""
    tier = load_tier(demo_tier_path())
    volume = resolve_volume(tier, load_trace(trace_path(asked.trace)), "auto")
    workload = Workload(
        tier_file=demo_tier_path(), trace=asked.trace, volume=volume, seed=asked.seed
    )
    loaded = load_workload(workload)
    console.print(
        f"{asked.trace}, volume {volume:g}: {len(loaded.requests):,} requests in "
        f"{loaded.means.span_s / 60:.0f} min; mean need {loaded.need.prefill_replicas:.1f} prefill "
        f"and {loaded.need.decode_replicas:.1f} decode replicas; "
        f"targets TTFT {tier.slo.ttft_s:g} s, ITL {tier.slo.itl_s * 1000:g} ms"
    )
    screen = _Screen(console, headless=asked.headless, until_s=end_of(loaded.requests))
    with screen:
        rows = asyncio.run(_rows(asked, workload, loaded, screen, console))
        screen.done()
    console.print(comparison_table(rows, title="all policies on the same requests"))
    console.print(
        f"every tick of phasewise is in {asked.ledger_file}; "
        f"see it with: phasewise top --once --ledger {asked.ledger_file}, and ask why with: "
        f"phasewise explain --ledger {asked.ledger_file}"
    )
    document = comparison_json(
        rows, trace=asked.trace, slo=tier.slo, seed=asked.seed, extra={"volume": volume}
    )
    if asked.json_file is not None:
        asked.json_file.parent.mkdir(parents=True, exist_ok=True)
        asked.json_file.write_text(json.dumps(document, indent=1) + "\n")
    return document
