"""The published plans of a settings file, answered to KEDA: by `phasewise serve`, or beside a run.

Loads no arithmetic: a process of its own stays quick while another one plans.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import structlog

from autoscaler.certificates import TlsFiles
from phasewise.loopback import is_loopback
from phasewise.places import ledger_path, plan_file
from phasewise.serving_plan import PlanWatch
from phasewise.settings import Settings
from serving.errors import Misconfigured
from serving.schema.tier import load_tier

if TYPE_CHECKING:
    from autoscaler.keda_server import KedaServer

_TICKS_BEFORE_STALE = 2.0
_log = structlog.get_logger("phasewise")


def check_patience(settings: Settings) -> None:
    """Misconfigured if a plan would be stale before the next one can come."""
    least_s = _TICKS_BEFORE_STALE * settings.tick_seconds
    if settings.serve.stale_after_seconds < least_s:
        raise Misconfigured(
            "plans would be stale before they are renewed",
            where="serve.staleAfterSeconds",
            found=f"{settings.serve.stale_after_seconds:g}",
            expected=f"at least two ticks ({least_s:g})",
        )


@contextlib.asynccontextmanager
async def answering(settings: Settings, *, port: int | None = None) -> AsyncIterator[KedaServer]:
    """A server that answers from the settings' published plans while the block runs."""
    try:
        from autoscaler.keda_server import Answers, KedaServer
    except ImportError as error:
        raise Misconfigured(
            "answering KEDA needs gRPC",
            where="this installation",
            found=str(error),
            expected="the packages of the extra serve: pip install 'phasewise[serve]'",
        ) from error
    check_patience(settings)
    wanted = settings.serve
    tiers = [load_tier(entry.file) for entry in settings.tiers]
    watch = PlanWatch(
        {tier.name: plan_file(ledger_path(settings, tier.name)) for tier in tiers},
        monotonic_s=time.monotonic,
    )
    tls = wanted.tls
    server = KedaServer(
        Answers(
            pools={tier.name: tuple(pool.name for pool in tier.spec.pools) for tier in tiers},
            seen=watch.seen,
            stale_after_s=wanted.stale_after_seconds,
        ),
        host=wanted.host,
        port=wanted.port if port is None else port,
        tls=None
        if tls is None
        else TlsFiles(cert=tls.cert_file, key=tls.key_file, client_ca=tls.client_ca_file),
    )
    watch.look()
    await server.start()
    _log.info("answering KEDA", address=server.address, tls=tls is not None)
    if tls is None and not is_loopback(wanted.host):
        _log.warning("others can reach this port in plain text; serve.tls protects it")
    chores = [
        asyncio.ensure_future(watch.keep_looking()),
        asyncio.ensure_future(server.keep_reloading()),
    ]
    for chore in chores:
        chore.add_done_callback(_say_if_it_died)
    try:
        yield server
    finally:
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        await server.stop()


def _say_if_it_died(chore: asyncio.Future[None]) -> None:
    """A watch that died makes every plan stale, which is safe; here it is said why."""
    if not chore.cancelled() and chore.exception() is not None:
        _log.error("a watch died; restart this process", why=repr(chore.exception()))


async def run_beside(settings: Settings, run: Callable[[], Awaitable[None]]) -> None:
    """Run, and answer KEDA meanwhile if the settings say so (`serve.withRun`)."""
    async with contextlib.AsyncExitStack() as stack:
        if settings.serve.with_run:
            await stack.enter_async_context(answering(settings))
        await run()


async def serve(settings: Settings, *, port: int | None, announce: Callable[[str], None]) -> None:
    """Answer until SIGINT or SIGTERM; announces where, as one line of JSON."""
    ended = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    async with answering(settings, port=port) as server:
        announce(json.dumps({"keda": server.address}))
        await ended.wait()
