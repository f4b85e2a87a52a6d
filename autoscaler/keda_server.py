"""KEDA's external scaler over gRPC: answers from memory, refuses with a status and a sentence.

What is answered is decided in `keda_answers`; here are the five calls, the port, TLS, and what
happens when certificates change. Reads certificates, and no plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import structlog

from autoscaler.certificates import Certificates, TlsFiles, read_certificates
from autoscaler.free_port import refuse_taken
from autoscaler.keda import externalscaler_pb2 as messages
from autoscaler.keda import externalscaler_pb2_grpc as calls
from autoscaler.keda_answers import (
    TARGET_PER_REPLICA,
    AskedPool,
    Refusal,
    SeenPlan,
    asked_pool,
    desired_replicas,
    wrong_metric,
)
from serving.errors import Misconfigured, Unavailable

_log = structlog.get_logger("autoscaler")
_MAX_MESSAGE_BYTES = 65_536
_MAX_CALLS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the server answers from: the pools of each tier (static), and each tier's plan now.

    `look_every_s` is how often an open stream looks whether its answer changed.
    """

    pools: Mapping[str, Collection[str]]
    seen: Callable[[str], SeenPlan]
    stale_after_s: float = 90.0
    look_every_s: float = 1.0


class _Scaler:
    """The five calls of the interface, for one listener; `drain` ends its streams."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._drained = asyncio.Event()

    def drain(self) -> None:
        self._drained.set()

    async def IsActive(self, request: Any, context: Any) -> Any:  # noqa: N802 - KEDA's name
        return messages.IsActiveResponse(result=await self._desired(request, context) > 0)

    async def StreamIsActive(  # noqa: N802
        self, request: Any, context: Any
    ) -> AsyncIterator[Any]:
        told: bool | None = None
        while not self._drained.is_set():
            active = await self._desired(request, context) > 0
            if active is not told:
                told = active
                yield messages.IsActiveResponse(result=active)
            await self._wait(self._answers.look_every_s)

    async def GetMetricSpec(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._specs(request, context)

    async def StreamMetricSpec(  # noqa: N802
        self, request: Any, context: Any
    ) -> AsyncIterator[Any]:
        yield await self._specs(request, context)
        await self._wait(None)  # the settings never change, so neither do the specs

    async def GetMetrics(self, request: Any, context: Any) -> Any:  # noqa: N802
        asked = await self._pool(request.scaledObjectRef, context)
        refusal = wrong_metric(asked, request.metricName)
        if refusal is not None:
            await _refuse(refusal, context)
        replicas = await self._desired(request.scaledObjectRef, context)
        value = messages.MetricValue(
            metricName=asked.metric_name, metricValue=replicas, metricValueFloat=float(replicas)
        )
        return messages.GetMetricsResponse(metricValues=[value])

    async def _specs(self, reference: Any, context: Any) -> Any:
        asked = await self._pool(reference, context)
        spec = messages.MetricSpec(
            metricName=asked.metric_name,
            targetSize=TARGET_PER_REPLICA,
            targetSizeFloat=float(TARGET_PER_REPLICA),
        )
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    async def _pool(self, reference: Any, context: Any) -> AskedPool:
        asked = asked_pool(reference.scalerMetadata, self._answers.pools)
        return asked if isinstance(asked, AskedPool) else await _refuse(asked, context)

    async def _desired(self, reference: Any, context: Any) -> int:
        asked = await self._pool(reference, context)
        seen = self._answers.seen(asked.tier)
        replicas = desired_replicas(asked, seen, stale_after_s=self._answers.stale_after_s)
        return replicas if isinstance(replicas, int) else await _refuse(replicas, context)

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._drained.wait()
        except TimeoutError:
            pass


async def _refuse(refusal: Refusal, context: Any) -> Any:
    """End the call with the refusal's status; it raises, so nothing after it is run."""
    await context.abort(grpc.StatusCode[refusal.status.name], refusal.words)
    raise AssertionError("abort returned")


class KedaServer:
    """A port that KEDA asks. With TLS, `reload` lets a new listener take it over.

    Listeners share the port while one takes over from the other, and the old one ends every
    connection within `drain_s`: what a withdrawn authority once let in is gone then. Who connects
    in the very moment of taking over may be refused once, which to KEDA is a hold like any other.
    """

    def __init__(
        self,
        answers: Answers,
        *,
        host: str = "127.0.0.1",
        port: int = 6000,
        tls: TlsFiles | None = None,
        drain_s: float = 5.0,
    ) -> None:
        self._answers = answers
        self._host = host
        self._tls = tls
        self._drain_s = drain_s
        self._certificates: Certificates | None = None
        self._listener: _Listener | None = None
        self.port = port

    @property
    def address(self) -> str:
        """Where it listens; the port is the real one once it is started."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises Misconfigured if the port is taken or the certificates are no good."""
        certificates = None if self._tls is None else read_certificates(self._tls)
        refuse_taken(self._host, self.port)
        await self._listen(certificates)

    async def reload(self) -> bool:
        """Take up certificates that have changed; true once no old connection is left.

        Files that cannot be used yet are said in the log, and the present ones stay in use.
        """
        if self._tls is None or self._listener is None:
            return False
        old = self._listener
        try:
            found = read_certificates(self._tls)
            if found == self._certificates:
                return False
            await self._listen(found)
        except (Misconfigured, Unavailable) as error:
            _log.warning("certificates stay as they are", why=str(error))
            return False
        await old.stop(self._drain_s)
        _log.info("certificates were replaced", address=self.address)
        return True

    async def keep_reloading(self, every_s: float = 5.0) -> None:
        """Look for changed certificates for ever."""
        while True:
            await asyncio.sleep(every_s)
            await self.reload()

    async def stop(self) -> None:
        """Answer what is being asked, then stop listening."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop(self._drain_s)

    async def _listen(self, certificates: Certificates | None) -> None:
        listener = _Listener(self._answers, shared=certificates is not None)
        try:
            self.port = listener.bind(self.address, certificates)
        except RuntimeError as error:
            await listener.stop(0.0)
            raise Misconfigured(
                "cannot listen", where=self.address, found=str(error), expected="a free port"
            ) from error
        await listener.start()
        self._listener, self._certificates = listener, certificates


class _Listener:
    """One gRPC server with its own scaler."""

    def __init__(self, answers: Answers, *, shared: bool) -> None:
        self._scaler = _Scaler(answers)
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", int(shared)),
                ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ],
            maximum_concurrent_rpcs=_MAX_CALLS,
        )
        register = calls.add_ExternalScalerServicer_to_server
        register(self._scaler, self._server)  # type: ignore[no-untyped-call]  # generated

    def bind(self, address: str, certificates: Certificates | None) -> int:
        """Take the port; RuntimeError if that cannot be done."""
        if certificates is None:
            return int(self._server.add_insecure_port(address))
        credentials = grpc.ssl_server_credentials(
            [(certificates.key, certificates.cert)],
            root_certificates=certificates.client_ca,
            require_client_auth=certificates.client_ca is not None,
        )
        return int(self._server.add_secure_port(address, credentials))

    async def start(self) -> None:
        """Answer."""
        await self._server.start()

    async def stop(self, drain_s: float) -> None:
        """End streams now, other calls when they are answered, all within `drain_s`."""
        self._scaler.drain()
        await self._server.stop(drain_s)
