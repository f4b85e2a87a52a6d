"""The console on the real API: what it shows is what the board was told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, expect

from autoscaler.testing import TIER, Load, recorded_run
from phasewise.api import Api, ApiSettings
from phasewise.tier_board import TierBoard

TICKS = recorded_run([Load(scale=s) for s in (1.0, 1.0, 2.0)])
TOKEN = "correct horse"


class RunningApi:
    """The API with a loop of its own in a thread; `note` is the next tick."""

    def __init__(self, board: TierBoard, token_file: Path) -> None:
        self._board = board
        self._settings = ApiSettings(port=0, token_file=token_file)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._api = Api((board,), self._settings)

    def do(self, work: Any) -> Any:
        """Run a coroutine on the API's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10.0)

    def note(self, tick: Any) -> None:
        """Take in one tick, as the loop does."""

        async def take() -> None:
            self._board.note(tick.plan, tick.observations)

        self.do(take())

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its address."""
        self._thread.start()
        try:
            self.do(self._api.start())
            yield self._api.address
        finally:
            self.do(self._api.stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    return file


def test_the_page_shows_the_board_s_numbers_its_why_and_takes_an_override(
    profile: BrowserContext, token_file: Path
) -> None:
    board = TierBoard(TIER, mode="act")
    for tick in TICKS[:2]:
        board.note(tick.plan, tick.observations)
    board.overrides.now_s = TICKS[1].at_s
    api = RunningApi(board, token_file)
    with api.running() as address:
        page = profile.new_page()
        page.goto(address)
        cards = page.locator("#pool-cards .card")
        expect(cards).to_have_count(len(TIER.pools))

        api.note(TICKS[2])

        view = json.loads(board.view_json())
        for pool in view["pools"]:
            card = page.locator(f"article[aria-label='Pool {pool['name']}']")
            for word in ("wanted", "desired", "ready", "starting", "draining"):
                group = card.locator(".counts > div").filter(has_text=word.capitalize())
                shown = "unknown" if pool[word] is None else str(pool[word])
                expect(group.locator("dd")).to_have_text(shown)
            expect(card.locator(".reason")).to_contain_text(pool["words"])
        expect(page.locator(".plot .main-svg").first).to_be_visible()

        page.get_by_role("link", name="Why this size of decode?").click()
        why = json.loads(board.why_json("decode") or b"")
        expect(page.get_by_role("dialog")).to_contain_text(why["verdict"])
        page.keyboard.press("Escape")

        page.get_by_role("button", name="Override decode").click()
        form = page.get_by_role("dialog")
        form.get_by_role("radio", name="Pin").check()
        form.locator("[name=replicas]").fill("999")
        form.get_by_label("Your name").fill("ann")
        form.get_by_label("Token").fill(TOKEN)
        form.get_by_role("button", name="Apply").click()
        expect(form.get_by_role("alert")).to_contain_text("whole number from")
        form.locator("[name=replicas]").fill("9")
        form.get_by_role("button", name="Apply").click()
        expect(form).to_be_hidden()
        card = page.locator("article[aria-label='Pool decode']")
        expect(card).to_contain_text("pinned to 9 by ann")
