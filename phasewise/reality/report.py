"""The comparison as a page of documentation. Decides what is shown, not what is true.

Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from string import Template

from phasewise.reality.comparing import Row, families, mean_of, p90_of
from phasewise.reality.quirks import QUIRKS, Answer
from phasewise.reality.reasons import is_far, reason_of
from phasewise.reality.recording import TARGETS, Recording
from phasewise.reality.run import Run
from serving.catalogue import MetricType, Unit
from serving.simulation.profile import EngineProfile

NONE = "-"


def report(
    recording: Recording,
    profile: EngineProfile,
    live: Run,
    simulated: Run,
    rows: Sequence[Row],
    *,
    profile_file: str,
) -> str:
    """The whole page, from the packaged template."""
    template = Template(
        files("phasewise.reality").joinpath("report.md").read_text(encoding="utf-8")
    )
    about = recording.about
    seen = [row for row in rows if row.live is not None or row.simulated is not None]
    never = [row for row in rows if row.live is None and row.simulated is None]
    differing = [row for row in seen if row.differences]
    return template.substitute(
        machine=about.machine,
        engine=about.engine,
        router=about.router,
        model=about.model,
        load=about.load,
        requests=len(recording.requests),
        failed=recording.failed,
        arguments=(
            f"{about.max_model_len} tokens at most a request, {about.max_num_seqs} requests and "
            f"{about.max_num_batched_tokens} tokens in a step"
        ),
        seconds=f"{recording.pages[-1].at_s:.0f}",
        pages=len(recording.pages),
        profile_file=profile_file,
        figures=_figures(profile),
        summary=_summary(seen, differing, live, simulated),
        quirks=_quirks(live, simulated),
        tables="\n".join(_table(target, seen) for target in TARGETS),
        never=_never(never),
        others="\n".join(_other_families(live, simulated)),
        why="\n".join(_why(seen)),
    )


def quirk_answers(live: Run, simulated: Run) -> list[tuple[str, Answer, Answer]]:
    """Each quirk with what the live and the simulated run say of it."""
    return [(quirk.words, quirk.check(live), quirk.check(simulated)) for quirk in QUIRKS]


def _summary(seen: Sequence[Row], differing: Sequence[Row], live: Run, simulated: Run) -> str:
    both = sum(row.live is not None and row.simulated is not None for row in seen)
    answers = quirk_answers(live, simulated)
    alike = sum(one == other for _, one, other in answers)
    ratios = [row.mean_ratio for row in seen if row.mean_ratio is not None]
    near = sum(not is_far(ratio) for ratio in ratios)
    return (
        f"Of {len(seen)} catalogued series (counted once on each target and for each label value "
        f"that changes their meaning) {both} are on both, {len(differing)} differ in kind, and "
        f"{alike} of {len(answers)} quirks answer alike. "
        f"Of {len(ratios)} means that can be compared {near} lie within a factor of two."
    )


def _figures(profile: EngineProfile) -> str:
    lines = ["| figure | value | how |", "| --- | --- | --- |"]
    lines += [
        f"| `{name}` | {figure.value:.4g} | {figure.tag}: {figure.source.rpartition(': ')[2]} |"
        for name, figure in profile.figures.items()
        if not name.startswith("start_")
    ]
    return "\n".join(lines)


def _quirks(live: Run, simulated: Run) -> str:
    lines = ["| what | live | simulated |", "| --- | --- | --- |"]
    lines += [
        f"| {words} | {_answer(one)} | {_answer(other)} |"
        for words, one, other in quirk_answers(live, simulated)
    ]
    return "\n".join(lines)


def _answer(answer: Answer) -> str:
    return {True: "yes", False: "no", None: "not told"}[answer]


def _table(target: str, rows: Iterable[Row]) -> str:
    lines = [
        f"### {target}",
        "",
        "| series | what | live | simulated | ratio | p90 live | p90 simulated | ratio | in kind |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if row.target != target:
            continue
        one, other = row.live, row.simulated
        split = "".join(f" {value}" for _, value in row.split)
        lines.append(
            f"| `{row.spec.name}`{split} | {_what(row)} "
            f"| {_number(mean_of(one))} | {_number(mean_of(other))} "
            f"| {_ratio(row.mean_ratio)} "
            f"| {_number(p90_of(one))} | {_number(p90_of(other))} "
            f"| {_ratio(row.p90_ratio)} | {'; '.join(row.differences) or 'alike'} |"
        )
    return "\n".join([*lines, ""])


def _what(row: Row) -> str:
    if row.spec.unit is Unit.INFO or row.spec.name == "process_start_time_seconds":
        return "is there"
    return {
        MetricType.HISTOGRAM: "mean",
        MetricType.COUNTER: "growth",
        MetricType.GAUGE: "time mean",
    }[row.spec.type]


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.4g}"


def _ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _never(rows: Iterable[Row]) -> str:
    names = sorted({row.spec.name for row in rows})
    return ", ".join(f"`{name}`" for name in names) or "none"


def _other_families(live: Run, simulated: Run) -> Iterable[str]:
    """Families that only one run has, whether catalogued or not."""
    for target in TARGETS:
        one, other = families(live, target), families(simulated, target)
        for name in sorted(one ^ other):
            if name.endswith("_created") and name.removesuffix("_created") in one ^ other:
                continue
            where = "live" if name in one else "simulated"
            words = reason_of(target, name, of_figures=False) or "no reason stated"
            yield f"- {target}, only {where}: `{name}`: {words}."


def _why(rows: Iterable[Row]) -> Iterable[str]:
    """Every row that differs in kind or lies far apart, with its reason."""
    for row in rows:
        where = f"{row.target}, `{row.spec.name}`{''.join(f' {v}' for _, v in row.split)}"
        if row.differences:
            words = reason_of(row.target, row.spec.name, of_figures=False)
            yield f"- {where}: {'; '.join(row.differences)}: {words or 'no reason stated'}."
        if is_far(row.mean_ratio):
            words = reason_of(row.target, row.spec.name, of_figures=True)
            yield f"- {where}: {_ratio(row.mean_ratio)} of live: {words or 'no reason stated'}."
