"""A live pair for a recording: a local tier that runs already, or that is started for it.

It waits until one prefill and one decode replica answer, says in words what they run on, and has
the load played (`live`). What it started it ends. Processes, network and files under `/proc`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from phasewise.reality.live import load_words, record
from phasewise.reality.recording import About, Recording
from serving.errors import Misconfigured, Unavailable
from serving.schema.tier import Tier, Variant, load_tier
from serving.types import Phase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LONGEST_START_S = 900.0
LOOK_EVERY_S = 1.0
FOLDER = Path(".cache/compare-engines")
"""Where the started tier writes down its run: another than that of `phasewise local up`."""
ENDING_S = 60.0


async def recorded(
    tier_file: Path, *, control: str | None, seed: int, say: Callable[[str], None]
) -> Recording:
    """Play the fixed load on the tier's pair and return the recording.

    `control` is the endpoint of a running `phasewise local up`; without one it is started here.
    Raises Misconfigured where the tier is no pair, Unavailable where it does not come up.
    """
    tier = load_tier(tier_file)
    variant = _variant_of_pair(tier)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async with (
        _control(tier_file, control) as (address, has_ended),
        aiohttp.ClientSession() as session,
    ):
        say(f"waiting for one prefill and one decode replica of {tier.name}")
        status, groups = await _until_ready(session, address, has_ended)
        start_s = loop.time() - began_s if control is None else None
        pages = _pages(groups)
        version = await _version(session, pages[Phase.PREFILL.value])
        about = About(
            machine=machine_words(),
            engine=f"vLLM {version}, NixlConnector",
            router=f"vllm-router, {tier.spec.router.policy}",
            model=tier.spec.model,
            load=load_words(),
            urls={phase: pages[phase].removesuffix("/metrics") for phase in _PHASES},
            max_model_len=variant.engine.max_model_len_tokens,
            max_num_seqs=variant.engine.max_num_seqs,
            max_num_batched_tokens=variant.engine.max_num_batched_tokens,
            start_s=start_s,
        )
        say(f"playing {about.load}")
        return await record(about, address=status["router"], pages=pages, seed=seed)


def machine_words() -> str:
    """Cores, their name, memory: as `/proc` tells them, where there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    words = [f"{cores} cores"]
    name = _line_of("/proc/cpuinfo", "model name")
    if name is not None:
        words[0] += f" ({name})"
    memory = _line_of("/proc/meminfo", "MemTotal")
    if memory is not None:
        words.append(f"{int(memory.split()[0]) / 2**20:.0f} GiB")
    return ", ".join([*words, "no accelerator"])


_PHASES = (Phase.PREFILL.value, Phase.DECODE.value)


def _line_of(path: str, key: str) -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)


def _variant_of_pair(tier: Tier) -> Variant:
    """The variant of the prefill pool; both pools must begin with one replica each."""
    pools = {pool.phase: pool for pool in tier.spec.pools}
    if set(pools) != {Phase.PREFILL, Phase.DECODE} or len(pools) != len(tier.spec.pools):
        raise Misconfigured(
            "a comparison wants one prefill and one decode pool",
            where=f"tier {tier.name}",
            found=", ".join(f"{pool.name} ({pool.phase})" for pool in tier.spec.pools),
            expected="one pool of each phase",
        )
    name = pools[Phase.PREFILL].variant
    return next(variant for variant in tier.spec.variants if variant.name == name)


@asynccontextmanager
async def _control(
    tier_file: Path, control: str | None
) -> AsyncIterator[tuple[str, Callable[[], bool]]]:
    """Where the control endpoint is, and whether what was started for it has ended."""
    if control is not None:
        yield control.rstrip("/"), lambda: False
        return
    port = _free_port()
    options = {"--tier": tier_file, "--engine": "vllm", "--port": port, "--folder": FOLDER}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "phasewise", "local", "up", "--headless"),
        *(str(word) for option in options.items() for word in option),
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    ended = asyncio.create_task(process.wait())
    try:
        yield f"http://127.0.0.1:{port}", ended.done
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(asyncio.shield(ended), ENDING_S)
            except TimeoutError:
                process.kill()
        await ended


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def _until_ready(
    session: aiohttp.ClientSession, control: str, has_ended: Callable[[], bool]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The tier's status and targets, once one replica of each phase and the router answer."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + LONGEST_START_S
    last = "it did not answer"
    while loop.time() < until_s and not has_ended():
        try:
            status = await _json(session, f"{control}/status")
            groups = await _json(session, f"{control}/sd")
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            last = repr(error)
        else:
            ready = [r["phase"] for r in status["replicas"] if r["state"] == "ready"]
            if sorted(ready) == sorted(_PHASES) and status["router_ready"]:
                return status, groups
            last = f"ready: {', '.join(ready) or 'none'}"
        await asyncio.sleep(LOOK_EVERY_S)
    how = "ended" if has_ended() else f"has no ready pair after {LONGEST_START_S:g} s"
    raise Unavailable(f"the tier at {control} {how}: {last}")


async def _json(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url, timeout=aiohttp.ClientTimeout(total=10.0)) as response:
        response.raise_for_status()
        return await response.json()


def _pages(groups: list[dict[str, Any]]) -> dict[str, str]:
    """Where the pages are, by target."""
    found: dict[str, str] = {}
    for group in groups:
        labels = group["labels"]
        target = "router" if "__meta_phasewise_router" in labels else labels["phase"]
        found[target] = f"http://{group['targets'][0]}/metrics"
    return found


async def _version(session: aiohttp.ClientSession, page: str) -> str:
    try:
        answer = await _json(session, f"{page.removesuffix('/metrics')}/version")
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return "of unknown version"
    return str(answer.get("version", "of unknown version"))
