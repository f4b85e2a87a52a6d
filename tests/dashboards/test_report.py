"""A report's page: complete, escaped, well formed, and closed to the network."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from dashboards import report as report_module
from dashboards.report import COLOURS, render, require_plotly
from dashboards.report_model import Line, LineChart, Point, PointChart, Report, Table
from serving.errors import Misconfigured

VOID = {"meta", "br", "hr", "img", "input", "link"}
NUMBERS = Table(
    caption="The numbers",
    headings=("minute", "ours"),
    rows=(("0", "17"), ("1", "-")),
    word_columns=0,
)
LINES = LineChart(
    title="Ready replicas",
    look="Look for the dip.",
    y_title="replicas",
    unit="replicas",
    lines=(
        Line(name="ours", points=((0.0, 17.0), (1.0, None), (2.0, 3.0)), colour=0),
        Line(name="theirs", points=((0.0, 4.0), (2.0, 4.0)), colour=4, dotted=True),
    ),
    end_minute=2.0,
    numbers=NUMBERS,
)
POINTS = PointChart(
    title="Cost",
    look="Up and to the left.",
    points=(Point(name="ours", hours=10.5, attainment_ratio=0.98, colour=0),),
    target_ratio=0.99,
    numbers=NUMBERS,
)
REPORT = Report(
    title="Backtest",
    subtitle="Two policies.",
    facts=(("Requests", "90,472"), ("Seed", "1")),
    comparison=Table(
        caption="Comparison",
        headings=("policy", "setting", "attainment", "TTFT"),
        rows=(
            ("ours", "learns", "98.25%", "226 ms / 1.69 s"),
            ("theirs", "headroom +15% (*)", "97.43%", "- / -"),
        ),
        word_columns=2,
        emphasised=(0,),
        note="(*) not matched",
    ),
    charts=(LINES, POINTS),
    notes=(("Hours", "Everything provisioned."),),
    details=(Table(caption="Figures", headings=("figure", "value"), rows=(("base_s", "0.0262"),)),),
)


class Page(HTMLParser):
    """The page's elements and texts; fails on a tag that closes what is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        within = self.open[-1] if self.open else ""
        self.texts.setdefault(within, []).append(data)
        if "tr" in self.open and data.strip():
            self.rows[-1][-1] += data.replace("\u00a0", " ")

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def html() -> str:
    return render(REPORT)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def figures(page: Page) -> list[dict[str, Any]]:
    (text,) = [text for text in page.texts["script"] if text.startswith("[{")]
    found: list[dict[str, Any]] = json.loads(text)
    return found


def test_every_table_is_on_the_page_cell_by_cell(page: Page) -> None:
    tables = (REPORT.comparison, LINES.numbers, POINTS.numbers, *REPORT.details)

    assert page.rows == [list(row) for table in tables for row in (table.headings, *table.rows)]


def test_every_sentence_is_on_the_page(page: Page) -> None:
    shown = {text for texts in page.texts.values() for text in texts}
    said = {REPORT.title, REPORT.subtitle, "(*) not matched", LINES.look, POINTS.look}
    said |= {word for pair in (*REPORT.facts, *REPORT.notes) for word in pair}

    assert said - shown == set()


def test_the_page_loads_nothing_and_may_not(page: Page) -> None:
    loading = {"src", "href", "srcset", "data", "poster", "action", "style", "background"}
    (policy,) = [m["content"] for m in page.named("meta") if "http-equiv" in m]
    (style,) = page.texts["style"]

    assert [element for element in page.elements if loading & set(element[1])] == []
    assert not {"link", "iframe", "object", "embed", "img", "base"} & {t for t, _ in page.elements}
    assert re.search(r"url\(|@import|@font-face", style) is None
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_plotly_is_inside_once(html: str, page: Page) -> None:
    bundles = [text for text in page.texts["script"] if "plotly.js v" in text[:200]]

    assert len(bundles) == 1
    assert html.count("plotly.js v") == bundles[0].count("plotly.js v")


def test_the_page_is_well_formed(html: str, page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    referred = {
        attributes[name]
        for _, attributes in page.elements
        for name in ("aria-labelledby", "aria-describedby")
        if name in attributes
    }

    assert html.startswith("<!DOCTYPE html>")
    assert page.open == []
    assert len(ids) == len(set(ids))
    assert referred <= set(ids)
    assert [len(page.named(tag)) for tag in ("html", "head", "body", "main", "h1")] == [1] * 5
    assert page.named("html")[0]["lang"] == "en"


def test_every_box_that_scrolls_can_be_reached_and_is_named(page: Page) -> None:
    boxes = [a for a in page.named("div") if "scroll" in a.get("class", "").split()]

    assert len(boxes) == len(page.named("table")) == 4
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)


def test_light_and_dark_define_the_same_colours(page: Page) -> None:
    (style,) = page.texts["style"]
    light, dark = style.split("@media (prefers-color-scheme: dark)", 1)
    names = [set(re.findall(r"(--[a-z]+):", part)) for part in (light, dark)]
    used = set(re.findall(r'"(--[a-z]+)"', page.texts["script"][-1]))

    assert names[0] == names[1]
    assert used | set(re.findall(r"var\((--[a-z]+)\)", style)) == names[0]


def contrast_ratio(one: str, other: str) -> float:
    """Of two colours, by WCAG 2.1."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255.0 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_line_stands_out_from_both_grounds(colour: str, page: Page) -> None:
    grounds = re.findall(r"--ground: (#[0-9a-f]{6})", page.texts["style"][0])

    assert len(grounds) == 2
    assert min(contrast_ratio(colour, ground) for ground in grounds) >= 3.0


def test_charts_carry_the_values_and_a_gap_stays_a_gap(page: Page) -> None:
    lines, points = figures(page)

    assert [trace["name"] for trace in lines["data"]] == ["ours", "theirs"]
    assert lines["data"][0]["x"] == [0.0, 1.0, 2.0]
    assert lines["data"][0]["y"] == [17.0, None, 3.0]
    assert {trace["line"]["shape"] for trace in lines["data"]} == {"hv"}
    assert lines["layout"]["xaxis"]["range"] == [0.0, 2.0]
    assert [(t["x"], t["y"]) for t in points["data"]] == [([10.5], [0.98])]
    assert points["layout"]["shapes"][0]["y0"] == 0.99


@pytest.mark.parametrize(
    "ratios", [(1.0,), (0.0,), (0.98, 0.4), (0.999, 1.0), (0.03, 0.0)], ids=str
)
def test_no_point_lies_outside_its_axes(ratios: tuple[float, ...]) -> None:
    points = tuple(
        Point(name=str(i), hours=float(i), attainment_ratio=ratio, colour=i)
        for i, ratio in enumerate(ratios)
    )
    (figure,) = figures(Page(render(replace(REPORT, charts=(replace(POINTS, points=points),)))))
    (left, right), (low, high) = (figure["layout"][a]["range"] for a in ("xaxis", "yaxis"))

    assert left < right
    assert all(left <= point.hours <= right for point in points)
    assert all(low <= point.attainment_ratio <= high for point in points)


def test_text_is_text_wherever_it_stands() -> None:
    evil = '</script><script>alert("1")</script>&amp;<b>'
    table = Table(caption=evil, headings=(evil, evil), rows=((evil, evil),), note=evil)
    chart = replace(
        LINES,
        title=evil,
        look=evil,
        y_title=evil,
        numbers=table,
        lines=(replace(LINES.lines[0], name=evil),),
    )
    page = Page(
        render(
            Report(
                title=evil,
                subtitle=evil,
                facts=((evil, evil),),
                comparison=table,
                charts=(chart,),
                notes=((evil, evil),),
                details=(table,),
            )
        )
    )
    (figure,) = figures(page)

    assert len(page.named("script")) == 3
    assert page.named("b") == []
    assert page.texts["title"] == page.texts["h1"] == [evil]
    assert "<" not in figure["data"][0]["name"] + figure["layout"]["yaxis"]["title"]["text"]


def test_a_missing_extra_is_one_sentence_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "find_spec", lambda name: None)

    for refused in (require_plotly, lambda: render(REPORT)):
        with pytest.raises(Misconfigured, match=r"pip install 'phasewise\[report\]'"):
            refused()


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="every row needs 2 cells"):
        replace(NUMBERS, rows=(("0", "17"), ("1",)))
