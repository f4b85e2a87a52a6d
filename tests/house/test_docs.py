"""The documentation keeps up with the code."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from phasewise.cli import COMMANDS, command_name
from phasewise.reference import PAGES
from serving.schema.faults import fields_by_key, node_class
from serving.schema.node import Node

ROOT = Path(__file__).parents[2]
PAGES_IN_WORDS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
]
UNITS = {
    "Seconds": "seconds",
    "Tokens": "tokens",
    "TokensPerSecond": "tokens per second",
    "Bytes": "bytes",
    "Days": "days",
    "Ratio": "0-1",
}


def _nodes(model: type[Node]) -> Iterator[type[Node]]:
    yield model
    for field in fields_by_key(model).values():
        part = node_class(field.annotation)
        if part is not None:
            yield from _nodes(part)


FIELDS = {
    (node.__name__, key): field.description or ""
    for _, model in PAGES.values()
    for node in _nodes(model)
    for key, field in fields_by_key(node).items()
}


def test_every_field_of_the_two_files_is_described_with_its_unit() -> None:
    bare = [name for name, description in FIELDS.items() if not description]
    unitless = [
        (name, key)
        for (name, key), description in FIELDS.items()
        for suffix, unit in UNITS.items()
        if key.endswith(suffix) and unit not in description and "most" not in description
    ]

    assert len(FIELDS) > 40
    assert bare == []
    assert unitless == []


@pytest.mark.parametrize("module", COMMANDS, ids=command_name)
def test_every_command_is_in_the_readme(module: object) -> None:
    name = command_name(module)  # type: ignore[arg-type]  # a module, as COMMANDS holds them

    assert f"`phasewise {name}" in (ROOT / "README.md").read_text()


def test_every_room_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    rooms = ["serving", "collector", "autoscaler", "dashboards", "alerts", "phasewise"]

    assert [room for room in rooms if f"| `{room}/` |" not in readme] == []


def test_the_changelog_has_an_unreleased_section_with_something_in_it() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    unreleased = changelog.split("## [Unreleased]")[1].split("\n## [")[0]

    assert re.search(r"^- \*\*", unreleased, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES_IN_WORDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    inner = [link for link in links if "://" not in link]

    assert [link for link in inner if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES_IN_WORDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"`make ([a-z-]+)", page.read_text()))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))

    assert named <= targets


def test_make_help_lists_every_target() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE)
    assert phony is not None

    assert re.findall(r"^  make ([\w-]+) ", shown, flags=re.MULTILINE) == phony.group(1).split()


def test_every_folder_of_fixtures_names_its_source() -> None:
    notices = (ROOT / "THIRD_PARTY_NOTICES.md").read_text()
    folders = sorted(path.name for path in (ROOT / "tests/fixtures").iterdir() if path.is_dir())

    assert folders
    assert [folder for folder in folders if f"tests/fixtures/{folder}" not in notices] == []
