// One decision unfolded. It has its own address (#why/pool/epoch); Escape closes it.

import { byId, facts, make, setText, table } from "./dom.js";
import { count, date, duration, known, number, percent, rate, replicas, seconds, UNKNOWN, withUnit } from "./format.js";
import { because, bindsInWords, change } from "./overview.js";

const ADDRESS = /^#why\/([^/]+)(?:\/(\d+))?$/;

export const addressOf = (hash) => {
  const found = ADDRESS.exec(hash);
  return found ? { pool: decodeURIComponent(found[1]), epoch: found[2] ?? null } : null;
};

const section = (title, ...content) => {
  const id = `why-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return make("section", { "aria-labelledby": id }, make("h3", { id }, title), content);
};

const scroll = (label, content) =>
  make("div", { class: "scroll stacked", tabindex: "0", role: "group", "aria-label": label }, content);

const SPELLED = { itl: "token gap", kv: "KV cache", ttft: "time to first token", tpot: "token gap", slo: "target" };

// decode.itl_mean_s as "decode: token gap mean": its unit stands beside the value
const inputInWords = (name) =>
  name
    .replace(/_(per_s|s|ratio|replicas)$/, (unit) => (unit === "_replicas" ? " replicas" : ""))
    .replace(".", ": ")
    .replaceAll("_", " ")
    .replace(/\b(itl|kv|ttft|tpot|slo)\b/g, (word) => SPELLED[word]);

const inputsOf = (why) => {
  const columns = [
    { head: "Input", rowHead: true, cell: (i) => inputInWords(i.name) },
    { head: "Value", number: true, cell: (i) => withUnit(i.value, i.unit) },
    { head: "Age", number: true, cell: (i) => (known(i.age_s) ? duration(i.age_s) : UNKNOWN) },
    { head: "Replicas seen", number: true, cell: (i) => percent(i.coverage_ratio) },
  ];
  if (!why.inputs.length) return make("p", {}, "nothing was known");
  return scroll("Inputs and their ages", table("Inputs", columns, why.inputs));
};

const forecastOf = (why) => {
  const f = why.forecast;
  if (!f) return make("p", {}, "There was no forecast: not enough was known.");
  const list = make("dl", { class: "facts" });
  const quantile = known(f.upper_ratio) ? ` (quantile ${number(f.upper_ratio)})` : "";
  facts(list, [
    ["Level then", rate(f.level_per_s)],
    [`Expected in ${duration(f.lead_s)}`, rate(f.expected_per_s)],
    [`Sized for${quantile}`, rate(f.upper_per_s)],
    ["Looks ahead", `${duration(f.lead_s)}, until a new replica would be ready`],
    ["Forecaster", f.forecaster ?? UNKNOWN],
    ["Held against what came", known(f.errors_known) ? `${count(f.errors_known)} times` : UNKNOWN],
  ]);
  return list;
};

const needsOf = (why) => {
  const columns = [
    { head: "Resource", rowHead: true, cell: (n) => `${bindsInWords(n.bottleneck)}${n.binds ? " (binds)" : ""}` },
    { head: "Replicas", number: true, cell: (n) => count(n.replicas) },
    { head: "Before rounding", number: true, cell: (n) => number(n.replicas_exact) },
    { head: "Demand", number: true, cell: (n) => rate(n.demand_per_s) },
    { head: "One replica carries", number: true, cell: (n) => rate(n.replica_capacity_per_s) },
    { head: "In words", cell: (n) => n.words ?? "" },
  ];
  if (!why.needs.length) return make("p", {}, "No need could be worked out.");
  const rows = why.needs.map((n) => ({ ...n, rowClass: n.binds ? "subject" : null }));
  return scroll("Need per resource", table("Need per resource", columns, rows));
};

const stepsOf = (why) => {
  if (!why.steps.length) return make("p", {}, "No step was taken.");
  const item = (step) => {
    const moved = step.before !== step.after;
    const what = moved ? `${count(step.before)} → ${count(step.after)}` : `stays ${count(step.after)}`;
    return make(
      "li",
      { class: moved ? "changed" : "hold" },
      make("strong", {}, what),
      make("span", { class: "step-name" }, ` ${step.name.replaceAll("_", " ")}`),
      make("span", { class: "because" }, ` ${because(step)}`),
    );
  };
  return make("ol", { class: "steps" }, why.steps.map(item));
};

const counterfactualsOf = (why) => {
  const columns = [
    { head: "With", rowHead: true, cell: (c) => `${replicas(c.replicas)}${c.replicas === why.after ? " (decided)" : ""}` },
    { head: "Within the target", cell: (c) => (typeof c.holds_slo !== "boolean" ? UNKNOWN : `${c.holds_slo ? "yes" : "no"}${c.is_proven === false ? ", by the prior" : ""}`) },
    { head: "Busy", number: true, cell: (c) => percent(c.utilisation_ratio) },
    { head: "Token gap", number: true, cell: (c) => seconds(c.step_s) },
    { head: "First tokens late", number: true, cell: (c) => percent(c.ttft_miss_ratio) },
    { head: "In words", cell: (c) => c.words ?? "" },
  ];
  if (!why.counterfactuals.length) return make("p", {}, "Not known.");
  const rows = why.counterfactuals.map((c) => ({ ...c, rowClass: c.replicas === why.after ? "subject" : null }));
  return scroll("One replica more or less", table("One replica more or less", columns, rows));
};

const bodyOf = (why) => [
  make("p", { class: "verdict-line" }, why.verdict),
  make("p", { class: "note" }, `${date(why.at_s)}, the tier’s clock; tick ${why.epoch}; ${why.phase} pool`),
  section("What would change it", make("p", {}, why.what_would_change ?? UNKNOWN)),
  section("Every step", stepsOf(why)),
  section("One replica more or less", counterfactualsOf(why)),
  section("Need per resource", needsOf(why)),
  section("Forecast", forecastOf(why)),
  section("Inputs", inputsOf(why)),
];

export class WhyView {
  #dialog = byId("why");
  #asked = 0;
  #fetchWhy;

  constructor(fetchWhy) {
    this.#fetchWhy = fetchWhy;
    byId("why-close").addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("close", () => {
      if (addressOf(location.hash)) history.replaceState(null, "", location.pathname + location.search);
    });
  }

  // Follow the address: open, change or close.
  async follow() {
    const address = addressOf(location.hash);
    const asked = ++this.#asked;
    if (address === null) {
      if (this.#dialog.open) this.#dialog.close();
      return;
    }
    setText(byId("why-title"), `Why ${address.pool}?`);
    byId("why-body").replaceChildren(make("p", { role: "status" }, "asking the control plane"));
    if (!this.#dialog.open) this.#dialog.showModal();
    byId("why-title").focus();
    const { body, error } = await this.#fetchWhy(address);
    if (asked !== this.#asked) return; // another was asked for meanwhile
    if (error) {
      byId("why-body").replaceChildren(make("p", { role: "alert", class: "said" }, error));
      return;
    }
    setText(byId("why-title"), `${body.pool} ${change(body)}`);
    byId("why-body").replaceChildren(...bodyOf(body));
    this.#dialog.scrollTop = 0;
  }
}
