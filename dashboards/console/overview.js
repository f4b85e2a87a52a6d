// Everything of the page but the charts: verdict, pools, decisions, sources, problems.

import { age, clock, count, date, duration, known, percent, seconds, share, time, UNKNOWN, zone } from "./format.js";
import { byId, facts, keyed, make, sentences, setHidden, setText, table } from "./dom.js";
import { attainments, statusOf, verdict } from "./verdict.js";

const MODES = {
  advise: "advises: shows, changes nothing",
  approve: "approve: acts on what a person accepts",
  act: "acts: changes the pools itself",
  recorded: "recorded: from a ledger, nothing runs",
};
const PHASES = { prefill: "prefill", decode: "decode", both: "prefill and decode" };
const BINDS = { compute: "compute", kv_cache: "KV cache", network: "network", queue_backlog: "queue backlog" };

export const whyLink = (pool, epoch) => `#why/${encodeURIComponent(pool)}/${epoch}`;

export const inWords = (reason) =>
  reason ? reason.replace(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase().replace(/^./, (c) => c.toUpperCase()) : UNKNOWN;

export const bindsInWords = (binds) => (binds ? (BINDS[binds] ?? binds) : UNKNOWN);

const newest_s = (view) => {
  const ages = [...view.pools.map((p) => p.inputs_age_s), ...view.sources.map((s) => s.age_s)].filter(known);
  return ages.length ? Math.min(...ages) : null;
};

export const drawTop = (view, feed) => {
  const ageText = () => {
    if (view === null) return "no data yet";
    const waited_s = feed.age_s;
    const data_s = newest_s(view);
    const words = known(data_s) ? `newest data ${age(data_s + waited_s)}` : `newest data: ${age(null)}`;
    return feed.stale ? `stale: ${words}` : words;
  };
  setText(byId("age"), ageText());
  byId("age").classList.toggle("is-stale", feed.stale);
  if (view === null) return;
  setText(byId("tier"), view.tier);
  setText(byId("mode"), MODES[view.mode] ?? view.mode);
  byId("mode").dataset.mode = view.mode;
  setHidden(byId("mode"), false);
  document.title = `${verdict(view, feed).title} – ${view.tier} – phasewise`;
};

export const drawVerdict = (view, feed) => {
  const said = verdict(view, feed);
  byId("verdict").dataset.level = said.level;
  document.body.classList.toggle("stale", said.level === "stale");
  setText(byId("verdict-mark"), said.mark);
  setText(byId("verdict-title"), said.title);
  sentences(byId("verdict-because"), said.because, "");
  if (view === null) return;
  const { ttft, itl } = attainments(view);
  const wanted = view.slo.attainment_ratio;
  const entry = (term, ratio) => [
    term,
    !known(ratio) ? UNKNOWN : `${share(ratio)}, ${feed.stale ? "then" : ratio < wanted ? "missed" : "met"}`,
    !known(ratio) ? "is-unknown" : feed.stale ? "" : ratio < wanted ? "is-missed" : "is-met",
  ];
  facts(byId("slis"), [
    entry(`First token within ${seconds(view.slo.ttft_s)}`, ttft),
    entry(`Token gap within ${seconds(view.slo.itl_s)}`, itl),
    ["Objective", `${share(wanted)} of requests, last minute`],
    ["As of", date(view.at_s)],
  ]);
};

export const because = ({ reason, words }) => (words ? `${inWords(reason)}: ${words}` : inWords(reason));

export const change = ({ before, after }) => {
  if (!known(after)) return "left alone";
  if (!known(before)) return `to ${count(after)}`;
  return before === after ? `stays at ${count(after)}` : `${count(before)} → ${count(after)}`;
};

const COUNTS = [
  ["Wanted", "wanted"],
  ["Desired", "desired"],
  ["Ready", "ready"],
  ["Starting", "starting"],
  ["Draining", "draining"],
];

const emptyCard = (pool, onOverride) =>
  make(
    "article",
    { class: "card", "aria-label": `Pool ${pool.name}` },
    make("h3", {}, pool.name, " ", make("span", { class: "phase" }, pool.name === pool.phase ? "pool" : `${PHASES[pool.phase] ?? pool.phase} pool`)),
    make("p", { class: "as-of" }),
    make("p", { class: "status" }),
    make("dl", { class: "counts" }),
    make("div", { class: "bar", "aria-hidden": "true" }),
    make("p", { class: "reason" }),
    make("dl", { class: "facts" }),
    make(
      "p",
      { class: "buttons" },
      make("a", { class: "button why-link" }, `Why this size of ${pool.name}?`),
      make("button", { type: "button", class: "override-button", onclick: () => onOverride(pool.name) }, `Override ${pool.name}`),
    ),
  );

// Widths in proportion: the counts stand in words above, this is for the eye alone.
const drawBar = (bar, pool) => {
  const parts = ["ready", "starting", "draining"].map((state) => ({ state, replicas: pool[state] ?? 0 }));
  const have = parts[0].replicas + parts[1].replicas;
  const lacking = known(pool.wanted) && known(pool.ready) ? Math.max(0, pool.wanted - have) : 0;
  const shown = [...parts.slice(0, 2), { state: "lacking", replicas: lacking }, parts[2]].filter((p) => p.replicas > 0);
  keyed(
    bar,
    shown,
    (p) => p.state,
    (p) => make("span", { class: p.state }),
    (element, p) => {
      element.style.flexGrow = p.replicas;
    },
  );
};

const lastKnown = (view) => `last known at ${time(view.at_s)}, not now`;

// Under every heading whose numbers grow old with the page.
export const drawStaleness = (view, feed) => {
  for (const note of document.querySelectorAll("section > .as-of")) {
    setText(note, lastKnown(view));
    setHidden(note, !feed.stale);
  }
};

export const overrideWords = (pool, view) => {
  const { override } = pool;
  if (!override) return "none";
  const kinds = {
    pause: "paused at its present size",
    pin: `pinned to ${count(override.replicas)}`,
    floor: `floor of ${count(override.replicas)}`,
  };
  const left = duration(override.until_s - view.at_s);
  return `${kinds[override.kind] ?? override.kind} by ${override.by}, ends in ${left} (${time(override.until_s)})`;
};

const decided = (pool, view) => {
  if (!known(pool.decided) || !known(pool.desired)) return "";
  const words = change({ before: pool.desired, after: pool.decided });
  return view.mode === "advise" ? `Advice: ${words}. ` : `${words.charAt(0).toUpperCase()}${words.slice(1)}. `;
};

const drawCard = (card, pool, view, stale) => {
  const status = statusOf(pool, view);
  card.dataset.state = status.state;
  setText(card.querySelector(".status"), status.words);
  setHidden(card.querySelector(".status"), stale);
  card.classList.toggle("overridden", Boolean(pool.override));
  setText(card.querySelector(".as-of"), lastKnown(view));
  setHidden(card.querySelector(".as-of"), !stale);
  facts(
    card.querySelector(".counts"),
    COUNTS.map(([term, key]) => [term, count(pool[key]), known(pool[key]) ? key : `${key} is-unknown`]),
  );
  drawBar(card.querySelector(".bar"), pool);
  setText(card.querySelector(".reason"), decided(pool, view) + because(pool));
  facts(card.querySelector(".facts"), [
    ["What binds", bindsInWords(pool.binds)],
    ["Measured", known(pool.inputs_age_s) ? `${duration(pool.inputs_age_s)} before the decision` : UNKNOWN],
    ["Replicas seen", known(pool.coverage_ratio) ? `${percent(pool.coverage_ratio)} of those expected` : UNKNOWN],
    ["Override", overrideWords(pool, view), pool.override ? "is-override" : ""],
  ]);
  card.querySelector(".why-link").setAttribute("href", whyLink(pool.name, view.epoch));
};

export const drawPools = (view, feed, onOverride) => {
  keyed(
    byId("pool-cards"),
    view.pools,
    (pool) => pool.name,
    (pool) => emptyCard(pool, onOverride),
    (card, pool) => drawCard(card, pool, view, feed.stale),
  );
};

const lasted = (d) => (d.ticks > 1 ? ` (${count(d.ticks)} ticks, since ${clock(d.since_s)})` : "");

export const drawDecisions = (view) => {
  const list = byId("decision-list");
  const create = (d) =>
    make(
      "li",
      {},
      make(
        "a",
        { href: whyLink(d.pool, d.epoch) },
        make("time", { datetime: new Date(d.at_s * 1000).toISOString() }, clock(d.at_s)),
        make("span", { class: "what" }, make("strong", {}, `${d.pool} ${change(d)}`), make("span", { class: "because" })),
      ),
    );
  const shown = view.decisions.length ? view.decisions : [];
  keyed(list, shown, (d) => `${d.pool}/${d.epoch}`, create, (item, d) => {
    item.className = d.before === d.after ? "hold" : "changed";
    setText(item.querySelector(".because"), `. ${because(d)}${lasted(d)}`);
  });
  setText(byId("decisions-note"), `Times are the tier’s clock, ${zone(view.at_s)}. Each line opens why.`);
  if (!shown.length) list.append(make("li", { "data-key": "none" }, "no changes, and nothing held back"));
};

export const drawSources = (view, feed) => {
  const columns = [
    { head: "Source", rowHead: true, cell: (s) => s.name },
    { head: "State", cell: (s) => make("span", { class: `state ${feed.stale ? "" : s.state}` }, feed.stale ? `was ${s.state}` : s.state) },
    { head: "Age", number: true, cell: (s) => (known(s.age_s) ? duration(s.age_s) : UNKNOWN) },
    { head: "In words", cell: (s) => s.words ?? "" },
  ];
  byId("sources").replaceChildren(table("Sources, at the time of the last decision", columns, view.sources));
};

export const drawProblems = (view) => sentences(byId("problems"), view.problems, "none");
