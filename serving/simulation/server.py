"""A simulated tier behind real sockets: one page for each replica, one for the router, a control.

Plays the tier and decides which port answers; what a page says and what the control endpoint
answers is made elsewhere. In lock-step mode virtual time moves only when told; in wall mode it
follows a real clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from typing import Literal

from aiohttp import web

from serving.errors import Misconfigured
from serving.scale_objects import ScaleTargets
from serving.simulation import pages_epp, pages_vllm, pages_vllm_router
from serving.simulation.control import control_app
from serving.simulation.faults import Fault
from serving.simulation.replica import SimulatedReplica
from serving.simulation.seen import SeenTelemetry
from serving.simulation.sites import ReservedPort
from serving.simulation.tier import SimulatedTier
from serving.target_labels import Group, replica_group, router_group
from serving.types import Phase

RouterPageKind = Literal["epp", "vllm-router", "none"]
Mode = Literal["lockstep", "wall"]

WALL_STEP_S = 0.1
LONGEST_STEP_S = 5.0
"""Virtual seconds that are played before pages are answered again."""


class SimulatedTierServer:
    """Serves `tier` from `start` to `stop`; `address` is the control endpoint's URL.

    `speed` is virtual seconds for each real one in wall mode; `clock` is what measures the real
    ones (the event loop's by default). A page is served from the moment its replica is ready.
    """

    def __init__(
        self,
        tier: SimulatedTier,
        *,
        router_page: RouterPageKind = "epp",
        mode: Mode = "lockstep",
        speed: float = 1.0,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Callable[[], float] | None = None,
        deprecated_names: bool = False,
    ) -> None:
        self.tier = tier
        self.mode: Mode = mode
        self.router_page: RouterPageKind = router_page
        self.scale_targets = ScaleTargets(tier, (pool.name for pool in tier.plan.pools))
        self._speed = speed
        self._host = host
        self._port = port
        self._clock = clock
        self._clock_read_s = 0.0
        self._plans = {plan.name: plan for plan in tier.plan.pools}
        self._seen = SeenTelemetry()
        self._pages: dict[str, pages_vllm.VllmPage] = {}
        self._ports: dict[str, ReservedPort] = {}
        self._replicas: dict[int, SimulatedReplica] = {}
        self._router_port: ReservedPort | None = None
        self._epp_page = pages_epp.EppPage(
            model=tier.plan.model,
            inference_pool=tier.plan.name,
            deprecated_names=deprecated_names,
        )
        self._vllm_router_page = pages_vllm_router.VllmRouterPage(
            policy=tier.plan.router_policy,
            aggregated=all(pool.phase is Phase.BOTH for pool in tier.plan.pools),
        )
        self._turn = asyncio.Lock()
        self._page_server: web.Server | None = None
        self._control: web.AppRunner | None = None
        self._follower: asyncio.Task[None] | None = None
        self.address = ""

    async def start(self) -> None:
        """Open every port; in wall mode, begin to follow the clock."""
        listener = _control_socket(self._host, self._port)
        self.address = f"http://{self._host}:{listener.getsockname()[1]}"
        self._page_server = web.Server(self._answer, access_log=None)
        if self.router_page != "none":
            self._router_port = ReservedPort(self._host)
            await self._router_port.open(self._page_server)
        await self._settle()
        self._control = web.AppRunner(control_app(self), access_log=None)
        await self._control.setup()
        await web.SockSite(self._control, listener).start()
        self._clock = self._clock or asyncio.get_running_loop().time
        self._clock_read_s = self._clock()
        if self.mode == "wall":
            self._follower = asyncio.create_task(self._follow_clock())

    async def stop(self) -> None:
        """Close everything; raises what the clock's follower died of, if it did."""
        try:
            if self._follower is not None:
                self._follower.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._follower
        finally:
            if self._control is not None:
                await self._control.cleanup()
            for port in self._ports.values():
                port.release()
            if self._router_port is not None:
                self._router_port.release()
            if self._page_server is not None:
                await self._page_server.shutdown(timeout=1.0)

    async def __aenter__(self) -> SimulatedTierServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def healthy(self) -> bool:
        """False once virtual time no longer follows the clock."""
        return self._follower is None or not self._follower.done()

    async def advance(self, seconds: float) -> None:
        """Play that many virtual seconds, then open and close ports as replicas came and went."""
        async with self._turn:
            self._note()
            self.tier.advance(seconds)
            await self._settle()

    async def inject(self, fault: Fault) -> None:
        """Let a fault begin now."""
        async with self._turn:
            self._note()
            self.tier.inject(fault)
            await self._settle()

    async def scale(self, pool: str, body: object) -> tuple[int, Mapping[str, object]]:
        """Answer a write to a pool's scale."""
        async with self._turn:
            self._note()
            answer = self.scale_targets.replace(pool, body)
            await self._settle()
            return answer

    async def catch_up(self) -> None:
        """Play the virtual seconds that the clock says have passed since the last call."""
        assert self._clock is not None
        now_s = self._clock()
        left_s = (now_s - self._clock_read_s) * self._speed
        self._clock_read_s = now_s
        while left_s > 0.0:
            step_s = min(left_s, LONGEST_STEP_S)
            await self.advance(step_s)
            left_s -= step_s
            await asyncio.sleep(0)

    def targets(self) -> list[Group]:
        """What is there, in the form of Prometheus's HTTP service discovery."""
        tier = self.tier.plan.name
        groups = [
            replica_group(
                self._ports[replica.name].address,
                tier=tier,
                name=replica.name,
                pool=replica.pool,
                phase=replica.phase,
                variant=replica.variant,
                state=replica.state,
                created_s=replica.created_s,
                stage=replica.stage,
                start_kind=replica.start_kind,
                start_stages=replica.start_stages,
                next_start=self.tier.next_start(replica.pool),
            )
            for replica in self.tier.replicas()
        ]
        if self._router_port is not None:
            groups.append(
                router_group(self._router_port.address, tier=tier, dialect=self.router_page)
            )
        return groups

    def _note(self) -> None:
        self._seen.note(self.tier.replicas(), self.tier.now_s)
        self.scale_targets.note()

    async def _settle(self) -> None:
        """Make ports and memory match the replicas that exist now."""
        assert self._page_server is not None
        self._note()
        replicas = {replica.name: replica for replica in self.tier.replicas()}
        for name in self._ports.keys() - replicas.keys():
            self._ports.pop(name).release()
            self._pages.pop(name, None)
        for name, replica in replicas.items():
            port = self._ports.get(name)
            if port is None:
                port = self._ports[name] = ReservedPort(self._host)
            if self._seen.of(replica) is None:
                port.close()
            else:
                await port.open(self._page_server)
        self._replicas = {self._ports[name].port: r for name, r in replicas.items()}

    async def _follow_clock(self) -> None:
        while True:
            await self.catch_up()
            await asyncio.sleep(WALL_STEP_S)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Which page is meant is told by the port. A connection may outlive its replica: 503."""
        assert request.transport is not None
        port: int = request.transport.get_extra_info("sockname")[1]
        if request.path != "/metrics":
            return web.Response(status=200 if request.path == "/health" else 404)
        if self._router_port is not None and port == self._router_port.port:
            return self._router_response()
        replica = self._replicas.get(port)
        telemetry = self._seen.of(replica) if replica is not None else None
        if replica is None or telemetry is None:
            response = web.Response(status=503)
            response.force_close()
            return response
        body = self._page_of(replica).render(telemetry)
        return web.Response(body=body, headers={"Content-Type": pages_vllm.CONTENT_TYPE})

    def _page_of(self, replica: SimulatedReplica) -> pages_vllm.VllmPage:
        page = self._pages.get(replica.name)
        if page is None:
            assert replica.telemetry is not None
            plan = self._plans[replica.pool]
            page = self._pages[replica.name] = pages_vllm.VllmPage(
                replica.telemetry,
                model=self.tier.plan.model,
                phase=replica.phase,
                kv_capacity_tokens=replica.kv_capacity_tokens,
                block_size_tokens=plan.block_size_tokens,
                max_model_len=plan.max_model_len,
            )
        return page

    def _router_response(self) -> web.Response:
        router, replicas = self.tier.router, self.tier.replicas()
        if self.router_page == "epp":
            body = self._epp_page.render(router, replicas)
            return web.Response(body=body, headers={"Content-Type": pages_epp.CONTENT_TYPE})
        urls = {name: f"http://{port.address}" for name, port in self._ports.items()}
        body = self._vllm_router_page.render(router, replicas, urls)
        return web.Response(body=body, headers={"Content-Type": pages_vllm_router.CONTENT_TYPE})


def _control_socket(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise Misconfigured(
            "the control endpoint cannot listen",
            where=f"{host}:{port}",
            found=str(error),
            expected="an address of this machine and a free port (0: any)",
        ) from error
