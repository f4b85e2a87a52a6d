"""`phasewise render dashboards` and `render alerts`, as a person calls them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from alerts.rules import ALERTS
from phasewise.cli import main
from phasewise.render_dashboards import render
from phasewise.rendering import RenderRequest
from serving.errors import Misconfigured


def _run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 0


def test_the_dashboard_is_one_file_whose_links_lead_where_they_are_told(tmp_path: Path) -> None:
    _run("render", "dashboards", str(tmp_path), "--runbooks", "https://wiki.example/books/")
    (file,) = tmp_path.iterdir()
    found = json.loads(file.read_text())
    links = {link["url"] for panel in found["panels"] for link in panel.get("links", ())}

    assert found["uid"] == "phasewise-tier"
    assert links <= {f"https://wiki.example/books/{alert.name}.md" for alert in ALERTS}
    assert links


def test_the_alerts_come_with_their_runbooks_and_links(tmp_path: Path) -> None:
    _run(
        *("render", "alerts", str(tmp_path)),
        *("--runbooks", "https://wiki.example/books", "--grafana", "https://grafana.example/"),
    )
    files = sorted(str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file())
    rules = yaml.safe_load((tmp_path / "phasewise-alerts.yaml").read_text())["groups"][0]["rules"]

    assert files == [
        "phasewise-alerts.yaml",
        "phasewise-recorded.yaml",
        *sorted(f"runbooks/{alert.name}.md" for alert in ALERTS),
    ]
    for rule in rules:
        notes = rule["annotations"]
        assert notes["runbook_url"] == f"https://wiki.example/books/{rule['alert']}.md"
        assert notes["dashboard_url"].startswith("https://grafana.example/d/phasewise-tier?")


def test_without_grafanalib_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "dashboards.grafana", raising=False)
    monkeypatch.setitem(sys.modules, "grafanalib", None)

    with pytest.raises(Misconfigured, match="phasewise\\[render\\]"):
        render(RenderRequest(tiers=()))
