"""The control endpoint of a simulated tier: discovery, scale, clock, faults, outcome, health.

Turns requests into calls of the server and answers in JSON; decides nothing about the tier.
"""

from __future__ import annotations

import json
from dataclasses import fields
from math import isfinite
from typing import TYPE_CHECKING, TypeGuard

from aiohttp import web

from serving.errors import Misconfigured
from serving.scale_objects import SCALE_PATH
from serving.simulation.faults import Fault, FaultKind
from serving.simulation.summary import outcome_of
from serving.types import Slo

if TYPE_CHECKING:
    from serving.simulation.server import SimulatedTierServer

LONGEST_ADVANCE_S = 86400.0


def control_app(server: SimulatedTierServer) -> web.Application:
    """The routes of the control endpoint of one server."""
    control = _Control(server)
    app = web.Application()
    app.router.add_get("/sd", control.targets)
    app.router.add_get(SCALE_PATH, control.read_scale)
    app.router.add_put(SCALE_PATH, control.write_scale)
    app.router.add_patch(SCALE_PATH, control.write_scale)
    app.router.add_get("/clock", control.clock)
    app.router.add_post("/clock/advance", control.advance)
    app.router.add_post("/faults", control.inject)
    app.router.add_get("/outcome", control.outcome)
    app.router.add_get("/healthz", control.health)
    return app


class _Control:
    def __init__(self, server: SimulatedTierServer) -> None:
        self._server = server

    async def targets(self, _: web.Request) -> web.Response:
        return web.json_response(self._server.targets())

    async def read_scale(self, request: web.Request) -> web.Response:
        status, body = self._server.scale_targets.get(request.match_info["pool"])
        return web.json_response(body, status=status)

    async def write_scale(self, request: web.Request) -> web.Response:
        status, answer = await self._server.scale(
            request.match_info["pool"], await _body_of(request)
        )
        return web.json_response(answer, status=status)

    async def clock(self, _: web.Request) -> web.Response:
        tier = self._server.tier
        return web.json_response(
            {"now_s": tier.now_s, "mode": self._server.mode, "finished": tier.finished_replaying}
        )

    async def advance(self, request: web.Request) -> web.Response:
        if self._server.mode != "lockstep":
            return _refused(409, "the clock follows the wall here: it cannot be advanced")
        body = await _body_of(request)
        seconds = body.get("seconds") if isinstance(body, dict) else None
        if not _is_number(seconds) or not 0.0 <= seconds <= LONGEST_ADVANCE_S:
            return _refused(400, f"seconds: found {seconds!r}, expected 0 to {LONGEST_ADVANCE_S:g}")
        await self._server.advance(float(seconds))
        return await self.clock(request)

    async def inject(self, request: web.Request) -> web.Response:
        pools = {pool.name for pool in self._server.tier.plan.pools}
        try:
            fault = fault_of(await _body_of(request), pools=pools)
            await self._server.inject(fault)
        except Misconfigured as error:
            return _refused(400, str(error))
        return await self.clock(request)

    async def outcome(self, request: web.Request) -> web.Response:
        """With `?ttft_s=…&itl_s=…`, also how many requests met both."""
        query = request.query
        slo = None
        if "ttft_s" in query or "itl_s" in query:
            try:
                slo = Slo(
                    ttft_s=float(query["ttft_s"]),
                    itl_s=float(query["itl_s"]),
                    attainment_ratio=1.0,
                )
            except (KeyError, ValueError):
                return _refused(400, "ttft_s and itl_s: expected two numbers of seconds")
        return web.json_response(outcome_of(self._server.tier, slo=slo))

    async def health(self, _: web.Request) -> web.Response:
        healthy = self._server.healthy
        return web.Response(text="ok" if healthy else "stopped", status=200 if healthy else 500)


def fault_of(body: object, *, pools: set[str]) -> Fault:
    """A fault from JSON; raises Misconfigured with what was found and what was expected."""
    if not isinstance(body, dict):
        raise _bad("a fault is an object", "fault", body, "a JSON object")
    known = [field.name for field in fields(Fault)]
    for key in body.keys() - set(known):
        raise _bad("unknown key", "fault", key, ", ".join(known))
    kinds = [kind.value for kind in FaultKind]
    if body.get("kind") not in kinds:
        raise _bad("wrong value", "fault.kind", body.get("kind"), ", ".join(kinds))
    if body.get("pool") not in sorted(pools):  # it may be of any type, unhashable too
        raise _bad("wrong value", "fault.pool", body.get("pool"), ", ".join(sorted(pools)))
    if not isinstance(body.get("replicas", ""), str):
        raise _bad("wrong value", "fault.replicas", body["replicas"], "text")
    for key in ("factor", "seconds"):
        if key in body and not _is_number(body[key]):
            raise _bad("wrong value", f"fault.{key}", body[key], "a number")
    return Fault(**{**body, "kind": FaultKind(body["kind"])})


async def _body_of(request: web.Request) -> object:
    """The request's JSON value, or `None` if it is not JSON."""
    try:
        body: object = json.loads(await request.read())
    except ValueError:
        return None
    return body


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)


def _bad(what: str, where: str, found: object, expected: str) -> Misconfigured:
    return Misconfigured(what, where=where, found=repr(found), expected=expected)
