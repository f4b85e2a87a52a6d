"""The upper half of the *Tier* dashboard: what users get, what they ask for, what is there for it.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import replace

from dashboards.board import Panel, Row
from dashboards.panels import bad_above, bad_below, lines, number, steps, unbounded
from dashboards.queries import (
    Expr,
    budget_left,
    gauge,
    mean_over_requests,
    over,
    summed,
    times,
)

SHORT = "PhasewisePoolShortWhileOtherIdle"
SILENT = "PhasewiseSourceSilent"
TTFT, TPOT = "phase:user_ttft_within_slo:ratio1m", "phase:user_tpot_within_slo:ratio1m"
_OBJECTIVE = gauge("phasewise_slo_attainment_ratio", "tier")


def users() -> Row:
    """What users get, by their own clock."""
    return Row(
        title="What users get",
        panels=(
            _share("Requests whose first token came in time", TTFT),
            _share("Requests whose tokens flowed in time", TPOT),
            _budget("First token: error budget left", TTFT),
            _budget("Token gaps: error budget left", TPOT),
            lines(
                "Are users served within the SLO?",
                "Share of the last minute's requests that met each latency target, by the front"
                " end's clock (token gaps by decode's, where only its buckets end at the target),"
                " and the share that was promised. Normal: both above the promise; a"
                " gap in a line is a minute in which no request ended. A dip of the first token is"
                " for prefill or the KV transfer to mend, a dip of the token gap for decode: read"
                " the row below for which pool is short.",
                (gauge(TTFT, "tier"), "first token"),
                (gauge(TPOT, "tier"), "gap between tokens"),
                (_OBJECTIVE, "promised"),
                runbook=SHORT,
            ),
            lines(
                "How long do users wait?",
                "The user's mean time to first token, from arrival at the front end, beside the"
                " mean wait in the queue of a prefill replica. Normal: the wait is a small part of"
                " it. When the wait makes most of it, prefill is short; when neither explains the"
                " other, look at the KV transfer.",
                (gauge("phase:user_ttft_seconds:mean1m", "tier"), "first token, user's clock"),
                (
                    gauge("phase:queue_time_seconds:mean1m", "pool", phase="prefill"),
                    "prefill queue, {{pool}}",
                ),
                (gauge("phasewise_slo_seconds", "tier", kind="ttft"), "target"),
                runbook=SHORT,
            ),
            lines(
                "How fast do tokens come?",
                "Mean gap between tokens: by the user's clock per request, and between the engine's"
                " own steps on decode. Normal: the two lie close together below the target. Both"
                " up: decode batches are too full. Only the user's up: look at the front end or the"
                " network before it.",
                (gauge("phase:user_tpot_seconds:mean1m", "tier"), "user's clock, per request"),
                (
                    gauge("phase:itl_seconds:mean1m", "pool", phase="decode"),
                    "decode's clock, {{pool}}",
                ),
                (gauge("phasewise_slo_seconds", "tier", kind="itl"), "target"),
                runbook=SHORT,
            ),
            lines(
                "How many requests come, end and fail?",
                "Requests at the front end. Normal: arrivals and ends lie together, failures at"
                " nothing. Ends below arrivals for minutes: the tier falls behind. A line of"
                " failures that is absent means that none was ever counted.",
                (gauge("phase:user_requests:rate1m", "tier"), "arrive"),
                (gauge("phase:user_requests_finished:rate1m", "tier"), "end"),
                (gauge("phase:user_requests_failed:rate1m", "tier"), "fail"),
                runbook=SHORT,
            ),
        ),
    )


def supply() -> Row:
    """Both phases' demand against what is there for it, and the plan's view of the pools."""
    return Row(
        title="Demand and supply",
        panels=(
            unbounded(
                lines(
                    "Does the mix of pools fit the mix of work?",
                    "Needed prefill replicas per needed decode replica, and the same of those that"
                    " are ready. Normal: they follow one another within a start of a replica. The"
                    " demand above the replicas: prefill is short; below: decode is. A gap for"
                    " longer than a start is worth the runbook.",
                    (gauge("phasewise_demand_ratio", "tier"), "needed"),
                    (gauge("phasewise_replica_ratio", "tier"), "ready"),
                    (
                        over(
                            gauge("phasewise_demand_ratio", "tier"),
                            gauge("phasewise_replica_ratio", "tier"),
                        ),
                        "needed over ready (1 fits)",
                    ),
                    runbook=SHORT,
                )
            ),
            lines(
                "What does each pool run out of first?",
                "Replicas that each resource asks for by itself, at the lead of a new replica"
                " and the upper forecast. The highest line of a pool is what binds it. Normal:"
                " compute on prefill, compute or KV cache on decode. Network on top: more"
                " decode replicas are the wrong answer.",
                (
                    gauge("phasewise_need_replicas", "pool", "resource"),
                    "{{pool}}: {{resource}}",
                ),
                runbook=SHORT,
            ),
            _demand("prefill", "Has prefill enough?", "input tokens that must be computed"),
            _demand("decode", "Has decode enough?", "output tokens"),
            steps(
                lines(
                    "How many replicas are there?",
                    "Replicas by state. Normal: starting and draining are short episodes. Starting"
                    " for longer than the lead below: ask the cluster why. Draining for long:"
                    " unread KV, or answers that do not end.",
                    (gauge("phasewise_replicas", "pool", "state"), "{{pool}}: {{state}}"),
                    runbook=SHORT,
                )
            ),
            steps(
                lines(
                    "What is asked for, and what would be wanted?",
                    "Replicas asked of each pool, and what its need alone would ask for. Normal:"
                    " wanted is at or below asked, because down is slower than up. Wanted above"
                    " asked for minutes: a limit, a budget or a person's word holds it, and the"
                    " reasons stand below. Decided apart from asked: nobody acts (mode advise), or"
                    " the scale target refuses.",
                    (gauge("phasewise_desired_replicas", "pool"), "{{pool}}: asked for"),
                    (gauge("phasewise_target_replicas", "pool"), "{{pool}}: decided"),
                    (gauge("phasewise_wanted_replicas", "pool"), "{{pool}}: wanted"),
                    runbook=SHORT,
                )
            ),
        ),
    )


def _share(title: str, name: str) -> Panel:
    """How many requests met a target, over the time that is shown."""
    return number(
        title,
        "Share of all requests in the time shown that met this target, by the user's clock;"
        " minutes without an answer count for nothing. Normal: 99 % or what was promised. Below:"
        " the row of demand and supply says which pool is short.",
        (mean_over_requests(name), "of all requests"),
        runbook=SHORT,
        levels=bad_below(0.95, 0.99),
    )


def _budget(title: str, name: str) -> Panel:
    """What is left of the misses that the objective allows, over the time that is shown."""
    return number(
        title,
        "Part of the allowed misses in the time shown that is not used up: 100 % is none missed,"
        " 0 % is exactly the objective, below that it is broken. Normal: above 25 %. Below: put off"
        " risky changes, and see which pool was short when it went.",
        (budget_left(name, "phasewise_slo_attainment_ratio"), "left"),
        runbook=SHORT,
        levels=bad_below(0.0, 0.25),
    )


def provided(phase: str) -> Expr:
    """Tokens per second that the ready replicas of a phase carry within the SLO."""
    one = gauge("phasewise_capacity_tokens_per_second", "pool", phase=phase, pool=None)
    ready = gauge("phasewise_replicas", "pool", phase=phase, pool=None, state="ready")
    return summed(times(one, ready, on="pool"))


def _demand(phase: str, title: str, what: str) -> Panel:
    forecast = "phasewise_forecast_tokens_per_second"
    return lines(
        title,
        f"Tokens per second of {phase} work ({what}): offered now, expected and upper forecast at"
        " the lead of a new replica, and what the ready replicas carry within the SLO. Normal:"
        " carried lies above the upper forecast, or soon will. Offered above carried: the pool is"
        " short now.",
        (gauge("phasewise_demand_tokens_per_second", phase=phase), "offered"),
        (gauge(forecast, phase=phase, pool=None, bound="expected"), "expected"),
        (gauge(forecast, phase=phase, pool=None, bound="upper"), "upper forecast"),
        (provided(phase), "carried by ready replicas"),
        runbook=SHORT,
    )


def use(phase: str) -> Expr:
    """Offered work of a phase over what its ready replicas carry."""
    return over(gauge("phasewise_demand_tokens_per_second", phase=phase), provided(phase))


def busy() -> Panel:
    """Both phases' use of their ready replicas."""
    return replace(
        lines(
            "How busy are the ready replicas?",
            "Offered work over what the ready replicas carry within the SLO. Normal: 60 % to 100 %;"
            " below 50 % for long in one phase while the other is above 100 %: the pools are the"
            " wrong way round.",
            (use("prefill"), "prefill"),
            (use("decode"), "decode"),
            runbook=SHORT,
            levels=bad_above(1.0, 1.2),
        ),
        maximum=None,
    )
