"""Who answers at a dead engine's address: another, or the next that there is, or nobody."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from serving.local.ports import FreePorts
from serving.local.stand_in import StandIn


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"heard " + await reader.readline())
    await writer.drain()
    writer.close()


@asynccontextmanager
async def _stand_in(living: Callable[[], int | None], hold_s: float) -> AsyncIterator[StandIn]:
    found = StandIn(FreePorts().take(), living=living, hold_s=hold_s)
    assert await found.start()
    try:
        yield found
    finally:
        await found.stop(grace_s=0.0)


async def _ask(stand_in: StandIn) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", stand_in.port)
    writer.write(b"hello\n")
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def test_a_living_engine_answers_in_the_place_of_the_dead_one() -> None:
    async def go() -> None:
        async with await asyncio.start_server(_answer, "127.0.0.1", 0) as engine:
            port = engine.sockets[0].getsockname()[1]
            async with _stand_in(lambda: port, 0.0) as stand_in:
                assert await _ask(stand_in) == b"heard hello\n"
                assert (stand_in.passed, stand_in.dropped) == (1, 0)

    asyncio.run(go())


def test_a_request_is_held_until_there_is_an_engine_again() -> None:
    async def go() -> None:
        ports: list[int | None] = []
        asked = asyncio.Event()

        def living() -> int | None:
            asked.set()
            return ports[0] if ports else None

        async with _stand_in(living, math.inf) as stand_in:
            asking = asyncio.create_task(_ask(stand_in))
            await asked.wait()
            async with await asyncio.start_server(_answer, "127.0.0.1", 0) as engine:
                ports.append(engine.sockets[0].getsockname()[1])
                assert await asking == b"heard hello\n"
            assert (stand_in.passed, stand_in.dropped) == (1, 0)

    asyncio.run(go())


@pytest.mark.parametrize("hold_s", [0.0, 0.05])
def test_a_request_that_nobody_can_take_in_time_is_dropped_and_counted(hold_s: float) -> None:
    async def go() -> None:
        async with _stand_in(lambda: None, hold_s) as stand_in:
            assert await _ask(stand_in) == b""
            assert (stand_in.passed, stand_in.dropped) == (0, 1)

    asyncio.run(go())


def test_a_port_that_is_taken_is_left_alone() -> None:
    async def go() -> None:
        async with await asyncio.start_server(_answer, "127.0.0.1", 0) as other:
            port = other.sockets[0].getsockname()[1]
            assert not await StandIn(port, living=lambda: None).start()

    asyncio.run(go())
