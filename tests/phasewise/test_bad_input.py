"""Whatever a person gets wrong is one sentence on standard error and an exit code, no traceback."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
import yaml

from autoscaler.ledger import Ledger
from phasewise import cli
from phasewise.settings import Settings
from serving.schema.tier import demo_tier_path

HEADER = "t_s,input_tokens,output_tokens\n"
GOOD_TRACE = HEADER + "0,500,50\n5,500,50\n9,500,50\n"


@pytest.fixture(autouse=True)
def restored_logs() -> Iterator[None]:
    """`run` sets logs up for its whole process."""
    yield
    structlog.reset_defaults()


class Sentence:
    """Runs a command line that must fail, and gives its sentence."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def of(self, *arguments: str, code: int = cli.EXIT_MISCONFIGURED) -> str:
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        captured = self._capsys.readouterr()
        assert caught.value.code == code, captured.err
        assert captured.out == ""
        (line,) = captured.err.splitlines()
        assert line.startswith("phasewise: ")
        assert "Traceback" not in line
        return line


@pytest.fixture
def sentence(capsys: pytest.CaptureFixture[str]) -> Sentence:
    return Sentence(capsys)


def written(folder: Path, text: str, name: str = "trace.csv") -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


TRACES = {
    "negative-tokens": (HEADER + "0,500,50\n1,-3,50\n", "line 3", "'-3'"),
    "no-tokens": (HEADER + "0,0,50\n1,3,50\n", "line 2", "'0'"),
    "unsorted": (HEADER + "5,500,50\n4,500,50\n", "line 3", "times are not sorted"),
    "empty": ("", "line 1", "no column t_s"),
    "only-a-header": (HEADER, "trace.csv", "the trace is empty"),
    "nan-time": (HEADER + "0,500,50\nnan,500,50\n", "line 3", "'nan'"),
    "nan-tokens": (HEADER + "0,nan,50\n1,2,3\n", "line 2", "'nan'"),
    "infinite-time": (HEADER + "0,500,50\ninf,500,50\n", "line 3", "'inf'"),
    "a-missing-column": ("t_s,input_tokens\n0,5\n", "line 1", "no column output_tokens"),
    "a-short-row": (HEADER + "0,500\n", "line 2", "the row is too short"),
    "one-request": (HEADER + "0,500,50\n", "trace", "too short to compare"),
    "one-instant": (HEADER + "3,500,50\n3,500,50\n", "trace", "too short to compare"),
    "binary": ("\x00\x01PK", "line 1", "no column t_s"),
}


@pytest.mark.parametrize("command", ["backtest", "simulate"])
@pytest.mark.parametrize(("text", "where", "what"), TRACES.values(), ids=TRACES)
def test_a_trace_that_cannot_be_played_is_named_with_its_line(
    tmp_path: Path, sentence: Sentence, command: str, text: str, where: str, what: str
) -> None:
    line = sentence.of(command, "--trace", written(tmp_path, text), "--volume", "1")

    assert where in line
    assert what in line


@pytest.mark.parametrize("command", ["backtest", "simulate", "demo"])
def test_an_unknown_trace_is_neither_packaged_nor_a_file(sentence: Sentence, command: str) -> None:
    assert "there is no such trace" in sentence.of(command, "--trace", "azure1999")


def test_a_trace_that_is_a_folder_or_no_gzip_is_named(tmp_path: Path, sentence: Sentence) -> None:
    assert "cannot be read" in sentence.of("backtest", "--trace", str(tmp_path))
    file = written(tmp_path, GOOD_TRACE, "trace.csv.gz")
    assert "cannot be read" in sentence.of("backtest", "--trace", file)


def changed_tier(folder: Path, before: str, after: str) -> str:
    text = demo_tier_path().read_text()
    assert before in text
    return written(folder, text.replace(before, after, 1), "tier.yaml")


TIERS = {
    "unknown-key": ("  model:", "  modell: x\n  model:", "modell"),
    "min-above-max": ("{min: 1, max: 40}", "{min: 9, max: 8}", "no room between the limits"),
    "wrong-unit": ("ttftSeconds: 2.5", "ttftMilliseconds: 2500", "ttftMilliseconds"),
    "text-for-a-number": ("itlSeconds: 0.05", "itlSeconds: 50ms", "50ms"),
    "unknown-profile": ("llama-3.1-8b-l40s", "gpt-9-tpu", "gpt-9-tpu"),
    "targets-nobody-can-meet": ("itlSeconds: 0.05", "itlSeconds: 0.001", "at any size"),
}


@pytest.mark.parametrize("command", ["backtest", "simulate"])
@pytest.mark.parametrize(("before", "after", "what"), TIERS.values(), ids=TIERS)
def test_a_tier_that_cannot_be_meant_is_named(
    tmp_path: Path, sentence: Sentence, command: str, before: str, after: str, what: str
) -> None:
    file = changed_tier(tmp_path, before, after)
    trace = written(tmp_path, GOOD_TRACE)

    assert what in sentence.of(command, "--tier", file, "--trace", trace, "--volume", "1")


@pytest.mark.parametrize("command", ["backtest", "simulate"])
def test_a_missing_tier_file_is_named(tmp_path: Path, sentence: Sentence, command: str) -> None:
    assert "no.yaml" in sentence.of(command, "--tier", str(tmp_path / "no.yaml"))


@pytest.mark.parametrize("command", ["backtest", "simulate"])
@pytest.mark.parametrize("volume", ["x", "0", "-1", "nan", "inf", "1e9", ""])
def test_a_volume_is_a_number_above_zero_or_auto(
    tmp_path: Path, sentence: Sentence, command: str, volume: str
) -> None:
    trace = written(tmp_path, GOOD_TRACE)

    assert "--volume" in sentence.of(command, "--trace", trace, "--volume", volume)


@pytest.mark.parametrize(
    "policy", ["nope", "last_value:abc", "phasewise:1", "best_static:8", "", "phasewise,phasewise"]
)
def test_a_policy_that_is_none_is_named(tmp_path: Path, sentence: Sentence, policy: str) -> None:
    trace = written(tmp_path, GOOD_TRACE)

    assert "--policy" in sentence.of("backtest", "--trace", trace, "--policy", policy)


@pytest.mark.parametrize(
    "window", [("--from", "9000"), ("--to", "0"), ("--from", "6", "--to", "8"), ("--from", "nan")]
)
def test_an_empty_window_is_named(
    tmp_path: Path, sentence: Sentence, window: tuple[str, ...]
) -> None:
    trace = written(tmp_path, GOOD_TRACE)

    assert "--from, --to" in sentence.of("backtest", "--trace", trace, *window)


@pytest.mark.parametrize("speed", ["-1", "nan", "inf"])
@pytest.mark.parametrize("command", ["demo", "run", "simulate"])
def test_no_command_runs_at_a_speed_that_is_none(
    tmp_path: Path, sentence: Sentence, command: str, speed: str
) -> None:
    trace = written(tmp_path, GOOD_TRACE)
    more = {
        "demo": ("--trace", trace),
        "simulate": ("--trace", trace, "--volume", "1"),
        "run": ("-c", settings_file(tmp_path, port=1)),
    }[command]

    assert "--speed" in sentence.of(command, *more, "--speed", speed)


@pytest.mark.parametrize("until", ["-1", "nan", "inf"])
def test_a_run_ends_at_a_time_that_there_is(tmp_path: Path, sentence: Sentence, until: str) -> None:
    assert "--until" in sentence.of("run", "-c", settings_file(tmp_path, port=1), "--until", until)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--router-page", "nope"),
        ("--initial", "prefill"),
        ("--initial", "prefill=-1"),
        ("--initial", "nope=3"),
        ("--initial", "prefill=3,"),
        ("--port", "70000"),
        ("--port", "-1"),
    ],
)
def test_a_simulation_that_cannot_be_started_is_named(
    tmp_path: Path, sentence: Sentence, option: str, value: str
) -> None:
    trace = written(tmp_path, GOOD_TRACE)
    line = sentence.of("simulate", "--trace", trace, "--volume", "1", option, value)

    assert option in line or value in line


def test_a_port_that_is_taken_is_named(tmp_path: Path, sentence: Sentence) -> None:
    trace = written(tmp_path, GOOD_TRACE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert port in sentence.of("simulate", "--trace", trace, "--volume", "1", "--port", port)


# ---- run


def settings_file(folder: Path, *, port: int, **changes: object) -> str:
    (folder / "tier.yaml").write_text(demo_tier_path().read_text())
    url = f"http://127.0.0.1:{port}"
    document: dict[str, object] = {
        "tiers": [{"file": "tier.yaml", "mode": "act"}],
        "source": {"httpSd": f"{url}/sd"},
        "clock": {"kind": "lockstep", "url": url},
        "actuator": {"kind": "scale-endpoint", "url": url},
        **({"console": {"enabled": False}} if "console" in Settings.model_fields else {}),
        **changes,
    }
    return written(folder, yaml.safe_dump(document), "phasewise.yaml")


def free_port() -> int:
    """A port of this machine where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_a_missing_settings_file_is_named(tmp_path: Path, sentence: Sentence) -> None:
    assert "missing.yaml" in sentence.of("run", "-c", str(tmp_path / "missing.yaml"))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        pytest.param({"tiers": [{"file": "none.yaml"}]}, "none.yaml", id="missing-tier"),
        pytest.param({"tiers": []}, "tiers", id="no-tier"),
        pytest.param({"tickSeconds": 12}, "tickSeconds", id="odd-tick"),
        pytest.param({"tickMilliseconds": 15000}, "tickMilliseconds", id="wrong-unit"),
        pytest.param({"ledger": {"file": "."}}, "ledger", id="a-folder-for-a-ledger"),
        pytest.param(
            {"tiers": [{"file": "tier.yaml"}, {"file": "tier.yaml"}]}, "tiers", id="two-tiers"
        ),
    ],
)
def test_settings_that_cannot_be_meant_are_named(
    tmp_path: Path, sentence: Sentence, changes: dict[str, object], what: str
) -> None:
    assert what in sentence.of("run", "-c", settings_file(tmp_path, port=1, **changes))


def test_a_ledger_that_is_no_ledger_is_named(tmp_path: Path, sentence: Sentence) -> None:
    written(tmp_path, "a note, and not a ledger " * 100, "phasewise.sqlite")

    assert "phasewise.sqlite" in sentence.of("run", "-c", settings_file(tmp_path, port=1))


def test_a_second_run_on_a_ledger_is_named_with_the_first(
    tmp_path: Path, sentence: Sentence
) -> None:
    first = Ledger(tmp_path / "phasewise.sqlite")
    try:
        line = sentence.of("run", "-c", settings_file(tmp_path, port=free_port()))
    finally:
        first.close()

    assert "another run holds this ledger" in line
    assert f"process {os.getpid()}" in line


def test_a_simulator_that_is_not_there_is_named_with_its_address(
    tmp_path: Path, sentence: Sentence
) -> None:
    port = free_port()
    line = sentence.of("run", "-c", settings_file(tmp_path, port=port), code=cli.EXIT_UNAVAILABLE)

    assert f"http://127.0.0.1:{port}" in line


def test_a_missing_ledger_is_named(tmp_path: Path, sentence: Sentence) -> None:
    file = tmp_path / "no.sqlite"

    assert str(file) in sentence.of("replay", str(file))
    assert not file.exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, sentence: Sentence) -> None:
    trace = written(tmp_path, GOOD_TRACE)
    ledger = str(Path(trace) / "run.sqlite")  # a file is no folder

    assert ledger in sentence.of(
        "run", "-c", settings_file(tmp_path, port=1, ledger={"file": ledger})
    )
