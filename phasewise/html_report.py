"""From played policies to the report's model: which facts, charts and sentences the page has.

Decides what is shown, not how it looks. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.report import render
from dashboards.report_model import Report, Table
from phasewise.backtesting import DRAIN_S, end_of
from phasewise.comparison import DEFAULT_TARGET_RATIO, Loaded, Workload
from phasewise.report_charts import cost_chart, good_chart, offered_charts, replicas_chart
from phasewise.scoring import Score
from phasewise.table import WORD_COLUMNS, cells, headings, notes
from phasewise.tier_setup import simulation_plan
from phasewise.workload import SPREAD_S
from serving.schema.tier import Tier
from serving.simulation.profile import EngineProfile


def report_of(workload: Workload, loaded: Loaded, rows: Sequence[Score]) -> str:
    """The page of a comparison, one HTML text; needs at least one row."""
    return render(report_model(workload, loaded, rows))


def report_model(workload: Workload, loaded: Loaded, rows: Sequence[Score]) -> Report:
    """What the page says, before it is HTML."""
    tier = loaded.tier
    end_s = end_of(loaded.requests)
    ours = tuple(index for index, row in enumerate(rows) if row.policy == "phasewise")
    return Report(
        title=f"Backtest of {workload.trace} on tier {tier.name}",
        subtitle=f"{len(rows)} {'policy' if len(rows) == 1 else 'policies'} on the same requests "
        "against the same simulated tier.",
        facts=_facts(workload, loaded),
        comparison=Table(
            caption="Comparison",
            headings=headings(rows),
            rows=tuple(cells(row) for row in rows),
            word_columns=WORD_COLUMNS,
            emphasised=ours,
            note=notes(rows),
        ),
        charts=(
            *offered_charts(loaded.requests, end_s),
            *(replicas_chart(rows, phase, end_s) for phase in rows[0].ready_timeline),
            good_chart(rows, end_s),
            cost_chart(rows, tier.slo.attainment_ratio),
        ),
        notes=_notes(tier, rows),
        details=tuple(_profile_table(profile) for profile in _profiles(tier)),
    )


def _facts(workload: Workload, loaded: Loaded) -> tuple[tuple[str, str], ...]:
    tier, slo = loaded.tier, loaded.tier.slo
    start_s = workload.from_s or 0.0
    last_s = start_s + loaded.requests[-1].arrival_s
    pools = "; ".join(
        f"{pool.name}: {pool.replicas.min} to {pool.replicas.max} replicas of "
        f"{tier.variant_of(pool).accelerators_per_replica} "
        f"{tier.variant_of(pool).accelerator_type}"
        for pool in tier.spec.pools
    )
    return (
        ("Trace", workload.trace),
        ("Volume", f"{workload.volume:g} times the trace's own traffic"),
        ("Window", f"{start_s:,.0f} s to {last_s:,.0f} s of the trace"),
        ("Requests", f"{len(loaded.requests):,}"),
        (
            "Targets",
            f"TTFT {slo.ttft_s:g} s and ITL {slo.itl_s * 1000:g} ms, "
            f"for {slo.attainment_ratio * 100:g}% of requests",
        ),
        ("Pools", pools),
        ("Model", tier.spec.model),
        ("Seed", str(workload.seed)),
    )


# ---- notes and figures


def _notes(tier: Tier, rows: Sequence[Score]) -> tuple[tuple[str, str], ...]:
    slo = tier.slo
    ours = any(row.policy == "phasewise" for row in rows)
    enough = "as much as phasewise" if ours else f"{DEFAULT_TARGET_RATIO:.0%}"
    return (
        (
            "A good request",
            f"Its first token came within {slo.ttft_s:g} s of its arrival at the front end "
            f"(prefill, transfer of the KV cache and waiting included), and the mean gap between "
            f"its own output tokens was at most {slo.itl_s * 1000:g} ms. A request that failed, or "
            f"had not finished {DRAIN_S:g} s after the last arrival, is not good. Attainment is "
            "good requests divided by all requests. TTFT counts a request without a first token as "
            "slower than any other; ITL is that of finished requests.",
        ),
        (
            "Hours",
            "Accelerator-hours count every replica from the moment it is asked for until it is "
            "gone: starting, ready and draining ones alike, times the accelerators of one replica.",
        ),
        (
            "What the policies know",
            "Fixed sizes (static_peak, best_static) know the whole trace in advance. pinned_ratio "
            "and last_value are given the capacity of a replica by the engine's figures, and "
            "pinned_ratio the mean ratio of the pools too. phasewise is given neither: it starts "
            "from what the tier document says of a replica, if anything, and learns from metrics. "
            "For a policy without a setting of its own several are played, and the "
            f"cheapest that attains {enough} is shown; static_peak is sized for the busiest "
            "minute. All that are not of a fixed size start at the trace's mean need.",
        ),
        (
            "Simulated",
            "No accelerator took part. The tier was played iteration by iteration with the figures "
            "below. They say how the policies compare on such an engine, not what yours will do. "
            f"The start-up stages are scaled to what the tier states: {_startups(tier)}. Traffic "
            "of a volume other than 1 is the trace's own requests, repeated and moved by up to "
            f"{SPREAD_S:g} s, which smooths whatever is faster.",
        ),
    )


def _startups(tier: Tier) -> str:
    return ", ".join(
        f"{plan.name} {'as in the figures' if plan.start_s is None else f'{plan.start_s:g} s'}"
        for plan in simulation_plan(tier).pools
    )


def _profiles(tier: Tier) -> tuple[EngineProfile, ...]:
    """The engine profiles that the tier's pools play, each once."""
    return tuple({p.profile.name: p.profile for p in simulation_plan(tier).pools}.values())


def _profile_table(profile: EngineProfile) -> Table:
    return Table(
        caption=f"Engine figures: {profile.name} ({profile.model} on {profile.accelerator})",
        headings=("figure", "value", "how known", "source"),
        rows=tuple(
            (name, f"{figure.value:g}", figure.tag, figure.source)
            for name, figure in profile.figures.items()
        ),
        word_columns=4,
    )
