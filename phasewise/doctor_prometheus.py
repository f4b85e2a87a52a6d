"""What a Prometheus holds of a tier, as the doctor's targets and checks. Only asks, never writes.

Each scraped target becomes a page again (its series without the target's own labels), so that it
is judged like a page. Beside that: which recorded series there are and from how many suppliers,
and who else scales the same pools.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from collector.scrape import Scraper
from phasewise.doctor_targets import Check, Diagnosis, Target, diagnose, examine
from phasewise.other_autoscalers import QUERIES, other_autoscalers
from phasewise.prometheus_api import PrometheusApi, Sample
from serving.dialects.page import Labels, Page
from serving.errors import Unavailable
from serving.recorded import RECORDED
from serving.schema.tier import Tier
from serving.types import Phase

OURS = (
    "(vllm:|ray_vllm|vllm_router_|llm_d_|inference_(objective|model|pool|extension)_"
    "|dynamo_|agent_(tx|rx|xfer)_).+"
)
_PROCESS = "process_(start_time_seconds|cpu_seconds_total)"
_STILL = (
    "changes(process_cpu_seconds_total[5m]) == 0 "
    "and count_over_time(process_cpu_seconds_total[5m]) > 2"
)
_SUPPLIERS = 'count by (__name__, tier, pool, phase) ({__name__=~"phase:.+"})'
_ROLE_LABELS = ("phase", "llm_d_ai_role", "role")
_ROLES = {"prefill-decode": Phase.BOTH} | {str(phase): phase for phase in Phase}
_MOST_TARGETS = 500
Key = tuple[str, str]


async def diagnose_prometheus(url: str, *, tier: Tier | None, timeout_s: float = 10.0) -> Diagnosis:
    """Everything that one Prometheus says about the engines and routers that it scrapes."""
    async with Scraper(timeout_s=timeout_s, max_page_bytes=64 << 20, concurrency=4) as scraper:
        api = PrometheusApi(scraper, url)
        try:
            targets, checks = await _look(api, tier)
        except Unavailable as error:
            targets, checks = (), [Check(what="query", ok=False, words=error.what, stops=True)]
    slo = None if tier is None else tier.slo
    model = None if tier is None else tier.spec.model
    examined = [examine(target, slo=slo, model=model) for target in targets]
    return diagnose(api.url, examined, checks)


async def _look(api: PrometheusApi, tier: Tier | None) -> tuple[tuple[Target, ...], list[Check]]:
    ups, ours, still, supplied = await asyncio.gather(
        api.query("up"),
        api.query(f'count by (job, instance) ({{__name__=~"{OURS}"}})'),
        api.query(_STILL),
        api.query(_SUPPLIERS),
    )
    try:
        errors = await api.scrape_errors()
    except Unavailable:  # not every store that answers queries knows of targets
        errors = {}
    holds = {_key(sample.labels) for sample in ours}
    stands = {_key(sample.labels) for sample in still}
    jobs = {job for job, _ in holds}
    mine = [up for up in ups if _key(up.labels) in holds or _is_down(up, jobs)]
    checks = [_targets_check(ups, mine), *_recorded_checks(supplied)]
    mine = sorted(mine, key=lambda up: _key(up.labels))[:_MOST_TARGETS]
    targets = await asyncio.gather(*(_target(api, up, errors, stands) for up in mine))
    answers = await asyncio.gather(*(api.query(query) for query in QUERIES))
    series = [sample for answer in answers for sample in answer]
    checks += other_autoscalers(series, tier=tier, targets=[up.labels for up in mine])
    return tuple(sorted(targets, key=lambda t: (t.pool or "~", t.name))), checks


def _is_down(up: Sample, jobs: Iterable[str]) -> bool:
    """A target of ours that does not answer: of a job of ours, or labelled as one."""
    known = up.labels.get("job", "") in jobs or _declared(up.labels) is not None
    return up.value == 0.0 and known


async def _target(
    api: PrometheusApi, up: Sample, errors: Mapping[Key, str], stands: Iterable[Key]
) -> Target:
    job, instance = key = _key(up.labels)
    declared = _declared(up.labels)
    target = Target(
        name=up.labels.get("replica") or up.labels.get("pod") or instance,
        where=f"{job} {instance}",
        pool=up.labels.get("pool") or (str(declared) if declared is not None else None),
        declared=declared,
        still="stale: its process clock has not moved for minutes" if key in stands else None,
        problem=None if up.value else f"down: {errors.get(key, 'the last scrape failed')}",
    )
    if not up.value:
        return target
    place = f"job={json.dumps(job)},instance={json.dumps(instance)}"
    series = await api.query(f'{{{place},__name__=~"{OURS}|{_PROCESS}"}}')
    return replace(target, page=_page(series, up.labels))


def _page(series: Iterable[Sample], target: Mapping[str, str]) -> Page:
    """The page as the target wrote it: what Prometheus put on every series of it is taken off."""
    samples: dict[str, dict[Labels, float]] = {}
    for sample in series:
        labels = tuple(
            sorted(
                (key, value)
                for key, value in sample.labels.items()
                if key != "__name__" and target.get(key) != value
            )
        )
        samples.setdefault(sample.name, {})[labels] = sample.value
    return Page(samples=samples)


def _key(labels: Mapping[str, str]) -> Key:
    return labels.get("job", ""), labels.get("instance", "")


def _declared(labels: Mapping[str, str]) -> Phase | None:
    return next((_ROLES[labels[k]] for k in _ROLE_LABELS if labels.get(k) in _ROLES), None)


def _targets_check(ups: Sequence[Sample], mine: Sequence[Sample]) -> Check:
    words = f"{len(mine)} of {len(ups)} carry series that phasewise knows"
    if len(mine) > _MOST_TARGETS:
        words += f"; only the first {_MOST_TARGETS} are looked at"
    return Check(what="scraped targets", ok=bool(mine), words=words)


def _recorded_checks(supplied: Sequence[Sample]) -> list[Check]:
    """The recorded series that dashboards and alerts read: there, and each from one supplier."""
    names = sorted({sample.name for sample in supplied})
    if not names:
        words = "there are none: render the rules, or scrape phasewise, or panels stay empty"
        return [Check(what="recorded series phase:*", ok=False, words=words)]
    missing = [spec.name for spec in RECORDED if spec.name not in names]
    words = f"{len(names)} of {len(RECORDED)} there" if missing else f"all {len(names)} there"
    if missing:
        words += f"; without data now: {', '.join(missing)}"
    checks = [Check(what="recorded series phase:*", ok=None if missing else True, words=words)]
    twice = sorted({sample.name for sample in supplied if sample.value > 1.0})
    if twice:
        words = (
            f"several suppliers of {', '.join(twice)} at once: panels count twice; "
            "keep either the recording rules or phasewise's own page"
        )
        checks.append(Check(what="suppliers", ok=False, words=words))
    return checks
