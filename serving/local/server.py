"""The control endpoint of a local tier: the same list and scale objects as the simulated tier's.

Also what happened (`/events`), how starts went (`/startups`), who lives (`/processes`) and a short
word on everything (`/status`). Turns requests into calls of the tier, decides nothing.
"""

from __future__ import annotations

import json
import socket
from dataclasses import asdict

from aiohttp import web

from serving.errors import Misconfigured
from serving.local.replica import LocalReplica
from serving.local.states import LocalState
from serving.local.supervisor import LocalTier
from serving.scale_objects import SCALE_PATH, ScaleTargets
from serving.start_labels import Stages
from serving.target_labels import Group, replica_group, router_group
from serving.types import ReplicaState, StartKind, StartStage

ROUTER_DIALECT = "vllm-router"
_STATES = {
    LocalState.STARTING: ReplicaState.STARTING,
    LocalState.READY: ReplicaState.READY,
    LocalState.DRAINING: ReplicaState.DRAINING,
}


def target_groups(tier: LocalTier) -> list[Group]:
    """What is there, in the form of Prometheus's HTTP service discovery.

    A replica that flips is there twice: draining under its old name, starting under its new one.
    When it was asked to is not told: a flip is no start, and must not be learned as one. A start
    that has no port yet has none here either (port 0 answers nobody).
    """
    groups: list[Group] = []
    for replica in tier.replicas():
        state = _STATES.get(replica.state)
        if state is None or (replica.ending and replica.ready_s is None):
            continue
        address = replica.address or "127.0.0.1:0"
        groups.append(
            replica_group(
                address,
                tier=tier.name,
                name=replica.name,
                pool=replica.pool.name,
                phase=replica.pool.phase,
                variant=replica.pool.variant,
                state=state,
                created_s=None if replica.flipped else replica.asked_s,
                stage=replica.stage,
                start_kind=_kind(replica),
                start_stages=_stages(replica),
                next_start=tier.next_start(replica.pool.name),
            )
        )
        if replica.flip_to is not None:
            to = tier.pools[replica.flip_to]
            groups.append(
                replica_group(
                    address,
                    tier=tier.name,
                    name=replica.flip_name,
                    pool=to.name,
                    phase=to.phase,
                    variant=to.variant,
                    state=ReplicaState.STARTING,
                    created_s=None,
                    stage=StartStage.READY,
                    next_start=tier.next_start(to.name),
                )
            )
    if tier.front is not None:
        groups.append(
            router_group(tier.front.metrics_address, tier=tier.name, dialect=ROUTER_DIALECT)
        )
    return groups


def _kind(replica: LocalReplica) -> StartKind | None:
    if replica.flipped or replica.start.cold is None:
        return None
    return StartKind.COLD if replica.start.cold else StartKind.WARM


def _stages(replica: LocalReplica) -> Stages:
    goes_on = replica.state is LocalState.STARTING
    return () if replica.flipped or goes_on else replica.start.record().stages


class LocalTierServer:
    """Serves `tier`'s control endpoint from `start` to `stop`; it starts no engine itself."""

    def __init__(self, tier: LocalTier, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.tier = tier
        self.scale_targets = ScaleTargets(tier, tier.pools)
        self._listener = _control_socket(host, port)
        self._runner: web.AppRunner | None = None
        self.address = f"http://{host}:{self._listener.getsockname()[1]}"

    async def start(self) -> None:
        """Listen."""
        app = web.Application()
        app.router.add_get("/sd", self._targets)
        app.router.add_get(SCALE_PATH, self._read_scale)
        app.router.add_put(SCALE_PATH, self._write_scale)
        app.router.add_patch(SCALE_PATH, self._write_scale)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/events", self._events)
        app.router.add_get("/startups", self._startups)
        app.router.add_get("/processes", self._processes)
        app.router.add_get("/status", self._status)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()

    async def stop(self) -> None:
        """Listen no longer."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._listener.close()

    async def __aenter__(self) -> LocalTierServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _targets(self, _: web.Request) -> web.Response:
        return web.json_response(target_groups(self.tier))

    async def _read_scale(self, request: web.Request) -> web.Response:
        status, body = self.scale_targets.get(request.match_info["pool"])
        return web.json_response(body, status=status)

    async def _write_scale(self, request: web.Request) -> web.Response:
        body: object
        try:
            body = json.loads(await request.read())
        except ValueError:
            body = None
        status, answer = self.scale_targets.replace(request.match_info["pool"], body)
        return web.json_response(answer, status=status)

    async def _health(self, _: web.Request) -> web.Response:
        healthy = self.tier.healthy
        return web.Response(text="ok" if healthy else "stopped", status=200 if healthy else 500)

    async def _events(self, _: web.Request) -> web.Response:
        return web.json_response([event.as_json() for event in self.tier.events])

    async def _startups(self, _: web.Request) -> web.Response:
        return web.json_response([record.as_json() for record in self.tier.startups()])

    async def _processes(self, _: web.Request) -> web.Response:
        found: list[dict[str, object]] = [
            {
                **{"replica": replica.name, "pool": replica.pool.name, "engine": replica.engine},
                **{"pid": replica.child.pid, "members": replica.child.members()},
                "address": replica.address,
            }
            for replica in self.tier.replicas()
            if replica.child is not None
        ]
        front = self.tier.front
        if front is not None and front.child is not None:
            found.append(
                {
                    **{"replica": "router", "pool": None, "pid": front.child.pid},
                    **{"members": front.child.members(), "address": front.address},
                }
            )
        return web.json_response(found)

    async def _status(self, _: web.Request) -> web.Response:
        tier = self.tier
        replicas = [
            {
                **{"replica": r.name, "pool": r.pool.name, "phase": r.pool.phase.value},
                **{"state": r.state.value, "stage": None if r.stage is None else r.stage.value},
                **{"address": r.address, "flips_to": r.flip_to, "requests": r.figures.requests},
                **{"kv_ratio": r.figures.kv_ratio, "capped": r.group is not None},
            }
            for r in tier.replicas()
        ]
        front = tier.front
        return web.json_response(
            {
                **{"tier": tier.name, "model": tier.model, "serves": tier.serves},
                "router": None if front is None else f"http://{front.address}",
                "router_ready": front is not None and front.ready,
                "pools": {name: asdict(tier.pool_counts(name)) for name in tier.pools},
                "replicas": replicas,
            }
        )


def _control_socket(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise Misconfigured(
            "the control endpoint cannot listen",
            where=f"{host}:{port}",
            found=error.strerror or str(error),
            expected="a free port of this machine (0: any)",
        ) from error
