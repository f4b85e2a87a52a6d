"""The way into a local tier: its router, from its start until an answer has come through it.

Keeping the router up is `front`'s; here it is set up with the tier, and what it does is told.
"""

from __future__ import annotations

import asyncio

from serving.errors import Unavailable
from serving.local.events import EventKind
from serving.local.front import Front
from serving.local.replica import one_token
from serving.local.shared import Shared

_TRIES, _BETWEEN_S = 20, 0.25


class WayIn:
    """Opens the way, and says when the whole tier `serves`."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.serves = False

    def start_router(self) -> None:
        """Begin to keep a router up, if the tier has one."""
        shared = self._shared
        http_port, again_port, metrics_port, discovery_port = (
            shared.ports.take() for _ in range(4)
        )
        command, again = (
            shared.launcher.router(
                http_port=port, metrics_port=metrics_port, discovery_port=discovery_port
            )
            for port in (http_port, again_port)
        )
        if command is None or again is None:
            return
        shared.front = Front(
            shared.session,
            command,
            again,
            address=f"127.0.0.1:{http_port}",
            again_address=f"127.0.0.1:{again_port}",
            metrics_address=f"127.0.0.1:{metrics_port}",
            discovery_address=f"127.0.0.1:{discovery_port}",
            workers=shared.roster.workers,
            log_file=shared.logs / "router.log",
            env=shared.env(command.env),
            on_spawn=lambda _: shared.save_sessions(),
            on_ready=self._router_ready,
            on_lost=self._router_lost,
            hung_s=shared.timing.hung_s,
            look_s=shared.timing.page_s,
        )
        shared.state.router = f"http://{shared.front.address}"
        shared.front.start()

    async def try_whole(self) -> None:
        """The tier serves once an answer has come through the router."""
        shared, front = self._shared, self._shared.front
        if self.serves or front is None or not front.ready:
            return
        phases = {phase for _, phase in shared.roster.workers()}
        if not phases >= {pool.phase for pool in shared.roster.pools.values()}:
            return
        url, why = f"http://{front.address}", ""
        for _ in range(_TRIES):
            try:
                await one_token(shared.session, url, shared.model, timeout_s=60.0)
            except Unavailable as error:
                why = str(error)
                await asyncio.sleep(_BETWEEN_S)
                continue
            if not self.serves:
                self.serves = True
                shared.diary.tell(EventKind.SERVES, f"the tier serves at {url}")
            return
        shared.diary.tell(EventKind.SILENT, f"no answer comes through the router: {why}")

    def _router_ready(self) -> None:
        self._shared.diary.tell(EventKind.ROUTER_READY, "the router listens")
        self._shared.errands.begin(self.try_whole())

    def _router_lost(self, why: str, had: float | None) -> None:
        if self._shared.stopping:
            return
        tail = "" if had is None else f"; it had {had:g} requests at workers, as last seen"
        words = f"{why}{tail}; it starts again"
        self._shared.diary.tell(EventKind.ROUTER_LOST, words, lost_requests=had)
