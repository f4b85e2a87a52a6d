"""A local tier as seen by another process: started in the background, and asked how it is."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phasewise.local_down import make_folder, refuse_running
from phasewise.local_request import UpRequest
from serving.errors import Unavailable
from serving.local.run_state import read_state, supervisor_of

_SERVES_WITHIN_S = 1800.0
_LAST_EVENTS = 8


def up_in_background(asked: UpRequest, *, say: Callable[[str], None]) -> None:
    """Start it as a process of its own, and come back once it serves."""
    make_folder(asked.folder)
    refuse_running(asked.folder)
    said = asked.folder / "up.log"
    options = {
        "--tier": str(asked.tier_file),
        "--engine": asked.engine,
        "--port": str(asked.port),
        "--folder": str(asked.folder),
        "--trace": asked.trace,
        "--volume": asked.volume,
        "--otlp-endpoint": asked.otlp_endpoint,
        "--ucx-tls": asked.ucx_tls,
    }
    argv = [sys.executable, "-m", "phasewise", "local", "up", "--headless"]
    for name, value in options.items():
        argv += [] if value is None else [name, value]
    with said.open("w") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    end_s, shown = time.monotonic() + _SERVES_WITHIN_S, 0
    while time.monotonic() < end_s:
        lines = said.read_text(errors="replace").splitlines()
        for line in lines[shown:]:
            say(line)
        shown = len(lines)
        if process.poll() is not None:
            raise SystemExit(process.returncode)
        state = read_state(asked.folder)
        if state is not None and state.get("control") and _serves(state):
            return
        time.sleep(0.2)
    raise Unavailable(f"the tier does not serve after {_SERVES_WITHIN_S:g} s: see {said}")


def status_lines(folder: Path) -> list[str]:
    """What is up, as lines for a person."""
    state = read_state(folder)
    if state is None:
        return ["nothing is up"]
    pid = supervisor_of(state)
    if pid is None:
        return [
            f"the supervisor of tier {state.get('tier')} is gone; "
            "`phasewise local down` takes away what it left"
        ]
    control = str(state.get("control"))
    lines = [f"tier {state.get('tier')} ({state.get('engine')}), control {control}, process {pid}"]
    if state.get("router"):
        lines.append(f"router {state['router']}")
    for group in _get(control, "/sd") or []:
        labels = group["labels"]
        if "replica" in labels:
            stage = labels.get("__meta_phasewise_stage")
            told = f"{labels['__meta_phasewise_state']}{f': {stage}' if stage else ''}"
            lines.append(f"{labels['replica']} ({labels['phase']}) {told}, {group['targets'][0]}")
    events = _get(control, "/events") if state.get("engine") == "vllm" else []
    lines += [f"{_clock(e['at_s'])} {e['kind']}: {e['words']}" for e in events[-_LAST_EVENTS:]]
    return lines


def _serves(state: dict[str, Any]) -> bool:
    control = str(state["control"])
    try:
        if state.get("engine") != "vllm":
            return bool(_get(control, "/healthz", as_json=False) == "ok")
        return bool(_get(control, "/status")["serves"])
    except Unavailable:
        return False


def _get(control: str, path: str, *, as_json: bool = True) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{control}{path}", timeout=5.0) as answer:
            body = answer.read().decode()
    except OSError as error:
        raise Unavailable(f"{control}{path} does not answer: {error}") from error
    return json.loads(body) if as_json else body


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
