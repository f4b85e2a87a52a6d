"""`phasewise render dashboards`: the *Tier* dashboard as a file that Grafana takes in.

One file serves every tier: which one is shown is chosen at its top.
"""

from __future__ import annotations

import json

from phasewise.rendering import RenderRequest
from serving.errors import Misconfigured


def render(asked: RenderRequest) -> dict[str, str]:
    """The dashboards by file name. Raises Misconfigured where grafanalib is not installed."""
    try:
        from dashboards.grafana import dashboard
    except ModuleNotFoundError as error:
        raise Misconfigured(
            "dashboards need a package that is not installed",
            where="render dashboards",
            found=f"no {error.name}",
            expected='pip install "phasewise[render]"',
        ) from error
    from dashboards.tier import board

    made = dashboard(board(), runbooks=asked.runbooks)
    return {"phasewise-tier.json": json.dumps(made, indent=2, ensure_ascii=False) + "\n"}
