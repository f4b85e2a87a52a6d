"""The settings file: its defaults, its cross checks, and one sentence for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from phasewise.settings import Mode, Settings, load_settings
from serving.errors import Misconfigured

SMALLEST: dict[str, object] = {
    "tiers": [{"file": "tier.yaml"}],
    "source": {"httpSd": "http://127.0.0.1:8000/sd"},
}


def _load(folder: Path, **changes: object) -> Settings:
    file = folder / "phasewise.yaml"
    file.write_text(yaml.safe_dump({**SMALLEST, **changes}))
    return load_settings(file)


def test_the_smallest_file_advises_and_changes_nothing(tmp_path: Path) -> None:
    settings = _load(tmp_path)

    assert settings.tiers[0].mode is Mode.ADVISE
    assert settings.actuator.kind == "none"
    assert settings.tick_seconds == 15.0
    assert settings.source.scrape_interval_seconds == 5.0
    assert settings.clock.kind == "wall"


def test_relative_names_start_at_the_settings_file(tmp_path: Path) -> None:
    settings = _load(tmp_path, ledger={"file": "data/ledger.sqlite"})

    assert settings.tiers[0].file == tmp_path / "tier.yaml"
    assert settings.ledger.file == tmp_path / "data" / "ledger.sqlite"


def test_the_default_ledger_too_lies_beside_the_settings_file(tmp_path: Path) -> None:
    assert _load(tmp_path).ledger.file == tmp_path / "phasewise.sqlite"
    assert _load(tmp_path, ledger={}).ledger.file == tmp_path / "phasewise.sqlite"


def test_an_absolute_name_stays(tmp_path: Path) -> None:
    settings = _load(tmp_path, tiers=[{"file": "/etc/phasewise/tier.yaml"}])

    assert settings.tiers[0].file == Path("/etc/phasewise/tier.yaml")


def test_the_console_is_for_this_machine_unless_a_token_is_named(tmp_path: Path) -> None:
    console = _load(tmp_path).console

    assert (console.enabled, console.host, console.port) == (True, "127.0.0.1", 9321)
    assert console.token_file is None
    everyone = _load(tmp_path, console={"host": "0.0.0.0", "tokenFile": "token"}).console
    assert everyone.token_file == tmp_path / "token"


def test_acting_needs_an_actuator_and_is_then_allowed(tmp_path: Path) -> None:
    actuator = {"kind": "scale-endpoint", "url": "http://127.0.0.1:8000"}
    settings = _load(tmp_path, tiers=[{"file": "t.yaml", "mode": "act"}], actuator=actuator)

    assert settings.tiers[0].mode is Mode.ACT


def test_by_default_keda_is_answered_on_this_machine_alone_and_not_by_run(tmp_path: Path) -> None:
    serve = _load(tmp_path).serve

    assert (serve.host, serve.port, serve.tls) == ("127.0.0.1", 6000, None)
    assert serve.stale_after_seconds == 90.0
    assert not serve.with_run


def test_the_files_of_tls_start_at_the_settings_file_and_clients_need_no_authority(
    tmp_path: Path,
) -> None:
    tls = _load(tmp_path, serve={"tls": {"certFile": "tls.crt", "keyFile": "/k/tls.key"}}).serve.tls

    assert tls is not None
    assert tls.cert_file == tmp_path / "tls.crt"
    assert tls.key_file == Path("/k/tls.key")
    assert tls.client_ca_file is None


def test_keda_as_actuator_may_act(tmp_path: Path) -> None:
    actuator = {"kind": "keda", "url": "http://127.0.0.1:8000"}
    settings = _load(tmp_path, tiers=[{"file": "t.yaml", "mode": "act"}], actuator=actuator)

    assert settings.actuator.kind == "keda"


ADDRESS = "an address like http://127.0.0.1:8000"
SD = "http://127.0.0.1:8000/sd"
FAULTS = [
    pytest.param(
        {"console": {"host": "0.0.0.0"}},
        "console.host: a console that others can reach needs a token: "
        "found 0.0.0.0, expected 127.0.0.1, or a tokenFile beside it",
        id="console-for-everyone",
    ),
    pytest.param(
        {"tickSeconds": 12},
        "tickSeconds: a tick is whole scrape intervals: found 12, expected a multiple of 5",
        id="tick-not-a-multiple",
    ),
    pytest.param(
        {"tickSeconds": 2},
        "tickSeconds: a tick is whole scrape intervals: found 2, expected a multiple of 5",
        id="tick-under-one-interval",
    ),
    pytest.param(
        {"tickMs": 15000},
        "tickMs: unknown key: found tickMs, expected tickSeconds",
        id="wrong-unit",
    ),
    pytest.param(
        {"source": {"httpSd": SD, "timeoutSeconds": 9}},
        "source.timeoutSeconds: a read must end before the next begins: found 9, "
        "expected at most scrapeIntervalSeconds (5)",
        id="timeout-beyond-interval",
    ),
    pytest.param(
        {"source": {"httpSd": "127.0.0.1:8000"}},
        f"source.httpSd: not an address: found '127.0.0.1:8000', expected {ADDRESS}",
        id="address-without-scheme",
    ),
    pytest.param(
        {"source": {"httpSd": "http://[::1"}},
        f"source.httpSd: not an address: found 'http://[::1', expected {ADDRESS}",
        id="address-with-an-open-bracket",
    ),
    pytest.param(
        {"source": {"httpSd": "http://h:port"}},
        f"source.httpSd: not an address: found 'http://h:port', expected {ADDRESS}",
        id="port-in-words",
    ),
    pytest.param(
        {"source": {"httpSd": "http://me:secret@host/sd"}},
        f"source.httpSd: no secrets in addresses: found a user or password, expected {ADDRESS}",
        id="secret-is-not-repeated",
    ),
    pytest.param(
        {"source": {"httpSd": 80}},
        "source.httpSd: wrong value: found 80, expected text",
        id="address-is-a-number",
    ),
    pytest.param(
        {"source": {"httpSd": SD, "coverageFloorRatio": 60}},
        "source.coverageFloorRatio: wrong value: found 60, expected a number of at most 1",
        id="ratio-in-percent",
    ),
    pytest.param(
        {"source": None},
        "source: wrong value: found nothing, expected a mapping",
        id="no-source",
    ),
    pytest.param(
        {"clock": {"kind": "lockstep"}},
        "clock.url: a lockstep clock is somewhere: found nothing, "
        "expected the address of the clock",
        id="lockstep-without-clock",
    ),
    pytest.param(
        {"actuator": {"kind": "scale-endpoint"}},
        "actuator.url: a scale endpoint is somewhere: found nothing, "
        "expected the address of the endpoint",
        id="endpoint-without-address",
    ),
    pytest.param(
        {"actuator": {"kind": "keda"}},
        "actuator.url: a scale endpoint is somewhere: found nothing, "
        "expected the address of the endpoint",
        id="keda-without-a-place-to-read-sizes",
    ),
    pytest.param(
        {"serve": {"port": 70000}},
        "serve.port: wrong value: found 70000, expected a number of at most 65535",
        id="port-too-large",
    ),
    pytest.param(
        {"serve": {"tls": {"certFile": "tls.crt"}}},
        "serve.tls.keyFile: required key is missing: found nothing, "
        "expected its private key, in PEM, without a password",
        id="certificate-without-a-key",
    ),
    pytest.param(
        {"serve": {"staleAfterSeconds": 0}},
        "serve.staleAfterSeconds: wrong value: found 0, expected a number above 0",
        id="no-patience",
    ),
    pytest.param(
        {"tiers": [{"file": "t.yaml", "mode": "act"}]},
        "tiers[0].mode: nothing to act with: found act while actuator.kind is none, "
        "expected advise, or an actuator",
        id="act-without-actuator",
    ),
    pytest.param(
        {"tiers": [{"file": "t.yaml", "mode": "apply"}]},
        "tiers[0].mode: wrong value: found 'apply', expected advise or act",
        id="mode",
    ),
    pytest.param(
        {"tiers": [{"file": 3}]},
        "tiers[0].file: wrong value: found 3, expected a file name",
        id="file-is-a-number",
    ),
    pytest.param(
        {"tiers": []},
        "tiers: wrong value: found an empty list, expected a list of at least 1",
        id="no-tiers",
    ),
    pytest.param(
        {"ledger": {"maxBytes": 10}},
        "ledger.maxBytes: wrong value: found 10, expected a number of at least 1048576",
        id="ledger-too-small",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), FAULTS)
def test_a_fault_is_one_sentence(tmp_path: Path, changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        _load(tmp_path, **changes)

    assert str(caught.value) == f"{tmp_path / 'phasewise.yaml'}: {sentence}"


def test_by_default_rules_record_and_nothing_is_sent_by_otlp(tmp_path: Path) -> None:
    settings = _load(tmp_path)

    assert settings.recorded.supplier == "rules"
    assert settings.otlp is None


def test_headers_for_otlp_lie_beside_the_settings_file(tmp_path: Path) -> None:
    otlp = {"endpoint": "https://otel.example:4318", "headersFile": "headers"}
    settings = _load(tmp_path, otlp=otlp, recorded={"supplier": "phasewise"})

    assert settings.otlp is not None
    assert settings.otlp.headers_file == tmp_path / "headers"
    assert settings.recorded.supplier == "phasewise"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"recorded": {"supplier": "both"}}, "recorded.supplier"),
        ({"otlp": {}}, "otlp.endpoint"),
        ({"otlp": {"endpoint": "otel:4318"}}, "otlp.endpoint"),
        ({"otlp": {"endpoint": "http://user:pass@otel:4318"}}, "otlp.endpoint"),
    ],
)
def test_who_is_told_is_checked(tmp_path: Path, changes: dict[str, object], where: str) -> None:
    with pytest.raises(Misconfigured) as told:
        _load(tmp_path, **changes)

    assert where in str(told.value)
    assert "pass@" not in str(told.value)
