"""A report as one HTML page that needs no network: plotly's script, styles and data are inside.

The only file that imports plotly, which is an extra. The page's policy forbids it to load anything.
Every chart's numbers are also a table, for whoever reads with a keyboard or a screen reader.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from dashboards.report_model import LineChart, PointChart, Report, Table
from serving.errors import Misconfigured

# readable on white and on the dark ground, and told apart by colour-blind eyes; 0 is the subject
COLOURS = ("#2f7fe0", "#d8720c", "#8f8f98", "#1f9d6b", "#c2549d")
DASHES = ("solid", "dash", "longdash", "dashdot", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x")
FORMATS = {"tokens_per_s": (",~f", ",.0f"), "replicas": ("d", "d"), "share": (".0%", ".1%")}
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def require_plotly() -> None:
    """Refuse early, in one sentence, where the extra is not installed."""
    if find_spec("plotly") is None:
        raise Misconfigured(
            "an HTML report is drawn by plotly",
            where="--html",
            found="no plotly",
            expected="that of pip install 'phasewise[report]'",
        )


def render(report: Report) -> str:
    """The page. Its charts follow the reader's light or dark scheme, also when that changes."""
    require_plotly()
    from plotly.offline import get_plotlyjs

    assets = files("dashboards")
    figures = [_figure(chart) for chart in report.charts]
    data = json.dumps(figures, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    charts = "\n".join(_chart(index, chart) for index, chart in enumerate(report.charts))
    facts = "\n".join(
        f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>"
        for label, value in report.facts
    )
    notes = "\n".join(
        f"<h3>{escape(heading)}</h3>\n<p>{escape(text)}</p>" for heading, text in report.notes
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(report.title)}</title>
<style>
{assets.joinpath("report.css").read_text("utf-8")}</style>
</head>
<body>
<header>
<h1>{escape(report.title)}</h1>
<p>{escape(report.subtitle)}</p>
<dl class="facts">
{facts}
</dl>
</header>
<main>
<section aria-labelledby="comparison">
<h2 id="comparison">{escape(report.comparison.caption)}</h2>
{_table(report.comparison, cards=True)}
</section>
<noscript><p class="note">The plots need JavaScript; the numbers under each do not.</p></noscript>
<div class="charts">
{charts}
</div>
<section aria-labelledby="notes">
<h2 id="notes">How to read this</h2>
{notes}
{"".join(_folded(table, cards=True) for table in report.details)}
</section>
</main>
<script>{get_plotlyjs()}</script>
<script type="application/json" id="figures">{data}</script>
<script>
{assets.joinpath("report.js").read_text("utf-8")}</script>
</body>
</html>
"""


# ---- HTML


def _table(table: Table, *, cards: bool) -> str:
    """A table that scrolls in its own box; with `cards` its rows become cards on a narrow page."""

    def kind(index: int) -> str:
        return "" if index < table.word_columns else ' class="number"'

    head = "".join(
        f'<th scope="col"{kind(index)}>{escape(heading)}</th>'
        for index, heading in enumerate(table.headings)
    )
    body = []
    for number, row in enumerate(table.rows):
        style = ' class="subject"' if number in table.emphasised else ""
        first = f'<th scope="row"{kind(0)}>{escape(row[0])}</th>'
        others = "".join(
            f'<td{kind(index)} data-label="{escape(table.headings[index])}">'
            f"<span>{escape(cell if index < table.word_columns else _unbroken(cell))}</span></td>"
            for index, cell in enumerate(row[1:], start=1)
        )
        body.append(f"<tr{style}>{first}{others}</tr>")
    label, style = escape(table.caption), "scroll cards" if cards else "scroll"
    note = "" if table.note is None else f'\n<p class="note">{escape(table.note)}</p>'
    return (
        f'<div class="{style}" role="region" aria-label="{label}" tabindex="0">\n<table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(body) + "\n</tbody>\n"
        f"</table>\n</div>{note}"
    )


def _unbroken(cell: str) -> str:
    """A number stays with its unit; of two numbers the second may go to the next line."""
    return cell.replace(" ", "\u00a0").replace("/\u00a0", "/ ")


def _folded(table: Table, *, cards: bool) -> str:
    return (
        f"<details>\n<summary>{escape(table.caption)}</summary>\n"
        f"{_table(table, cards=cards)}\n</details>\n"
    )


def _chart(index: int, chart: LineChart | PointChart) -> str:
    many = " many" if isinstance(chart, LineChart) and len(chart.lines) > 4 else ""
    return f"""<section class="chart" aria-labelledby="chart-{index}">
<h2 id="chart-{index}">{escape(chart.title)}</h2>
<div class="plot{many}" role="img" aria-labelledby="chart-{index}" aria-describedby="look-{index}">
</div>
<p id="look-{index}" class="look">{escape(chart.look)}</p>
{_folded(chart.numbers, cards=False)}</section>"""


# ---- plotly


def _name(text: str) -> str:
    """Plotly reads some HTML in its own texts."""
    return escape(text, quote=False)


def _figure(chart: LineChart | PointChart) -> dict[str, Any]:
    """Data and layout as plotly's script takes them; colours of the ground are set in the page."""
    import plotly.graph_objects as go

    figure = go.Figure(layout={"template": "none"})
    if isinstance(chart, LineChart):
        _draw_lines(figure, chart)
    else:
        _draw_points(figure, chart)
    figure.update_layout(
        font={"family": FONT, "size": 13},
        margin={"l": 8, "r": 16, "t": 8, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )
    for axis in ("xaxis", "yaxis"):
        figure.update_layout({axis: {"automargin": True, "title": {"standoff": 10}}})
    drawn: dict[str, Any] = json.loads(figure.to_json())
    return drawn


def _draw_lines(figure: Any, chart: LineChart) -> None:
    ticks, hover = FORMATS[chart.unit]
    several = len(chart.lines) > 1
    for line in chart.lines:
        dash = "dot" if line.dotted else DASHES[line.colour % len(DASHES)]
        figure.add_scatter(
            name=_name(line.name),
            x=[minute for minute, _ in line.points],
            y=[value for _, value in line.points],
            mode="lines",
            line={
                "shape": "hv",
                "color": COLOURS[line.colour % len(COLOURS)],
                "width": 1.5 if line.dotted else 2.5 if line.colour == 0 else 2,
                "dash": dash if several else "solid",
            },
            cliponaxis=False,
        )
    values = [value for line in chart.lines for _, value in line.points if value is not None]
    figure.update_layout(
        showlegend=several,
        hovermode="x unified",
        xaxis={
            "title": {"text": "minutes since the window began"},
            "hoverformat": ".1f",
            "range": [0.0, chart.end_minute],
        },
        yaxis={
            "title": {"text": _name(chart.y_title)},
            "tickformat": ticks,
            "hoverformat": hover,
            "range": _share_range(values)
            if chart.unit == "share"
            else [0.0, 1.08 * max([*values, 1.0])],
        },
    )
    if chart.unit == "replicas" and max([*values, 1.0]) < 6:
        figure.update_yaxes(dtick=1)


def _draw_points(figure: Any, chart: PointChart) -> None:
    for point in chart.points:
        figure.add_scatter(
            name=_name(point.name),
            x=[point.hours],
            y=[point.attainment_ratio],
            mode="markers",
            marker={
                "size": 13,
                "color": COLOURS[point.colour % len(COLOURS)],
                "symbol": SYMBOLS[point.colour % len(SYMBOLS)],
            },
            cliponaxis=False,
        )
    hours = [point.hours for point in chart.points]
    ratios = [*(point.attainment_ratio for point in chart.points), chart.target_ratio]
    margin = max(0.15 * (max(hours) - min(hours)), 0.02 * max(hours), 0.01)
    figure.add_hline(y=chart.target_ratio, line={"color": COLOURS[2], "width": 1.5, "dash": "dot"})
    figure.update_layout(
        showlegend=True,
        hovermode="closest",
        xaxis={
            "title": {"text": "accelerator-hours"},
            "hoverformat": ".2f",
            "range": [max(0.0, min(hours) - margin), max(hours) + margin],
        },
        yaxis={
            "title": {"text": "attainment"},
            "tickformat": ".2~%",
            "hoverformat": ".2%",
            "range": _share_range(ratios),
        },
    )


def _share_range(ratios: list[float]) -> list[float]:
    """From a little under the lowest to a little over all of it."""
    span = max(1.0 - min([*ratios, 1.0]), 0.005)
    return [max(0.0, 1.0 - 1.1 * span) if span < 0.95 else 0.0, 1.0 + 0.04 * span]
