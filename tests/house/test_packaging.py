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
    assert "://" not in text
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


SPREAD = {"min": 7.0, "p10": 7.0, "mean": 10.0, "p90": 12.0, "max": 12.0}
GOOD_ROW = {
    "requests": 10,
    "goodput_requests": 9,
    "attainment_ratio": 0.99,
    "accelerator_hours": {"prefill": 1.5, "decode": 2},
    "ttft_s": {"p50": 0.2, "p99": 1.0},
    "itl_s": {"p50": 0.04, "p99": 0.05},
    "scaling_actions": 0,
    "reversals": 0,
    "replicas": {"prefill": SPREAD, "decode": {**SPREAD, "min": 8.0}},
}
DEARER_ROW = {**GOOD_ROW, "accelerator_hours": {"prefill": 2.5, "decode": 2}}


def _rows(**changed: object) -> dict[str, object]:
    check = _script("check_demo")
    rows = {name: DEARER_ROW for name in check.POLICIES} | {"phasewise": GOOD_ROW}
    return {check.ROWS: rows | changed}


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        pytest.param({**GOOD_ROW, "attainment_ratio": 1.2}, "attainment_ratio is 1.2", id="ratio"),
        pytest.param({**GOOD_ROW, "attainment_ratio": None}, "attainment_ratio is None", id="none"),
        pytest.param({**GOOD_ROW, "goodput_requests": 11}, "goodput_requests is 11", id="good"),
        pytest.param(
            {**GOOD_ROW, "accelerator_hours": {"prefill": 1.0}},
            "accelerator_hours is {'prefill': 1.0}",
            id="one-phase",
        ),
        pytest.param(
            {**GOOD_ROW, "ttft_s": {"p50": 2.0, "p99": 1.0}},
            "ttft_s is {'p50': 2.0, 'p99': 1.0}",
            id="quantiles-crossed",
        ),
    ],
)
def test_the_demo_check_refuses_figures_that_cannot_be_true(
    row: dict[str, object], fault: str
) -> None:
    check = _script("check_demo")

    assert check.faults_of(_rows()) == []
    assert check.faults_of(_rows(last_value=row)) == [f"{check.ROWS}.last_value: {fault}"]


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        pytest.param(
            {"phasewise": {**GOOD_ROW, "attainment_ratio": 0.95}},
            "phasewise attains 0.9500",
            id="attainment",
        ),
        pytest.param(
            {"best_static": {**GOOD_ROW, "accelerator_hours": {"prefill": 1, "decode": 1}}},
            "best_static takes 2.00 hours, phasewise 3.50",
            id="dearer-than-a-peer",
        ),
        pytest.param(
            {"phasewise": {**GOOD_ROW, "replicas": {"prefill": SPREAD, "decode": SPREAD}}},
            "decode leaves ±25 % of its mean: " + str(SPREAD),
            id="decode-swings",
        ),
    ],
)
def test_the_demo_check_holds_the_demo_to_what_the_readme_says(
    changed: dict[str, object], fault: str
) -> None:
    assert _script("check_demo").faults_of(_rows(**changed)) == [fault]


@pytest.mark.parametrize("text", ["[]", "{}", '{"policies": []}', '{"a": NaN}', "", "{"])
def test_the_demo_check_refuses_what_is_no_comparison(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "demo.json"
    file.write_text(text)

    assert _script("check_demo").main(file) == 1
    assert capsys.readouterr().err
