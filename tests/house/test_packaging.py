"""The six packages are ours alone, typed, and every module says what it is."""

from __future__ import annotations

import ast
import importlib.util
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("alerts", "autoscaler", "collector", "dashboards", "phasewise", "serving")
MODULES = sorted(
    path
    for room in (*ROOMS, ".ci", "bench")
    for path in (ROOT / room).rglob("*.py")
    if "__pycache__" not in path.parts
)


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("room", ROOMS)
def test_no_other_distribution_ships_a_package_of_our_name(room: str) -> None:
    owners = set(packages_distributions().get(room, ()))

    assert owners <= {"phasewise"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_imported_from_this_checkout_and_is_typed(room: str) -> None:
    spec = importlib.util.find_spec(room)

    assert spec is not None
    assert spec.origin == str(ROOT / room / "__init__.py")
    assert (ROOT / room / "py.typed").is_file()


def test_the_wheel_is_told_of_exactly_the_six_rooms() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert sorted(packages) == list(ROOMS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_starts_with_what_it_does(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_every_dependency_has_a_reason() -> None:
    section = (
        (ROOT / "pyproject.toml").read_text().split("[project]")[1].split("[project.scripts]")[0]
    )
    requirements = [line for line in section.splitlines() if line.startswith('  "')]

    assert requirements
    assert [line for line in requirements if "#" not in line and "pytest>=" not in line] == []


def test_every_locked_package_has_a_hash_and_no_line_names_a_machine() -> None:
    text = (ROOT / "requirements.lock").read_text()
    pins = [line for line in text.splitlines() if "==" in line]

    assert len(pins) > 20
    assert all(line.endswith("\\") for line in pins)
    assert "http" not in text.lower().replace("aiohttp", "")
    assert not any(line.startswith(("-", "/", "file:")) for line in text.splitlines())


def test_the_wheel_check_sees_what_is_missing_and_what_is_too_much() -> None:
    check = _script("check_wheel")
    wanted = {
        "serving/simulation/profiles/llama-3.1-8b-l40s.yaml",
        "serving/simulation/traces/azure2023_conv_req.csv.gz",
        "serving/schema/demo-tier.yaml",
    }

    assert check.faults_of({*wanted, "phasewise-0.1.0.dist-info/METADATA"}, wanted) == []
    assert check.faults_of({*wanted, "tests/test_a.py"}, wanted) == [
        "not of the six rooms: tests/test_a.py"
    ]
    assert check.faults_of(wanted, {*wanted, "alerts/rules.py"}) == ["missing: alerts/rules.py"]


GOOD_ROW = {
    "policy": "ours",
    "requests": 10,
    "attainment_ratio": 0.99,
    "accelerator_hours": {"prefill": 1.5, "decode": 2},
    "scaling_actions": 0,
}


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        pytest.param({**GOOD_ROW, "attainment_ratio": 1.2}, "attainment_ratio is 1.2", id="ratio"),
        pytest.param({**GOOD_ROW, "attainment_ratio": None}, "attainment_ratio is None", id="none"),
        pytest.param({**GOOD_ROW, "requests": 0}, "requests is 0", id="no-requests"),
        pytest.param({**GOOD_ROW, "policy": ""}, "policy is ''", id="nameless"),
        pytest.param(
            {**GOOD_ROW, "accelerator_hours": {"prefill": 1.0}},
            "accelerator_hours is {'prefill': 1.0}",
            id="one-phase",
        ),
    ],
)
def test_the_demo_check_refuses_figures_that_cannot_be_true(
    row: dict[str, object], fault: str
) -> None:
    check = _script("check_demo")

    assert check.faults_of({check.ROWS: [GOOD_ROW, GOOD_ROW]}) == []
    assert check.faults_of({check.ROWS: [GOOD_ROW, row]}) == [f"{check.ROWS}[1]: {fault}"]


@pytest.mark.parametrize("text", ["[]", "{}", '{"policies": []}', '{"a": NaN}', "", "{"])
def test_the_demo_check_refuses_what_is_no_comparison(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "demo.json"
    file.write_text(text)

    assert _script("check_demo").main(file) == 1
    assert capsys.readouterr().err
