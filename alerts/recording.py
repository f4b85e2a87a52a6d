"""The recording rules: `phase:*` from native series, for whoever has only a Prometheus.

Plain PromQL of Prometheus 2. Install them, or let phasewise export the same names, never both:
each sum would count twice. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serving.recorded import RECORDED, WithinSlo
from serving.recorded_within import CLOSE_RATIO, expression, neighbours
from serving.schema.yaml_text import yaml_text
from serving.types import Slo

INTERVAL = "15s"
_COMMENT = """Recorded series of phasewise, from the native series of vLLM and the endpoint picker.
Targets need the labels tier, pool and phase; pages are to be read every 30 s or more often.
Leave this file out where phasewise itself exports these names (recorded.supplier: phasewise)."""


def recording_groups(tiers: Sequence[tuple[str, Slo]]) -> list[dict[str, Any]]:
    """The rule groups: one for all tiers, and one for the SLO of each tier.

    A share within an SLO that no histogram has as a bound may have no rule: see `off_bounds`.
    """
    shared = [{"record": spec.name, "expr": spec.expr} for spec in RECORDED if spec.within is None]
    groups: list[dict[str, Any]] = [
        {"name": "phasewise-recorded", "interval": INTERVAL, "rules": shared}
    ]
    for tier, slo in tiers:
        rules = []
        for spec in RECORDED:
            if spec.within is None:
                continue
            try:
                expr = expression(spec, tier=tier, slo=slo)
            except ValueError:
                continue
            rules.append({"record": spec.name, "expr": expr})
        if rules:
            name = f"phasewise-recorded-{tier}"
            groups.append({"name": name, "interval": INTERVAL, "rules": rules})
    return groups


def off_bounds(tier: str, slo: Slo) -> list[str]:
    """A sentence for each share within a tier's SLO that no bucket bound of the picker tells."""
    said: list[str] = []
    for spec in RECORDED:
        if spec.within is None:
            continue
        try:
            expression(spec, tier=tier, slo=slo)
        except ValueError as error:
            said.append(f"{tier}: {spec.name} is not recorded: {error}")
            continue
        low, high = neighbours(spec.within, slo)
        if low == high:
            continue
        if spec.within is WithinSlo.TPOT:
            said.append(f"{tier}: {spec.name} is by decode's clock: {slo.itl_s:g} s is its bound")
            continue
        near = [f"{bound:g} s" for bound in (low, high) if bound is not None]
        said.append(
            f"{tier}: {spec.name} lies between the shares at the nearest bucket bounds "
            f"({' and '.join(near)}): the lower one, while they are within {CLOSE_RATIO:g}"
        )
    return said


def render_recording(tiers: Sequence[tuple[str, Slo]]) -> str:
    """The rule file as YAML text; thresholds off the bucket bounds are named at its top."""
    notes = [note for tier, slo in tiers for note in off_bounds(tier, slo)]
    comment = "\n".join([_COMMENT, *notes])
    return yaml_text({"groups": recording_groups(tiers)}, comment=comment)
