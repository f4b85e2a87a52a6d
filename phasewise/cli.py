"""The command line: finds the command, and turns the two errors into one sentence and an exit code.

Exit codes: 0 done, 1 a check found something, 2 something a person must put right, 3 something
outside did not answer, 130 interrupted, 143 ended by a signal. Command modules stay light: they
import what they need when they are called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Protocol

import typer

from phasewise.commands import (
    backtest,
    check,
    compare_engines,
    demo,
    demo_vllm,
    doctor,
    explain,
    init,
    load,
    local,
    probe,
    render,
    replay,
    run,
    serve,
    simulate,
    startups,
    top,
    traces,
)
from serving.errors import Misconfigured, Unavailable

EXIT_MISCONFIGURED = 2
EXIT_UNAVAILABLE = 3
EXIT_INTERRUPTED = 130


class CommandModule(Protocol):
    """A module in `phasewise.commands`; the command is called like the module."""

    __name__: str
    EXAMPLE: str

    @property
    def command(self) -> Callable[..., None]:
        """The function whose parameters are the options and whose docstring is the help."""


COMMANDS: tuple[CommandModule, ...] = (
    demo,
    demo_vllm,
    run,
    simulate,
    local,
    load,
    backtest,
    compare_engines,
    replay,
    check,
    doctor,
    probe,
    startups,
    init,
    render,
    serve,
    explain,
    top,
    traces,
)


def command_name(module: CommandModule) -> str:
    """What a person types for it."""
    return module.__name__.rpartition(".")[2].replace("_", "-")


def build_app() -> typer.Typer:
    """The whole command line, with one example under the help of every command."""
    app = typer.Typer(
        name="phasewise",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(epilog="Example: phasewise check tier.yaml")(_root)
    for module in COMMANDS:
        name, epilog = command_name(module), f"Example: {module.EXAMPLE}"
        parts: Mapping[str, Callable[..., None]] = getattr(module, "SUBCOMMANDS", {})
        if not parts:
            app.command(name, epilog=epilog)(module.command)
            continue
        group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
        group.callback()(module.command)
        for part, function in parts.items():
            group.command(part, epilog=epilog)(function)
        app.add_typer(group, name=name, epilog=epilog)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line and exit; `arguments` are those of the process where absent."""
    try:
        build_app()(args=arguments, prog_name="phasewise")
    except Misconfigured as error:
        _stop(str(error), EXIT_MISCONFIGURED)
    except Unavailable as error:
        _stop(str(error), EXIT_UNAVAILABLE)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _stop(sentence: str, code: int) -> None:
    typer.echo(f"phasewise: {sentence}", err=True)
    sys.exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"phasewise {version('phasewise')}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Watch a disaggregated LLM serving tier phase by phase, and keep its pools the right size."""
