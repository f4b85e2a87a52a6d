"""`phasewise render alerts`: rule files for Prometheus, and the runbooks that they link to."""

from __future__ import annotations

from alerts.recording import render_recording
from alerts.render import Links, alert_rules, runbooks
from phasewise.rendering import RenderRequest


def render(asked: RenderRequest) -> dict[str, str]:
    """Alerts, recorded series with the SLO of each tier, and runbooks, by file name.

    No recording rules where phasewise itself supplies the series, or every sum would count twice.
    """
    links = Links(runbooks=asked.runbooks, grafana=asked.grafana)
    recorded = render_recording([(tier.name, tier.slo) for tier in asked.tiers])
    return {
        "phasewise-alerts.yaml": alert_rules(links),
        **({"phasewise-recorded.yaml": recorded} if asked.rules_record else {}),
        **{f"runbooks/{name}.md": text for name, text in runbooks().items()},
    }
