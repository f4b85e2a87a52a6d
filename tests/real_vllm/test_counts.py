"""What the control plane counts on a live pair is what really happened.

Requests of mixed lengths go through the router while the collector watches as it always does. Three
counts are made without one another: by the load generator of what it asked for and got, by the
control plane of the engines' pages, and by NIXL's own exporter of the bytes that it moved.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from rich.console import Console

from collector.exposition import read_page
from collector.observe import ObserverSettings
from collector.scrape import Scraper
from phasewise.counting import (
    NIXL_DROPPED_EVENTS,
    NIXL_RECEIVED_BYTES,
    KvLayout,
    blind_spots,
    compare_counts,
    counts_table,
    largest_difference_ratio,
    received_bytes,
)
from phasewise.http_tier import HttpTier
from phasewise.loading import load_rows
from phasewise.tier_setup import tier_settings
from serving.load.asking import Prompts
from serving.load.generator import LoadSettings, play
from serving.load.outcomes import Outcomes
from serving.load.schedule import Mix, mixed
from serving.types import Observation, Slo
from tests.real_vllm.live import LivePair, live_pair

pytestmark = pytest.mark.vllm

MOST_RATIO = 0.01
SETTLES_S = 2.0
"""By then the last numbers have reached all pages: NIXL's exporter is some 0.1 s behind."""
SLO = Slo(ttft_s=5.0, itl_s=0.5, attainment_ratio=0.99)
MIXES = (
    # longer prompts than a step takes, none a multiple of a KV block by design
    Mix(
        rate_per_s=4.0,
        input_tokens_mean=700,
        input_tokens_spread=600,
        output_tokens_mean=20,
        output_tokens_spread=19,
        seconds=10.0,
    ),
    Mix(
        rate_per_s=5.0,
        input_tokens_mean=130,
        input_tokens_spread=120,
        output_tokens_mean=60,
        output_tokens_spread=40,
        seconds=8.0,
    ),
)


async def nixl_bytes(scraper: Scraper, pair: LivePair) -> float:
    """What all agents pulled so far."""
    found = 0.0
    for url in pair.nixl_pages:
        body = await scraper.fetch(url)
        assert isinstance(body, bytes), body
        page = read_page(body, frozenset({NIXL_RECEIVED_BYTES, NIXL_DROPPED_EVENTS}))
        number = received_bytes(page)
        assert number is not None
        found += number
    return found


async def loaded(pair: LivePair) -> tuple[Outcomes, list[Observation], float]:
    """The load, what was seen from just before to just after it, and NIXL's bytes in between."""
    async with Scraper(timeout_s=30.0) as scraper:
        tier = HttpTier(
            tier_settings(pair.tier),
            discovery_url=pair.http_sd,
            scraper=scraper,
            scale=None,
            observer=ObserverSettings(max_age_s=60.0),
            model=pair.tier.spec.model,
        )
        await asyncio.sleep(SETTLES_S)  # of the request that tried the pair
        before = await nixl_bytes(scraper, pair)
        seen = [await tier.observe(time.time())]  # noqa: TID251 - the edge
        load = asyncio.create_task(
            play(
                pair.url,
                mixed(MIXES, seed=11),
                LoadSettings(model=pair.tier.spec.model, prompts=Prompts(seed=11)),
            )
        )
        while not load.done():
            await asyncio.wait([load], timeout=2.0)
            seen.append(await tier.observe(time.time()))  # noqa: TID251 - the edge
        await asyncio.sleep(SETTLES_S)
        seen.append(await tier.observe(time.time()))  # noqa: TID251 - the edge
        return await load, seen, await nixl_bytes(scraper, pair) - before


def test_all_counts_of_a_live_pair_agree_within_one_percent(tmp_path: Path) -> None:
    with live_pair(tmp_path) as pair:
        outcomes, seen, bytes_pulled = asyncio.run(loaded(pair))
        layout = KvLayout(bytes_per_token=pair.kv_bytes_per_token, block_tokens=pair.block_tokens)

    found = compare_counts(outcomes.requests, seen, layout=layout, nixl_bytes=bytes_pulled)
    console = Console(width=120)
    console.print(counts_table(found))
    console.print(*(f"{name}: {words}" for name, words in load_rows(outcomes, SLO)), sep="\n")

    assert [one.words for one in outcomes.requests if one.failure is not None] == []
    assert 60 <= len(outcomes.requests) <= 100
    assert blind_spots(seen) == ()
    worst = largest_difference_ratio(found)
    assert worst is not None, [one for one in found if one.found is None]
    assert worst <= MOST_RATIO
