"""A tier over HTTP: discovery, pages and scale endpoints, as the source and actuator of a loop.

The only edge that both the demo and `phasewise run` use. What does not answer is unknown in the
observation, with a problem in words; it never raises and never counts as zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import aiohttp

from autoscaler.json_answer import AS_IS, json_object, number_in
from autoscaler.scale_client import ScaleClient
from autoscaler.types import TierSettings
from collector.discovery import Discovered, discover
from collector.observe import ROUTER, ObserverSettings, ObserverState, step
from collector.pages import read_replicas, read_router
from collector.scrape import Scraper
from phasewise.pool_states import pool_states
from serving.errors import Unavailable
from serving.types import Observation, PoolId


class LockstepClock:
    """The simulated tier's virtual clock, moved on by one scrape interval at a time.

    `speed` caps how many virtual seconds pass in a real one; it never changes what happens.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        base_url: str,
        interval_s: float = 5.0,
        until_s: float | None = None,
        speed: float | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._session = session
        self._url = base_url.rstrip("/")
        self._who = f"the clock at {self._url}"
        self._interval_s = interval_s
        self._until_s = until_s
        self._speed = speed
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._due_s: float | None = None
        self._now_s: float | None = None

    async def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        try:
            async with self._session.request(
                method,
                self._url + path,
                json=body,
                timeout=self._timeout,
                headers=AS_IS,
                allow_redirects=False,
            ) as answer:
                if answer.status != 200:
                    raise Unavailable(f"{self._who} answered {answer.status} to {method}")
                return await json_object(answer, who=self._who)
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            why = str(error)[:200] or type(error).__name__
            raise Unavailable(f"{self._who} does not answer: {why}") from error

    def _time_in(self, answer: dict[str, Any]) -> float:
        """The answer's time; virtual time never goes back."""
        now_s = number_in(answer, "now_s", who=self._who)
        if self._now_s is not None and now_s < self._now_s:
            raise Unavailable(f"{self._who} went back from {self._now_s:.3f} to {now_s:.3f} s")
        return now_s

    async def next_scrape(self) -> float | None:
        """Move virtual time on; `None` at the end of the trace or of the time given."""
        if self._now_s is None:
            self._now_s = self._time_in(await self._call("GET", "/clock"))
        if self._until_s is not None and self._now_s >= self._until_s - 1e-9:
            return None
        if self._speed is not None:
            real_s = asyncio.get_running_loop().time()
            if self._due_s is not None and self._due_s > real_s:
                await asyncio.sleep(self._due_s - real_s)
            self._due_s = max(self._due_s or real_s, real_s - 1.0) + self._interval_s / self._speed
        answer = await self._call("POST", "/clock/advance", {"seconds": self._interval_s})
        if self._until_s is None and answer.get("finished"):
            return None
        self._now_s = self._time_in(answer)
        return self._now_s


class WallClock:
    """This machine's clock: one scrape every interval, on a fixed beat; a late one is not made up.

    `unix_s` tells the time; the beat is kept by the event loop's own monotonic clock.
    """

    def __init__(self, *, unix_s: Callable[[], float], interval_s: float) -> None:
        self._unix_s = unix_s
        self._interval_s = interval_s
        self._next_s: float | None = None

    async def next_scrape(self) -> float | None:
        """Wait for the next beat and give the time."""
        monotonic_s = asyncio.get_running_loop().time
        if self._next_s is None:
            self._next_s = monotonic_s()
        wait_s = self._next_s - monotonic_s()
        if wait_s > 0.0:
            await asyncio.sleep(wait_s)
        behind = max(0.0, monotonic_s() - self._next_s)
        self._next_s += self._interval_s * (1 + int(behind // self._interval_s))
        return self._unix_s()


class HttpTier:
    """Source and actuator of one tier that is found by http_sd and scaled by scale endpoints."""

    def __init__(
        self,
        settings: TierSettings,
        *,
        discovery_url: str,
        scraper: Scraper,
        scale: ScaleClient | None,
        observer: ObserverSettings,
        model: str | None = None,
    ) -> None:
        self._settings = settings
        self._pools = tuple(p.pool.name for p in settings.pools)
        self._discovery_url = discovery_url
        self._scraper = scraper
        self._scale = scale
        self._observer = observer
        self._model = model
        self._state = ObserverState()

    async def observe(self, now_s: float) -> Observation:
        """Discover, scrape everything at once, and derive one observation."""
        problems: list[str] = []
        found, desired = await asyncio.gather(self._discover(problems), self._desired(problems))
        bodies = {} if found is None else await self._scraper.scrape(found.pages)
        listed = Discovered() if found is None else found
        readings, why = read_replicas(bodies, phases=listed.phases, at_s=now_s)
        router, router_problem = read_router(
            bodies, routers=listed.routers, at_s=now_s, model=self._model
        )
        if router_problem is not None:
            why[ROUTER] = router_problem
        elif found is not None and not found.routers and self._state.router is not None:
            why[ROUTER] = "the list names no router any more"
        members = None if found is None else found.members
        self._state, observation = step(
            self._state,
            now_s=now_s,
            readings=readings,
            router=router,
            pools=pool_states(self._settings.pools, members, desired, now_s=now_s),
            members=members,
            slo=self._settings.slo,
            settings=self._observer,
            problems=why,
        )
        return replace(observation, problems=(*observation.problems, *problems))

    async def _discover(self, problems: list[str]) -> Discovered | None:
        try:
            return await discover(self._scraper, self._discovery_url)
        except Unavailable as error:
            problems.append(error.what)
            return None

    async def _desired(self, problems: list[str]) -> dict[str, int | None]:
        """What each pool is asked to have; unknown without a scale endpoint that answers."""
        if self._scale is None:
            return dict.fromkeys(self._pools)
        scale = self._scale

        async def ask(pool: str) -> int | None:
            try:
                return await scale.desired_replicas(pool)
            except Unavailable as error:
                problems.append(error.what)
                return None

        answers = await asyncio.gather(*(ask(pool) for pool in self._pools))
        return dict(zip(self._pools, answers, strict=True))

    async def scale(self, pool: PoolId, replicas: int, *, epoch: int) -> None:
        """Ask the pool's scale endpoint for an absolute number. Raises Unavailable."""
        if self._scale is None:
            raise Unavailable(f"{pool} has no scale endpoint")
        await self._scale.scale(pool, replicas, epoch=epoch)
