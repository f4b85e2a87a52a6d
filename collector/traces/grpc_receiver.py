"""Takes spans by OTLP/gRPC, which is what vLLM sends where nothing else is said.

The same bounds as by HTTP. Needs the extra `serve`; nothing of gRPC is generated for it, since the
one call takes and gives bytes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import grpc

from collector.traces.receiver import AT_ONCE, MAX_BODY_BYTES, MAX_SPANS, Sink
from collector.traces.wire import decode_protobuf
from serving.errors import Unavailable

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class GrpcReceiver:
    """One listening port. `sink` gets each request's spans; it must not block."""

    def __init__(
        self, sink: Sink, *, max_body_bytes: int = MAX_BODY_BYTES, max_spans: int = MAX_SPANS
    ) -> None:
        self._sink, self._max_body_bytes, self._max_spans = sink, max_body_bytes, max_spans
        self._server: Any = None
        self.counts: Counter[str] = Counter()
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; `port` 0 picks one, `self.port` says which. Raises Unavailable."""
        options = [
            ("grpc.max_receive_message_length", self._max_body_bytes),
            ("grpc.so_reuseport", 0),
        ]
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=AT_ONCE)
        self._server.add_generic_rpc_handlers((_Export(self._export),))
        try:
            self.port = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise Unavailable(f"cannot listen on {host}:{port}") from error
        await self._server.start()

    async def stop(self) -> None:
        """Close the port."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=1.0)

    async def _export(self, body: bytes, context: Any) -> bytes:
        try:
            spans = decode_protobuf(body, max_spans=self._max_spans)
        except ValueError as error:
            self.counts["refused as invalid"] += 1
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:200])
            raise
        self._sink(spans)
        self.counts["requests"] += 1
        return b""


class _Export(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc ships no types
    def __init__(self, export: Any) -> None:
        self._handler = grpc.unary_unary_rpc_method_handler(export)

    def service(self, handler_call_details: Any) -> Any:
        """The one method there is."""
        return self._handler if handler_call_details.method == _EXPORT else None
