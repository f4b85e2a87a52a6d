"""Every query of the dashboard has an answer from a real Prometheus over the simulated tier.

Prometheus finds the tier by its http_sd, loads the rendered rules and scrapes `phasewise run`.
The tier is set up so that each kind of event happens: prefill is held at its maximum, decode grows,
and a replica is killed so that requests fail.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from alerts.rules import ALERTS
from dashboards.tier import board
from phasewise.rendering import RenderRequest, render_into, tiers_of
from serving.schema.tier import demo_tier_path

if TYPE_CHECKING:
    from tests.real.conftest import Prometheus, RunningTier, StartPrometheus

KINDS = {"alerts": "phasewise.render_alerts"}
WITHIN_S = 75.0
SETUP = ("--speed", "4", "--volume", "2.5", "--initial", "prefill=2,decode=2")
CHOICES = {
    "$__rate_interval": "1m",
    "$__range": "1h",
    "$tier": "demo",
    "$pool": ".*",
    "$phase": ".*",
}


@pytest.fixture
def tier_file(tmp_path: Path) -> Path:
    """The demo's tier, with prefill at its maximum from the start.

    Its TTFT target lies on a bound of the endpoint picker's buckets: off a bound, the share within
    it is not always known, and then there rightly is no data.
    """
    document = yaml.safe_load(demo_tier_path().read_text())
    document["spec"]["slo"]["ttftSeconds"] = 3.0
    document["spec"]["pools"][0]["replicas"]["max"] = 2
    file = tmp_path / "tier.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.fixture
def own_page(tmp_path: Path, tier_file: Path, simulated_tier: RunningTier) -> Iterator[str]:
    """A running `phasewise run` that acts on the tier; its host and port."""
    settings = {
        "tiers": [{"file": str(tier_file), "mode": "act"}],
        "source": {
            "httpSd": simulated_tier.http_sd,
            "scrapeIntervalSeconds": 1.0,
            "timeoutSeconds": 1.0,
        },
        "tickSeconds": 5.0,
        "ledger": {"file": str(tmp_path / "ledger.sqlite")},
        "actuator": {"kind": "scale-endpoint", "url": simulated_tier.control},
        "console": {"port": 0},
    }
    file, log = tmp_path / "phasewise.yaml", tmp_path / "run.log"
    file.write_text(yaml.safe_dump(settings))
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "phasewise", "run", "-c", str(file)],
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        process.wait(timeout=20)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + 60.0
    while time.monotonic() < until and process.poll() is None:
        for line in log.read_text().splitlines():
            if line.startswith("{") and json.loads(line)["event"] == "console listens":
                address: str = json.loads(line)["address"]
                return address.removeprefix("http://")
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])


def _kill(tier: RunningTier, replica: str) -> None:
    body = json.dumps({"kind": "kill", "pool": "decode", "replicas": replica}).encode()
    asked = urllib.request.Request(f"{tier.control}/faults", data=body, method="POST")
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert answer.status == 200


def _queries() -> dict[str, str]:
    shown = board()
    found = {
        f"{panel.title} / {query.legend}": query.expr
        for panel in shown.panels()
        for query in panel.queries
    }
    found |= {mark.title: mark.query.expr for mark in shown.marks}
    for name, expr in found.items():
        for choice, value in CHOICES.items():
            found[name] = found[name].replace(choice, value)
        assert "$" not in found[name], expr
    return found


def _configuration(tier: RunningTier, own: str, rule_files: list[Path]) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(file) for file in rule_files],
        "scrape_configs": [
            {
                "job_name": "tier",
                "http_sd_configs": [{"url": tier.http_sd, "refresh_interval": "1s"}],
            },
            {"job_name": "phasewise", "static_configs": [{"targets": [own]}]},
        ],
    }


@pytest.mark.parametrize("simulated_tier", [SETUP], indirect=True)
def test_every_query_of_the_dashboard_has_an_answer(
    start_prometheus: StartPrometheus,
    simulated_tier: RunningTier,
    own_page: str,
    tier_file: Path,
    tmp_path: Path,
) -> None:
    asked = RenderRequest(tiers=tiers_of(tier=tier_file))
    rendered = render_into(tmp_path / "rules", "alerts", KINDS, asked)
    rule_files = [file for file in rendered if file.suffix == ".yaml"]
    for file in rule_files:  # nobody waits 15 s for the first recorded value
        file.write_text(file.read_text().replace("interval: 15s", "interval: 1s"))
    prometheus = start_prometheus(_configuration(simulated_tier, own_page, rule_files))
    prometheus.wait_for(
        lambda: prometheus.has_data('phase:user_requests:rate1m{tier="demo"} > 0'), "requests"
    )
    _kill(simulated_tier, "decode-0001")
    missing = _queries()

    def all_answered() -> bool:
        for name in [name for name, expr in missing.items() if _answers(prometheus, expr)]:
            del missing[name]
        return not missing

    try:
        prometheus.wait_for(all_answered, "an answer to every query", WITHIN_S)
    finally:
        assert missing == {}
    rules = _rules(prometheus)
    assert {rule["name"] for rule in rules} >= {alert.name for alert in ALERTS}
    assert [rule for rule in rules if rule["health"] != "ok"] == []
    assert prometheus.query('ALERTS{alertname="PhasewiseDecisionStale"}') == []


def _answers(prometheus: Prometheus, expr: str) -> bool:
    """NaN and infinity are no answer."""
    return any(math.isfinite(float(row["value"][1])) for row in prometheus.query(expr))


def _rules(prometheus: Prometheus) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{prometheus.url}/api/v1/rules", timeout=30) as answer:
        groups = json.load(answer)["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]
