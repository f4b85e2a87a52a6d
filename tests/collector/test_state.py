"""A checkpoint of the observer is what was written, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.state import ObserverState
from serving.errors import Unavailable

GOOD = ObserverState(at_s=5.0, said=("once",), known_at_s={"decode": {"steps_per_s": 4.0}})


def test_a_state_survives_its_json() -> None:
    assert ObserverState.from_json(GOOD.to_json()) == GOOD


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"version": 99}, id="another-version"),
        pytest.param({"replicas": {"a": {}}}, id="half-a-track"),
        pytest.param({"replicas": None}, id="no-replicas"),
        pytest.param({"states": {"a": "asleep"}}, id="unknown-state"),
        pytest.param({"router": {"base": {"colour": 1}, "history": []}}, id="empty-history"),
    ],
)
def test_what_it_did_not_write_is_unavailable(changes: dict[str, Any]) -> None:
    with pytest.raises(Unavailable, match="checkpoint"):
        ObserverState.from_json(GOOD.to_json() | changes)


@given(st.dictionaries(st.sampled_from(list(GOOD.to_json())), st.none() | st.integers()))
def test_no_document_raises_anything_but_unavailable(document: dict[str, Any]) -> None:
    with pytest.raises(Unavailable):
        ObserverState.from_json(document)
