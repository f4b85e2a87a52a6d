// Puts the page together: which tier, its events, and what is drawn when.

import { askTiers, askWhy, eventsAddress } from "./api.js";
import { Charts } from "./charts.js";
import { byId, make, setHidden } from "./dom.js";
import { Feed } from "./feed.js";
import { OverrideForm } from "./override.js";
import { drawDecisions, drawPools, drawProblems, drawSources, drawStaleness, drawTop, drawVerdict } from "./overview.js";
import { WhyView } from "./why.js";

const CLOCK_MS = 500;
const CHARTS_EVERY_MS = 1000;
const TIERS_AGAIN_MS = 3000;
const LONGEST_STALL_S = 30 * 86400;

let tier = null;
let view = null;
let feed = { age_s: null, stale: false, connected: false, watch() {}, stop() {} };
let drawn = { view: null, stale: false };
let chartsAt_ms = -Infinity;
let chartsDue = false;

const charts = new Charts();
const form = new OverrideForm();
const why = new WhyView((address) => askWhy(tier, address));

const openOverride = (name) => {
  const pool = view?.pools.find((p) => p.name === name);
  if (pool) form.open(tier, pool, view);
};

const drawCharts = () => {
  const now_ms = performance.now();
  if (now_ms - chartsAt_ms >= CHARTS_EVERY_MS) {
    chartsAt_ms = now_ms;
    charts.draw(view);
    return;
  }
  if (chartsDue) return; // a fast clock sends many views; the last one is what is drawn
  chartsDue = true;
  setTimeout(() => {
    chartsDue = false;
    drawCharts();
  }, CHARTS_EVERY_MS - (now_ms - chartsAt_ms));
};

const draw = () => {
  drawTop(view, feed);
  drawVerdict(view, feed);
  if (view === null || (drawn.view === view && drawn.stale === feed.stale)) return;
  const fresh = drawn.view !== view;
  drawn = { view, stale: feed.stale };
  drawPools(view, feed, openOverride);
  drawSources(view, feed);
  drawStaleness(view, feed);
  if (!fresh) return;
  drawDecisions(view);
  drawProblems(view);
  drawCharts();
};

// How old the newest tick is by the control plane's own time; a simulation's time tells nothing.
const ageOf = ({ at_s, epoch }, now_s) => {
  const age_s = now_s - at_s;
  return at_s !== null && age_s >= 0 && age_s < LONGEST_STALL_S ? { epoch, age_s } : null;
};

const follow = (chosenTier, now_s) => {
  feed.stop();
  tier = chosenTier.name;
  view = null;
  const take = (next) => {
    view = next;
    requestAnimationFrame(draw);
  };
  feed = new Feed(eventsAddress(tier), take, ageOf(chosenTier, now_s));
};

const chosen = (tiers) => {
  const asked = new URLSearchParams(location.search).get("tier");
  return tiers.find((t) => t.name === asked) ?? tiers[0];
};

const offerTiers = (tiers) => {
  const choice = byId("tier-choice");
  choice.replaceChildren(...tiers.map((t) => make("option", { value: t.name, selected: t.name === tier }, t.name)));
  choice.addEventListener("change", () => {
    location.search = new URLSearchParams({ tier: choice.value });
  });
  setHidden(byId("tiers"), tiers.length < 2);
};

const begin = async () => {
  const { body: tiers, now_s } = await askTiers();
  if (!tiers?.length) {
    setTimeout(begin, TIERS_AGAIN_MS);
    return;
  }
  follow(chosen(tiers), now_s);
  offerTiers(tiers);
  why.follow();
};

addEventListener("hashchange", () => tier !== null && why.follow());
setInterval(() => {
  feed.watch();
  draw();
}, CLOCK_MS);
begin();
