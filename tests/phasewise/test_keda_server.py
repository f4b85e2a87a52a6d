"""The five calls over a real port, asked by a client that shares nothing with our stubs."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from google.protobuf import descriptor_pb2

from autoscaler.keda import externalscaler_pb2
from autoscaler.keda_answers import SeenPlan
from autoscaler.keda_server import KedaServer
from autoscaler.plan_codec import PublishedPlan, dump_published
from phasewise.keda import answering
from phasewise.places import plan_file
from phasewise.settings import load_settings
from serving.errors import Misconfigured
from serving.schema.tier import demo_tier_path
from serving.types import Phase, PoolId
from tests.phasewise.keda_client import PUBLISHED, Interface, compile_interface
from tests.phasewise.keda_desk import Desk, plan_of, status_of

Status = grpc.StatusCode


@pytest.fixture(scope="module")
def interface(tmp_path_factory: pytest.TempPathFactory) -> Interface:
    return Interface(tmp_path_factory.mktemp("interface"))


@asynccontextmanager
async def _asking(desk: Desk) -> AsyncIterator[grpc.aio.Channel]:
    server = KedaServer(desk.answers(), port=0)
    await server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        try:
            yield channel
        finally:
            await server.stop()


def _metrics(interface: Interface, name: str = "phasewise-chat-prefill", **metadata: str) -> Any:
    reference = interface.reference(**(metadata or {"tier": "chat", "pool": "prefill"}))
    return interface.message("GetMetricsRequest", scaledObjectRef=reference, metricName=name)


def test_our_interface_is_the_published_one(tmp_path: Path) -> None:
    published = compile_interface(PUBLISHED, tmp_path)
    ours = compile_interface(
        Path(externalscaler_pb2.__file__).with_name("externalscaler.proto").read_text(), tmp_path
    )

    assert ours == published


def test_our_stubs_are_made_from_our_interface(tmp_path: Path) -> None:
    file = Path(externalscaler_pb2.__file__).with_name("externalscaler.proto")
    ours = compile_interface(file.read_text(), tmp_path)
    stubs = descriptor_pb2.FileDescriptorProto()
    externalscaler_pb2.DESCRIPTOR.CopyToProto(stubs)
    ours.name = stubs.name

    assert stubs == ours


async def test_metrics_carry_the_desired_replicas_in_both_fields(interface: Interface) -> None:
    async with _asking(Desk()) as channel:
        answer = await interface.call(channel, "GetMetrics", _metrics(interface))

    (value,) = answer.metricValues
    assert (value.metricName, value.metricValue, value.metricValueFloat) == (
        "phasewise-chat-prefill",
        7,
        7.0,
    )


async def test_a_known_zero_is_a_number_and_not_active(interface: Interface) -> None:
    reference = interface.reference(tier="chat", pool="prefill")
    async with _asking(Desk(replicas=0)) as channel:
        answer = await interface.call(channel, "GetMetrics", _metrics(interface))
        active = await interface.call(channel, "IsActive", reference)

    assert answer.metricValues[0].metricValue == 0
    assert not active.result


async def test_a_pool_with_desired_replicas_is_active(interface: Interface) -> None:
    async with _asking(Desk()) as channel:
        active = await interface.call(
            channel, "IsActive", interface.reference(tier="chat", pool="prefill")
        )

    assert active.result


async def test_the_spec_is_one_replica_for_each_unit_with_every_source_down(
    interface: Interface,
) -> None:
    desk = Desk()
    desk.plan = SeenPlan(problem="no such file")
    async with _asking(desk) as channel:
        answer = await interface.call(
            channel, "GetMetricSpec", interface.reference(tier="chat", pool="decode")
        )

    (spec,) = answer.metricSpecs
    assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == (
        "phasewise-chat-decode",
        1,
        1.0,
    )


async def test_specs_are_streamed_at_once_and_the_stream_stays_open(interface: Interface) -> None:
    desk = Desk()
    desk.plan = SeenPlan()
    async with _asking(desk) as channel:
        stream = interface.call(
            channel, "StreamMetricSpec", interface.reference(tier="chat", pool="decode")
        )
        first = await stream.read()

        assert [spec.metricName for spec in first.metricSpecs] == ["phasewise-chat-decode"]
        assert not stream.done()


async def test_activity_is_streamed_at_once_at_each_change_and_ends_when_unknown(
    interface: Interface,
) -> None:
    desk = Desk()
    async with _asking(desk) as channel:
        stream = interface.call(
            channel, "StreamIsActive", interface.reference(tier="chat", pool="prefill")
        )
        told = [(await stream.read()).result]
        desk.plan = SeenPlan(plan=plan_of(0), mode="act", age_s=1.0)
        told.append((await stream.read()).result)
        desk.plan = SeenPlan(plan=plan_of(0), mode="act", age_s=91.0)
        status, _ = await status_of(stream.read())

    assert told == [True, False]
    assert status is Status.UNAVAILABLE


UNKNOWN = [
    pytest.param(SeenPlan(problem="x"), Status.UNAVAILABLE, "never planned: x", id="no-plan"),
    pytest.param(
        SeenPlan(plan=plan_of(7), mode="act", age_s=90.5),
        Status.UNAVAILABLE,
        "last renewed",
        id="stale",
    ),
    pytest.param(
        SeenPlan(plan=plan_of(7), mode="act"), Status.UNAVAILABLE, "not been renewed", id="any-age"
    ),
    pytest.param(
        SeenPlan(plan=plan_of(None), mode="act", age_s=1.0),
        Status.UNAVAILABLE,
        "is not known: more is asked",
        id="no-number",
    ),
    pytest.param(
        SeenPlan(plan=plan_of(7), mode="advise", age_s=1.0),
        Status.FAILED_PRECONDITION,
        "mode advise",
        id="advise",
    ),
]


@pytest.mark.parametrize("call", ["GetMetrics", "IsActive", "StreamIsActive"])
@pytest.mark.parametrize(("plan", "status", "words"), UNKNOWN)
async def test_what_is_not_known_is_an_error_and_never_zero(
    interface: Interface, call: str, plan: SeenPlan, status: grpc.StatusCode, words: str
) -> None:
    desk = Desk()
    desk.plan = plan
    reference = interface.reference(tier="chat", pool="prefill")
    request = _metrics(interface) if call == "GetMetrics" else reference
    async with _asking(desk) as channel:
        answer = interface.call(channel, call, request)
        found, said = await status_of(answer.read() if call == "StreamIsActive" else answer)

    assert found is status
    assert words in said


@pytest.mark.parametrize(
    "call", ["GetMetrics", "GetMetricSpec", "IsActive", "StreamIsActive", "StreamMetricSpec"]
)
@pytest.mark.parametrize(
    ("metadata", "status"),
    [
        pytest.param({"scalerAddress": "a:1"}, Status.INVALID_ARGUMENT, id="keys-missing"),
        pytest.param({"tier": "no", "pool": "prefill"}, Status.NOT_FOUND, id="tier"),
        pytest.param({"tier": "chat", "pool": "no"}, Status.NOT_FOUND, id="pool"),
    ],
)
async def test_every_call_refuses_a_pool_that_is_not_named_or_not_there(
    interface: Interface, call: str, metadata: dict[str, str], status: grpc.StatusCode
) -> None:
    reference = interface.reference(**metadata)
    request = _metrics(interface, **metadata) if call == "GetMetrics" else reference
    async with _asking(Desk()) as channel:
        answer = interface.call(channel, call, request)
        found, _ = await status_of(answer.read() if call.startswith("Stream") else answer)

    assert found is status


async def test_a_foreign_metric_is_not_found(interface: Interface) -> None:
    async with _asking(Desk()) as channel:
        request = _metrics(interface, "phasewise-chat-decode")
        status, _ = await status_of(interface.call(channel, "GetMetrics", request))

    assert status is Status.NOT_FOUND


async def test_stopping_ends_open_streams(interface: Interface) -> None:
    server = KedaServer(Desk().answers(), port=0, drain_s=60.0)
    await server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        reference = interface.reference(tier="chat", pool="prefill")
        stream = interface.call(channel, "StreamMetricSpec", reference)
        await stream.read()

        await server.stop()

        assert await stream.read() is grpc.aio.EOF


async def test_a_taken_port_is_said_before_anyone_is_answered_by_a_stranger() -> None:
    first = KedaServer(Desk().answers(), port=0)
    await first.start()
    try:
        with pytest.raises(Misconfigured, match="cannot listen"):
            await KedaServer(Desk().answers(), port=first.port).start()
    finally:
        await first.stop()


# `phasewise serve`


def _settings_file(folder: Path, **serve: object) -> Path:
    (folder / "tier.yaml").write_text(demo_tier_path().read_text())
    file = folder / "phasewise.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "tiers": [{"file": "tier.yaml"}],
                "source": {"httpSd": "http://127.0.0.1:1/sd"},
                "serve": serve,
            }
        )
    )
    return file


def _publish(file: Path, *, replicas: int, written: int) -> None:
    pool = PoolId(tier="demo", name="prefill", phase=Phase.PREFILL, variant="l40s")
    published = PublishedPlan(mode="act", plan=plan_of(replicas, pool=pool), written=written)
    draft = file.with_suffix(".draft")
    draft.write_bytes(dump_published(published))
    draft.replace(file)


async def test_serve_answers_the_published_plan_of_its_settings(
    interface: Interface, tmp_path: Path
) -> None:
    settings = load_settings(_settings_file(tmp_path))
    request = _metrics(interface, "phasewise-demo-prefill", tier="demo", pool="prefill")
    async with (
        answering(settings, port=0) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        before, said = await status_of(interface.call(channel, "GetMetrics", request))
        _publish(plan_file(settings.ledger.file), replicas=5, written=1)
        async with asyncio.timeout(20.0):
            while True:  # it looks every half second
                with suppress(grpc.aio.AioRpcError):
                    answer = await interface.call(channel, "GetMetrics", request)
                    break

    assert before is Status.UNAVAILABLE
    assert "never planned" in said
    assert answer.metricValues[0].metricValue == 5


async def test_patience_shorter_than_two_ticks_is_refused(tmp_path: Path) -> None:
    settings = load_settings(_settings_file(tmp_path, staleAfterSeconds=29))

    with pytest.raises(Misconfigured, match="at least two ticks \\(30\\)"):
        async with answering(settings, port=0):
            pass


def test_serve_is_a_process_that_loads_no_arithmetic_and_ends_at_a_signal(tmp_path: Path) -> None:
    file = _settings_file(tmp_path)
    code = (
        "import sys, typer, phasewise.cli\n"
        "echo = typer.echo\n"
        "def told(line):\n"
        "    print(line)\n"
        "    print('numpy' in sys.modules, 'grpc' in sys.modules, flush=True)\n"
        "typer.echo = told\n"
        f"phasewise.cli.main(['serve', '-c', {str(file)!r}, '--port', '0'])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        where = json.loads(child.stdout.readline())
        loaded = child.stdout.readline().split()
        child.send_signal(signal.SIGTERM)
        code_at_the_end = child.wait(timeout=30)

    assert where["keda"].startswith("127.0.0.1:")
    assert loaded == ["False", "True"]
    assert code_at_the_end == 0
