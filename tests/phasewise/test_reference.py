"""The reference pages are those of the models."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasewise.reference import PAGES, page

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("file", PAGES)
def test_no_reference_page_is_stale(file: str) -> None:
    title, model = PAGES[file]

    assert (FOLDER / file).read_text() == page(title, model), (
        "run: python -m phasewise.reference docs/reference"
    )
