"""The reference pages are those of the models."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasewise.metrics_page import metrics_page
from phasewise.reference import PAGES, page, write_pages
from serving.series import SERIES

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("file", PAGES)
def test_no_reference_page_is_stale(file: str) -> None:
    title, model = PAGES[file]

    assert (FOLDER / file).read_text() == page(title, model), (
        "run: python -m phasewise.reference docs/reference"
    )


def test_the_page_of_metrics_is_not_stale_and_names_every_series() -> None:
    text = (FOLDER.parent / "metrics.md").read_text()

    assert text == metrics_page(), "run: make reference"
    assert [spec.name for spec in SERIES if f"| `{spec.name}` |" not in text] == []


def test_all_pages_are_written_by_one_call(tmp_path: Path) -> None:
    write_pages(tmp_path / "docs" / "reference")

    written = {path.name for path in tmp_path.rglob("*.md")}
    assert written == {*PAGES, "metrics.md"}
