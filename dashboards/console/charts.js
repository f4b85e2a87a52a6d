// Histories as charts and, always, as tables. Plotly comes from the control plane itself; without
// it the tables remain. A value that is not known is a gap in a line and "unknown" in a table.

import { byId, make, setHidden, setText, table } from "./dom.js";
import { chartsOf } from "./chart_model.js";
import { clock, zone } from "./format.js";

const PLOTLY = "static/plotly.min.js";
const ROWS_AT_MOST = 240;
const touch = matchMedia("(pointer: coarse)").matches;
const MINUTE_MS = 60_000;
// in a chart of minutes every tick would have the same name without its seconds
const CLOCK = [
  { dtickrange: [null, MINUTE_MS - 1], value: "%H:%M:%S" },
  { dtickrange: [MINUTE_MS, null], value: "%H:%M" },
];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const loadPlotly = (onReady, onAbsent) => {
  const script = document.createElement("script");
  script.src = PLOTLY;
  script.addEventListener("load", onReady);
  script.addEventListener("error", onAbsent);
  document.head.append(script);
};

const layoutOf = (chart) => {
  const [ground, ink, quiet, line] = ["--ground", "--ink", "--quiet", "--line"].map(colour);
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickfont: { color: quiet }, automargin: true };
  return {
    margin: { l: 8, r: 12, t: 8, b: 8 },
    font: { family: "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif", size: 13, color: ink },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hovermode: "x unified",
    hoverlabel: { bgcolor: ground, bordercolor: line, font: { color: ink } },
    dragmode: touch ? false : "zoom",
    showlegend: true,
    legend: { orientation: "h", x: 0, xanchor: "left", y: -0.16, yanchor: "top", traceorder: "normal" },
    uirevision: chart.key, // a zoom outlives the next tick
    xaxis: { ...axis, type: "date", hoverformat: "%H:%M:%S", tickformatstops: CLOCK, nticks: 6 },
    yaxis: { ...axis, rangemode: "tozero", tickformat: chart.tickformat, ...(chart.range ? { range: chart.range } : {}), ...(chart.step ? { dtick: chart.step } : {}) },
  };
};

const traceOf = (line) => ({
  type: "scatter",
  mode: "lines",
  connectgaps: false,
  name: line.name,
  x: line.x,
  y: line.y,
  line: { color: colour(line.colour), width: line.width ?? 2, dash: line.dash ?? "solid", shape: line.steps ? "hv" : "linear" },
  fill: line.fill ?? "none",
  fillcolor: line.fill ? colour(line.fillColour) : undefined,
  hovertemplate: `%{y:${line.format}}${line.unit}<extra>${line.name}</extra>`,
  hoverinfo: line.silent ? "skip" : undefined,
  showlegend: line.legend ?? true,
});

const numbersOf = (chart) => {
  const first = Math.max(0, chart.at_s.length - ROWS_AT_MOST);
  const rows = chart.at_s.slice(first).map((at_s, index) => ({ at_s, index: first + index }));
  const columns = [
    { head: `Time, ${zone(chart.at_s.at(-1))}`, rowHead: true, cell: (row) => clock(row.at_s) },
    ...chart.series.map((series) => ({
      head: series.unit ? `${series.name}, ${series.unit}` : series.name,
      number: true,
      cell: (row) => series.words(series.values[row.index] ?? null),
    })),
  ];
  return table(`${chart.title}, newest first`, columns, rows.reverse());
};

export class Charts {
  #plotly = null;
  #absent = false;
  #view = null;
  #parts = new Map();

  constructor() {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw(this.#view));
    loadPlotly(
      () => {
        this.#plotly = globalThis.Plotly;
        this.draw(this.#view);
      },
      () => {
        this.#absent = true;
        const note = byId("charts-note");
        setText(note, "No charts: this control plane has no plotly (pip install 'phasewise[report]'). The same numbers stand in tables.");
        setHidden(note, false);
        this.draw(this.#view);
      },
    );
  }

  draw(view) {
    this.#view = view;
    if (view === null) return;
    const charts = chartsOf(view);
    const keys = new Set(charts.map((chart) => chart.key));
    for (const [key, part] of this.#parts) {
      if (!keys.has(key)) {
        this.#plotly?.purge(part.plot);
        part.figure.remove();
        this.#parts.delete(key);
      }
    }
    for (const chart of charts) this.#drawOne(chart);
  }

  #drawOne(chart) {
    if (!this.#parts.has(chart.key)) this.#parts.set(chart.key, this.#begin(chart));
    const part = this.#parts.get(chart.key);
    part.chart = chart;
    setText(part.now, chart.now);
    part.plot.setAttribute("aria-label", `Chart: ${chart.title}. Now: ${chart.now}`);
    setHidden(part.plot, this.#absent);
    if (this.#absent && !part.opened) {
      part.opened = true;
      part.details.open = true;
    }
    if (part.details.open) this.#drawNumbers(part);
    if (this.#plotly) {
      const options = { responsive: true, displayModeBar: false };
      this.#plotly.react(part.plot, chart.lines.map(traceOf), layoutOf(chart), options);
    }
  }

  #begin(chart) {
    const title = make("h3", {}, chart.title);
    const now = make("p", { class: "now" });
    const plot = make("div", { class: "plot", role: "img" });
    const rows = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Numbers of: ${chart.title}` });
    const details = make("details", {}, make("summary", {}, `Numbers: ${chart.title}`), rows);
    const figure = make("div", { class: "chart" }, title, now, plot, details);
    const part = { figure, now, plot, details, rows, chart, opened: false };
    details.addEventListener("toggle", () => this.#drawNumbers(part));
    byId("charts").append(figure);
    return part;
  }

  #drawNumbers(part) {
    if (part.details.open) part.rows.replaceChildren(numbersOf(part.chart));
  }
}
