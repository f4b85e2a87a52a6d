"""One start of an engine outside any tier, for measuring: the same stages as the supervisor's.

Fetch the weights, start the process, read its log, ask for its health and for one token, end it.
Decides nothing about the cache: whoever asks for a cold start has emptied it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp

from serving.errors import Unavailable
from serving.local.child import Child
from serving.local.replica import EngineCommand, LocalReplica, PoolSetup
from serving.local.startups import StartRecord
from serving.types import StartStage


async def measure_start(
    replica: str,
    pool: PoolSetup,
    *,
    model: str,
    weights: Callable[[], Awaitable[bool | None]],
    command: Callable[[], EngineCommand],
    log_file: Path,
    unix_s: Callable[[], float],
    look_s: float = 0.05,
    limit_s: float = 600.0,
) -> StartRecord:
    """Start one engine until it has made one token, and end it.

    `weights` makes them be there, and is true if they had to be fetched. Raises `Unavailable` if
    the engine ends before that, or is not ready in time.
    """
    started = LocalReplica(replica, pool, asked_s=unix_s())
    log = started.start
    log.enter(StartStage.WEIGHTS, unix_s())
    log.cold = await weights()
    log.enter(StartStage.PROCESS, unix_s())
    started.command = command()
    child = await Child.spawn(started.command.argv, env=started.command.env, log_file=log_file)
    try:
        async with asyncio.timeout(limit_s), aiohttp.ClientSession() as session:
            while True:
                for line in child.new_lines():
                    log.line(line, unix_s())
                if await started.is_healthy(session, timeout_s=2.0):
                    break
                if child.code is not None:
                    child.new_lines()
                    raise Unavailable(f"{replica} ended while it started: {child.last_line}")
                await asyncio.sleep(look_s)
            log.enter(StartStage.READY, unix_s())
            await started.first_answer(session, model, timeout_s=limit_s)
        log.end(unix_s())
    except TimeoutError:
        raise Unavailable(f"{replica} was not ready after {limit_s:g} s; see {log_file}") from None
    finally:
        await child.end(grace_s=5.0)
    return log.record()
