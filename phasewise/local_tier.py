"""`phasewise local up`: a tier as processes of this machine, kept up until it is told to end.

Wires what `serving.local` supervises to a tier document, the engine environment and the terminal.
The simulated kind of the same tier is served here too, with the same list and scale objects.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from phasewise.ending import on_closed_stdin
from phasewise.local_down import alone_in, refuse_second, remove_near_weights
from phasewise.local_launcher import VllmLauncher, pool_setup
from phasewise.local_request import ENGINES, UpRequest, refuse_taken_port
from phasewise.local_screen import screen
from phasewise.simulating import SimulationRequest, build
from serving.errors import Misconfigured
from serving.local import keeper
from serving.local.environment import EngineEnvironment, default_root
from serving.local.launch import local_engine
from serving.local.run_state import RunState
from serving.local.server import LocalTierServer
from serving.local.supervisor import LocalTier
from serving.schema.tier import Tier, load_tier
from serving.simulation.server import SimulatedTierServer


async def up(asked: UpRequest, *, say: Callable[[str], None]) -> None:
    """Bring a tier up and keep it, until SIGINT or SIGTERM; says where it is, as JSON."""
    if asked.engine not in ENGINES:
        raise Misconfigured(
            "no such engine", where="--engine", found=repr(asked.engine), expected="vllm, simulated"
        )
    tier = load_tier(asked.tier_file)
    if asked.engine == "vllm":
        for pool in tier.spec.pools:
            local_engine(tier.variant_of(pool))
    refuse_taken_port(asked.port)
    with alone_in(asked.folder):
        refuse_second(asked.folder)
        await _up_alone(tier, asked, say)


async def _up_alone(tier: Tier, asked: UpRequest, say: Callable[[str], None]) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    if asked.until_stdin_closes:
        on_closed_stdin(lambda: loop.call_soon_threadsafe(ended.set))
    serving = _simulated if asked.engine == "simulated" else _vllm
    state = _new_state(asked, tier)
    try:
        state.save()  # before anything takes long: `down` then finds it
        async with serving(tier, asked, state, say, ended):
            await ended.wait()
    finally:
        remove_near_weights(asked.folder)
        keeper.clean(state.file, run=state.run)


@asynccontextmanager
async def _vllm(
    tier: Tier,
    asked: UpRequest,
    state: RunState,
    say: Callable[[str], None],
    ended: asyncio.Event,
) -> AsyncIterator[None]:
    env = EngineEnvironment(default_root())
    shown = screen(say, headless=asked.headless)
    async with shown:
        if not env.ready:
            await _unless(ended, asyncio.to_thread(env.make, shown.making))
        launcher = VllmLauncher(tier, asked, env)
        await launcher.make_models()
        local = LocalTier(
            name=tier.name,
            model=tier.spec.model,
            pools=[pool_setup(tier, pool) for pool in tier.spec.pools],
            launcher=launcher,
            state=state,
            unix_s=time.time,  # noqa: TID251 - the edge
            on_event=shown.event,
            on_broken=ended.set,
        )
        async with LocalTierServer(local, port=asked.port) as server:
            local.note_control(server.address)
            async with local:
                front = None if local.front is None else f"http://{local.front.address}"
                say(_where(server.address, front))
                shown.follow(local)
                yield
                shown.ending()


@asynccontextmanager
async def _simulated(
    tier: Tier,
    asked: UpRequest,
    state: RunState,
    say: Callable[[str], None],
    ended: asyncio.Event,
) -> AsyncIterator[None]:
    sizes = {
        pool.name: pool.replicas.initial
        for pool in tier.spec.pools
        if pool.replicas.initial is not None
    }
    initial = ",".join(f"{name}={size}" for name, size in sizes.items()) or None
    simulation = SimulationRequest(
        tier_file=asked.tier_file,
        trace=asked.trace,
        volume=asked.volume,
        seed=1,
        port=asked.port,
        router_page="vllm-router",
        lockstep=False,
        speed=1.0,
        initial=initial,
    )
    start_s = time.time()  # noqa: TID251 - the edge
    built = build(simulation, start_s=start_s)
    async with SimulatedTierServer(
        built, router_page="vllm-router", mode="wall", port=asked.port
    ) as server:
        state.control = server.address
        state.save()
        say(_where(server.address, None))
        yield


async def _unless(ended: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Wait for work in a thread, but not longer than for the end."""
    making = asyncio.create_task(work)
    stop = asyncio.create_task(ended.wait())
    await asyncio.wait([making, stop], return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if not making.done():
        for pid in keeper.children_of(os.getpid()):
            os.kill(pid, signal.SIGTERM)
        raise KeyboardInterrupt
    making.result()


def _new_state(asked: UpRequest, tier: Tier) -> RunState:
    return RunState(
        folder=asked.folder.absolute(),
        run=uuid.uuid4().hex,
        engine=asked.engine,
        tier=tier.name,
        supervisor=os.getpid(),
    )


def _where(control: str, router: str | None) -> str:
    return json.dumps({"control": control, "http_sd": f"{control}/sd", "router": router})
