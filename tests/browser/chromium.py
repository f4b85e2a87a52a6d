"""Debian's Chromium, driven by playwright, and the views that the console has.

Nothing outside this machine is asked for: the browser's own background traffic is switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.fake_api import FakeApi, brief, recorded

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 30_000
STALE_AFTER_MS = 300_000


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium, ended afterwards."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        try:
            yield running
        finally:
            running.close()


@contextmanager
def context(running: Browser) -> Iterator[BrowserContext]:
    """A fresh profile."""
    fresh = running.new_context(viewport={"width": 1440, "height": 1000}, reduced_motion="reduce")
    fresh.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    try:
        yield fresh
    finally:
        fresh.close()


def drawn(page: Page) -> None:
    """Wait until the first view is there, charts included."""
    expect(page.locator("#pool-cards .card").first).to_be_visible()
    page.wait_for_function(
        "() => document.querySelectorAll('.plot .main-svg').length > 0"
        " || !document.querySelector('#charts-note').hidden"
    )


def open_page(fresh: BrowserContext, api: FakeApi, fragment: str = "") -> Page:
    """The console, drawn."""
    page = fresh.new_page()
    page.clock.install(time=api.view["at_s"] + 1.0)  # it runs on from there by itself
    page.goto(api.url + fragment, wait_until="domcontentloaded")
    drawn(page)
    return page


def _as_it_is(page: Page, api: FakeApi) -> None:
    """Nothing to do: the view is there."""


def _stale(page: Page, api: FakeApi) -> None:
    api.falls_silent()
    page.clock.fast_forward(STALE_AFTER_MS)
    expect(page.locator("#verdict")).to_have_attribute("data-level", "stale")


def _why(page: Page, api: FakeApi) -> None:
    page.evaluate(
        "location.hash = '#why/' + document.querySelector('.why-link').hash.split('/')[1]"
    )
    expect(page.locator("#why .steps")).to_be_visible()


def _override(page: Page, api: FakeApi) -> None:
    page.get_by_role("button", name="Override prefill").click()
    page.get_by_role("radio", name="Pin").check()
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#override-said")).not_to_be_empty()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One state of the page: what the control plane says, and what is done then."""

    name: str
    recording: str
    arrive: Callable[[Page, FakeApi], None] = _as_it_is
    has_plotly: bool = True


VIEWS = (
    View(name="healthy", recording="healthy"),
    View(name="trouble", recording="trouble"),
    View(name="blind", recording="blind"),
    View(name="stale", recording="healthy", arrive=_stale),
    View(name="why", recording="healthy", arrive=_why),
    View(name="override", recording="trouble", arrive=_override),
    View(name="no-charts", recording="healthy", has_plotly=False),
)
WITH_CHARTS = ("healthy", "blind")  # where a brief view has them: lines, and gaps in lines


@contextmanager
def shown(running: Browser, view: View, *, is_brief: bool = False) -> Iterator[Page]:
    """A view on a page of its own; a brief one has less of a past, and charts where they matter."""
    answer = recorded(view.recording)
    has_plotly = view.name in WITH_CHARTS if is_brief else view.has_plotly
    with (
        FakeApi(brief(answer) if is_brief else answer, has_plotly=has_plotly) as api,
        context(running) as fresh,
    ):
        page = open_page(fresh, api)
        view.arrive(page, api)
        yield page
