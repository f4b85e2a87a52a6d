"""`phasewise render`: files for what a cluster already has, made from a tier."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "phasewise render keda out/keda --tier tier.yaml"

KINDS = {  # what a person asks for: the module whose render() makes it, imported when asked
    "keda": "phasewise.render_keda",
    "dashboards": "phasewise.render_dashboards",
    "alerts": "phasewise.render_alerts",
}


def command(
    kind: Annotated[str, typer.Argument(help=f"What to make: {', '.join(KINDS)}.")],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the files go; made if it is not there.")
    ],
    tier: Annotated[
        Path | None, typer.Option(help="The tier document; the demo's tier where absent.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="The settings file, in place of a tier: all its tiers."
        ),
    ] = None,
    scaler_address: Annotated[
        str | None,
        typer.Option(
            help="keda: where KEDA finds `phasewise serve`, HOST:PORT; "
            "phasewise-serve.NAMESPACE.svc:6000 where absent."
        ),
    ] = None,
    tls: Annotated[
        bool,
        typer.Option(help="keda: speak TLS, with the certificates of the secret phasewise-keda."),
    ] = False,
    runbooks: Annotated[
        str, typer.Option(help="alerts, dashboards: address of the folder with the runbooks.")
    ] = "https://runbooks.example/phasewise",
    grafana: Annotated[
        str, typer.Option(help="alerts: address of Grafana.")
    ] = "http://localhost:3000",
) -> None:
    """Write the files of one kind for a tier into a folder, and say which."""
    from phasewise.rendering import RenderRequest, render_into, rules_record, tiers_of

    asked = RenderRequest(
        tiers=tiers_of(tier=tier, config=config),
        scaler_address=scaler_address,
        tls=tls,
        runbooks=runbooks.rstrip("/"),
        grafana=grafana.rstrip("/"),
        rules_record=rules_record(config),
    )
    for file in render_into(folder, kind, KINDS, asked):
        typer.echo(file)
