"""A fixed load on a live pair, its pages read meanwhile: the recording of it.

It asks and reads; it starts no engine (`pair`). Network and the event loop's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import aiohttp

from phasewise.reality.recording import About, PlayedRequest, RecordedPage, Recording
from serving.errors import Unavailable
from serving.load.asking import Prompts
from serving.load.generator import LoadSettings, play
from serving.load.outcomes import RequestOutcome
from serving.load.schedule import Mix, Planned, mixed

SCRAPE_EVERY_S = 1.0
QUIET_S = 2.0
"""Before the first request and after the last answer: both are on the recording's pages."""

WARM_UP = tuple(Planned(arrival_s=2.0 * n, input_tokens=300, output_tokens=8) for n in range(3))
"""Before the recording: the first transfer between two engines costs a handshake."""


MIXES = (
    Mix(
        seconds=40.0,
        rate_per_s=2.5,
        input_tokens_mean=878,
        input_tokens_spread=622,
        output_tokens_mean=17,
        output_tokens_spread=16,
    ),
    Mix(
        seconds=40.0,
        rate_per_s=2.0,
        input_tokens_mean=232,
        input_tokens_spread=168,
        output_tokens_mean=80,
        output_tokens_spread=48,
    ),
)
"""Work for prefill, then work for decode."""


def load_words(mixes: Sequence[Mix] = MIXES) -> str:
    """What is played, as people read it."""
    return ", then ".join(
        f"{mix.seconds:g} s at {mix.rate_per_s:g} requests/s with prompts of "
        f"{mix.input_tokens_mean} ± {mix.input_tokens_spread} and answers of "
        f"{mix.output_tokens_mean} ± {mix.output_tokens_spread} tokens"
        for mix in mixes
    )


def schedule(*, seed: int) -> tuple[Planned, ...]:
    """The mixes one after the other, behind a quiet while; the same for one seed."""
    return tuple(
        planned._replace(arrival_s=planned.arrival_s + QUIET_S)
        for planned in mixed(MIXES, seed=seed)
    )


async def record(
    about: About, *, address: str, pages: Mapping[str, str], seed: int = 1
) -> Recording:
    """Warm up, then play and read the pages (by target) each second.

    Raises Unavailable if a page does not answer, or if a request fails: what is compared is a
    healthy pair.
    """
    settings = LoadSettings(model=about.model, prompts=Prompts(seed=seed), give_up_after=3)
    await play(address, WARM_UP, LoadSettings(model=about.model, prompts=Prompts(seed=seed + 1)))
    planned = schedule(seed=seed)
    loop = asyncio.get_running_loop()
    taken: list[RecordedPage] = []
    ended = asyncio.Event()
    async with aiohttp.ClientSession(trust_env=False) as session:
        began_s = loop.time()

        async def one(target: str, url: str) -> None:
            at_s = loop.time() - began_s
            taken.append(RecordedPage(at_s=at_s, target=target, text=await _page(session, url)))

        async def scrape() -> None:
            for number in range(1_000_000):
                await asyncio.sleep(began_s + number * SCRAPE_EVERY_S - loop.time())
                last = ended.is_set()
                await asyncio.gather(*(one(target, url) for target, url in pages.items()))
                if last:
                    return

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(scrape())
                outcomes = await play(address, planned, settings)
                await asyncio.sleep(QUIET_S)
                ended.set()
        except BaseExceptionGroup as group:
            silent = group.subgroup(Unavailable)
            if silent is None:
                raise
            raise Unavailable(str(silent.exceptions[0])) from group
    failed = [outcome for outcome in outcomes.requests if outcome.failure is not None]
    if failed:
        raise Unavailable(
            f"{len(failed)} of {len(outcomes.requests)} requests failed: {failed[0].words}"
        )
    return Recording(
        about=about,
        requests=tuple(_played(outcome) for outcome in outcomes.requests),
        pages=tuple(taken),
    )


def _played(outcome: RequestOutcome) -> PlayedRequest:
    first_s = outcome.first_token_s
    return PlayedRequest(
        t_s=outcome.sent_s,
        input_tokens=outcome.input_tokens,
        output_tokens=outcome.output_tokens,
        ttft_s=None if first_s is None else first_s - outcome.sent_s,
        e2e_s=outcome.ended_s - outcome.sent_s,
        status=outcome.status or 0,
    )


async def _page(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get(url) as response:
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unavailable(f"{url} does not answer: {error!r}") from error
    if response.status != 200:
        raise Unavailable(f"{url} answered {response.status}")
    return text
