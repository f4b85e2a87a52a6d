"""`phasewise init`: a first tier document from live pages, and what nobody could know marked.

Pools come from labels where a target list has them, else from what the pages show; engine
arguments and the model from the pages. Everything else is a default with `# TODO` behind it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collector.evidence import read_everything
from collector.scrape import Scraper
from phasewise.doctor_pages import targets_in
from phasewise.doctor_targets import Check, Examined, Target, examine, role_checks
from phasewise.prometheus_api import checked_url
from phasewise.tier_draft import Draft, draft_of, draft_text
from serving.errors import Misconfigured, Unavailable
from serving.schema.tier import load_tier
from serving.types import Phase

_META = "__meta_phasewise_"
_PHASE_LABELS = ("phase", "llm_d_ai_role", "llm-d.ai/role", "role")
_PHASES = {"prefill-decode": Phase.BOTH} | {str(phase): phase for phase in Phase}


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRequest:
    """Where pages are: exactly one of the first three. `force` replaces an existing file."""

    http_sd: str | None
    pages: Path | None
    urls: Sequence[str]
    output: Path
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InitResult:
    """What was written, what is to be done by hand, and what looks wrong."""

    draft: Draft
    warnings: tuple[str, ...]
    todo: int
    problem: str | None


def run_init(request: InitRequest) -> InitResult:
    """Look at the pages and write the document. Raises Unavailable if no page can be read."""
    given = [bool(request.http_sd), request.pages is not None, bool(request.urls)]
    if sum(given) != 1:
        raise Misconfigured(
            "one source at a time",
            where="phasewise init",
            found="several" if sum(given) else "nothing",
            expected="one of --http-sd URL, --pages DIR, --url URL (as often as wanted)",
        )
    if request.output.exists() and not request.force:
        raise Misconfigured(
            "there is a file already",
            where=str(request.output),
            found="a file",
            expected="another name (-o), or --force to replace it",
        )
    targets = (
        targets_in(request.pages)
        if request.pages is not None
        else asyncio.run(_fetch(request.http_sd, request.urls))
    )
    examined = [examine(target, slo=None) for target in targets]
    draft = draft_of(examined)
    if not draft.pools:
        why = next((each.wrong[0] for each in examined if each.wrong), "none is of an engine")
        raise Unavailable(f"no engine's page among {len(examined)} targets: {why}")
    text = draft_text(draft)
    _write(request.output, text)
    return InitResult(
        draft=draft,
        warnings=tuple(_warnings(examined, role_checks(examined))),
        todo=text.count("# TODO"),
        problem=_problem(request.output),
    )


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    except OSError as error:
        raise Misconfigured(
            "cannot be written",
            where=str(file),
            found=error.strerror or type(error).__name__,
            expected="a file in a folder that can be written",
        ) from error


def _problem(file: Path) -> str | None:
    """Why the document is not whole yet, in the words that `check` would use."""
    try:
        load_tier(file)
    except Misconfigured as error:
        return str(error)
    return None


def _warnings(examined: Iterable[Examined], checks: Iterable[Check]) -> Iterable[str]:
    for check in checks:
        if check.ok is not True:
            yield f"{check.what}: {check.words}"
    for each in examined:
        if each.wrong:
            yield f"{each.target.name}: cannot be used: {each.wrong[0]}"


async def _fetch(http_sd: str | None, urls: Sequence[str]) -> tuple[Target, ...]:
    async with Scraper(timeout_s=5.0) as scraper:
        if http_sd is not None:
            body = await scraper.fetch(checked_url(http_sd, where="--http-sd"))
            if isinstance(body, Unavailable):
                raise body
            targets = _listed(body, http_sd)
        else:
            targets = [Target(name=u, where=checked_url(u, where="--url")) for u in urls]
        bodies = await asyncio.gather(
            *(_nothing() if t.starting else scraper.fetch(t.where) for t in targets)
        )
    return tuple(_with_page(t, body) for t, body in zip(targets, bodies, strict=True))


async def _nothing() -> bytes | Unavailable:
    return Unavailable("it starts: no page yet")


def _with_page(target: Target, body: bytes | Unavailable) -> Target:
    try:
        if isinstance(body, Unavailable):
            raise body
        return replace(target, page=read_everything(body))
    except Unavailable as error:
        return replace(target, problem=error.what)


def _listed(body: bytes, url: str) -> list[Target]:
    """Targets of any http_sd document; labels of pool and phase are taken where there are some."""
    try:
        document = json.loads(body)
        return [
            _from_group(address, group.get("labels") or {})
            for group in document
            for address in group["targets"]
        ]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise Unavailable(f"{url}: no list of targets in http_sd form") from error


def _from_group(address: str, labels: dict[str, str]) -> Target:
    scheme, path = labels.get("__scheme__", "http"), labels.get("__metrics_path__", "/metrics")
    found = [labels.get(f"{_META}phase"), *(labels.get(name) for name in _PHASE_LABELS)]
    phase = next((_PHASES[text] for text in found if text in _PHASES), None)
    is_router = f"{_META}router" in labels
    pool = labels.get(f"{_META}pool") or labels.get("pool") or (str(phase) if phase else None)
    return Target(
        name=labels.get("replica") or labels.get("pod") or address,
        where=f"{scheme}://{address}{path}",
        pool=None if is_router else pool,
        declared=None if is_router else phase,
        starting=labels.get(f"{_META}state") == "starting",
    )
