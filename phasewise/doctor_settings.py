"""A settings file as the doctor sees it: its tiers' targets, scale endpoints, ledger and clock.

It fetches every page as `run` would, twice a scrape interval apart, and changes nothing: no size,
no ledger, no virtual clock. What does not answer becomes a target or a check that says so.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import aiohttp

from autoscaler.scale_client import ScaleClient
from collector.conformance import standing_still
from collector.discovery import Discovered, discover
from collector.evidence import read_everything
from collector.scrape import Scraper
from phasewise.doctor_targets import Check, Diagnosis, Target, diagnose, examine
from phasewise.places import ledger_path
from phasewise.settings import Mode, Settings, TierEntry
from serving.dialects.page import Page
from serving.errors import Unavailable
from serving.schema.tier import Tier, load_tier
from serving.types import ReplicaState

_SQLITE = b"SQLite format 3\x00"
Pause = Callable[[float], Awaitable[None]]


async def diagnose_settings(
    settings: Settings, *, where: str, pause: Pause = asyncio.sleep
) -> tuple[Diagnosis, ...]:
    """One diagnosis for each tier of a settings file."""
    source = settings.source
    async with (
        aiohttp.ClientSession() as session,
        Scraper(
            timeout_s=source.timeout_seconds,
            max_page_bytes=source.max_page_bytes,
            concurrency=source.concurrency,
        ) as scraper,
    ):
        found: list[Diagnosis] = []
        for entry in settings.tiers:
            tier = load_tier(entry.file)
            checks = [_mode_check(settings, entry), _ledger_check(settings, tier)]
            try:
                discovered = await discover(scraper, source.http_sd)
            except Unavailable as error:
                checks.append(Check(what="target list", ok=False, words=error.what, stops=True))
                discovered = Discovered()
            else:
                checks += _membership(tier, discovered)
            checks += await _scale_checks(settings, entry, tier, session)
            targets = await _look(settings, discovered, scraper, pause)
            examined = [examine(t, slo=tier.slo, model=tier.spec.model) for t in targets]
            found.append(
                diagnose(
                    f"tier {tier.name} of {where}",
                    examined,
                    checks,
                    floor_ratio=source.coverage_floor_ratio,
                )
            )
        return tuple(found)


async def _look(
    settings: Settings, discovered: Discovered, scraper: Scraper, pause: Pause
) -> list[Target]:
    """Every target with its newest page; a lockstep clock stands still, so one look is enough."""
    first = await _pages(discovered, scraper)
    second: Mapping[str, Page | Unavailable] = {}
    if settings.clock.kind == "wall" and first:
        await pause(settings.source.scrape_interval_seconds)
        second = await _pages(discovered, scraper)
    targets = []
    for target in _targets(discovered):
        before, after = first.get(target.name), second.get(target.name)
        newest = after if after is not None else before
        if isinstance(newest, Unavailable):
            target = replace(target, problem=newest.what)
        elif newest is not None:
            still = (
                standing_still(before, after)
                if isinstance(before, Page) and isinstance(after, Page)
                else None
            )
            target = replace(target, page=newest, still=still)
        targets.append(target)
    return targets


async def _pages(discovered: Discovered, scraper: Scraper) -> dict[str, Page | Unavailable]:
    bodies = await scraper.scrape(discovered.pages)
    pages: dict[str, Page | Unavailable] = {}
    for name, body in bodies.items():
        try:
            pages[name] = body if isinstance(body, Unavailable) else read_everything(body)
        except Unavailable as error:
            pages[name] = error
    return pages


def _targets(discovered: Discovered) -> list[Target]:
    urls = {target.name: target.url for target in discovered.pages}
    members = [
        Target(
            name=name,
            where=urls.get(name, ""),
            pool=member.pool,
            declared=discovered.phases.get(name),
            starting=member.state is ReplicaState.STARTING,
        )
        for name, member in discovered.members.items()
    ]
    routers = [Target(name=router.name, where=router.url) for router in discovered.routers]
    return [*members, *routers]


def _membership(tier: Tier, discovered: Discovered) -> list[Check]:
    """The target list against the tier document: every pool listed, in its phase, and a router."""
    checks = []
    sizes = Counter(member.pool for member in discovered.members.values())
    for pool in tier.spec.pools:
        what = f"pool {pool.name}"
        listed = {
            discovered.phases[name]
            for name, member in discovered.members.items()
            if member.pool == pool.name
        }
        if not listed and pool.replicas.min > 0:
            words = "the target list names no replica of it: check the label pool"
            checks.append(Check(what=what, ok=False, words=words, stops=True))
        elif listed - {pool.phase}:
            words = f"the target list says {', '.join(sorted(listed))}, the tier says {pool.phase}"
            checks.append(Check(what=what, ok=False, words=words, stops=True))
        else:
            checks.append(Check(what=what, ok=True, words=f"{sizes[pool.name]} replicas listed"))
    unknown = sorted(sizes.keys() - {pool.name for pool in tier.spec.pools})
    if unknown:
        words = f"listed, but not in the tier document: {', '.join(unknown)}"
        checks.append(Check(what="other pools", ok=False, words=words))
    kinds = {router.dialect for router in discovered.routers}
    if tier.spec.router.kind != "none" and tier.spec.router.kind not in kinds:
        words = f"the tier says {tier.spec.router.kind}, none is listed: what users wait is unknown"
        checks.append(Check(what="router", ok=False, words=words))
    return checks


def _mode_check(settings: Settings, entry: TierEntry) -> Check:
    if entry.mode is Mode.ACT:
        return Check(what="mode", ok=True, words="act: phasewise changes the pools")
    words = "advise: phasewise changes nothing"
    if settings.actuator.kind == "none":
        words += ", and without an actuator nobody tells it the desired sizes"
    return Check(what="mode", ok=True, words=words)


async def _scale_checks(
    settings: Settings, entry: TierEntry, tier: Tier, session: aiohttp.ClientSession
) -> Sequence[Check]:
    """Whether each pool's scale endpoint answers; without an answer mode act cannot act."""
    if settings.actuator.url is None:
        return ()
    client = ScaleClient(session, base_url=settings.actuator.url)

    async def ask(pool: str) -> Check:
        what = f"scale endpoint of {pool}"
        try:
            replicas = await client.desired_replicas(pool)
        except Unavailable as error:
            return Check(what=what, ok=False, words=error.what, stops=entry.mode is Mode.ACT)
        return Check(what=what, ok=True, words=f"answers: {replicas} replicas desired")

    return await asyncio.gather(*(ask(pool.name) for pool in tier.spec.pools))


def _ledger_check(settings: Settings, tier: Tier) -> Check:
    """Whether the ledger could be written, without writing it."""
    file = ledger_path(settings, tier.name)
    what = f"ledger {file}"
    try:
        if file.exists():
            with file.open("rb") as opened:
                start = opened.read(len(_SQLITE))
            if start and start != _SQLITE:
                return Check(what=what, ok=False, words="is no SQLite file", stops=True)
            if not os.access(file, os.W_OK):
                return Check(what=what, ok=False, words="cannot be written", stops=True)
        folder = _existing_parent(file)
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            words = f"cannot be made: {folder} cannot be written"
            return Check(what=what, ok=False, words=words, stops=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(what=what, ok=False, words=error.strerror or str(error), stops=True)
    if free < settings.ledger.max_bytes:
        words = f"may grow to {settings.ledger.max_bytes:,} bytes; {free:,} are free"
        return Check(what=what, ok=False, words=words)
    return Check(what=what, ok=True, words="can be written")


def _existing_parent(file: Path) -> Path:
    return next(folder for folder in file.absolute().parents if folder.exists())
