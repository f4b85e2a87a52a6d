"""`phasewise demo-vllm`: see the main job done on real engines, without an accelerator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise demo-vllm --headless --json out/demo-vllm.json"


def command(
    seed: Annotated[int, typer.Option(help="Seed of prompts and arrivals.")] = 1,
    headless: Annotated[bool, typer.Option(help="Open no browser.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Keep the figures in this file.")
    ] = None,
    ledger: Annotated[
        Path, typer.Option(help="Where every tick is kept; an old one is replaced.")
    ] = Path("out/demo-vllm.sqlite"),
) -> None:
    """Size real vLLM engines that move KV through NIXL, while the mix of a real load flips."""
    from phasewise.ending import sigterm_interrupts
    from phasewise.terminal import wide_console
    from phasewise.vllm_demo.run import VllmDemoRequest, run_vllm_demo

    asked = VllmDemoRequest(seed=seed, headless=headless, json_file=json_file, ledger_file=ledger)
    with sigterm_interrupts():
        if not run_vllm_demo(asked, wide_console()):
            raise typer.Exit(1)
