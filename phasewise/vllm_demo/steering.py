"""phasewise over the demo's running tier: the loop of `phasewise run`, and what it changed."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
from rich.console import Console

from autoscaler.ledger import Ledger
from autoscaler.loop import Loop
from autoscaler.scale_client import ScaleClient
from autoscaler.tick import Phasewise
from autoscaler.types import Plan, TierSettings
from collector.observe import ObserverSettings
from collector.scrape import Scraper
from phasewise.console import Show
from phasewise.http_tier import HttpTier, WallClock
from phasewise.own_metrics import OwnMetrics
from phasewise.recording import LedgerRecorder
from phasewise.scoring import changes_of
from phasewise.telling import meter_of
from phasewise.tier_board import TierBoard
from phasewise.vllm_demo.local_process import LocalProcess
from phasewise.vllm_demo.scenario import SCRAPE_INTERVAL_S
from phasewise.vllm_demo.shown import PoolChange
from serving.types import Observation


class Steering:
    """phasewise over the running tier, from `run` until it is cancelled; what it changed."""

    def __init__(self, settings: TierSettings, tier: LocalProcess, console: Console) -> None:
        self._settings, self._tier, self._console = settings, tier, console
        self._begun_s = 0.0
        self.changes: list[PoolChange] = []

    async def run(self, ledger_file: Path, show: Show, own: OwnMetrics, model: str) -> None:
        """One loop on this machine's clock."""
        policy = Phasewise(self._settings)
        meter = meter_of((own,), self._settings.slo)
        unix_s = time.time  # noqa: TID251 - the edge: everything below is given the time
        self._begun_s = unix_s()
        async with AsyncExitStack() as stack:
            ledger = Ledger(ledger_file, fresh=True)
            stack.callback(ledger.close)
            session = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False))
            scraper = await stack.enter_async_context(Scraper(timeout_s=SCRAPE_INTERVAL_S))
            source = HttpTier(
                self._settings,
                discovery_url=f"{self._tier.control}/sd",
                scraper=scraper,
                scale=ScaleClient(session, base_url=self._tier.control),
                observer=ObserverSettings(),
                model=model,
            )
            state = policy.start()
            board = TierBoard(self._settings, mode="act", ledger=ledger)
            stack.callback(board.let_go)
            show(board)

            def on_tick(plan: Plan, observations: tuple[Observation, ...]) -> None:
                meter.on_tick(plan, observations)
                board.note(plan, observations)
                self._note(plan, observations)

            loop = Loop(
                policy=meter.policy(policy),
                clock=WallClock(unix_s=unix_s, interval_s=SCRAPE_INTERVAL_S),
                source=meter.source(source),
                actuator=source,
                scrapes_per_tick=round(self._settings.tick_s / SCRAPE_INTERVAL_S),
                recorder=LedgerRecorder(
                    ledger,
                    self._settings,
                    state,
                    acts=True,
                    max_age_s=14 * 86400.0,
                    max_bytes=1 << 30,
                ),
                survives=True,
                on_tick=on_tick,
            )
            await loop.run(state)

    def _note(self, plan: Plan, observations: tuple[Observation, ...]) -> None:
        present = {p.pool.name: p.desired_replicas for p in observations[-1].pools}
        words = {d.pool.name: d.words for d in plan.decisions}
        for at_s, pool, more in changes_of(plan, present):
            before = present[pool]
            if before is None:
                continue
            change = PoolChange(
                at_s=at_s - self._begun_s, pool=pool, before=before, after=before + more
            )
            self.changes.append(change)
            self._console.print(f"phasewise: {change.words} ({words[pool]})")
