"""One Chromium for each file of tests; they are skipped, with the reason, where there is none.

Not one for the whole session: playwright keeps an event loop running while it is open, and tests
of coroutines in the same process could not run theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.browser.chromium import CHROMIUM, browser, context


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}: on Debian, apt-get install chromium fonts-dejavu-core")
    with browser() as running:
        yield running


@pytest.fixture
def profile(chromium: Browser) -> Iterator[BrowserContext]:
    with context(chromium) as fresh:
        yield fresh
