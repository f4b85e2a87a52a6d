"""What a request says: its prompt, who it is, its body."""

import json
import re

import pytest

from serving.errors import Misconfigured
from serving.load.asking import Prompts, completion_body, identity


@pytest.mark.parametrize("tokens", [1, 7, 2048])
def test_a_prompt_has_exactly_its_length_and_ids_of_the_range(tokens: int) -> None:
    ids = Prompts(first_id=100, last_id=199).ids(3, tokens)

    assert len(ids) == tokens
    assert all(100 <= one <= 199 for one in ids)


def test_no_two_prompts_share_a_first_block_and_each_can_be_made_again() -> None:
    prompts = Prompts(seed=4)
    beginnings = {tuple(prompts.ids(number, 200)[:16]) for number in range(500)}

    assert len(beginnings) == 500
    assert prompts.ids(7, 200) == Prompts(seed=4).ids(7, 200)
    assert prompts.ids(7, 200) != Prompts(seed=5).ids(7, 200)


@pytest.mark.parametrize(("ratio", "shared"), [(0.0, 0), (0.25, 50), (1.0, 200)])
def test_a_share_of_the_prompt_is_the_same_in_all(ratio: float, shared: int) -> None:
    prompts = Prompts(shared_ratio=ratio)
    one, other = prompts.ids(1, 200), prompts.ids(2, 200)
    alike = next((at for at in range(200) if one[at] != other[at]), 200)

    assert alike == pytest.approx(shared, abs=1)  # the next id may be the same by chance
    assert alike >= shared


def test_a_shared_beginning_is_the_same_in_prompts_of_different_lengths() -> None:
    prompts = Prompts(shared_ratio=0.5)

    assert prompts.ids(1, 200)[:100] == prompts.ids(2, 400)[:100]


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_said(ratio: float) -> None:
    with pytest.raises(Misconfigured, match="--shared-prefix"):
        Prompts(shared_ratio=ratio)


def test_each_request_has_its_own_ids_in_the_form_of_w3c_trace_context() -> None:
    headers = [identity("run", number).headers for number in range(100)]
    form = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-01")

    assert all(form.fullmatch(one["traceparent"]) for one in headers)
    assert len({one["traceparent"][:35] for one in headers}) == 100
    assert headers[7]["X-Request-Id"] == "run-7"
    assert identity("run", 1).trace_id != identity("other", 1).trace_id


def test_the_body_asks_for_an_exact_length_and_for_usage_where_it_streams() -> None:
    streamed = json.loads(
        completion_body(model="m", prompt=[1, 2], output_tokens=5, temperature=0.0)
    )
    whole = json.loads(
        completion_body(model="m", prompt=[1], output_tokens=5, temperature=0.0, stream=False)
    )

    assert streamed["prompt"] == [1, 2]
    assert (streamed["max_tokens"], streamed["ignore_eos"]) == (5, True)
    assert streamed["stream_options"] == {"include_usage": True}
    assert "stream_options" not in whole
