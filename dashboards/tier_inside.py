"""The lower half of the *Tier* dashboard: inside the pools, what was decided, and phasewise itself.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dashboards.board import Row
from dashboards.panels import bad_above, bad_below, lines, states, steps
from dashboards.queries import age, as_events, gauge, growth, mean, over
from dashboards.tier_users import SHORT, SILENT

STALE = "PhasewiseDecisionStale"


def pools() -> Row:
    """Queues, KV cache and KV transfer of the pools, by the replicas' own clocks."""
    return Row(
        title="Inside the pools",
        panels=(
            lines(
                "How many requests wait?",
                "Requests that wait in the queues of a pool; deferred ones wait for their KV, not"
                " for room. Normal: short waves. A queue that only grows: the pool is short, or a"
                " replica hangs. Deferred ones that grow: the transfer is the trouble, not decode.",
                (gauge("phase:requests_waiting:sum", "pool"), "{{pool}}: wait"),
                (gauge("phase:requests_deferred:sum", "pool"), "{{pool}}: of them for their KV"),
                runbook=SHORT,
            ),
            lines(
                "How full are the KV caches?",
                "Share of KV blocks in use on the fullest replica of each pool, and in the whole"
                " pool; KV that waits to be read counts. Normal: both below 90 %, close together."
                " At the top preemptions begin. High on prefill while nothing runs there: KV that"
                " nobody has fetched yet.",
                (gauge("phase:kv_used:ratio_max", "pool"), "{{pool}}: fullest replica"),
                (
                    over(
                        gauge("phasewise_kv_used_tokens", "pool"),
                        gauge("phasewise_kv_capacity_tokens", "pool"),
                    ),
                    "{{pool}}: whole pool",
                ),
                runbook=SHORT,
                levels=bad_above(0.9, 0.97),
            ),
            lines(
                "Preemptions",
                "Requests put out of a batch for lack of KV blocks; their work is done again."
                " Normal: none. Steady ones: decode needs more KV, so more replicas or shorter"
                " contexts; more prefill does not help.",
                (gauge("phase:preemptions:rate1m", "pool"), "{{pool}}"),
                runbook=SHORT,
                levels=bad_above(0.01, 1.0),
            ),
            lines(
                "How much KV moves between the phases?",
                "KV bytes pulled per second, on the side that pulls. Normal: it follows the prefill"
                " work. Flat while demand rises: the network binds. Absent: no transfer was ever"
                " seen, or the engine does not report them.",
                (gauge("phase:kv_transfer_bytes:rate1m", "pool"), "{{pool}}"),
                runbook=SHORT,
            ),
            lines(
                "How long does a KV transfer take?",
                "Mean time of one transfer of one rank. Normal: a small part of the time to first"
                " token, and level. Rising with level traffic: the network is shared with something"
                " else, or a link is slow.",
                (gauge("phase:kv_transfer_seconds:mean1m", "pool"), "{{pool}}"),
                runbook=SHORT,
            ),
            lines(
                "KV that was lost on the way",
                "Failed transfers, and prefilled requests whose KV lease ran out unread. Normal:"
                " none. Each is a request that fails or is prefilled twice: look for a dead or hung"
                " decode replica first, then at the network.",
                (gauge("phase:kv_transfer_failures:rate1m", "pool"), "{{pool}}: failed"),
                (
                    as_events(gauge("phase:kv_expired:rate1m", "pool", phase="prefill")),
                    "{{pool}}: expired unread",
                ),
                runbook=SHORT,
                levels=bad_above(0.01, 1.0),
            ),
        ),
    )


def decisions() -> Row:
    """What was decided and why."""
    return Row(
        title="Decisions",
        panels=(
            states(
                lines(
                    "Why has each pool the size that it has?",
                    "The reason of the newest decision of each pool, over time. Normal: WithinNeed,"
                    " with short bars of demand that rises or falls. DemandUnknown, CoverageLow or"
                    " PoolStateUnknown for minutes: phasewise is blind and holds; AtMaximum or"
                    " BudgetLimited: a limit that you set binds.",
                    (gauge("phasewise_decision_info", "pool", "reason"), "{{pool}}: {{reason}}"),
                    runbook=STALE,
                )
            ),
            lines(
                "How often do the pools change?",
                "Decisions of the last hour that changed a pool, by direction and reason. Normal:"
                " some, and not up and down in turn. Many of both: the limits or the margin are too"
                " tight for this traffic.",
                (
                    growth(
                        "phasewise_decisions_total", "pool", "action", "reason", action="up|down"
                    ),
                    "{{pool}}: {{action}}, {{reason}}",
                ),
                runbook=STALE,
            ),
            lines(
                "For how long has a pool been held?",
                "Time for which a pool has kept its size for another reason than that it fits;"
                " absent while nothing holds it. Normal: none, or minutes while a scale-down waits"
                " for its margin. An hour: the reasons above say which limit, which missing source"
                " or which person's word holds it.",
                (gauge("phasewise_hold_seconds", "pool"), "{{pool}}"),
                runbook=SHORT,
                levels=bad_above(1800.0, 3600.0),
            ),
            lines(
                "How long does a new replica take?",
                "Learned time from the wish for a replica to its first work. Normal: level. It is"
                " how far ahead phasewise must look: when it grows, the upper forecast and with it"
                " the pools grow too.",
                (
                    gauge("phasewise_lead_seconds", "pool", "share"),
                    "{{pool}}: {{share}} of starts",
                ),
                runbook=SHORT,
            ),
        ),
    )


def itself() -> Row:
    """Can what stands above be trusted?"""
    return Row(
        title="Can this be trusted?",
        panels=(
            lines(
                "How old is what each source said?",
                "Age of the newest good value of each source. Normal: at most two scrape intervals"
                " (10 s). Older than 20 s: the pool is blind, it may grow but not shrink. A line"
                " that ends: the source is gone.",
                (gauge("phasewise_source_age_seconds", "source"), "{{source}}"),
                runbook=SILENT,
                levels=bad_above(20.0, 60.0),
            ),
            lines(
                "How much of each pool reports?",
                "Share of a pool's replicas whose page was read. Normal: 100 %, a little less while"
                " replicas come and go. Below the floor (60 % unless set otherwise) the pool's"
                " values are unknown and it holds.",
                (gauge("phasewise_source_coverage_ratio", "source"), "{{source}}"),
                runbook=SILENT,
                levels=bad_below(0.6, 0.9),
            ),
            steps(
                lines(
                    "How many replicas report?",
                    "Replicas whose page was read in each pool. Normal: as many as are ready, and a"
                    " few that drain. Fewer for minutes: their pages fail; `phasewise doctor` says"
                    " what is wrong with which.",
                    (gauge("phase:replicas_reporting:count", "pool"), "{{pool}}: report"),
                    (gauge("phasewise_replicas", "pool", state="ready"), "{{pool}}: ready"),
                    runbook=SILENT,
                )
            ),
            lines(
                "When was the last tick?",
                "Time since phasewise last planned this tier. Normal: at most one tick (15 s unless"
                " set otherwise). Above two minutes nothing sizes the tier any more.",
                (age("phasewise_last_tick_timestamp_seconds", "tier"), "since the last tick"),
                runbook=STALE,
                levels=bad_above(60.0, 120.0),
            ),
            lines(
                "How long do ticks and reads take?",
                "Mean time of the parts of a tick, and of one read of all pages. Normal: far below "
                "a second each. A read above its interval: too many pages for one phasewise, or"
                " slow replicas.",
                (mean("phasewise_tick_duration_seconds", "part"), "a tick: {{part}}"),
                (mean("phasewise_scrape_duration_seconds", "tier"), "a read of all pages"),
                runbook=STALE,
                levels=bad_above(1.0, 5.0),
            ),
            lines(
                "Which sources have problems?",
                "How many sources say that something is wrong; `phasewise explain` has the words."
                " Normal: none, or one for a moment while a replica comes or goes.",
                (gauge("phasewise_problems", "source"), "{{source}}"),
                runbook=SILENT,
                levels=bad_above(1.0, 5.0),
            ),
        ),
    )
