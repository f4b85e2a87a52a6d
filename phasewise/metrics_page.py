"""docs/metrics.md: every series that phasewise reads or writes, from the catalogue."""

from __future__ import annotations

from collections.abc import Iterable

from serving.catalogue import CATALOGUE, MetricSpec, Owner
from serving.own import OWN
from serving.recognised import RECOGNISED
from serving.recorded import RECORDED, RecordedSpec
from serving.recorded_within import WITHIN_EXAMPLE, expression
from serving.step_catalogue import STEP_SERIES

_INTRO = """# Metrics

Written by `make reference`; do not edit.

Three kinds of series, all in base units. A series that is not there is *not known*: it is never
written as zero or NaN, and its absence has the meaning that stands beside it.

| kind | names | who writes it |
| --- | --- | --- |
| our own | `phasewise_*` | `phasewise run`, on its `/metrics` and by OTLP |
| recorded | `phase:*` | rules (`phasewise render alerts`), or phasewise (`recorded.supplier`) |
| read | `vllm:*`, `llm_d_epp_*`, ... | engines and front ends |

Dashboards and alerts read the first two kinds only."""
_OWN = """## Our own

By OTLP the first `_` is a dot and the suffix that names a unit is left out, since the unit is told
apart: `phasewise_source_age_seconds` is `phasewise.source_age` in `s`."""
_RECORDED = """## Recorded

Labels `tier`, `pool` and `phase` come from the target; `phase:user_*` is by the user's own clock
and has only `tier`. Targets must be read every 30 s or more often. Exactly one supplier is
installed. The two agree within 2 % over five minutes; they differ on purpose where pages are
missing (phasewise scales sums up to the replicas it expects and drops what too few reported), on
draining replicas in `phase:replicas_reporting:count`, on a pool that is known to be empty (0, or
absent), and in queue and prefill times while KV pulls fail, which vLLM spoils: each leaves out what
it can tell."""
_READ = """## Read

Labels of the target are not listed."""
_STEPS = """### The step exporter on an engine's page

Only where the plugin `serving/vllm_steps/` is installed beside vLLM. Sums by kind of step: a
least-squares fit of step time needs no more than how they grew."""
_RECOGNISED = """## Only recognised

No number is taken from these; they tell a version, a role or a state (`phasewise doctor`)."""
_TITLES = {
    Owner.PROCESS: "Of every Python process",
    Owner.VLLM: "vLLM",
    Owner.EPP: "llm-d's endpoint picker, in all generations of names",
    Owner.VLLM_ROUTER: "vllm-router",
}


def metrics_page() -> str:
    """The page in Markdown."""
    sections = [
        _INTRO,
        _OWN,
        _table(OWN),
        _RECORDED,
        _recorded_table(),
        "### What the rules ask",
        "The two shares are for an SLO of 2 s and 50 ms of a tier called `demo`.",
        *(_rule(spec) for spec in RECORDED),
        _READ,
    ]
    for owner, title in _TITLES.items():
        sections += [f"### {title}", _table(s for s in CATALOGUE if s.owner is owner)]
    sections += [_STEPS, _table(STEP_SERIES), _RECOGNISED, _table(RECOGNISED)]
    return "\n\n".join(sections) + "\n"


def _table(specs: Iterable[MetricSpec]) -> str:
    rows = [
        f"| `{s.name}` | {s.type.value} | {s.unit.value} | {_labels(s.labels)} "
        f"| {s.help} | {s.absence} |"
        for s in specs
    ]
    return _headed(rows, "name", "type", "unit", "labels", "meaning", "when absent")


def _recorded_table() -> str:
    rows = [
        f"| `{s.name}` | {s.unit.value} | {_labels(s.labels)} | {s.help} | {s.over.value} "
        f"| {s.absence} |"
        for s in RECORDED
    ]
    return _headed(rows, "name", "unit", "labels", "meaning", "of", "when absent")


def _headed(rows: Iterable[str], *columns: str) -> str:
    head = [f"| {' | '.join(columns)} |", f"| {' | '.join('---' for _ in columns)} |"]
    return "\n".join([*head, *rows])


def _rule(spec: RecordedSpec) -> str:
    expr = expression(spec, tier="demo", slo=WITHIN_EXAMPLE)
    return f"`{spec.name}`\n\n```promql\n{expr}\n```"


def _labels(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels) or "none"
