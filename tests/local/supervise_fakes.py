"""A supervisor of fake engines as a process of its own, so that a test can end it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from serving.local.run_state import RunState
from serving.local.supervisor import LocalTier
from tests.local.fakes import PAIR, QUICK, FakeLauncher


async def main(folder: Path) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    tier = LocalTier(
        name="t",
        model="fake",
        pools=PAIR,
        launcher=FakeLauncher(),
        state=RunState(
            folder=folder, run=uuid.uuid4().hex, engine="vllm", tier="t", supervisor=os.getpid()
        ),
        unix_s=time.time,  # noqa: TID251 - real processes
        timing=QUICK,
        on_event=lambda event: sys.stdout.write(f"{event.kind.value}\n"),
    )
    async with tier:
        await ended.wait()


sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
asyncio.run(main(Path(sys.argv[1])))
