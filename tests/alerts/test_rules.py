"""Every alert can be acted on: a runbook, a severity, words without guesses, links that lead on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from alerts.render import Links, alert_rules, runbooks
from alerts.rules import ALERTS, Alert, Severity
from autoscaler.types import Reason
from dashboards.tier import board
from serving.series import SPEC_OF_SAMPLE

ROOT = Path(__file__).parents[2]
LINKS = Links(runbooks="https://runbooks.example", grafana="https://grafana.example")
SECTIONS = ["What users notice", "Confirm", "Do", "It is over when"]
NAMES = re.compile(r"\b(?:phasewise_[a-z_]+|phase:[a-z_]+:[a-z0-9_]+)\b")


def _named(alert: Alert) -> str:
    return alert.name


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert sorted(runbooks()) == sorted(alert.name for alert in ALERTS)


def test_names_are_told_apart() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)


@pytest.mark.parametrize("alert", ALERTS, ids=_named)
def test_an_alert_is_named_rated_and_worded(alert: Alert) -> None:
    assert re.fullmatch(r"Phasewise([A-Z][a-z]+)+", alert.name)
    assert alert.severity in Severity
    assert re.fullmatch(r"\d+[smh]", alert.lasts)
    assert "{{" not in alert.summary
    assert re.fullmatch(r"[^.]+\.", alert.summary)
    assert "$labels.tier" in alert.description
    assert "$value" in alert.description


@pytest.mark.parametrize("alert", ALERTS, ids=_named)
def test_a_description_reads_only_labels_that_the_expression_leaves(alert: Alert) -> None:
    read = set(re.findall(r"\$labels\.(\w+)", alert.description))
    kept = {
        label
        for group in re.findall(r"max by \(([^)]*)\)", alert.expr)
        for label in group.split(", ")
    }
    made = set(re.findall(r'"(\w+)", "\w+", "", ""\)', alert.expr))

    assert read <= kept | made


@pytest.mark.parametrize("alert", ALERTS, ids=_named)
def test_a_runbook_has_its_sections_and_commands_to_paste(alert: Alert) -> None:
    text = runbooks()[alert.name]

    assert text.startswith(f"# {alert.name}\n")
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == SECTIONS
    assert "```sh" in text.split("## Confirm")[1].split("## Do")[0]


@pytest.mark.parametrize("alert", ALERTS, ids=_named)
def test_a_runbook_names_only_what_there_is(alert: Alert) -> None:
    text = runbooks()[alert.name]
    reasons = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", text))
    panels = {panel.title for panel in board().panels()}

    assert {name for name in NAMES.findall(text) if name not in SPEC_OF_SAMPLE} == {
        name for name in NAMES.findall(text) if f"{name}_sum" in SPEC_OF_SAMPLE
    }
    assert reasons <= set(Reason)
    assert set(re.findall(r"\*(What .*?\?)\*", text)) <= panels
    for link in re.findall(r"\]\((\w+)\.md\)", text):
        assert link in runbooks()


def test_every_rule_carries_both_links() -> None:
    rules = yaml.safe_load(alert_rules(LINKS))["groups"][0]["rules"]

    assert [rule["alert"] for rule in rules] == [alert.name for alert in ALERTS]
    for rule in rules:
        assert rule["labels"] == {"severity": rule["labels"]["severity"]}
        assert rule["annotations"]["runbook_url"].endswith(f"/{rule['alert']}.md")
        assert rule["annotations"]["dashboard_url"].startswith(
            f"https://grafana.example/d/{board().uid}?var-tier="
        )


def test_the_rule_file_is_what_the_rows_say() -> None:
    rules = yaml.safe_load(alert_rules(LINKS))["groups"][0]["rules"]

    assert [(r["expr"], r["for"], r["annotations"]["summary"]) for r in rules] == [
        (alert.expr, alert.lasts, alert.summary) for alert in ALERTS
    ]
