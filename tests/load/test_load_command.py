"""`phasewise load`: one table, and one sentence for whatever is wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from phasewise import cli, loading
from serving.load.outcomes import Outcomes, RequestOutcome, read_json_lines, totals
from tests.load.fake_server import Behave, FakeServer, answers, serving, streams


class Elsewhere:
    """A fake server on a loop of its own, as a command that runs its own loop needs it."""

    def __init__(self, *behaviours: Behave) -> None:
        self._behaviours = behaviours
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._down: asyncio.Event | None = None
        self.server: FakeServer | None = None
        self._thread = threading.Thread(target=self._run)

    async def _serve(self) -> None:
        self._down = asyncio.Event()
        async with serving(*self._behaviours) as self.server:
            self._up.set()
            await self._down.wait()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    def __enter__(self) -> FakeServer:
        self._thread.start()
        assert self._up.wait(20)
        assert self.server is not None
        return self.server

    def __exit__(self, *_: object) -> None:
        assert self._down is not None
        self._loop.call_soon_threadsafe(self._down.set)
        self._thread.join(20)
        self._loop.close()


@pytest.fixture
def streaming() -> Iterator[FakeServer]:
    with Elsewhere(streams) as server:
        yield server


def _load(url: str, *arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(["load", "--url", url, "--model", "tiny", "--headless", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def _trace(folder: Path) -> str:
    file = folder / "trace.csv"
    rows = "".join(f"{at / 1000},{100 + at},{10 + at}\n" for at in range(20))
    file.write_text("t_s,input_tokens,output_tokens\n" + rows)
    return str(file)


def test_a_trace_is_played_and_every_request_kept(
    streaming: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "requests.jsonl"

    code = _load(
        streaming.url,
        *("--trace", _trace(tmp_path), "--input-factor", "0.5", "--output-cap", "12"),
        *("--requests-file", str(kept)),
    )

    assert code == 0
    requests = read_json_lines(kept.read_text().splitlines(), where=str(kept))
    assert [one.input_tokens for one in requests] == [round((100 + at) / 2) for at in range(20)]
    assert [one.output_tokens for one in requests] == [min(12, 10 + at) for at in range(20)]
    assert totals(requests).failed == 0
    shown = capsys.readouterr().out
    assert "20 in" in shown
    assert "good requests" in shown
    assert "sender's own lag" in shown


def test_mixes_take_the_traces_place(streaming: FakeServer) -> None:
    code = _load(
        streaming.url,
        *("--mix", "rate=400,input=9/3,output=2,seconds=0.05"),
        *("--mix", "rate=400,input=30,output=3,seconds=0.05"),
    )

    assert code == 0
    lengths = [len(body["prompt"]) for body in streaming.bodies]
    assert 30 in lengths
    assert set(lengths) <= {6, 7, 8, 9, 10, 11, 12, 30}


def test_failures_are_in_the_table_and_no_reason_to_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Elsewhere(streams, answers(500, "prefill is gone")) as server:
        assert _load(server.url, "--trace", _trace(tmp_path)) == 0

    shown = capsys.readouterr().out
    assert "19 (19 server error); the first: answered 500: prefill is gone" in shown
    assert "5.00%" in shown


def test_a_target_that_refuses_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        url = f"http://127.0.0.1:{one.getsockname()[1]}"

    assert _load(url, "--trace", _trace(tmp_path)) == cli.EXIT_UNAVAILABLE
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"phasewise: {url}/v1/completions refuses every request: cannot connect: Connection refused"
    )


def test_an_interrupted_load_shows_and_keeps_what_came(
    streaming: FakeServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second request is an hour away: only the interrupt ends this."""
    trace, kept = tmp_path / "trace.csv", tmp_path / "requests.jsonl"
    trace.write_text("t_s,input_tokens,output_tokens\n0,10,3\n3600,10,3\n")

    noted = loading._Screen.ended

    def interrupted(screen: loading._Screen, outcome: RequestOutcome) -> None:
        noted(screen, outcome)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loading._Screen, "ended", interrupted)
    code = _load(streaming.url, "--trace", str(trace), "--requests-file", str(kept))

    assert code == cli.EXIT_INTERRUPTED
    said = " ".join(capsys.readouterr().out.split())
    assert "interrupted: 0 more were under way" in said
    (one,) = read_json_lines(kept.read_text().splitlines(), where=str(kept))
    assert one.counted_tokens == 3


BAD = {
    "url": (("--url", "nowhere"), "--url"),
    "model": (("--model", ""), "--model"),
    "trace": (("--trace", "no-such"), "no-such"),
    "rate": (("--rate-factor", "0"), "--rate-factor"),
    "seconds": (("--seconds", "-1"), "--seconds"),
    "endless": (("--seconds", "1e308"), "--seconds"),
    "endless-mix": (("--mix", f"rate=0.1,input=9,output=2,seconds={10**300}"), "--mix"),
    "window": (("--from", "1e9"), "nothing is left to send"),
    "mix": (("--mix", "rate=1"), "--mix"),
    "share": (("--shared-prefix", "2"), "--shared-prefix"),
    "ttft": (("--ttft", "nan"), "--ttft"),
    "itl": (("--itl", "0"), "--itl"),
    "timeout": (("--timeout", "inf"), "--timeout"),
    "timeout-of-ages": (("--timeout", "1e308"), "--timeout"),
    "file": (("--requests-file", "/no/such/folder/file"), "--requests-file"),
}


@pytest.mark.parametrize(("arguments", "said"), BAD.values(), ids=BAD)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _load("http://127.0.0.1:9", *arguments) == cli.EXIT_MISCONFIGURED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("phasewise: ")
    assert said in line


@pytest.mark.parametrize(("lag_s", "said"), [(0.0, False), (0.05, False), (0.7, True)])
def test_a_sender_that_was_late_says_so(lag_s: float, said: bool) -> None:
    late = RequestOutcome(
        request_id="run-1",
        trace_id="1",
        input_tokens=1,
        output_tokens=1,
        scheduled_s=1.0,
        sent_s=1.0 + lag_s,
        ended_s=3.0,
    )

    note = loading.late_note(Outcomes(requests=(late,) * 10, wall_s=3.0, sender_cpu_s=0.1))

    assert (note is not None) is said
    assert note is None or "700.0 ms late" in note
