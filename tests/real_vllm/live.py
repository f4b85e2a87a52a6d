"""A live pair of vLLM engines behind the real router, for tests: started, registered, ended.

KV goes from one to the other through NIXL; its own exporter is on. Everything is on loopback, in
ports that were free, and ended with whoever started it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from serving.local.environment import EngineEnvironment, default_root
from serving.local.launch import ReplicaLaunch, RouterLaunch, engine_launch, router_launch
from serving.local.ports import FreePorts
from serving.local.registration import PING_S, Registrar
from serving.local.weights import ensure_model
from serving.schema.local_engine import BLOCK_SIZE_TOKENS
from serving.schema.tier import Tier, load_tier

STARTS_WITHIN_S = 300.0
HOST = "127.0.0.1"
DOCUMENT = """
apiVersion: phasewise.dev/v1alpha1
kind: Tier
metadata: {name: live}
spec:
  model: tiny
  slo: {ttftSeconds: 5, itlSeconds: 0.5}
  variants:
    - name: cpu
      acceleratorType: CPU
      engine: {maxNumBatchedTokens: 2048, maxNumSeqs: 32, maxModelLenTokens: 2048}
      local: {}
  pools:
    - {name: prefill, phase: prefill, variant: cpu, replicas: {max: 1}}
    - {name: decode, phase: decode, variant: cpu, replicas: {max: 1}}
  router: {kind: vllm-router, policy: round_robin}
"""
ALONE = """\
    - {name: alone, phase: both, variant: cpu, replicas: {max: 1}}
"""


@dataclass(frozen=True)
class LivePair:
    """What runs: one prefill engine, one decode engine, the router, and their list of targets."""

    tier: Tier
    engines: tuple[ReplicaLaunch, ...]
    router: RouterLaunch
    http_sd: str
    alone: ReplicaLaunch | None = None

    @property
    def url(self) -> str:
        """The router, as a user sees it."""
        return f"http://{self.router.address}"

    @property
    def alone_url(self) -> str:
        """The engine of the same model that prefills and decodes by itself, if it was wanted."""
        assert self.alone is not None
        return f"http://{self.alone.address}"

    @property
    def nixl_pages(self) -> tuple[str, ...]:
        """The pages of NIXL's own exporter."""
        return tuple(f"http://{HOST}:{one.nixl_metrics_port}/metrics" for one in self.engines)

    @property
    def kv_bytes_per_token(self) -> int:
        """Of the generated model."""
        local = self.tier.spec.variants[0].local
        assert local is not None
        return local.model.kv_bytes_per_token

    @property
    def block_tokens(self) -> int:
        """vLLM's KV block on a CPU."""
        return BLOCK_SIZE_TOKENS


def environment() -> EngineEnvironment:
    """The engines' environment; the test is skipped where it was not made."""
    made = EngineEnvironment(default_root())
    if not made.python.exists():
        pytest.skip(f"no engine environment at {made.root}: phasewise local makes it")
    return made


@contextmanager
def running(
    argv: Sequence[str], env: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process and all its children, ended together."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, env=os.environ | env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(15)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers 200; fails with the end of the log."""
    until = time.monotonic() + STARTS_WITHIN_S
    while not _answers(url):
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < until, f"{url}: no answer within {STARTS_WITHIN_S:g} s"
        time.sleep(0.25)


def _answers(url: str, body: bytes | None = None) -> bool:
    asked = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@contextmanager
def live_pair(folder: Path, *, with_alone: bool = False) -> Iterator[LivePair]:
    """One prefill and one decode engine behind the router, which has answered once.

    `with_alone` starts a third engine beside them, of both phases and behind no router.
    """
    made = environment()
    tier = _tier(folder, DOCUMENT)
    local = tier.spec.variants[0].local
    assert local is not None
    model = ensure_model(made, local.model, folder / "models")
    ports = FreePorts()
    engines = tuple(
        engine_launch(
            tier,
            pool,
            name=f"{pool.name}-0",
            env_dir=made.root,
            model_dir=model,
            http_port=ports.take(),
            side_channel_port=ports.take(),
            nixl_metrics_port=ports.take(),
        )
        for pool in tier.spec.pools
    )
    alone = _alone(folder, made, ports) if with_alone else None
    router = router_launch(
        tier,
        env_dir=made.root,
        http_port=ports.take(),
        metrics_port=ports.take(),
        discovery_port=ports.take(),
    )
    with ExitStack() as stack:
        started = [
            (one, stack.enter_context(running(one.argv, one.env, folder / f"{one.name}.log")))
            for one in (*engines, *([] if alone is None else [alone]))
        ]
        stack.enter_context(running(router.argv, router.env, folder / "router.log"))
        for one, process in started:
            wait_for(f"http://{one.address}/health", process, folder / f"{one.name}.log")
        stack.enter_context(_registered(router, engines))
        http_sd = stack.enter_context(_served(_targets(engines, router)))
        pair = LivePair(tier=tier, engines=engines, router=router, http_sd=http_sd, alone=alone)
        body = json.dumps({"model": tier.spec.model, "prompt": [5, 6, 7], "max_tokens": 2}).encode()
        until = time.monotonic() + 60.0
        while not _answers(f"{pair.url}/v1/completions", body):
            assert time.monotonic() < until, (folder / "router.log").read_text()[-3000:]
            time.sleep(0.25)
        yield pair


@contextmanager
def aggregated(folder: Path) -> Iterator[str]:
    """One engine of both phases, and nothing before it: where it answers."""
    one = _alone(folder, environment(), FreePorts())
    log = folder / f"{one.name}.log"
    with running(one.argv, one.env, log) as process:
        wait_for(f"http://{one.address}/health", process, log)
        yield f"http://{one.address}"


def _alone(folder: Path, made: EngineEnvironment, ports: FreePorts) -> ReplicaLaunch:
    whole = _tier(folder, DOCUMENT[: DOCUMENT.index("    - {name: prefill")] + ALONE)
    local = whole.spec.variants[0].local
    assert local is not None
    return engine_launch(
        whole,
        whole.spec.pools[0],
        name="alone-0",
        env_dir=made.root,
        model_dir=ensure_model(made, local.model, folder / "models"),
        http_port=ports.take(),
        side_channel_port=ports.take(),
    )


def _tier(folder: Path, document: str) -> Tier:
    file = folder / "tier.yaml"
    file.write_text(document)
    return load_tier(file)


@contextmanager
def _registered(router: RouterLaunch, engines: Sequence[ReplicaLaunch]) -> Iterator[None]:
    """The router is told of the engines all the while."""
    over = threading.Event()

    def tell() -> None:
        registrar = Registrar(f"{HOST}:{router.discovery_port}")
        while not over.wait(PING_S / 4):
            registrar.tell((one.address, one.phase) for one in engines)
        registrar.close()

    thread = threading.Thread(target=tell)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _targets(engines: Sequence[ReplicaLaunch], router: RouterLaunch) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = [
        {
            "targets": [one.address],
            "labels": {
                "replica": one.name,
                "pool": one.pool,
                "phase": one.phase.value,
                "state": "ready",
            },
        }
        for one in engines
    ]
    labels = {"__meta_phasewise_router": "vllm-router"}
    return [*listed, {"targets": [f"{HOST}:{router.metrics_port}"], "labels": labels}]


@contextmanager
def _served(document: list[dict[str, Any]]) -> Iterator[str]:
    """The address of a list of targets."""
    body = json.dumps(document).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}/sd"
        finally:
            server.shutdown()
            thread.join()
