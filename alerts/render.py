"""The alerts as the files that Prometheus reads, with the links that every one of them carries.

The runbook and dashboard links are added here and nowhere else, so that none can be forgotten.
No clock, no network, no log; the runbooks are read from this package.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from alerts.rules import ALERTS, Alert
from serving.schema.yaml_text import yaml_text

_MADE = "Made by `phasewise render alerts`; make it again instead of editing it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Where the links lead: the folder of the runbooks, and Grafana. No slash at the end."""

    runbooks: str
    grafana: str

    def of(self, alert: Alert) -> dict[str, str]:
        """The links of one alert; the dashboard opens on its tier."""
        return {
            "runbook_url": f"{self.runbooks}/{alert.name}.md",
            "dashboard_url": f"{self.grafana}/d/phasewise-tier?var-tier="
            "{{ $labels.tier | urlquery }}",
        }


def alert_rule(alert: Alert, links: Links) -> dict[str, Any]:
    """One alerting rule as Prometheus's rule file has it."""
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.lasts,
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            **links.of(alert),
        },
    }


def alert_rules(links: Links) -> str:
    """The rule file of the alerts."""
    rules = [alert_rule(alert, links) for alert in ALERTS]
    return yaml_text({"groups": [{"name": "phasewise", "rules": rules}]}, comment=_MADE)


def runbooks() -> dict[str, str]:
    """The text of every runbook, by the name of its alert."""
    folder = files("alerts") / "runbooks"
    texts = {f.name.removesuffix(".md"): f for f in folder.iterdir() if f.name.endswith(".md")}
    return {name: texts[name].read_text(encoding="utf-8") for name in sorted(texts)}
