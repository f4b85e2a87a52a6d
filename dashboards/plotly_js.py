"""Where plotly's own bundled script lies, without importing plotly. Pure but for looking it up."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def plotly_js_file() -> Path | None:
    """The script in the installed plotly package; `None` where that extra is not installed."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    return file if file.is_file() else None
