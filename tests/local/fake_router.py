"""A small router that keeps the lists of vllm-router's discovery: by address, for some seconds.

It sends a request to a prefill and then to a decode worker, both chosen when it comes, and says on
its page what it has under way for each.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgpack
import zmq

HTTP, METRICS, DISCOVERY = (int(text) for text in sys.argv[1:4])
FORGETS_S = float(sys.argv[4])
lists: dict[str, dict[str, float]] = {"P": {}, "D": {}}
under_way: Counter[tuple[str, str]] = Counter()
turn = iter(range(1_000_000_000))
lock = threading.Lock()


def listen() -> None:
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.bind(f"tcp://127.0.0.1:{DISCOVERY}")
    while True:
        _, body = socket.recv_multipart()
        message = msgpack.unpackb(body)
        with lock:
            lists[message["type"]][message["http_address"]] = time.monotonic() + FORGETS_S


def choose() -> tuple[str, str] | None:
    with lock:
        now = time.monotonic()
        living = [sorted(a for a, end in lists[kind].items() if end > now) for kind in "PD"]
        if not all(living):
            return None
        number = next(turn)
        prefill, decode = (group[number % len(group)] for group in living)
        under_way["vllm_router_pd_prefill_occupancy", prefill] += 1
        under_way["vllm_router_pd_pending_decode_requests", decode] += 1
        return prefill, decode


def post(address: str, body: dict[str, object]) -> bytes:
    request = urllib.request.Request(
        f"http://{address}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


class Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        pair = choose()
        if pair is None:
            self.reply(503, b"No eligible P/D pair")
            return
        prefill, decode = pair
        prefilling = True
        try:
            asked = {**body, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
            post(prefill, asked)
            with lock:
                under_way["vllm_router_pd_prefill_occupancy", prefill] -= 1
            prefilling = False
            answer = post(decode, body)
        except OSError as error:
            self.reply(500, str(error).encode())
        else:
            self.reply(200, answer)
        finally:
            with lock:
                under_way["vllm_router_pd_pending_decode_requests", decode] -= 1
                if prefilling:
                    under_way["vllm_router_pd_prefill_occupancy", prefill] -= 1


class Page(Front):
    def do_GET(self) -> None:
        with lock:
            lines = [
                f'{name}{{worker="http://{worker}",rank="aggregate"}} {count}\n'
                for (name, worker), count in under_way.items()
            ]
        self.reply(200, "".join(lines).encode())


def main() -> None:
    threading.Thread(target=listen, daemon=True).start()
    page = ThreadingHTTPServer(("127.0.0.1", METRICS), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    ThreadingHTTPServer(("127.0.0.1", HTTP), Front).serve_forever()


if __name__ == "__main__":
    main()
