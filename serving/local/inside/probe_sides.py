"""What the two sides of a probe do: the holder obeys, the initiator drives, measures and checks.

Runs in the engine environment, imported by `nixl_probe.py` from beside it.
"""

from __future__ import annotations

import argparse
import base64
import random
import time
from typing import Any

from probe_agent import Agent
from probe_channel import Channel, Events, ProbeError

LEAST_REPETITIONS = 3
WRITTEN = b"written"
CASE_S = 12.0  # a case that is slow is repeated less often, never less than the least


def hold(channel: Channel, events: Events) -> None:
    """The holder: obeys until the initiator says that it is over."""
    agents: list[Agent] = []
    while True:
        asked = channel.take()
        what = asked.get("do")
        if what == "over":
            events.say("done")
            return
        if what == "agent":
            name = f"holder-{len(agents)}"
            try:
                agents.append(Agent(name, str(asked["backend"]), int(asked["bytes"])))
            except ProbeError as error:
                channel.send(ok=False, why=str(error))
                continue
            metadata = agents[-1].nixl.get_agent_metadata()
            channel.send(
                ok=True,
                metadata=base64.b64encode(metadata).decode(),
                address=agents[-1].memory.address,
            )
        elif what == "fill":
            agents[-1].memory.fill(int(asked["seed"]), int(asked["bytes"]))
            channel.send(ok=True)
        elif what == "check":
            heard = hear(agents[-1], int(asked["handles"]), float(asked["wait_s"]))
            wrong = agents[-1].memory.first_wrong_byte(int(asked["seed"]), int(asked["bytes"]))
            channel.send(ok=heard and wrong is None, heard=heard, wrong_byte=wrong)
        else:
            raise ProbeError(f"the other side asks for {what!r}, which this probe does not know")


def hear(agent: Agent, wanted: int, wait_s: float) -> bool:
    """Whether as many notices of ended writes came as were sent."""
    until_s, heard = time.perf_counter() + wait_s, 0
    while heard < wanted and time.perf_counter() < until_s:
        heard += sum(n.count(WRITTEN) for n in agent.nixl.get_new_notifs().values())
    return heard >= wanted


class Initiator:
    """Drives, measures and checks the transfers of one backend."""

    def __init__(
        self, channel: Channel, events: Events, backend: str, asked: argparse.Namespace
    ) -> None:
        self.channel, self.events, self.asked = channel, events, asked
        total = max(asked.sizes) * max(asked.handles)
        answer = channel.ask(do="agent", backend=backend, bytes=total)
        if not answer.get("ok"):
            raise ProbeError(f"on the side that holds the memory, {answer.get('why')}")
        self.agent = Agent(f"initiator-{backend.lower()}", backend, total)
        self.remote = self.agent.nixl.add_remote_agent(base64.b64decode(answer["metadata"]))
        if isinstance(self.remote, bytes):
            self.remote = self.remote.decode()
        self.remote_address = int(answer["address"])
        self.seed = random.SystemRandom().randrange(1 << 32)

    def case(self, operation: str, size: int, handles: int) -> None:
        """One size and number of handles: a warm-up apart, then the repetitions."""
        nixl, memory = self.agent.nixl, self.agent.memory
        local, each = self.agent.pieces(memory.address, size, handles)
        remote, _ = self.agent.pieces(self.remote_address, size, handles)
        mine = nixl.prep_xfer_dlist("", local, backends=[self.agent.backend])
        theirs = nixl.prep_xfer_dlist(self.remote, remote, backends=[self.agent.backend])
        runs, began_s = [], time.perf_counter()
        for index in range(self.asked.repetitions + 1):
            slow = time.perf_counter() - began_s > CASE_S
            if slow and index > LEAST_REPETITIONS:
                break
            runs.append(self._once(operation, size, handles, each, mine, theirs))
        nixl.release_dlist_handle(mine)
        nixl.release_dlist_handle(theirs)
        first, measured = runs[0], runs[1:]
        self.events.say(
            "case",
            backend=self.agent.backend,
            operation=operation,
            bytes=size,
            handles=handles,
            first_s=first["seconds"],
            seconds=[run["seconds"] for run in measured],
            nixl_seconds=[run["nixl_seconds"] for run in measured],
            nixl_bytes=sorted({run["nixl_bytes"] for run in measured}),
        )

    def _once(
        self, operation: str, size: int, handles: int, each: int, mine: Any, theirs: Any
    ) -> dict[str, Any]:
        nixl, memory, total = self.agent.nixl, self.agent.memory, size * handles
        self.seed += 1
        if operation == "READ":
            self.channel.ask(do="fill", seed=self.seed, bytes=total)
        else:
            memory.fill(self.seed, total)
        wanted = [list(range(k * each, (k + 1) * each)) for k in range(handles)]
        notice = b"read" if operation == "READ" else WRITTEN  # as decode tells that it has pulled
        made = [
            nixl.make_prepped_xfer(operation, mine, indices, theirs, indices, notif_msg=notice)
            for indices in wanted
        ]
        began_s = time.perf_counter()
        states = {nixl.transfer(handle) for handle in made}
        for handle in made:  # asked as often as can be: asking moves all of them on
            state = nixl.check_xfer_state(handle)
            while state == "PROC":
                state = nixl.check_xfer_state(handle)
            states.add(state)
        seconds = time.perf_counter() - began_s
        if not states <= {"DONE", "PROC"}:
            raise ProbeError(f"a transfer of {size} bytes ended as {', '.join(sorted(states))}")
        told = [nixl.get_xfer_telemetry(handle) for handle in made]
        for handle in made:
            nixl.release_xfer_handle(handle)
        self._check(operation, size, total, handles)
        return {
            "seconds": seconds,
            # the first post to the last end, by NIXL's own clock (microseconds)
            "nixl_seconds": (
                max(t.startTime + t.xferDuration for t in told) - min(t.startTime for t in told)
            )
            / 1e6,
            "nixl_bytes": sum(t.totalBytes for t in told),
        }

    def _check(self, operation: str, size: int, total: int, handles: int) -> None:
        if operation == "READ":
            wrong = self.agent.memory.first_wrong_byte(self.seed, total)
        else:
            answer = self.channel.ask(
                do="check", seed=self.seed, bytes=total, handles=handles, wait_s=10.0
            )
            if not answer.get("heard"):
                raise ProbeError("the notice of an ended write never came")
            wrong = answer.get("wrong_byte")
        if wrong is not None:
            raise ProbeError(
                f"the data are wrong: a {operation.lower()} of {size} bytes ended, and byte "
                f"{wrong} is not what was sent"
            )


def initiate(channel: Channel, events: Events, asked: argparse.Namespace) -> None:
    """Every backend that loads on both sides, every operation, size and number of handles."""
    faults: list[str] = []
    for backend in asked.backends:
        try:
            initiator = Initiator(channel, events, backend, asked)
        except ProbeError as error:
            events.say("no_backend", backend=backend, why=str(error))
            faults.append(f"{backend}: {error}")
            continue
        events.say("backend", backend=backend, created_s=initiator.agent.created_s)
        for operation in asked.operations:
            for size in asked.sizes:
                for handles in asked.handles:
                    initiator.case(operation, size, handles)
    channel.send(do="over")
    if len(faults) == len(asked.backends):
        raise ProbeError(f"no backend loads ({'; '.join(faults)})")
    events.say("done")
