"""A streamed answer, read in whatever pieces it comes."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.load.stream import StreamedAnswer, said_in
from tests.load.fake_server import DONE, event, token, usage

BODY = {"prompt": [1, 2, 3]}


def test_tokens_are_counted_and_timed_as_they_come() -> None:
    answer = StreamedAnswer()
    for at_s, data in ((1.0, token(4)), (1.5, token(5)), (1.75, token(6)), (1.8, DONE)):
        answer.feed(data, at_s)

    assert (answer.tokens, answer.token_ids) == (3, [4, 5, 6])
    assert answer.first_token_s == 1.0
    assert answer.gaps_s == [0.5, 0.25]
    assert answer.whole
    assert "".join(answer.text) == " 4 5 6"


def test_a_chunk_of_several_tokens_is_one_gap_and_then_none() -> None:
    answer = StreamedAnswer()
    answer.feed(event(choices=[{"text": "ab", "token_ids": [1, 2]}]), 1.0)
    answer.feed(event(choices=[{"text": "cde", "token_ids": [3, 4, 5]}]), 2.0)

    assert answer.tokens == 5
    assert answer.gaps_s == [0.0, 1.0, 0.0, 0.0]


def test_a_token_that_is_no_text_yet_counts() -> None:
    answer = StreamedAnswer()
    answer.feed(event(choices=[{"text": "", "token_ids": [1]}]), 1.0)

    assert (answer.tokens, answer.first_token_s) == (1, 1.0)


def test_a_chunk_that_ends_an_answer_without_a_token_is_no_token() -> None:
    answer = StreamedAnswer()
    answer.feed(event(choices=[{"text": "", "token_ids": [], "finish_reason": "length"}]), 1.0)

    assert (answer.tokens, answer.first_token_s) == (0, None)


def test_without_token_ids_each_chunk_is_a_token() -> None:
    answer = StreamedAnswer()
    answer.feed(token(1, named=False) + token(2, named=False), 1.0)

    assert (answer.tokens, answer.token_ids) == (2, [])


def test_the_servers_own_count_is_kept_beside_ours() -> None:
    answer = StreamedAnswer()
    answer.feed(token(1) + usage(BODY, 2), 1.0)

    assert (answer.usage_prompt_tokens, answer.usage_output_tokens, answer.tokens) == (3, 2, 1)


WHOLE = token(1) + b": a comment\n\nevent: odd\r\n" + token(2) + usage(BODY, 2) + DONE


@given(cuts=st.lists(st.integers(0, len(WHOLE)), max_size=20))
def test_it_does_not_matter_where_the_pieces_are_cut(cuts: list[int]) -> None:
    answer = StreamedAnswer()
    edges = [0, *sorted(cuts), len(WHOLE)]
    for begin, end in pairwise(edges):
        answer.feed(WHOLE[begin:end], 1.0)

    assert (answer.tokens, answer.usage_output_tokens, answer.whole) == (2, 2, True)
    assert answer.wrong is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"data: {not json\n", "not JSON: {not json"),
        (b"data: [1]\n", "not an object"),
        (b"data: " + b"[" * 200_000 + b"\n", "not JSON"),
        (b'data: {"error": "half \\ud800"}\n', "the server said: half ?"),
        (event(choices=[{"text": "a", "token_ids": ["1", None, True]}]), "no numbers"),
        (event(error={"message": "out of blocks", "code": 500}), "the server said: out of blocks"),
        (event(error="gone"), "the server said: gone"),
    ],
)
def test_what_goes_wrong_within_an_answer_is_kept_in_words(data: bytes, said: str) -> None:
    answer = StreamedAnswer()
    answer.feed(data + token(1), 1.0)

    assert answer.wrong is not None
    assert said in answer.wrong


@pytest.mark.parametrize("chunk", [{}, {"choices": None}, {"choices": [None]}, {"usage": 3}])
def test_chunks_with_nothing_in_them_are_nothing(chunk: dict[str, object]) -> None:
    answer = StreamedAnswer()
    answer.feed(b"data: " + json.dumps(chunk).encode() + b"\n", 1.0)

    assert (answer.tokens, answer.wrong) == (0, None)


def test_only_numbers_are_tokens_and_only_printable_text_is_a_name() -> None:
    answer = StreamedAnswer()
    answer.feed(event(id="half \ud800", choices=[{"token_ids": [1, "2", None, True]}]), 1.0)
    answer.feed(event(id="whole", usage={"prompt_tokens": -1, "completion_tokens": True}), 2.0)

    assert (answer.tokens, answer.token_ids, answer.answer_id) == (1, [1], "whole")
    assert (answer.usage_prompt_tokens, answer.usage_output_tokens) == (None, None)


def test_an_endless_line_is_given_up() -> None:
    answer = StreamedAnswer()
    for _ in range(5):
        answer.feed(b"x" * 1024 * 1024, 1.0)

    assert answer.wrong is not None
    assert "a line of over" in answer.wrong


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": {"message": "no such model", "type": "NotFound"}}, "no such model"),
        ({"error": "plain"}, "plain"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"message": "several\n  lines"}, "several lines"),
        ({"odd": 1}, '{"odd": 1}'),
        ({"error": {"message": "x" * 1000}}, "x" * 300 + "…"),
    ],
)
def test_errors_are_said_in_the_servers_own_words(answer: object, words: str) -> None:
    assert said_in(answer) == words
