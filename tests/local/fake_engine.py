"""A small real process that looks like a vLLM engine from outside: health, page, completions.

Standard library only, so that it is up at once. It prints what vLLM prints while it starts, keeps
its own count of running requests, and takes orders from a test by `POST /fake`. As a prefill engine
it hands out transfer parameters, and keeps the KV of what was never fetched until its lease is
over.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BLOCK_TOKENS = 128
PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="{model}"}} {running}
vllm:num_requests_waiting{{engine="0",model_name="{model}"}} {waiting}
vllm:kv_cache_usage_perc{{engine="0",model_name="{model}"}} {kv}
vllm:cache_config_info{{block_size="128",engine="0",num_gpu_blocks="{blocks}"}} 1.0
vllm:prompt_tokens_total{{engine="0",model_name="{model}"}} {prompt}
vllm:generation_tokens_total{{engine="0",model_name="{model}"}} {output}
vllm:request_success_total{{engine="0",finished_reason="length",model_name="{model}"}} {done}
"""


class Engine:
    """The state behind the pages; `told` is what a test says that the page shows."""

    def __init__(self, model: str, *, token_s: float, blocks: int) -> None:
        self.model, self.token_s, self.blocks = model, token_s, blocks
        self.lock = threading.Lock()
        self.running = self.prompt = self.output = self.done = 0
        self.told: dict[str, Any] = {}

    def page(self) -> str:
        with self.lock:
            return PAGE.format(
                model=self.model,
                running=self.told.get("running", self.running),
                waiting=self.told.get("waiting", 0),
                kv=self.told.get("kv", min(1.0, self.running / self.blocks)),
                blocks=self.blocks,
                prompt=self.prompt,
                output=self.output,
                done=self.done,
            )

    def begin(self, prompt_tokens: int) -> None:
        with self.lock:
            self.running += 1
            self.prompt += prompt_tokens

    def end(self, output_tokens: int) -> None:
        with self.lock:
            self.running -= 1
            self.done += 1
            self.output += output_tokens


class Handler(BaseHTTPRequestHandler):
    engine: Engine
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _send(self, body: bytes, kind: str = "application/json", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.engine.told.get("hung"):
            threading.Event().wait()
        if self.path == "/metrics":
            self._send(self.engine.page().encode(), "text/plain; version=0.0.4")
        else:
            self._send(b"", status=200 if self.path in ("/health", "/v1/models") else 404)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        asked = json.loads(raw)
        if self.path == "/fake":
            if "exit" in asked:
                os._exit(asked["exit"])
            self.engine.told.update(asked)
            self._send(b"{}")
            return
        if self.engine.told.get("hung"):
            threading.Event().wait()
        if self.engine.told.get("broken"):
            self._send(b'{"error": "broken"}', status=500)
            return
        prompt = asked.get("prompt", "")
        tokens = int(asked.get("max_tokens", 1))
        self.engine.begin(len(prompt))
        try:
            self._complete(asked, tokens)
        finally:
            self.engine.end(tokens)

    def _complete(self, asked: dict[str, Any], tokens: int) -> None:
        answer: dict[str, Any] = {
            "id": "cmpl-1",
            "object": "text_completion",
            "model": self.engine.model,
            "choices": [{"index": 0, "text": "x", "finish_reason": "length"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": tokens},
        }
        wanted = asked.get("kv_transfer_params") or {}
        if wanted.get("do_remote_decode"):
            answer["kv_transfer_params"] = {"do_remote_prefill": True, "remote_block_ids": [1]}
        if not asked.get("stream"):
            time.sleep(self.engine.token_s * tokens)
            self._send(json.dumps(answer).encode())
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(tokens):
            time.sleep(self.engine.token_s)
            self._chunk(f"data: {json.dumps(answer)}\n\n".encode())
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="fake")
    parser.add_argument("--start-seconds", type=float, default=0.0)
    parser.add_argument("--token-seconds", type=float, default=0.0)
    parser.add_argument("--blocks", type=int, default=80)
    parser.add_argument("--crash", action="store_true")
    options = parser.parse_args()
    say = sys.stdout
    say.write("INFO Starting to load model\n")
    say.flush()
    if options.crash:
        say.write("RuntimeError: no such model\n")
        sys.exit(3)
    time.sleep(options.start_seconds)
    say.write("INFO Loading weights took 0.01 seconds\n")
    say.write(f"INFO GPU KV cache size: {options.blocks * BLOCK_TOKENS} tokens\n")
    say.write("INFO init engine (profile, create kv cache, warmup model) took 0.01 seconds\n")
    say.flush()
    Handler.engine = Engine(options.model, token_s=options.token_seconds, blocks=options.blocks)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    server.daemon_threads = True
    say.write("INFO Application startup complete.\n")
    say.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
