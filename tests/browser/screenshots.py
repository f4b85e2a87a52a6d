"""Every view of the console as a picture: `make screenshots` writes them to out/screenshots/."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page

from tests.browser.chromium import CHROMIUM, VIEWS, browser, shown

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = {"wide": 1440, "narrow": 400}
HEIGHT = 1000
DIALOGS = {"why": "#why", "override": "#override"}


def _whole(page: Page, view: str, width: int, path: Path) -> None:
    """The whole page, or the whole dialog where one is open, however long it is."""
    page.set_viewport_size({"width": width, "height": HEIGHT})
    dialog = DIALOGS.get(view)
    if dialog is not None:
        height = page.evaluate(f"document.querySelector('{dialog}').scrollHeight")
        page.set_viewport_size({"width": width, "height": height + 60})
    page.wait_for_timeout(500)  # charts follow the new width
    page.screenshot(path=path, full_page=dialog is None)


def main(folder: Path, only: set[str]) -> int:
    """Write the pictures; 2 where there is no Chromium."""
    if not CHROMIUM.exists():
        sys.stderr.write(f"no {CHROMIUM}: on Debian, apt-get install chromium fonts-dejavu-core\n")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    with browser() as running:
        for view in VIEWS:
            if only and view.name not in only:
                continue
            with shown(running, view) as page:
                for scheme in SCHEMES:
                    page.emulate_media(color_scheme=scheme)
                    for size, width in WIDTHS.items():
                        path = folder / f"{view.name}-{scheme}-{size}.png"
                        _whole(page, view.name, width, path)
                        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path("out/screenshots"), set(sys.argv[1:])))
