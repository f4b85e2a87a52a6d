// What the page asks of the control plane. Every answer is {body, now_s} or {error: one sentence};
// now_s is the control plane's own time.

const API = "api/v1/tiers";

const sentenceOf = async (response) => {
  const text = (await response.text()).trim();
  try {
    const body = JSON.parse(text);
    const said = typeof body === "string" ? body : (body.error ?? body.detail ?? body.message);
    if (said) return String(said);
  } catch {
    // not JSON: the text itself is the sentence, unless it is a page
  }
  return text && !text.startsWith("<") ? text.slice(0, 300) : `the control plane answered ${response.status}`;
};

const ask = async (address, options = {}) => {
  try {
    const response = await fetch(address, { cache: "no-store", ...options });
    if (!response.ok) return { error: await sentenceOf(response), status: response.status };
    const text = await response.text();
    return { body: text ? JSON.parse(text) : null, now_s: Date.parse(response.headers.get("Date")) / 1000 };
  } catch (error) {
    const said = error instanceof SyntaxError ? "the control plane’s answer cannot be read" : "the control plane cannot be reached";
    return { error: said, status: null };
  }
};

const tierAddress = (tier) => `${API}/${encodeURIComponent(tier)}`;

export const eventsAddress = (tier) => `${tierAddress(tier)}/events`;

export const askTiers = () => ask(API);

export const askWhy = (tier, { pool, epoch }) => {
  const query = new URLSearchParams(epoch === null ? { pool } : { pool, epoch });
  return ask(`${tierAddress(tier)}/why?${query}`);
};

export const setOverride = (tier, override, token) =>
  ask(`${tierAddress(tier)}/overrides`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
    body: JSON.stringify(override),
  });

export const endOverride = (tier, pool, token) =>
  ask(`${tierAddress(tier)}/overrides/${encodeURIComponent(pool)}`, {
    method: "DELETE",
    headers: { Authorization: `Bearer ${token}` },
  });
