"""Debian's promtool on the rendered rules: they load, they fire, and they keep quiet.

The cases stand in `promtool/<AlertName>.yaml`, in the dialect of promtool 2.42.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from alerts.render import Links, alert_rules
from alerts.rules import ALERTS
from phasewise.render_alerts import render
from phasewise.rendering import RenderRequest, tiers_of

CASES_IN = Path(__file__).parent / "promtool"
CASES = sorted(CASES_IN.glob("*.yaml"))
LINKS = Links(runbooks="https://runbooks.example", grafana="https://grafana.example")


def promtool(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it; the test is skipped where it is not installed."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    return subprocess.run(
        [program, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def always_true(expr: str) -> list[str]:
    """The expression with one threshold after another made to hold for every value.

    `> 0` is left alone: that is a guard of a division.
    """
    anything = {">": "> -1e9", "<": "< 1e9", "<=": "< 1e9"}
    return [
        expr[: found.start()] + anything[found.group(1)] + expr[found.end() :]
        for found in re.finditer(r"(>|<=|<) (?!0\b(?!\.))[0-9.]+", expr)
    ]


def test_every_alert_has_its_cases() -> None:
    assert [case.stem for case in CASES] == sorted(alert.name for alert in ALERTS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_there_are_cases_that_fire_that_do_not_and_with_nothing_known(case: Path) -> None:
    text = case.read_text()

    assert "exp_labels:" in text
    assert "exp_alerts: []" in text
    assert any(word in text for word in ("not known", "is known", "ever scraped"))


def test_the_rendered_rule_files_load(tmp_path: Path) -> None:
    texts = render(RenderRequest(tiers=tiers_of()))
    rule_files = [name for name in texts if name.endswith(".yaml")]
    for name in rule_files:
        (tmp_path / name).write_text(texts[name])

    checked = promtool("check", "rules", *rule_files, folder=tmp_path)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert len(rule_files) == 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_an_alert_fires_when_it_should_and_only_then(case: Path, tmp_path: Path) -> None:
    (tmp_path / "phasewise-alerts.yaml").write_text(alert_rules(LINKS))
    shutil.copy(case, tmp_path)

    tested = promtool("test", "rules", case.name, folder=tmp_path)

    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize(
    ("name", "broken"),
    [(alert.name, broken) for alert in ALERTS for broken in always_true(alert.expr)],
)
def test_the_cases_miss_no_condition(name: str, broken: str, tmp_path: Path) -> None:
    """With any one of its thresholds taken away, an alert fires where it should not."""
    rules = yaml.safe_load(alert_rules(LINKS))
    for rule in rules["groups"][0]["rules"]:
        if rule["alert"] == name:
            rule["expr"] = broken
    (tmp_path / "phasewise-alerts.yaml").write_text(yaml.safe_dump(rules))
    shutil.copy(CASES_IN / f"{name}.yaml", tmp_path)

    tested = promtool("test", "rules", f"{name}.yaml", folder=tmp_path)

    assert tested.returncode != 0, broken
