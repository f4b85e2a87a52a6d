"""Where `explain` and `top` look: a ledger file, or a running control plane.

Both give the same JSON. Reads only.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import aiohttp

from autoscaler.explain import Explanation, explain
from autoscaler.ledger import Ledger
from autoscaler.recorded import RecordedTick
from autoscaler.view import view
from autoscaler.view_model import View
from phasewise.tier_board import SHOWN_TICKS, to_json
from serving.errors import Misconfigured, Unavailable

Document = Mapping[str, Any]
DEFAULT_LEDGER = Path("out/demo.sqlite")
RUN_LEDGER = Path("out/phasewise.sqlite")  # where the examples' settings put it
_TIMEOUT_S = 10.0
_LARGEST_ANSWER_BYTES = 64 << 20


class Watched(Protocol):
    """Something that shows a tier."""

    def view(self) -> Document:
        """The newest view."""
        ...

    def why(self, pool: str, epoch: int | None) -> Document:
        """The explanation of a pool's decision, of the newest tick unless told."""
        ...


def watched(ledger: Path | None, url: str | None, tier: str | None) -> Watched:
    """What the two options name; the demo's ledger where neither is given."""
    if ledger is not None and url is not None:
        raise Misconfigured(
            "one place to look at",
            where="--ledger, --url",
            found="both",
            expected="one of them",
        )
    if url is not None:
        return WatchedPlane(url, tier)
    if ledger is None and not DEFAULT_LEDGER.is_file():
        also = f" (there is {RUN_LEDGER})" if RUN_LEDGER.is_file() else ""
        raise Misconfigured(
            "there is no ledger of a demo",
            where=str(DEFAULT_LEDGER),
            found="no such file",
            expected=f"--ledger FILE with the ledger of a run{also}, or --url",
        )
    return WatchedLedger(ledger or DEFAULT_LEDGER)


class WatchedLedger:
    """A ledger, also one that a running loop is writing."""

    def __init__(self, path: Path) -> None:
        self._ledger = Ledger(path, read_only=True)
        self._file = _identity(path)
        self._ticks: tuple[RecordedTick, ...] = ()

    def view(self) -> Document:
        """The view of the last ticks; whether the loop acts is not in a ledger.

        Only rows that are new since the last view are read. A file that was replaced by another
        is opened anew.
        """
        path = self._ledger.path
        if _identity(path) != self._file:
            self._ledger.close()
            self._ledger, self._file, self._ticks = (
                Ledger(path, read_only=True),
                _identity(path),
                (),
            )
        new = (
            self._ledger.ticks(after_epoch=self._ticks[-1].epoch)
            if self._ticks
            else self._ledger.newest_ticks(SHOWN_TICKS)
        )
        self._ticks = (*self._ticks, *new)[-SHOWN_TICKS:]
        settings = self._ledger.settings_at(self._ticks[-1].epoch) if self._ticks else None
        if settings is None:
            raise Unavailable(f"{path} has no tick yet")
        return _plain(view(self._ticks, settings, mode="recorded"))

    def why(self, pool: str, epoch: int | None) -> Document:
        """The explanation, from the row alone."""
        newest = self._ledger.newest_ticks(1)
        tick = self._ledger.tick(epoch) if epoch is not None else (newest[0] if newest else None)
        if tick is None:
            which = "no tick yet" if epoch is None else f"no tick {epoch}"
            raise Unavailable(f"{self._ledger.path} has {which}")
        settings = self._ledger.settings_at(tick.epoch)
        if settings is None:
            raise Unavailable(f"{self._ledger.path} has no settings of tick {tick.epoch}")
        found = explain(tick, settings, pool)
        if found is None:
            raise no_pool(pool, [p.pool.name for p in settings.pools])
        return _plain(found)


class WatchedPlane:
    """A running control plane, by its API."""

    def __init__(self, url: str, tier: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Misconfigured(
                "not an address", where="--url", found=url, expected="like http://127.0.0.1:9321"
            )
        self._url = url.rstrip("/")
        self._tier = tier

    def view(self) -> Document:
        """The view as it is answered."""
        found: Document = self._ask(f"{self._path()}/view")
        return found

    def why(self, pool: str, epoch: int | None) -> Document:
        """The explanation as it is answered."""
        of_epoch = "" if epoch is None else f"&epoch={epoch}"
        found: Document = self._ask(f"{self._path()}/why?pool={quote(pool, safe='')}{of_epoch}")
        return found

    def _path(self) -> str:
        if self._tier is None:
            names = [str(row["name"]) for row in self._ask("/api/v1/tiers")]
            if not names:
                raise Unavailable(f"{self._url} has no tier yet")
            if len(names) > 1:
                raise Misconfigured(
                    "which tier?", where="--tier", found="nothing", expected=" or ".join(names)
                )
            self._tier = names[0]
        return f"/api/v1/tiers/{quote(self._tier, safe='')}"

    def _ask(self, path: str) -> Any:
        return asyncio.run(self._fetch(path))

    async def _fetch(self, path: str) -> Any:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(self._url + path) as answer,
            ):
                body = await answer.content.read(_LARGEST_ANSWER_BYTES)
                while not answer.content.at_eof() and len(body) < _LARGEST_ANSWER_BYTES:
                    body += await answer.content.read(_LARGEST_ANSWER_BYTES - len(body))
                if answer.status != 200:
                    why = body[:300].decode(errors="replace").strip()
                    raise Unavailable(f"{self._url} answered {answer.status}: {why}")
                return json.loads(body)
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            why = str(error) or type(error).__name__
            raise Unavailable(f"{self._url} does not answer: {why}") from error


def _identity(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def no_pool(pool: str, known: list[str]) -> Misconfigured:
    """The fault of asking for a pool that is not there."""
    return Misconfigured("no such pool", where="POOL", found=pool, expected=" or ".join(known))


def _plain(document: View | Explanation) -> Document:
    """What it would be after a way over HTTP: lists for tuples, text for words."""
    found: Document = json.loads(to_json(document))
    return found
