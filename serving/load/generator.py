"""Sends a schedule to an OpenAI-compatible server, each request at its time whatever became of the
others (open loop), and reads the streamed answers.

Nothing is retried, every request has a connection of its own, and no number of requests in flight
is too high: a server that cannot keep up is seen, not spared. How late the sender itself was is in
each outcome. Network and the event loop's clock; no log.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiohttp

from serving.errors import Misconfigured, Unavailable
from serving.load.asking import Identity, Prompts, completion_body, identity
from serving.load.outcomes import Failure, Outcomes, RequestOutcome
from serving.load.schedule import Planned
from serving.load.stream import StreamedAnswer, said_in, shortened

PATH = "/v1/completions"
_REFUSALS = (Failure.CONNECTION, Failure.REFUSED)
_LARGEST_ERROR_BYTES = 64 * 1024
_LONGEST_SLEEP_S = 0.2  # how soon `stop` is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """What all requests of a load have in common.

    `timeout_s` bounds a request from its sending to its last byte. `give_up_after`: if that many
    were answered and every one was refused (no connection, or 4xx), the load ends as `Unavailable`;
    `None` never gives up.
    """

    model: str
    prompts: Prompts = field(default_factory=Prompts)
    temperature: float = 0.0
    timeout_s: float = 300.0
    give_up_after: int | None = None


async def play(
    url: str,
    schedule: Sequence[Planned],
    settings: LoadSettings,
    *,
    run_id: str | None = None,
    stop: asyncio.Event | None = None,
    on_sent: Callable[[], None] | None = None,
    on_outcome: Callable[[RequestOutcome], None] | None = None,
    cpu_s: Callable[[], float] = time.process_time,
) -> Outcomes:
    """Send it all and wait for every answer; outcomes come in the schedule's order.

    From `stop` on nothing more is sent, and what is under way is waited for. Raises Unavailable if
    the target refuses from the start, Misconfigured if `url` is none.
    """
    check_url(url)
    sender = _Sender(url.rstrip("/") + PATH, settings, run_id or uuid.uuid4().hex[:12])
    cpu_before_s = cpu_s()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        read_bufsize=1024 * 1024,
    ) as session:
        requests, wall_s = await sender.run(session, schedule, stop, on_sent, on_outcome)
    return Outcomes(requests=requests, wall_s=wall_s, sender_cpu_s=cpu_s() - cpu_before_s)


def check_url(url: str) -> None:
    """Raises Misconfigured unless it is an http(s) address with a host."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole:
        raise Misconfigured(
            "not an address", where="--url", found=repr(url), expected="http://HOST:PORT"
        )


class _Sender:
    """One load under way."""

    def __init__(self, url: str, settings: LoadSettings, run_id: str) -> None:
        self._url = url
        self._settings = settings
        self._run_id = run_id
        self._outcomes: dict[int, RequestOutcome] = {}
        self._answered_otherwise = False

    async def run(
        self,
        session: aiohttp.ClientSession,
        schedule: Sequence[Planned],
        stop: asyncio.Event | None,
        on_sent: Callable[[], None] | None,
        on_outcome: Callable[[RequestOutcome], None] | None,
    ) -> tuple[tuple[RequestOutcome, ...], float]:
        now_s = asyncio.get_running_loop().time
        began_s = now_s()

        async def one(number: int, planned: Planned, body: bytes) -> None:
            if on_sent is not None:
                on_sent()
            who = identity(self._run_id, number)
            outcome = await self._send(session, planned, body, who, began_s)
            self._outcomes[number] = outcome
            if on_outcome is not None:
                on_outcome(outcome)
            self._judge_target(outcome, last=len(self._outcomes) == len(schedule))

        try:
            async with asyncio.TaskGroup() as under_way:
                for number, planned in enumerate(schedule):
                    body = self._body(number, planned)  # made before it is due
                    if not await _due(began_s + planned.arrival_s, stop):
                        break
                    under_way.create_task(one(number, planned, body))
        except BaseExceptionGroup as group:
            for error in group.exceptions:
                if isinstance(error, Unavailable):
                    raise error from None
            raise
        wall_s = now_s() - began_s
        return tuple(self._outcomes[number] for number in sorted(self._outcomes)), wall_s

    def _body(self, number: int, planned: Planned) -> bytes:
        return completion_body(
            model=self._settings.model,
            prompt=self._settings.prompts.ids(number, planned.input_tokens),
            output_tokens=planned.output_tokens,
            temperature=self._settings.temperature,
        )

    def _judge_target(self, outcome: RequestOutcome, *, last: bool) -> None:
        """Raises Unavailable if nothing but refusals came, and enough of them."""
        patience = self._settings.give_up_after
        if outcome.failure not in _REFUSALS:
            self._answered_otherwise = True
        if patience is None or self._answered_otherwise:
            return
        if last or len(self._outcomes) >= patience:
            raise Unavailable(f"{self._url} refuses every request: {outcome.words}")

    async def _send(
        self,
        session: aiohttp.ClientSession,
        planned: Planned,
        body: bytes,
        who: Identity,
        began_s: float,
    ) -> RequestOutcome:
        loop = asyncio.get_running_loop()
        answer = StreamedAnswer()
        status: int | None = None
        failure: Failure | None = None
        words = ""
        headers = {**who.headers, "Content-Type": "application/json"}
        sent_s = loop.time() - began_s
        try:
            async with (
                asyncio.timeout(self._settings.timeout_s),
                session.post(
                    self._url, data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                status = response.status
                if status != 200:
                    failure, words = await _refusal(response)
                else:
                    async for data in response.content.iter_any():
                        answer.feed(data, loop.time() - began_s)
        except TimeoutError:
            failure = Failure.TIMED_OUT
            words = f"no whole answer within {self._settings.timeout_s:g} s"
        except aiohttp.ClientConnectorError as error:
            failure = Failure.CONNECTION
            words = f"cannot connect: {os.strerror(error.errno) if error.errno else error}"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = Failure.CONNECTION if status is None else Failure.CUT_SHORT
            what = "no answer" if status is None else "the stream was cut"
            words = f"{what}: {str(error)[:200] or type(error).__name__}"
        if failure is None:
            failure, words = judged(answer, planned.output_tokens)
        if failure not in (None, Failure.TOO_FEW_TOKENS) and answer.tokens:
            words += f" ({answer.tokens} of {planned.output_tokens} tokens came)"
        return RequestOutcome(
            request_id=who.request_id,
            trace_id=who.trace_id,
            input_tokens=planned.input_tokens,
            output_tokens=planned.output_tokens,
            scheduled_s=planned.arrival_s,
            sent_s=sent_s,
            ended_s=loop.time() - began_s,
            first_token_s=answer.first_token_s,
            gaps_s=tuple(answer.gaps_s),
            counted_tokens=answer.tokens,
            usage_prompt_tokens=answer.usage_prompt_tokens,
            usage_output_tokens=answer.usage_output_tokens,
            status=status,
            failure=failure,
            words=words,
            answer_id=answer.answer_id,
        )


async def _due(due_s: float, stop: asyncio.Event | None) -> bool:
    """Wait until the loop's clock says `due_s`; `False` if nothing more is to be sent."""
    now_s = asyncio.get_running_loop().time
    while stop is None or not stop.is_set():
        wait_s = due_s - now_s()
        if wait_s <= 0.0:
            await asyncio.sleep(0)  # late or not, those under way get their turn
            return True
        await asyncio.sleep(min(wait_s, _LONGEST_SLEEP_S))
    return False


def judged(answer: StreamedAnswer, asked_tokens: int) -> tuple[Failure | None, str]:
    """What is wrong with an answer of status 200 that ended without an error of the connection.

    More tokens than were asked for, counted or told, are as wrong as fewer. Where ids are not
    named, one more chunk than tokens is none: it may be the end, without a token.
    """
    if answer.wrong is not None:
        return Failure.BAD_ANSWER, answer.wrong
    if not answer.whole:
        return Failure.CUT_SHORT, "the stream ended without its end mark"
    named = bool(answer.token_ids)  # else an engine may have put several tokens into a chunk
    told = answer.usage_output_tokens or 0
    if told > asked_tokens:
        return Failure.BAD_ANSWER, f"{told} tokens told where {asked_tokens} were asked for"
    if answer.tokens > asked_tokens + (not named):
        return (
            Failure.BAD_ANSWER,
            f"{answer.tokens} tokens came where {asked_tokens} were asked for",
        )
    came = answer.tokens if named or not answer.tokens else max(answer.tokens, told)
    if came < asked_tokens:
        return Failure.TOO_FEW_TOKENS, f"{came} tokens came where {asked_tokens} were asked for"
    return None, ""


async def _refusal(response: aiohttp.ClientResponse) -> tuple[Failure, str]:
    """A status other than 200, with what the server said about it."""
    data = await response.content.read(_LARGEST_ERROR_BYTES)
    try:
        said = said_in(json.loads(data))
    except (ValueError, RecursionError):
        said = shortened(data)
    failure = Failure.SERVER_ERROR if response.status >= 500 else Failure.REFUSED
    return failure, f"answered {response.status}: {said}" if said else f"answered {response.status}"
