"""One side of a probe: real NIXL transfers between two processes, memory to memory, data checked.

Runs in the engine environment, started by path; it knows nothing of phasewise. The holder
(`--listen`) owns the memory that is read or written and obeys; the initiator (`--to`) drives,
measures and checks, as a decode engine does when it pulls KV. They talk over one small TCP channel:
lines of JSON, none longer than 1 MiB. What happens is written to `--events`, a line of JSON each;
what NIXL and UCX say goes to standard output, for whoever judges what the bytes went over.
Ends by itself: at `--limit-s`, and with whoever started it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import threading

from probe_channel import Events, ProbeError, connection_of
from probe_sides import hold, initiate


def end_with_parent(limit_s: float) -> None:
    """Gone when the parent is, and at the limit, whatever a library is doing then."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    signal.alarm(int(limit_s) + 1)


def endpoint(text: str) -> tuple[str, int]:
    """HOST:PORT, apart."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main() -> int:
    """Play one side; 0 if every transfer brought the right data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", type=endpoint)
    parser.add_argument("--to", type=endpoint)
    parser.add_argument("--events", required=True)
    parser.add_argument("--limit-s", type=float, default=120.0)
    parser.add_argument("--backends", type=lambda t: t.split(","), default=["UCX"])
    parser.add_argument("--operations", type=lambda t: t.split(","), default=["READ"])
    parser.add_argument("--sizes", type=lambda t: [int(s) for s in t.split(",")], default=[1 << 20])
    parser.add_argument("--handles", type=lambda t: [int(s) for s in t.split(",")], default=[1])
    parser.add_argument("--repetitions", type=int, default=7)
    asked = parser.parse_args()
    end_with_parent(asked.limit_s)
    events = Events(asked.events)
    try:
        channel = connection_of(asked, events)
        if asked.listen is not None:
            hold(channel, events)
        else:
            initiate(channel, events, asked)
    except Exception as error:  # noqa: BLE001 - whatever ends a probe is said in words
        kind = "" if isinstance(error, ProbeError) else f"{type(error).__name__}: "
        events.say("failed", why=f"{kind}{error}")
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the agents' threads have nothing left to do, and may take their time
