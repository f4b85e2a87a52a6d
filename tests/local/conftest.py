"""A local tier of fake engines, stopped after the test; an engine environment that is faked."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from serving.local.replica import PoolSetup
from serving.local.run_state import RunState
from serving.local.setup import Timing
from serving.local.supervisor import LocalTier
from tests.local.fakes import PAIR, QUICK, FakeLauncher, MakeTier
from tests.local.making import Making


@pytest.fixture
async def make_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeTier]:
    """Starts a tier; every tier is stopped after the test."""
    async with AsyncExitStack() as stack:

        async def make(
            *,
            pools: Sequence[PoolSetup] = PAIR,
            launcher: FakeLauncher | None = None,
            timing: Timing = QUICK,
        ) -> LocalTier:
            made = launcher or FakeLauncher()
            monkeypatch.setattr("serving.local.registration.FORGETS_S", made.forgets_s + 0.3)
            monkeypatch.setattr("serving.local.front.PING_S", 0.4)
            tier = LocalTier(
                name="local",
                model="fake",
                pools=pools,
                launcher=made,
                state=RunState(folder=tmp_path, run=f"test-{id(made)}", engine="vllm", tier="t"),
                unix_s=time.time,  # noqa: TID251 - real processes
                timing=timing,
            )
            await stack.enter_async_context(tier)
            return tier

        yield make


@pytest.fixture
def making(tmp_path: Path) -> Making:
    return Making(tmp_path)
