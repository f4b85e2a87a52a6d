"""Two servers' greedy answers side by side."""

import pytest

from serving.errors import Unavailable
from serving.load.parity import Answer, Difference, Parity, compare, difference
from tests.load.fake_server import Behave, answers, serving, streams

PROMPTS = [[5, 6, 7], [8, 9], [10]]


async def test_the_same_prompts_are_asked_of_both_one_at_a_time() -> None:
    done: list[int] = []
    async with serving(streams) as one, serving(streams) as other:
        parity = await compare(
            one.url,
            other.url,
            PROMPTS,
            model="tiny",
            output_tokens=4,
            on_compared=lambda: done.append(1),
        )

    assert parity == Parity(compared=3, equal=3)
    assert parity.words == "3 of 3 greedy answers are equal"
    assert [body["prompt"] for body in one.bodies] == PROMPTS
    assert one.bodies == other.bodies
    assert {(b["temperature"], b["max_tokens"], b["stream"]) for b in one.bodies} == {
        (0.0, 4, False)
    }
    assert len(done) == 3


def _says(text: str, ids: list[int] | None) -> Behave:
    choice = {"text": text} | ({} if ids is None else {"token_ids": ids})
    return answers(200, {"choices": [choice]})


async def test_the_first_difference_is_named() -> None:
    same, odd = _says("a b c", [1, 2, 3]), _says("a x c", [1, 9, 3])
    async with serving(same) as one, serving(same, odd, odd) as other:
        parity = await compare(one.url, other.url, PROMPTS, model="tiny", output_tokens=3)

    assert (parity.compared, parity.equal) == (3, 1)
    assert parity.words == (
        "1 of 3 greedy answers are equal; answer 1 differs from token 1 on: 'a b c' and 'a x c'"
    )


@pytest.mark.parametrize(
    ("first", "second", "token"),
    [
        pytest.param(Answer("a", (1, 2)), Answer("a", (1, 3)), 1, id="same-text-other-token"),
        pytest.param(Answer("ab", (1, 2)), Answer("a", (1,)), 1, id="shorter"),
        pytest.param(Answer("a", None), Answer("b", (1,)), None, id="ids-on-one-side"),
    ],
)
def test_where_two_answers_part(first: Answer, second: Answer, token: int | None) -> None:
    found = difference(4, first, second)

    assert found == Difference(prompt=4, token=token, first=first.text, second=second.text)


@pytest.mark.parametrize(
    "answer", [Answer("a", None), Answer("a", (1, 2))], ids=["text", "text-and-ids"]
)
def test_equal_answers_do_not_part(answer: Answer) -> None:
    assert difference(0, answer, answer) is None


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (answers(500, "broken"), "answered 500: broken"),
        (answers(200, "no json"), "gave no completion"),
        (answers(200, {"choices": []}), "gave no completion"),
        (answers(200, {"error": "odd"}), "gave no completion"),
        (answers(200, []), "gave no completion"),
    ],
)
async def test_a_server_that_gives_no_answer_is_named(behave: Behave, said: str) -> None:
    async with serving(streams) as one, serving(behave) as other:
        with pytest.raises(Unavailable, match=f"{other.url} {said}"):
            await compare(one.url, other.url, PROMPTS, model="tiny", output_tokens=3)
