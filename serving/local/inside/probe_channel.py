"""How the two sides of a probe meet and talk: one small TCP channel, lines of JSON.

Also where a side writes down what happens, for whoever started it. Runs in the engine environment,
imported by `nixl_probe.py` from beside it; standard library only.
"""

from __future__ import annotations

import argparse
import json
import socket
from pathlib import Path
from typing import Any

CHANNEL_LINE_BYTES = 1 << 20


class ProbeError(Exception):
    """What ends a probe, in words for a person."""


class Channel:
    """The small channel between the two sides: one JSON value a line."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.buffered = b""

    def send(self, **message: object) -> None:
        """Say one message."""
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def take(self) -> dict[str, Any]:
        """The next message; ends the probe where none comes."""
        while b"\n" not in self.buffered:
            if len(self.buffered) > CHANNEL_LINE_BYTES:
                raise ProbeError("the other side says more than a probe would")
            try:
                some = self.connection.recv(65536)
            except TimeoutError:
                raise ProbeError("the other side says nothing any more") from None
            if not some:
                raise ProbeError("the other side ended before the probe was over")
            self.buffered += some
        line, _, self.buffered = self.buffered.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise ProbeError("whoever is at the other end is not a probe")
        return message

    def ask(self, **message: object) -> dict[str, Any]:
        """Say one message and take the answer."""
        self.send(**message)
        return self.take()


class Events:
    """Where what happens is written, a line each."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def say(self, event: str, **values: object) -> None:
        """Write one down."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **values}) + "\n")


def rdma_devices() -> list[dict[str, str]]:
    """RDMA devices of this machine and the driver behind each, as the kernel lists them."""
    root = Path("/sys/class/infiniband")
    found = []
    for device in sorted(root.iterdir()) if root.is_dir() else []:
        driver = (device / "device" / "driver").resolve().name
        found.append({"name": device.name, "driver": driver})
    return found


def this_machine() -> dict[str, Any]:
    """What the other side is told of this one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = None
    return {"probe": 1, "boot_id": boot, "host": socket.gethostname(), "rdma": rdma_devices()}


def met(where: tuple[str, int], limit_s: float, events: Events) -> socket.socket:
    """Whoever comes first to the place where it listens."""
    host, port = where
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server(where, family=family, backlog=1)
    except OSError as error:
        raise ProbeError(f"{host}:{port} cannot be listened at ({error})") from None
    with server:
        events.say("listening", port=server.getsockname()[1])
        server.settimeout(limit_s)
        try:
            connection, address = server.accept()
        except TimeoutError:
            raise ProbeError(f"nobody came to {host}:{port} in {limit_s:g} s") from None
        events.say("met", host=address[0])
        return connection


def connection_of(asked: argparse.Namespace, events: Events) -> Channel:
    """The channel, greeted: both sides know what machine the other is."""
    if asked.listen is not None:
        connection = met(asked.listen, asked.limit_s, events)
    else:
        host, port = asked.to
        try:
            connection = socket.create_connection(asked.to, timeout=min(10.0, asked.limit_s))
        except OSError as error:
            raise ProbeError(f"nothing listens at {host}:{port} ({error})") from None
    connection.settimeout(asked.limit_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    channel = Channel(connection)
    mine = this_machine()
    theirs = channel.ask(**mine)
    if theirs.get("probe") != 1:
        raise ProbeError("whoever is at the other end is not a probe of this version")
    boots = (mine["boot_id"], theirs.get("boot_id"))
    same = None if None in boots else boots[0] == boots[1]
    events.say("machines", here=mine, there=theirs, same_machine=same)
    return channel
