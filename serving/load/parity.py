"""Whether two servers give the same greedy answers: the same prompts, one at a time, to both.

One at a time, because an engine's sums depend on what it batches: equal answers are only owed by
equal steps. Network; no log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp

from serving.errors import Unavailable
from serving.load.asking import completion_body
from serving.load.generator import PATH, check_url
from serving.load.stream import said_in, shortened


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer; the ids are `None` where the server does not name them."""

    text: str
    token_ids: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place where two answers part: prompt number and, if ids are known, the token."""

    prompt: int
    token: int | None
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How many prompts were answered equally by both."""

    compared: int
    equal: int
    first_difference: Difference | None = None

    @property
    def words(self) -> str:
        """The result in one sentence."""
        said = f"{self.equal} of {self.compared} greedy answers are equal"
        apart = self.first_difference
        if apart is None:
            return said
        where = "" if apart.token is None else f" from token {apart.token} on"
        return f"{said}; answer {apart.prompt} differs{where}: {apart.first!r} and {apart.second!r}"


async def compare(
    first_url: str,
    second_url: str,
    prompts: Sequence[Sequence[int]],
    *,
    model: str,
    output_tokens: int,
    timeout_s: float = 120.0,
    on_compared: Callable[[], None] | None = None,
) -> Parity:
    """Ask both servers every prompt, the second after the first. Raises Unavailable."""
    for url in (first_url, second_url):
        check_url(url)
    equal, apart = 0, None
    async with _session(timeout_s) as session:
        for number, prompt in enumerate(prompts):
            body = completion_body(
                model=model,
                prompt=list(prompt),
                output_tokens=output_tokens,
                temperature=0.0,
                stream=False,
            )
            first = await _ask(session, first_url, body)
            second = await _ask(session, second_url, body)
            found = difference(number, first, second)
            equal += found is None
            apart = apart or found
            if on_compared is not None:
                on_compared()
    return Parity(compared=len(prompts), equal=equal, first_difference=apart)


async def answer(
    url: str, prompt: Sequence[int], *, model: str, output_tokens: int, timeout_s: float = 120.0
) -> Answer:
    """One server's greedy answer to one prompt. Raises Unavailable."""
    body = completion_body(
        model=model,
        prompt=list(prompt),
        output_tokens=output_tokens,
        temperature=0.0,
        stream=False,
    )
    async with _session(timeout_s) as session:
        return await _ask(session, url, body)


def difference(number: int, first: Answer, second: Answer) -> Difference | None:
    """Where two answers to prompt `number` part: by token ids if both have them, else by text."""
    one, other = first.token_ids, second.token_ids
    if one is None or other is None:
        same, token = first.text == second.text, None
    else:
        same = one == other and first.text == second.text
        pairs = zip(one, other, strict=False)
        shorter = min(len(one), len(other))
        token = next((at for at, (a, b) in enumerate(pairs) if a != b), shorter)
    if same:
        return None
    return Difference(prompt=number, token=token, first=first.text[:80], second=second.text[:80])


def _session(timeout_s: float) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(force_close=True),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        trust_env=False,
    )


async def _ask(session: aiohttp.ClientSession, url: str, body: bytes) -> Answer:
    headers = {"Content-Type": "application/json"}
    try:
        async with session.post(
            url.rstrip("/") + PATH, data=body, headers=headers, allow_redirects=False
        ) as response:
            data = await response.read()
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        why = str(error)[:200] or type(error).__name__
        raise Unavailable(f"{url} does not answer: {why}") from error
    if response.status != 200:
        raise Unavailable(f"{url} answered {response.status}: {shortened(data)}")
    try:
        return _answer(data)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise Unavailable(f"{url} gave no completion: {shortened(data)}") from error


def _answer(data: bytes) -> Answer:
    whole = json.loads(data)
    if "choices" not in whole:
        raise ValueError(said_in(whole))
    choice = whole["choices"][0]
    ids = choice.get("token_ids")
    return Answer(text=str(choice["text"]), token_ids=tuple(ids) if isinstance(ids, list) else None)
