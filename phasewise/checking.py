"""Says in one line what a file describes, or raises `Misconfigured` about what is wrong with it."""

from __future__ import annotations

from pathlib import Path

from phasewise.settings import Settings, load_settings
from serving.errors import Misconfigured
from serving.schema.strict_yaml import read_mapping
from serving.schema.tier import Tier, load_tier


def summary_of(path: Path) -> str:
    """What the tier or settings file at `path` is. Checks the tiers that a settings file names."""
    keys = read_mapping(path).keys()
    if keys & {"apiVersion", "kind", "metadata", "spec"}:
        return f"{path}: {_tier_words(load_tier(path))}"
    if keys & {"tiers", "source"}:
        return f"{path}: {_settings_words(load_settings(path))}"
    raise Misconfigured(
        "neither a tier nor a settings file",
        where=str(path),
        found="none of their keys",
        expected="apiVersion, kind, metadata and spec, or tiers and source",
    )


def _tier_words(tier: Tier) -> str:
    pools = ", ".join(
        f"{pool.name} ({pool.phase}, {pool.variant}, {pool.replicas.min}-{pool.replicas.max})"
        for pool in tier.spec.pools
    )
    return f"tier {tier.name} of model {tier.spec.model}, pools: {pools}"


def _settings_words(settings: Settings) -> str:
    tiers = ", ".join(f"{load_tier(entry.file).name} ({entry.mode})" for entry in settings.tiers)
    return f"settings, tiers: {tiers}"
