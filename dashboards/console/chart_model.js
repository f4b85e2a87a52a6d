// Which charts there are, from a view: their lines, their numbers and what they say now. Pure.

import { count, known, number, plotTime, rate, seconds, share } from "./format.js";
import { attainments, latest } from "./verdict.js";

const FEW = 6; // up to so many replicas an axis would be divided by halves, which do not exist
const missing = (length) => Array(length).fill(null);
const valuesOf = (values, length) => values ?? missing(length);

const series = (name, values, words, unit = "") => ({ name, values, words, unit });

const line = (x, s, colour, rest = {}) => ({ x, y: s.values, name: s.name, colour, ...rest });

const poolChart = (name, pool, history, x) => {
  const n = history.at_s.length;
  const states = [
    [series("wanted", valuesOf(pool.wanted, n), count), "--ink", { dash: "dot", width: 2 }],
    [series("desired", valuesOf(pool.desired, n), count), "--quiet", { dash: "dash", width: 1.5 }],
    [series("ready", valuesOf(pool.ready, n), count), pool.phase === "decode" ? "--decode" : "--prefill", { width: 3 }],
    [series("starting", valuesOf(pool.starting, n), count), "--starting", { width: 1.5, dash: "dashdot" }],
    [series("draining", valuesOf(pool.draining, n), count), "--draining", { width: 1.5, dash: "longdash" }],
  ];
  const now = states.map(([s]) => `${count(latest(s.values))} ${s.name}`).join(", ");
  return {
    key: `pool/${name}`,
    title: `Replicas of ${name}`,
    now,
    at_s: history.at_s,
    series: states.map(([s]) => s),
    tickformat: ",d",
    step: Math.max(...states.flatMap(([s]) => s.values).filter(known), 0) <= FEW ? 1 : null,
    lines: states.map(([s, colour, rest]) => line(x, s, colour, { format: ",d", unit: "", steps: true, ...rest })),
  };
};

// From what is now to what is expected a lead away, and up to what the pools are sized for.
const fanLines = (fan, at_s, colour, fillColour) => {
  if (!fan) return [];
  const x = [plotTime(at_s), plotTime(at_s + fan.lead_s)];
  const shape = { x, colour, format: ",.0f", unit: " tokens/s" };
  return [
    { ...shape, name: "expected ahead", y: [fan.level_per_s, fan.expected_per_s], dash: "dashdot", width: 2 },
    { ...shape, name: "sized for", y: [fan.level_per_s, fan.upper_per_s], dash: "dot", width: 1.5, fill: "tonexty", fillColour },
  ];
};

const flowChart = (view, x, { key, title, demandKey, fanKey, colour, fillColour }) => {
  const { history, fan } = view;
  const n = history.at_s.length;
  const foretold = history.forecast?.[fanKey] ?? {};
  const demand = series("demanded", valuesOf(history.demand[demandKey], n), number, "tokens/s");
  const provided = series("provided", valuesOf(history.provided[demandKey], n), number, "tokens/s");
  const expected = series("expected", valuesOf(foretold.expected_per_s, n), number, "tokens/s");
  const upper = series("sized for", valuesOf(foretold.upper_per_s, n), number, "tokens/s");
  const flow = { format: ",.0f", unit: " tokens/s" };
  const present = fan?.[fanKey] ?? null;
  const ahead = present
    ? `; in ${seconds(present.lead_s)} ${number(present.expected_per_s)} expected, sized for ${rate(present.upper_per_s)}`
    : "; no forecast yet";
  return {
    key,
    title,
    now: `${rate(latest(demand.values))} demanded, ${rate(latest(provided.values))} provided by ready replicas${ahead}`,
    at_s: history.at_s,
    series: [demand, provided, expected, upper],
    tickformat: ",~s",
    lines: [
      line(x, demand, colour, { ...flow, width: 2.5 }),
      line(x, provided, "--ink", { ...flow, dash: "dash", width: 1.5, steps: true }),
      line(x, upper, colour, { ...flow, width: 1, dash: "dot", legend: present === null }),
      ...fanLines(present, view.at_s, colour, fillColour),
    ],
  };
};

const ratioChart = (view, x) => {
  const { history } = view;
  const n = history.at_s.length;
  const demand = series("demand", valuesOf(history.demand_ratio, n), number);
  const replicas = series("replicas", valuesOf(history.replica_ratio, n), number);
  const shape = { format: ".2f", unit: " prefill per decode" };
  return {
    key: "ratio",
    title: "Prefill per decode: what demand asks, what there is",
    now: `demand asks for ${number(latest(demand.values))} prefill replicas per decode replica, there are ${number(latest(replicas.values))}`,
    at_s: history.at_s,
    series: [demand, replicas],
    tickformat: ".2~f",
    lines: [
      line(x, demand, "--prefill", { ...shape, width: 2.5 }),
      line(x, replicas, "--ink", { ...shape, dash: "dash", width: 1.5, steps: true }),
    ],
  };
};

const attainmentChart = (view, x) => {
  const { history, slo } = view;
  const n = history.at_s.length;
  const ttft = series("first token", valuesOf(history.ttft_within_slo_ratio, n), share);
  const itl = series("token gap", valuesOf(history.tpot_within_slo_ratio, n), share);
  const objective = series("objective", history.at_s.map(() => slo.attainment_ratio), share);
  const shape = { format: ".1%", unit: "" };
  const lowest = Math.min(slo.attainment_ratio, ...[...ttft.values, ...itl.values].filter(known));
  const minute = attainments(view);
  return {
    key: "attainment",
    title: `Share of requests within target (first token ${seconds(slo.ttft_s)}, mean token gap ${seconds(slo.itl_s)})`,
    now: `last minute: first token ${share(minute.ttft)}, token gap ${share(minute.itl)}; objective ${share(slo.attainment_ratio)}`,
    at_s: history.at_s,
    series: [ttft, itl, objective],
    tickformat: ".1~%",
    range: [Math.max(0, lowest - (1 - lowest) * 0.15 - 0.002), 1.0005],
    lines: [
      line(x, ttft, "--prefill", { ...shape, width: 2.5 }),
      line(x, itl, "--decode", { ...shape, width: 2.5, dash: "6px,2px" }),
      line(x, objective, "--ink", { ...shape, width: 1.5, dash: "dot" }),
    ],
  };
};

export const chartsOf = (view) => {
  const x = view.history.at_s.map(plotTime);
  const pools = Object.entries(view.history.pools).map(([name, pool]) => poolChart(name, pool, view.history, x));
  const input = {
    key: "input",
    title: "Input tokens to prefill",
    demandKey: "prefill_tokens_per_s",
    fanKey: "prefill",
    colour: "--prefill",
    fillColour: "--prefill-fan",
  };
  const output = {
    key: "output",
    title: "Output tokens to decode",
    demandKey: "output_tokens_per_s",
    fanKey: "output",
    colour: "--decode",
    fillColour: "--decode-fan",
  };
  return [...pools, flowChart(view, x, input), flowChart(view, x, output), ratioChart(view, x), attainmentChart(view, x)];
};
