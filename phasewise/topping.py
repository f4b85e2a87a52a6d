"""`phasewise top`: a tier in the terminal, live: pools, ratio, history, decisions, sources.

Draws a view's JSON; computes nothing but the little charts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from phasewise.explaining import number, share
from phasewise.times import when
from phasewise.watching import Watched
from serving.errors import Unavailable

REFRESH_S = 1.0
_BARS = "▁▂▃▄▅▆▇█"
_SHOWN_DECISIONS = 8
_UNIX_FROM_S = 1e9  # earlier times are virtual
_COLOURS = {"fresh": "green", "stale": "yellow", "silent": "red", "unknown": "red"}


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The last values as bars from zero; a gap where one is not known."""
    shown = list(values)[-width:]
    largest = max((v for v in shown if v is not None), default=0.0)
    steps = len(_BARS) - 1
    return "".join(
        " " if v is None else _BARS[0 if largest <= 0.0 else round(steps * max(0.0, v) / largest)]
        for v in shown
    )


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, justify in columns:
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    return table


def _pools(view: Mapping[str, Any], width: int) -> Table:
    table = _table(
        ("pool", "left"),
        ("need", "right"),
        ("decided", "right"),
        ("desired", "right"),
        ("ready", "right"),
        ("starting", "right"),
        ("draining", "right"),
        ("binds", "left"),
        ("ready over time", "left"),
        ("why", "left"),
    )
    for pool in view["pools"]:
        asked = pool["override"]
        words = f"{pool['reason']}: {pool['words']}" if pool["words"] else pool["reason"]
        if asked is not None:
            size = "" if asked["replicas"] is None else f" {asked['replicas']}"
            left_s = asked["until_s"] - view["at_s"]
            words = f"[{asked['kind']}{size} by {asked['by']}, {left_s:.0f} s left] {words}"
        table.add_row(
            f"{pool['name']} ({pool['phase']})",
            number(pool["wanted"]),
            number(pool["decided"]),
            number(pool["desired"]),
            number(pool["ready"]),
            number(pool["starting"]),
            number(pool["draining"]),
            pool["binds"] or "unknown",
            sparkline(view["history"]["pools"][pool["name"]]["ready"], width),
            Text(words),
        )
    return table


def _flows(view: Mapping[str, Any], width: int) -> Table:
    table = _table(
        ("tokens/s", "left"),
        ("demand", "right"),
        ("upper forecast", "right"),
        ("provided", "right"),
        ("demand over time", "left"),
    )
    history = view["history"]
    for name, field in (("input", "prefill_tokens_per_s"), ("output", "output_tokens_per_s")):
        fan = view["fan"]["prefill" if name == "input" else "output"]
        table.add_row(
            name,
            number(history["demand"][field][-1]),
            "unknown" if fan is None else number(fan["upper_per_s"]),
            number(history["provided"][field][-1]),
            sparkline(history["demand"][field], width),
        )
    return table


def _decisions(view: Mapping[str, Any]) -> Table:
    table = _table(("at", "right"), ("pool", "left"), ("change", "left"), ("why", "left"))
    for said in view["decisions"][:_SHOWN_DECISIONS]:
        hold = said["before"] == said["after"]
        change = (
            f"stays at {number(said['after'])}"
            if hold
            else f"{number(said['before'])} -> {number(said['after'])}"
        )
        times = f" ({said['ticks']} ticks)" if said["ticks"] > 1 else ""
        words = f"{said['reason']}: {said['words']}" if said["words"] else said["reason"]
        table.add_row(when(said["at_s"]), said["pool"], change + times, Text(words))
    return table


def _sources(view: Mapping[str, Any]) -> Table:
    table = _table(("source", "left"), ("state", "left"), ("age", "right"), ("words", "left"))
    for source in view["sources"]:
        age_s = source["age_s"]
        table.add_row(
            source["name"],
            Text(source["state"], style=_COLOURS[source["state"]]),
            "never" if age_s is None else f"{age_s:.0f} s",
            Text(source["words"]),
        )
    return table


def _age(view: Mapping[str, Any], now_s: float | None) -> Text:
    """How old the tick is, loud once another should have come; a virtual one has no age."""
    if now_s is None or view["at_s"] < _UNIX_FROM_S:
        return Text("")
    age_s = max(0.0, now_s - view["at_s"])
    old = age_s > 2.0 * view["tick_s"]
    return Text(f"  {age_s:.0f} s ago{': stale' if old else ''}", style="yellow" if old else "")


def screen(view: Mapping[str, Any], *, width: int, now_s: float | None = None) -> RenderableType:
    """The whole picture; `now_s` is the time by this machine's clock."""
    history, slo = view["history"], view["slo"]
    bars = max(10, min(60, width // 3))
    head = Text.assemble(
        (f"{view['tier']}", "bold"),
        f"  mode {view['mode']}  tick {view['epoch']} at {when(view['at_s'])}",
        _age(view, now_s),
        "\n",
        f"TTFT within {slo['ttft_s']:g} s: {share(history['ttft_within_slo_ratio'][-1])}   ",
        f"gap within {slo['itl_s'] * 1000:g} ms: {share(history['tpot_within_slo_ratio'][-1])}   ",
        f"(wanted {share(slo['attainment_ratio'])})   ",
        f"prefill:decode demanded {number(history['demand_ratio'][-1])}, ",
        f"ready {number(history['replica_ratio'][-1])}\n",
    )
    parts: list[RenderableType] = [head, _pools(view, min(bars, 30)), "", _flows(view, bars), ""]
    if view["decisions"]:
        parts += [_decisions(view), ""]
    parts.append(_sources(view))
    if view["problems"]:
        parts += ["", Text("\n".join(view["problems"][:5]), style="yellow")]
    return Group(*parts)


def watch(
    source: Watched,
    console: Console,
    *,
    once: bool,
    wait: Callable[[float], None] = time.sleep,
    unix_s: Callable[[], float] = time.time,  # noqa: TID251 - the edge
    rounds: int | None = None,
) -> None:
    """Draw once, or again and again until interrupted (or for so many rounds).

    What does not answer is said in place of the picture, and asked again.
    """
    if once:
        console.print(screen(source.view(), width=console.width, now_s=unix_s()))
        return
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        drawn = 0
        while rounds is None or drawn < rounds:
            try:
                live.update(
                    screen(source.view(), width=console.width, now_s=unix_s()), refresh=True
                )
            except Unavailable as error:
                live.update(Text(error.what, style="yellow"), refresh=True)
            drawn += 1
            wait(REFRESH_S)
