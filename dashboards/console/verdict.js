// One verdict over all: good, trouble (which phase, and why), blind, stale. Pure.

import { clock, count, duration, join, known, share } from "./format.js";

const LAST_MINUTE_S = 60;
const CANNOT = new Set(["AtMaximum", "BudgetLimited", "SloInfeasible"]);
const BLIND = new Set(["CoverageLow", "DemandUnknown", "PoolStateUnknown"]);
const SEEN_BADLY = new Set(["stale", "silent", "unknown"]);

// The mean of what is known of a series within the last minute; null if nothing is.
export const lastMinute = (at_s, values, now_s) => {
  const recent = (values ?? []).filter((v, i) => known(v) && at_s[i] > now_s - LAST_MINUTE_S);
  return recent.length ? recent.reduce((sum, v) => sum + v, 0) / recent.length : null;
};

export const latest = (values) => (values?.length ? values.at(-1) : null);

export const attainments = (view) => {
  const { at_s, ttft_within_slo_ratio: ttft, tpot_within_slo_ratio: tpot } = view.history;
  return {
    ttft: lastMinute(at_s, ttft, view.at_s),
    itl: lastMinute(at_s, tpot, view.at_s),
  };
};

export const isBlind = (pool, view) =>
  !known(pool.desired) ||
  !known(pool.ready) ||
  BLIND.has(pool.reason) ||
  !known(pool.inputs_age_s) ||
  pool.coverage_ratio === 0 ||
  view.sources.some((s) => s.name === pool.name && SEEN_BADLY.has(s.state));

const SYMPTOMS = { prefill: "first tokens", decode: "the gaps between tokens" };

const short = (pool) => known(pool.wanted) && known(pool.ready) && pool.wanted > pool.ready;

const shortage = (pool) => {
  const coming = known(pool.starting) && pool.starting > 0 ? `, ${count(pool.starting)} starting` : "";
  return `${pool.name} has ${count(pool.ready)} of the ${count(pool.wanted)} replicas it needs ready${coming}`;
};

const blindness = (view) => (pool) => {
  const words = [];
  if (!known(pool.desired) || !known(pool.ready)) words.push("how many replicas it has is not known");
  if (!known(pool.inputs_age_s)) words.push("nothing has ever been measured");
  else if (pool.inputs_age_s > view.tick_s) words.push(`nothing measured for ${duration(pool.inputs_age_s)}`);
  return `${pool.name}: ${words.length ? join(words) : pool.words}`;
};

// What is wrong with a pool that no size of it mends, as a slow link.
const unmended = (view) => view.pools.flatMap((pool) => pool.problems ?? []);

// A pool is named only if it is short itself or its own latency says so; else the symptom is.
const blamed = (view, phase) => {
  const pools = view.pools.filter(
    (p) => (p.phase === phase || p.phase === "both") && (short(p) || p.reason === "LatencyAboveSlo" || CANNOT.has(p.reason)),
  );
  return join(pools.map((p) => p.name)) || SYMPTOMS[phase];
};

const trouble = (view) => {
  const { slo } = view;
  const { ttft, itl } = attainments(view);
  const found = [];
  const missed = [
    [ttft, "prefill", "first tokens come late"],
    [itl, "decode", "tokens come slowly"],
  ];
  for (const [ratio, phase, what] of missed) {
    if (known(ratio) && ratio < slo.attainment_ratio) {
      const of = `${share(ratio)} within the target, ${share(slo.attainment_ratio)} wanted`;
      found.push({ phase, pools: blamed(view, phase), why: `${what}: ${of}` });
    }
  }
  for (const pool of view.pools) {
    if (CANNOT.has(pool.reason) && (pool.reason === "SloInfeasible" || short(pool))) {
      found.push({ phase: pool.phase, pools: pool.name, why: `${pool.name} cannot grow as it should: ${pool.words}` });
    }
  }
  return found;
};

const inTrouble = (view, found, blind) => {
  const names = [...new Set(found.map((f) => f.pools))];
  const because = [
    ...found.map((f) => f.why),
    ...unmended(view),
    ...view.pools.filter(short).map(shortage),
    ...blind.map(blindness(view)),
  ];
  return { level: "trouble", mark: "!", title: `Trouble in ${join(names)}`, because };
};

const inBlindness = (view, blind) => {
  const all = blind.length === view.pools.length;
  const named = new Set(blind.map((pool) => pool.name));
  const silent = view.sources
    .filter((s) => SEEN_BADLY.has(s.state) && !named.has(s.name))
    .map((s) => `${s.name} is ${s.state}${s.words ? `: ${s.words}` : ""}`);
  const title = all ? "Blind" : `Blind in ${join(blind.map((p) => p.name))}`;
  const because = [...blind.map(blindness(view)), ...silent, ...unmended(view), "while blind it may grow, and does not shrink"];
  return { level: "blind", mark: "?", title, because };
};

const inHealth = (view) => {
  const { ttft, itl } = attainments(view);
  const growing = view.pools.filter(short);
  const unmeasured = [
    known(ttft) ? null : "time to first token",
    known(itl) ? null : "time between tokens",
  ].filter(Boolean);
  const because = [...unmended(view), ...growing.map(shortage)];
  const idle = latest(view.history.demand.output_tokens_per_s) === 0;
  if (unmeasured.length && !idle) because.push(`not known in the last minute: ${join(unmeasured)}`);
  if (unmeasured.length === 2 && !idle) {
    because.push("whether users are served well is therefore not known");
    return { level: "blind", mark: "?", title: "Blind to what users get", because };
  }
  if (growing.length) {
    const names = join(growing.map((p) => p.name));
    const is = growing.length === 1 ? "is" : "are";
    const coming = growing.every((p) => p.starting > 0 || p.desired > p.ready);
    const title = `Targets met; ${names} ${is} short${coming ? " and growing" : ""}`;
    return { level: "watch", mark: "↗", title, because };
  }
  const troubled = view.pools.filter((pool) => pool.problems?.length);
  if (troubled.length) {
    const met = unmeasured.length ? "" : "Targets met; ";
    const title = `${met}${join(troubled.map((p) => p.name))}: something is wrong that no size mends`;
    return { level: "watch", mark: "↗", title, because };
  }
  if (idle && unmeasured.length) because.unshift("no requests, so nothing to measure");
  if (!unmeasured.length) because.unshift("both targets are met, and every pool has what it needs");
  return { level: "good", mark: "✓", title: "Good", because };
};

// One word or two for a pool's card.
export const statusOf = (pool, view) => {
  if (isBlind(pool, view)) return { state: "blind", words: "blind" };
  if (short(pool)) {
    const state = CANNOT.has(pool.reason) ? "trouble" : "short";
    return { state, words: `short by ${count(pool.wanted - pool.ready)}` };
  }
  if (pool.reason === "LatencyAboveSlo") return { state: "short", words: "latency above the target" };
  return { state: "good", words: "has what it needs" };
};

export const verdict = (view, feed) => {
  if (view === null) {
    return {
      level: "unknown",
      mark: "?",
      title: "Unknown",
      because: ["nothing has come from the control plane yet; trying again by itself"],
    };
  }
  if (feed.stale) {
    return {
      level: "stale",
      mark: "?",
      title: `Stale: nothing new since ${clock(view.at_s)}`,
      because: [
        feed.connected
          ? "connected, but the control plane says nothing"
          : "the connection is lost; trying again by itself",
        "the numbers below are the last that came, and may be wrong by now",
      ],
    };
  }
  const found = trouble(view);
  const blind = view.pools.filter((pool) => isBlind(pool, view));
  if (found.length) return inTrouble(view, found, blind);
  if (blind.length) return inBlindness(view, blind);
  return inHealth(view);
};
