"""The command line as a person meets it: help, exit codes, and no traceback."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from phasewise import cli
from phasewise.commands import check
from serving.errors import Misconfigured, Unavailable
from serving.schema.tier import demo_tier_path


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_version_is_that_of_the_installed_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("--version") == 0
    assert capsys.readouterr().out == f"phasewise {version('phasewise')}\n"


@pytest.mark.parametrize("module", cli.COMMANDS, ids=cli.command_name)
def test_the_help_of_every_command_shows_its_example(
    module: cli.CommandModule, capsys: pytest.CaptureFixture[str]
) -> None:
    name = cli.command_name(module)

    assert _run(name, "--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Example: {module.EXAMPLE}" in shown
    assert module.EXAMPLE.startswith(f"phasewise {name}")


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("--help") == 0
    shown = capsys.readouterr().out
    assert all(cli.command_name(module) in shown for module in cli.COMMANDS)


def test_check_says_in_one_line_what_a_tier_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("check", str(demo_tier_path())) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "tier demo of model llama-3.1-8b" in line


def test_check_follows_a_settings_file_to_its_tiers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tier.yaml").write_text(demo_tier_path().read_text())
    file = tmp_path / "phasewise.yaml"
    file.write_text("tiers: [{file: tier.yaml}]\nsource: {httpSd: 'http://127.0.0.1:1/sd'}\n")

    assert _run("check", str(file)) == 0
    assert capsys.readouterr().out == f"{file}: settings, tiers: demo (advise)\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("a: 1", "neither a tier nor a settings file", id="something-else"),
        pytest.param("kind: Tier", "required key is missing", id="broken-tier"),
        pytest.param(
            "tiers: [{file: no.yaml}]\nsource: {httpSd: 'http://h'}",
            "no such file",
            id="settings-of-a-missing-tier",
        ),
    ],
)
def test_a_wrong_file_exits_with_2_and_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)

    assert _run("check", str(file)) == cli.EXIT_MISCONFIGURED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("phasewise: ")
    assert sentence in line


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        pytest.param(Misconfigured("w", where="f", found="a", expected="b"), 2, id="misconfigured"),
        pytest.param(Unavailable("the tier does not answer"), 3, id="unavailable"),
        pytest.param(KeyboardInterrupt(), 130, id="interrupted"),
    ],
)
def test_every_way_to_fail_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int
) -> None:
    def command() -> None:
        raise raised

    monkeypatch.setattr(check, "command", command)

    assert _run("check") == code


def test_a_wrong_option_exits_with_2_and_shows_the_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _run("check", "--no-such-option") == 2
    assert "Usage: phasewise check" in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, phasewise.cli\n"
        "phasewise.cli.build_app()\n"
        "heavy = {'numpy', 'aiohttp', 'plotly', 'pydantic', 'yaml', 'sqlite3'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
