"""What NIXL moved, by the engines' own pages."""

from __future__ import annotations

from dataclasses import dataclass

from collector.discovery import discover
from collector.pages import read_replicas
from collector.scrape import Scraper
from serving.errors import Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Transfers and bytes of all engines that live, since each of them began."""

    transfers: int
    transferred_bytes: int


async def moved_by_nixl(control: str, *, now_s: float) -> Moved | None:
    """The sums over every page of the tier; `None` where no page tells."""
    try:
        async with Scraper(timeout_s=5.0) as scraper:
            found = await discover(scraper, f"{control}/sd")
            bodies = await scraper.scrape(found.pages)
    except Unavailable:
        return None
    readings, _ = read_replicas(bodies, phases=found.phases, at_s=now_s)
    sums = [r.kv_transfer_bytes for r in readings.values() if r.kv_transfer_bytes is not None]
    if not sums:
        return None
    return Moved(
        transfers=round(sum(each.count for each in sums)),
        transferred_bytes=round(sum(each.sum for each in sums)),
    )
