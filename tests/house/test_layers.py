"""Who may import whom: the contracts of `.importlinter` hold, and cover what they should."""

from __future__ import annotations

import ast
import configparser
import sys
import tomllib
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[2]
ROOMS = ("alerts", "autoscaler", "collector", "dashboards", "phasewise", "serving")
WORDS = sorted(path.stem for path in (ROOT / "serving").glob("*.py") if path.stem != "__init__")


def _contracts() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    return parser


def _names(section: str, key: str) -> list[str]:
    return _contracts()[f"importlinter:contract:{section}"][key].split()


def _imports(path: Path) -> set[str]:
    """Full names of the modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_every_contract_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))  # the linter adds to it too, and is undone with it
    outcome = lint_imports(str(ROOT / ".importlinter"), no_cache=True, no_logo=True)

    assert outcome == 0, capsys.readouterr().out


@pytest.mark.parametrize("word", WORDS)
def test_a_word_needs_only_the_standard_library_and_other_words(word: str) -> None:
    allowed = {*(f"serving.{name}" for name in WORDS)}
    foreign = {
        name
        for name in _imports(ROOT / "serving" / f"{word}.py")
        if name not in allowed and name.split(".")[0] not in sys.stdlib_module_names
    }

    assert foreign == set()
    assert f"serving.{word}" in _names("words", "source_modules")


def test_the_words_contract_forbids_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["report"]]
    modules = {
        line.split(">")[0].lower().replace("pyyaml", "yaml").replace("-", "_") for line in required
    }

    assert modules <= set(_names("words", "forbidden_modules"))


def test_every_module_of_the_autoscaler_that_calls_itself_pure_is_held_to_it() -> None:
    claims = [
        path.stem
        for path in (ROOT / "autoscaler").glob("*.py")
        if "Pure: no clock, no network, no log."
        in (ast.get_docstring(ast.parse(path.read_text())) or "")
    ]
    held = {name.removeprefix("autoscaler.") for name in _names("pure", "source_modules")}
    serialising = {"codec", "plan_codec"}  # pure, but they speak pydantic

    assert set(claims) - held - serialising == set()


def test_the_contracts_know_every_room() -> None:
    assert sorted(_contracts()["importlinter"]["root_packages"].split()) == list(ROOMS)
    assert sorted(_names("clients", "source_modules")) == list(ROOMS)
