"""`phasewise startups`: real starts with an empty and with a full cache, stage by stage.

Starts one replica of a pool again and again, tells what each stage took, and what the plan's lead
model makes of it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from autoscaler.lead import LeadModel, lead_told, learn_lead
from autoscaler.types import Lead
from phasewise.tier_setup import tier_settings
from serving.errors import Misconfigured
from serving.local.environment import EngineEnvironment, default_root
from serving.local.launch import ReplicaLaunch, engine_launch, local_engine
from serving.local.measured_start import measure_start
from serving.local.ports import FreePorts
from serving.local.replica import PoolSetup
from serving.local.startups import StartRecord
from serving.local.weights import ensure_model, fetch_weights
from serving.schema.tier import Pool, Tier, load_tier
from serving.types import PoolId, PoolState, Start, StartKind, StartStage

STAGES = (StartStage.PROCESS, StartStage.WEIGHTS, StartStage.COMPILE, StartStage.READY)
MOST_RUNS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupsAsked:
    """The command's options. `folder` holds the source, the cache and the logs."""

    tier: Path
    pool: str | None = None
    runs: int = 3
    folder: Path = Path(".cache/startups")
    json_file: Path | None = None
    limit_s: float = 600.0


def pool_of(tier: Tier, name: str | None) -> Pool:
    """The pool of that name, or the first one. Raises `Misconfigured` if there is none."""
    for pool in tier.spec.pools:
        if name in (None, pool.name):
            return pool
    raise Misconfigured(
        "no such pool",
        where=f"tier {tier.name}",
        found=repr(name),
        expected=f"one of {', '.join(pool.name for pool in tier.spec.pools)}",
    )


def kind_of(record: StartRecord) -> StartKind | None:
    """Cold if its weights were fetched, warm if they were there."""
    if record.cold is None:
        return None
    return StartKind.COLD if record.cold else StartKind.WARM


def learned(pool: PoolId, records: Iterable[StartRecord], *, prior_s: float) -> Lead | None:
    """What the plan's lead model knows after these starts, one after the other."""
    model = LeadModel(prior_s=prior_s)
    for record in records:
        if record.ended_s is None or record.failed:
            continue
        kind = kind_of(record)
        begun = PoolState(
            pool=pool,
            observed_at_s=record.asked_s,
            desired_replicas=1,
            ready_replicas=0,
            starting_replicas=1,
            draining_replicas=0,
            starting_since_s=(record.asked_s,),
            starting_kinds=(kind,),
        )
        ended = PoolState(
            pool=pool,
            observed_at_s=record.ended_s,
            desired_replicas=1,
            ready_replicas=1,
            starting_replicas=0,
            draining_replicas=0,
            starts=(Start(created_s=record.asked_s, kind=kind, stages=record.stages),),
        )
        model = learn_lead(learn_lead(model, begun), ended)
    return lead_told(model)


def stage_table(records: Sequence[StartRecord]) -> Table:
    """A row for each start and one with the medians of each kind; unknown is not zero."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in ("start", "kind", *STAGES, "in all"):
        table.add_column(head, justify="left" if head in ("start", "kind") else "right")
    for record in records:
        table.add_row(record.replica, kind_of(record) or "unknown", *_seconds([record]))
    for kind in StartKind:
        own = [record for record in records if kind_of(record) is kind]
        if len(own) > 1:
            table.add_row("median", kind, *_seconds(own), style="bold")
    return table


def _seconds(records: Sequence[StartRecord]) -> list[str]:
    """The medians of each stage and of the whole, in words."""
    found: list[str] = []
    for stage in STAGES:
        known = [dict(r.stages)[stage] for r in records if stage in dict(r.stages)]
        found.append(f"{median(known):.2f} s" if known else "unknown")
    whole = [r.ended_s - r.asked_s for r in records if r.ended_s is not None]
    return [*found, f"{median(whole):.2f} s" if whole else "unknown"]


def lead_sentences(lead: Lead | None, *, prior_s: float) -> list[str]:
    """What the plan would count with after these starts."""
    if lead is None:
        return ["the lead model has learned nothing"]
    return [
        f"{each.kind or 'unknown'}: {each.starts} starts seen, half within {each.p50_s:.1f} s and "
        f"95 % within {each.p95_s:.1f} s, with the stated {prior_s:g} s counted as three starts"
        for each in lead.kinds
    ]


def measure_startups(asked: StartupsAsked, console: Console) -> None:
    """Measure, print, keep."""
    if not 1 <= asked.runs <= MOST_RUNS:
        raise Misconfigured(
            "too few or too many starts",
            where="--runs",
            found=str(asked.runs),
            expected=f"1 to {MOST_RUNS}",
        )
    tier = load_tier(asked.tier)
    pool = pool_of(tier, asked.pool)
    local = local_engine(tier.variant_of(pool))
    env = EngineEnvironment(default_root())
    env.make(lambda words, _: console.print(words, highlight=False))
    source = ensure_model(env, local.model, asked.folder / "source")
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    rate = local.weights_bytes_per_second
    speed = "as fast as the disk" if rate is None else f"at {rate / 1e6:g} MB/s"
    console.print(f"{pool.name}: {size / 1e6:.0f} MB of weights, fetched {speed} when cold")
    records: list[StartRecord] = []
    try:
        asyncio.run(_starts(asked, tier, pool, env, source, rate, console, records))
    finally:  # what was measured before a fault is worth as much
        if records:
            _tell(asked, tier, pool, records, size, console)


def _tell(
    asked: StartupsAsked,
    tier: Tier,
    pool: Pool,
    records: Sequence[StartRecord],
    size: int,
    console: Console,
) -> None:
    settings = next(p for p in tier_settings(tier).pools if p.pool.name == pool.name)
    lead = learned(settings.pool, records, prior_s=settings.start_s)
    console.print(stage_table(records))
    for sentence in lead_sentences(lead, prior_s=settings.start_s):
        console.print(sentence, highlight=False)
    if asked.json_file is not None:
        rate = local_engine(tier.variant_of(pool)).weights_bytes_per_second
        kept = {
            **{"tier": tier.name, "pool": pool.name, "weights_bytes": size},
            **{"weights_bytes_per_second": rate, "prior_s": settings.start_s},
            "starts": [record.as_json() for record in records],
            "lead": []
            if lead is None
            else [
                {"kind": k.kind, "starts": k.starts, "p50_s": k.p50_s, "p95_s": k.p95_s}
                for k in lead.kinds
            ],
        }
        asked.json_file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


async def _starts(
    asked: StartupsAsked,
    tier: Tier,
    pool: Pool,
    env: EngineEnvironment,
    source: Path,
    rate: float | None,
    console: Console,
    records: list[StartRecord],
) -> None:
    """Cold and warm in turn, so that what else the machine does strikes both alike."""
    ports = FreePorts()
    cache = (asked.folder / "cache").absolute() / source.name
    setup = PoolSetup(
        name=pool.name, phase=pool.phase, variant=pool.variant, initial=0, most=1, may_flip=False
    )
    for number in range(1, asked.runs + 1):
        for kind in StartKind:
            name = f"{pool.name}-{kind}-{number}"
            if kind is StartKind.COLD:
                shutil.rmtree(cache, ignore_errors=True)

            async def weights() -> bool:
                missing = not cache.exists()
                await asyncio.to_thread(fetch_weights, source, cache, rate)
                return missing

            def command(name: str = name) -> ReplicaLaunch:
                return engine_launch(
                    tier,
                    pool,
                    name=name,
                    env_dir=env.root,
                    model_dir=cache,
                    http_port=ports.take(),
                    side_channel_port=ports.take(),
                )

            record = await measure_start(
                name,
                setup,
                model=tier.spec.model,
                weights=weights,
                command=command,
                log_file=asked.folder / "logs" / f"{name}.log",
                unix_s=time.time,  # noqa: TID251 - the edge
                limit_s=asked.limit_s,
            )
            took = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in record.stages)
            console.print(f"{name}: {took}", highlight=False)
            records.append(record)
