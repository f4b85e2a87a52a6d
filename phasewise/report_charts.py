"""The report's charts: traffic, replicas, good requests and cost, each with its sentence.

Times are minutes since the window began. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from dashboards.report_model import Line, LineChart, Point, PointChart, Table
from phasewise.backtesting import POLICIES
from phasewise.scoring import Score
from serving.simulation.traffic import Request

SHORTEST_MINUTE_S = 10.0  # a last piece that is shorter gives no rate worth drawing
_TRAFFIC_COLOUR = 2  # of a fixed size, which needs no chart of traffic
_RISES = (
    "Look for steep rises: a new replica helps only after its start-up time, so whoever waits for "
    "the rise is late."
)
_SPLITS = (
    "Tokens are counted in the minute in which their request arrived. Look for where this does not "
    "follow the input: there the two pools need different changes."
)

Points = tuple[tuple[float, float | None], ...]


def _colour(policy: str) -> int:
    """The same policy has the same colour in every report; phasewise comes first."""
    return POLICIES.index(policy)


def offered_per_s(requests: Sequence[Request]) -> list[tuple[float, float, float]]:
    """(minute, input tokens per second, output tokens per second) of each minute of arrival.

    The last minute counts for as long as it lasts, and is left out below ten seconds.
    """
    end_s = requests[-1].arrival_s
    sums = [[0, 0] for _ in range(int(end_s // 60.0) + 1)]
    for arrival_s, input_tokens, output_tokens in requests:
        entry = sums[int(arrival_s // 60.0)]
        entry[0] += input_tokens
        entry[1] += output_tokens
    lasted_s = [min(60.0, end_s - 60.0 * minute) for minute in range(len(sums))]
    return [
        (float(minute), tokens_in / seconds, tokens_out / seconds)
        for minute, ((tokens_in, tokens_out), seconds) in enumerate(
            zip(sums, lasted_s, strict=True)
        )
        if seconds >= SHORTEST_MINUTE_S
    ]


def offered_charts(requests: Sequence[Request], end_s: float) -> tuple[LineChart, LineChart]:
    """Input and output tokens offered, each in a chart of its own: their sizes differ too much."""
    offered = offered_per_s(requests)
    last_minute = min(requests[-1].arrival_s / 60.0, float(len(offered)))
    return (
        _offered("Input", _held([(m, n) for m, n, _ in offered], last_minute), end_s, _RISES),
        _offered("Output", _held([(m, n) for m, _, n in offered], last_minute), end_s, _SPLITS),
    )


def _offered(kind: str, points: Points, end_s: float, look: str) -> LineChart:
    line = Line(name=f"{kind.lower()} tokens/s", points=points, colour=_TRAFFIC_COLOUR)
    title = f"{kind} tokens offered"
    return LineChart(
        title=title,
        look=look,
        y_title="tokens per second",
        unit="tokens_per_s",
        lines=(line,),
        end_minute=end_s / 60.0,
        numbers=_by_minute(title, (line,), lambda value: f"{value:,.0f}"),
    )


def replicas_chart(rows: Sequence[Score], phase: str, end_s: float) -> LineChart:
    """Ready replicas of one phase by policy, and what phasewise had asked for."""
    lines = []
    for row in rows:
        colour = _colour(row.policy)
        lines.append(
            Line(
                name=row.policy,
                points=_in_minutes(row.ready_timeline[phase], end_s),
                colour=colour,
            )
        )
        if row.policy == "phasewise":
            lines.append(
                Line(
                    name="phasewise, asked for",
                    points=_in_minutes(row.wanted_timeline[phase], end_s),
                    colour=colour,
                    dotted=True,
                )
            )
    title = f"Ready {phase} replicas"
    asked = any(line.dotted for line in lines)
    return LineChart(
        title=title,
        look="Replicas that take requests; starting and draining ones cost hours but are not shown."
        + (" The dotted line leads the solid one by the start-up time." if asked else "")
        + " Look for who rises before the traffic does, and who comes down after it.",
        y_title="replicas",
        unit="replicas",
        lines=tuple(lines),
        end_minute=end_s / 60.0,
        numbers=_by_minute(f"{title} at the start of each minute", lines, lambda v: f"{v:.0f}"),
    )


def good_chart(rows: Sequence[Score], end_s: float) -> LineChart:
    """The share of good requests by minute of arrival; a minute without requests is a gap."""
    lines = tuple(
        Line(
            name=row.policy,
            points=_held(
                [
                    (float(minute), good / arrived if arrived else None)
                    for minute, (arrived, good) in enumerate(row.minutes)
                ],
                float(len(row.minutes)),
            ),
            colour=_colour(row.policy),
        )
        for row in rows
    )
    title = "Good requests, by minute of arrival"
    return LineChart(
        title=title,
        look="The share of a minute's requests that met both targets. Look for dips after rises of "
        "traffic: there too few replicas were ready. The axis does not start at zero where no "
        "policy falls that low.",
        y_title="share of requests",
        unit="share",
        lines=lines,
        end_minute=end_s / 60.0,
        numbers=_by_minute(title, lines, lambda value: f"{value:.2%}"),
    )


def cost_chart(rows: Sequence[Score], target_ratio: float) -> PointChart:
    """One point for each policy: what it cost and what it achieved."""
    title = "Accelerator-hours against attainment"
    return PointChart(
        title=title,
        look="Better is up and to the left: more good requests for fewer hours. A policy that is "
        "below another and to its right is beaten on both. The dotted line is the tier's target of "
        f"{target_ratio * 100:g}%; neither axis starts at zero.",
        points=tuple(
            Point(
                name=row.policy,
                hours=row.total_hours,
                attainment_ratio=row.attainment_ratio,
                colour=_colour(row.policy),
            )
            for row in rows
        ),
        target_ratio=target_ratio,
        numbers=Table(
            caption=f"The numbers: {title}",
            headings=("policy", "accelerator-hours", "attainment"),
            rows=tuple(
                (row.policy, f"{row.total_hours:.2f}", f"{row.attainment_ratio:.2%}")
                for row in rows
            ),
        ),
    )


def _in_minutes(timeline: Sequence[tuple[float, int]], end_s: float) -> Points:
    """A step function in minutes, held to the end; of several values at once the last holds."""
    last = {at_s: replicas for at_s, replicas in timeline if at_s <= end_s}
    return _held([(at_s / 60.0, float(n)) for at_s, n in last.items()], end_s / 60.0)


def _held(points: Sequence[tuple[float, float | None]], end_minute: float) -> Points:
    """The last value holds until the end."""
    return (*points, (end_minute, points[-1][1])) if points else ()


def _by_minute(caption: str, lines: Sequence[Line], shown: Callable[[float], str]) -> Table:
    """The lines' values at the start of each minute; `-` where there is none."""
    end_minute = max((line.points[-1][0] for line in lines if line.points), default=0.0)
    minutes = range(ceil(end_minute))
    columns = [_at_minutes(line.points, minutes) for line in lines]
    return Table(
        caption=f"The numbers: {caption}",
        headings=("minute", *(line.name for line in lines)),
        rows=tuple(
            (str(minute), *(_shown(column[minute], shown) for column in columns))
            for minute in minutes
        ),
        word_columns=0,
    )


def _shown(value: float | None, shown: Callable[[float], str]) -> str:
    return "-" if value is None else shown(value)


def _at_minutes(points: Points, minutes: Sequence[int]) -> list[float | None]:
    """The values of a step function at whole minutes."""
    values: list[float | None] = []
    position, value = 0, None
    for minute in minutes:
        while position < len(points) and points[position][0] <= minute:
            value = points[position][1]
            position += 1
        values.append(value)
    return values
