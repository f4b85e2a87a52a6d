"""`phasewise run`: one loop for each tier of a settings file, until the clock ends or a signal.

What stays up is started here; what it does is in the rooms.
"""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack

import aiohttp
import structlog

from autoscaler.ledger import Ledger
from autoscaler.loop import Loop
from autoscaler.ports import Clock
from autoscaler.replay import resume
from autoscaler.scale_client import ScaleClient
from autoscaler.tick import Phasewise
from autoscaler.types import Plan
from collector.observe import ObserverSettings
from collector.scrape import Scraper
from phasewise.console import Show, console_of
from phasewise.http_tier import HttpTier, LockstepClock, WallClock
from phasewise.overrides import OverriddenSource
from phasewise.places import ledger_path
from phasewise.problem_log import ProblemLog
from phasewise.recording import LedgerRecorder
from phasewise.settings import Mode, Settings, TierEntry
from phasewise.telling import Telling, telling
from phasewise.tier_board import TierBoard
from phasewise.tier_setup import tier_settings
from serving.errors import Misconfigured
from serving.schema.tier import load_tier
from serving.types import Observation

_log = structlog.get_logger("phasewise")


def log_plan(plan: Plan, observations: tuple[Observation, ...]) -> None:
    """One canonical line for each tick and pool."""
    newest = observations[-1]
    present = {state.pool: state for state in newest.pools}
    for decision in plan.decisions:
        state = present.get(decision.pool)
        _log.info(
            "decided",
            at_s=plan.at_s,
            epoch=plan.epoch,
            pool=str(decision.pool),
            replicas=decision.replicas,
            desired=None if state is None else state.desired_replicas,
            ready=None if state is None else state.ready_replicas,
            wanted=decision.wanted_replicas,
            reason=str(decision.reason),
            words=decision.words,
        )


def clock_of(
    settings: Settings,
    session: aiohttp.ClientSession,
    *,
    until_s: float | None,
    speed: float | None,
) -> Clock:
    """The clock that the settings name."""
    interval_s = settings.source.scrape_interval_seconds
    if settings.clock.kind == "wall" or settings.clock.url is None:
        unix_s = time.time  # noqa: TID251 - the edge: everything below is given the time
        return WallClock(unix_s=unix_s, interval_s=interval_s)
    return LockstepClock(
        session, base_url=settings.clock.url, interval_s=interval_s, until_s=until_s, speed=speed
    )


async def run_tier(
    settings: Settings,
    entry: TierEntry,
    *,
    until_s: float | None,
    speed: float | None,
    show: Show,
    told: Telling,
) -> None:
    """One tier's loop from its last recorded state."""
    tier = load_tier(entry.file)
    wanted = tier_settings(tier, tick_s=settings.tick_seconds)
    source = settings.source
    policy = Phasewise(wanted)
    async with AsyncExitStack() as stack:
        ledger = Ledger(ledger_path(settings, tier.name))
        stack.callback(ledger.close)
        state = resume(ledger, wanted)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        scraper = await stack.enter_async_context(
            Scraper(
                timeout_s=source.timeout_seconds,
                max_page_bytes=source.max_page_bytes,
                concurrency=source.concurrency,
            )
        )
        scale = (
            None
            if settings.actuator.url is None
            else ScaleClient(session, base_url=settings.actuator.url)
        )
        http = HttpTier(
            wanted,
            discovery_url=source.http_sd,
            scraper=scraper,
            scale=scale,
            observer=ObserverSettings(coverage_floor_ratio=source.coverage_floor_ratio),
            model=tier.spec.model,
        )
        board = TierBoard(wanted, mode=str(entry.mode), ledger=ledger)
        stack.callback(board.let_go)  # before the ledger is closed
        show(board)

        meter = told.meter(tier.slo)
        problems = ProblemLog(tier.name)

        def on_tick(plan: Plan, observations: tuple[Observation, ...]) -> None:
            meter.on_tick(plan, observations)
            log_plan(plan, observations)
            problems.note(observations)
            board.note(plan, observations)

        recorder = LedgerRecorder(
            ledger,
            wanted,
            state,
            acts=entry.mode is Mode.ACT,
            max_age_s=settings.ledger.max_age_days * 86400.0,
            max_bytes=settings.ledger.max_bytes,
        )
        loop = Loop(
            policy=meter.policy(policy),
            clock=clock_of(settings, session, until_s=until_s, speed=speed),
            source=meter.source(OverriddenSource(http, board.overrides)),
            actuator=http,
            scrapes_per_tick=round(settings.tick_seconds / source.scrape_interval_seconds),
            acts=entry.mode is Mode.ACT and settings.actuator.kind != "keda",
            survives=True,
            recorder=recorder,
            on_tick=on_tick,
        )
        await loop.run(state)


async def run_all(settings: Settings, *, until_s: float | None, speed: float | None) -> None:
    """All tiers side by side; the first signal ends them between two steps."""
    if settings.clock.kind == "lockstep" and len(settings.tiers) > 1:
        raise Misconfigured(
            "a lockstep clock is moved by one loop",
            where="tiers",
            found=f"{len(settings.tiers)} tiers",
            expected="one tier, or clock.kind wall",
        )
    supplies = settings.recorded.supplier == "phasewise"
    async with (
        telling(otlp=settings.otlp, supplies_recorded=supplies) as told,
        console_of(settings.console, metrics=told.own.page) as show,
    ):
        loops = [
            asyncio.ensure_future(
                run_tier(settings, entry, until_s=until_s, speed=speed, show=show, told=told)
            )
            for entry in settings.tiers
        ]
        running = asyncio.gather(*loops)
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, running.cancel)
        try:
            await running
        except asyncio.CancelledError:
            _log.info("stopped by a signal; every finished tick is in the ledger")
