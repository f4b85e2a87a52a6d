"""How fast an engine is: figures with their origin, read from the packaged YAML files.

The profile only holds numbers; what they mean for an iteration is the engine's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import Any

import yaml

from serving.errors import Misconfigured
from serving.types import StartStage

TAGS = ("published", "estimated", "measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number, how it came about (`TAGS`), and where or by which arithmetic."""

    value: float
    tag: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """One model on one replica. An iteration lasts the larger base that applies, plus its terms.

    `prefill_s_per_token_squared` is the attention term: a chunk of n tokens after c others adds
    that times (c+n)² - c². `decode_s_per_kv_token` is paid for each KV token of the decoding
    requests in each iteration. `figures` keeps tag and source of every number by its name.
    """

    name: str
    model: str
    accelerator: str
    prefill_base_s: float
    prefill_s_per_token: float
    prefill_s_per_token_squared: float
    decode_base_s: float
    decode_s_per_sequence: float
    decode_s_per_kv_token: float
    kv_bytes_per_token: float
    kv_capacity_tokens: int
    kv_link_bytes_per_s: float
    kv_link_latency_s: float
    start_cold_s: Mapping[StartStage, float]
    start_warm_s: Mapping[StartStage, float]
    figures: Mapping[str, Figure]


WORDS = ("name", "model", "accelerator")
STARTS = ("start_cold_s", "start_warm_s")
MAY_BE_ZERO = (
    *("prefill_base_s", "prefill_s_per_token_squared", "decode_base_s", "decode_s_per_sequence"),
    *("decode_s_per_kv_token", "kv_link_latency_s"),
)


def profile_names() -> tuple[str, ...]:
    """The packaged profiles, sorted."""
    folder = files("serving.simulation").joinpath("profiles")
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".yaml")))


@cache
def load_profile(name: str) -> EngineProfile:
    """Read a packaged profile by name; an unknown name is refused with the known ones."""
    if name not in profile_names():
        raise _bad("unknown profile", "profile", name, ", ".join(profile_names()))
    text = files("serving.simulation").joinpath("profiles", f"{name}.yaml").read_text("utf-8")
    return parse_profile(text, name=name)


def parse_profile(text: str, *, name: str) -> EngineProfile:
    """Turn a profile's YAML into an `EngineProfile`; every fault names its place."""
    where = f"profile {name}"
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _bad("not YAML", where, str(error), "a mapping") from error
    expected = {field.name for field in fields(EngineProfile)} - {"name", "figures"}
    if not isinstance(document, dict) or set(document) != expected:
        found = sorted(map(str, document)) if isinstance(document, dict) else document
        raise _bad("wrong keys", where, found, ", ".join(sorted(expected)))
    figures: dict[str, Figure] = {}
    values: dict[str, Any] = {"name": name}
    for key, entry in document.items():
        here = f"{where}, {key}"
        if key in WORDS:
            values[key] = str(entry)
        elif key in STARTS:
            stages = _stages(entry, here)
            figures |= {f"{key}.{stage}": figure for stage, figure in stages.items()}
            values[key] = {stage: figure.value for stage, figure in stages.items()}
        else:
            figures[key] = _figure(entry, here, zero=key in MAY_BE_ZERO)
            values[key] = figures[key].value
    values["kv_capacity_tokens"] = int(values["kv_capacity_tokens"])
    return EngineProfile(**values, figures=figures)


def profile_text(profile: EngineProfile, *, comment: str) -> str:
    """The YAML of a profile, as `parse_profile` reads it, under a comment."""
    document: dict[str, Any] = {"model": profile.model, "accelerator": profile.accelerator}
    for key in (field.name for field in fields(EngineProfile)):
        if key in STARTS:
            document[key] = {
                str(stage): _entry(profile.figures[f"{key}.{stage}"]) for stage in StartStage
            }
        elif key in profile.figures:
            document[key] = _entry(profile.figures[key])
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + yaml.safe_dump(document, sort_keys=False, width=1000, allow_unicode=True)


def _entry(figure: Figure) -> dict[str, object]:
    # five digits: a fit tells no more
    value = float(f"{figure.value:.5g}") if figure.value < 1e6 else figure.value
    return {"value": value, "tag": figure.tag, "source": figure.source}


def _stages(entry: object, where: str) -> dict[StartStage, Figure]:
    names = {str(stage) for stage in StartStage}
    if not isinstance(entry, dict) or set(entry) != names:
        raise _bad("wrong stages", where, entry, ", ".join(StartStage))
    return {s: _figure(entry[str(s)], f"{where}, {s}", zero=True) for s in StartStage}


def _figure(entry: object, where: str, *, zero: bool) -> Figure:
    if not isinstance(entry, dict) or set(entry) != {"value", "tag", "source"}:
        raise _bad("not a figure", where, entry, "value, tag and source")
    value = entry["value"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise _bad("value is not a number", where, value, "a finite number (write 1.0e-6)")
    if value < 0.0 or (value == 0.0 and not zero):
        raise _bad("value is out of range", where, value, "0 or more" if zero else "more than 0")
    if entry["tag"] not in TAGS or not str(entry["source"] or "").strip():
        raise _bad("origin is not stated", where, entry, f"a tag of {TAGS} and a source")
    return Figure(value=float(value), tag=str(entry["tag"]), source=str(entry["source"]).strip())


def _bad(what: str, where: str, found: object, expected: str) -> Misconfigured:
    return Misconfigured(what, where=where, found=repr(found), expected=expected)
