"""The sender against a server that does what it is told: nothing waits, nothing is tried again."""

import asyncio
import re
import socket

import pytest

from serving.errors import Misconfigured, Unavailable
from serving.load.asking import Prompts
from serving.load.generator import LoadSettings, judged, play
from serving.load.outcomes import Failure, RequestOutcome, totals
from serving.load.schedule import Planned
from serving.load.stream import StreamedAnswer
from tests.load import fake_server
from tests.load.fake_server import DONE, Behave, answers, serving, token, usage

SETTINGS = LoadSettings(model="tiny", timeout_s=30.0)
ONE = (Planned(0.0, 12, 5),)


def _at_once(number: int, output_tokens: int = 5) -> tuple[Planned, ...]:
    return tuple(Planned(0.0, 10 + at, output_tokens) for at in range(number))


async def test_every_request_is_counted_by_sender_and_server_alike() -> None:
    async with serving(fake_server.streams) as server:
        outcomes = await play(server.url, _at_once(20), SETTINGS, run_id="run")

    sums = totals(outcomes.requests)
    assert (sums.requests, sums.failed) == (20, 0)
    assert sums.prompt_tokens == sum(len(body["prompt"]) for body in server.bodies)
    assert sums.output_tokens == 20 * 5
    assert {one.usage_output_tokens for one in outcomes.requests} == {5}
    assert [one.usage_prompt_tokens for one in outcomes.requests] == [10 + at for at in range(20)]
    assert [one.request_id for one in outcomes.requests] == [f"run-{at}" for at in range(20)]


async def test_times_of_a_request_are_in_their_order() -> None:
    async with serving(fake_server.streams) as server:
        (one,) = (await play(server.url, (Planned(0.002, 5, 4),), SETTINGS)).requests

    assert one.first_token_s is not None
    assert 0.002 == one.scheduled_s <= one.sent_s <= one.first_token_s <= one.ended_s
    assert len(one.gaps_s) == 3
    assert all(gap >= 0.0 for gap in one.gaps_s)
    assert one.ttft_s is not None
    assert one.ttft_from_sending_s is not None
    assert one.ttft_s == pytest.approx(one.lag_s + one.ttft_from_sending_s)


async def test_a_request_says_who_it_is_and_what_it_wants() -> None:
    async with serving(fake_server.streams) as server:
        (one,) = (await play(server.url + "/", ONE, SETTINGS)).requests

    (headers,), (body,) = server.headers, server.bodies
    assert headers["X-Request-Id"] == one.request_id
    assert headers["traceparent"].startswith(f"00-{one.trace_id}-")
    assert re.fullmatch(r"[0-9a-f]{12}-0", one.request_id)
    assert body["prompt"] == Prompts().ids(0, 12)
    assert body["stream"] is True


async def test_a_request_is_sent_at_its_time_whatever_became_of_the_others() -> None:
    """Open loop: none of the three that hang keeps the fourth from being sent and answered."""
    ended: list[RequestOutcome] = []
    sent: list[int] = []
    stop = asyncio.Event()
    behaviours = [fake_server.hangs] * 3 + [fake_server.streams]

    def on_outcome(outcome: RequestOutcome) -> None:
        ended.append(outcome)

    schedule = tuple(Planned(at / 1000, 10, 5) for at in range(4))
    async with serving(*behaviours) as server:
        load = asyncio.create_task(
            play(
                server.url,
                schedule,
                SETTINGS,
                stop=stop,
                on_sent=lambda: sent.append(1),
                on_outcome=on_outcome,
            )
        )
        async with asyncio.timeout(20):
            while not ended:
                await asyncio.sleep(0.001)
        load.cancel()
        with pytest.raises(asyncio.CancelledError):
            await load

    assert len(sent) == 4
    assert [one.failure for one in ended] == [None]


FAILURES: list[tuple[str, Behave, Failure, str, int | None, int]] = [
    (
        "500",
        answers(500, {"error": {"message": "prefill is gone"}}),
        Failure.SERVER_ERROR,
        "answered 500: prefill is gone",
        500,
        0,
    ),
    ("503", answers(503, "No eligible P/D pair"), Failure.SERVER_ERROR, "eligible", 503, 0),
    ("404", answers(404, {"detail": "no model"}), Failure.REFUSED, "404: no model", 404, 0),
    ("429", answers(429, ""), Failure.REFUSED, "answered 429", 429, 0),
    ("redirect", answers(307, ""), Failure.REFUSED, "answered 307", 307, 0),
    ("cut", fake_server.cuts, Failure.CUT_SHORT, "(2 of 5 tokens came)", 200, 2),
    (
        "no-end-mark",
        fake_server.ends_without_end_mark,
        Failure.CUT_SHORT,
        "without its end mark (5 of 5",
        200,
        5,
    ),
    (
        "too-few",
        fake_server.stops_early,
        Failure.TOO_FEW_TOKENS,
        "4 tokens came where 5 were asked for",
        200,
        4,
    ),
    (
        "error-within",
        fake_server.says_an_error_in_the_stream,
        Failure.BAD_ANSWER,
        "KV transfer failed (1 of 5",
        200,
        1,
    ),
    ("no-answer", fake_server.closes_at_once, Failure.CONNECTION, "no answer", None, 0),
    ("nested", answers(500, "[" * 60_000), Failure.SERVER_ERROR, "answered 500: [[", 500, 0),
    ("no-stream", answers(200, "<html>"), Failure.CUT_SHORT, "end mark", 200, 0),
]


@pytest.mark.parametrize(
    ("behave", "failure", "words", "status", "tokens"),
    [pytest.param(*row[1:], id=row[0]) for row in FAILURES],
)
async def test_how_a_request_failed_is_said_and_it_is_not_tried_again(
    behave: Behave, failure: Failure, words: str, status: int | None, tokens: int
) -> None:
    async with serving(behave) as server:
        (one,) = (await play(server.url, ONE, SETTINGS)).requests

    assert (one.failure, one.status, one.counted_tokens) == (failure, status, tokens)
    assert words in one.words
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("behave", "tokens", "words"),
    [(fake_server.stalls, 1, "(1 of 5 tokens came)"), (fake_server.hangs, 0, "no whole answer")],
)
async def test_an_answer_that_never_ends_is_given_up_after_its_time(
    behave: Behave, tokens: int, words: str
) -> None:
    short = LoadSettings(model="tiny", timeout_s=0.05)
    async with serving(behave) as server:
        (one,) = (await play(server.url, ONE, short)).requests

    assert one.failure is Failure.TIMED_OUT
    assert one.counted_tokens <= tokens  # on a busy machine not even the first came in time
    if one.counted_tokens == tokens:
        assert words in one.words


async def test_a_failed_request_does_not_spoil_the_others() -> None:
    behaviours = [fake_server.streams, answers(500, "x"), fake_server.cuts, fake_server.streams]
    async with serving(*behaviours) as server:
        outcomes = await play(server.url, _at_once(4), SETTINGS)

    sums = totals(outcomes.requests)
    assert (sums.served, sums.failed) == (2, 2)
    assert dict(sums.failures) == {Failure.SERVER_ERROR: 1, Failure.CUT_SHORT: 1}
    assert (sums.output_tokens, sums.output_tokens_of_failed) == (10, 2)


def _unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


async def test_without_patience_a_target_that_refuses_is_an_outcome_like_any_other() -> None:
    url = f"http://127.0.0.1:{_unused_port()}"

    outcomes = await play(url, _at_once(3), SETTINGS)

    assert [one.failure for one in outcomes.requests] == [Failure.CONNECTION] * 3
    assert "cannot connect: Connection refused" in outcomes.requests[0].words


@pytest.mark.parametrize("number", [2, 50])
async def test_a_target_that_refuses_from_the_start_ends_the_load(number: int) -> None:
    """Also if fewer are sent than the patience; requests that are not yet due are not sent."""
    sent: list[int] = []
    schedule = (*_at_once(number), Planned(3600.0, 1, 1)) if number > 5 else _at_once(number)
    settings = LoadSettings(model="other", give_up_after=5)
    async with serving(answers(404, {"error": {"message": "no model other"}})) as server:
        with pytest.raises(Unavailable, match="refuses every request: answered 404: no model"):
            await play(server.url, schedule, settings, on_sent=lambda: sent.append(1))

    assert len(sent) <= number


async def test_a_target_that_answered_once_is_not_given_up() -> None:
    settings = LoadSettings(model="tiny", give_up_after=2)
    async with serving(fake_server.streams, answers(429, "busy")) as server:
        outcomes = await play(
            server.url, (Planned(0.0, 3, 3), *(Planned(0.03, 3, 3),) * 9), settings
        )

    assert totals(outcomes.requests).requests == 10


async def test_once_told_to_stop_nothing_more_is_sent_and_the_rest_is_waited_for() -> None:
    stop = asyncio.Event()
    async with serving(fake_server.streams) as server:
        outcomes = await play(
            server.url,
            (*_at_once(3), Planned(3600.0, 1, 1)),
            SETTINGS,
            stop=stop,
            on_outcome=lambda _: stop.set(),
        )

    assert [one.failure for one in outcomes.requests] == [None] * 3


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://x", "http://", "http://x:99999"])
async def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(Misconfigured, match="--url"):
        await play(url, ONE, SETTINGS)


async def test_the_senders_own_cpu_is_what_its_clock_says_it_used() -> None:
    clock = iter([10.0, 12.5])
    async with serving(fake_server.streams) as server:
        outcomes = await play(server.url, ONE, SETTINGS, cpu_s=lambda: next(clock))

    assert outcomes.sender_cpu_s == 2.5


@pytest.mark.parametrize(
    ("data", "failure"),
    [
        pytest.param(token(1) + token(2) + DONE, None, id="all"),
        pytest.param(token(1) + usage({"prompt": []}, 2) + DONE, "few", id="named-ids-are-right"),
        pytest.param(
            token(1, named=False) + usage({"prompt": []}, 2) + DONE, None, id="merged-chunks"
        ),
        pytest.param(token(1, named=False) + DONE, "few", id="unnamed-and-no-usage"),
        pytest.param(token(1) + token(2), "cut", id="no-end"),
        pytest.param(token(1) + token(2) + token(3) + DONE, "bad", id="more-than-asked"),
        pytest.param(token(1) + token(2) + usage({"prompt": []}, 3) + DONE, "bad", id="more-told"),
        pytest.param(usage({"prompt": []}, 2) + DONE, "few", id="told-and-none-came"),
        pytest.param(token(1, named=False) * 3 + DONE, None, id="unnamed-and-an-end"),
        pytest.param(token(1, named=False) * 4 + DONE, "bad", id="unnamed-and-more-than-asked"),
    ],
)
def test_an_answer_is_whole_if_all_that_was_asked_for_came(
    data: bytes, failure: str | None
) -> None:
    answer = StreamedAnswer()
    answer.feed(data, 1.0)
    kinds = {
        "few": Failure.TOO_FEW_TOKENS,
        "cut": Failure.CUT_SHORT,
        "bad": Failure.BAD_ANSWER,
        None: None,
    }

    assert judged(answer, 2)[0] is kinds[failure]
