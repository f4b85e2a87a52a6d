"""What every `phasewise render KIND DIR` shares: which tiers, which files, and writing them.

A kind is a module with `render(asked: RenderRequest) -> dict[str, str]`: file names within the
folder, and their whole text. It does no I/O of its own; the same tier gives the same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from serving.errors import Misconfigured
from serving.schema.tier import Tier, demo_tier_path, load_tier


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderRequest:
    """What was asked: the tiers, and the options that only some kinds read."""

    tiers: tuple[Tier, ...]
    scaler_address: str | None = None
    tls: bool = False
    runbooks: str = "https://runbooks.example/phasewise"
    grafana: str = "http://localhost:3000"
    rules_record: bool = True


def tiers_of(*, tier: Path | None = None, config: Path | None = None) -> tuple[Tier, ...]:
    """The tier of a document, all tiers of a settings file, or the demo's tier."""
    if tier is not None and config is not None:
        raise Misconfigured(
            "which tiers?", where="--tier and --config", found="both", expected="at most one"
        )
    if config is None:
        return (load_tier(demo_tier_path() if tier is None else tier),)
    from phasewise.settings import load_settings

    return tuple(load_tier(entry.file) for entry in load_settings(config).tiers)


def rules_record(config: Path | None) -> bool:
    """Whether rules make the recorded series: unless a settings file says that phasewise does."""
    if config is None:
        return True
    from phasewise.settings import load_settings

    return load_settings(config).recorded.supplier == "rules"


def render_into(
    folder: Path, kind: str, kinds: Mapping[str, str], asked: RenderRequest
) -> list[Path]:
    """Write what `kind` makes and return the files, in order. `kinds` maps it to its module."""
    if kind not in kinds:
        raise Misconfigured(
            "nothing is called that", where="render", found=repr(kind), expected=", ".join(kinds)
        )
    texts: dict[str, str] = import_module(kinds[kind]).render(asked)
    written = []
    for name, text in texts.items():
        file = folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Misconfigured(
                "cannot be written",
                where=str(file),
                found=error.strerror or str(error),
                expected="a folder that can be written",
            ) from error
        written.append(file)
    return written
