// Numbers and times as words. What is not known is said so: null never becomes 0.

export const UNKNOWN = "unknown";

export const known = (value) => typeof value === "number" && Number.isFinite(value);

const grouped = (digits) =>
  new Intl.NumberFormat("en-GB", { maximumFractionDigits: digits, useGrouping: "always" });
const WHOLE = grouped(0);
const TENTH = grouped(1);
const HUNDREDTH = grouped(2);

export const number = (value) => {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  return (size >= 100 ? WHOLE : size >= 10 ? TENTH : HUNDREDTH).format(value);
};

export const count = (value) => (known(value) ? WHOLE.format(value) : UNKNOWN);

export const replicas = (value) =>
  known(value) ? `${number(value)} ${value === 1 ? "replica" : "replicas"}` : UNKNOWN;

export const rate = (value) => (known(value) ? `${number(value)} tokens/s` : UNKNOWN);

export const percent = (value) => (known(value) ? `${TENTH.format(value * 100)}\u00a0%` : UNKNOWN);

// an attainment: floored, so that 98.97 % never reads as having met 99 %
export const share = (value) =>
  known(value) ? `${TENTH.format(Math.floor(value * 1000 + 1e-6) / 10)}\u00a0%` : UNKNOWN;

// short times in ms, where seconds would hide them
export const seconds = (value) => {
  if (!known(value)) return UNKNOWN;
  if (value !== 0 && Math.abs(value) < 1) return `${number(value * 1000)} ms`;
  return `${number(value)} s`;
};

const parts = (large, largeUnit, small, smallUnit) =>
  small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;

// how long something has lasted or will: 42 s, 3 min 5 s, 2 h 4 min
export const duration = (value) => {
  if (!known(value)) return UNKNOWN;
  const whole = Math.max(0, Math.round(value));
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return parts(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 172800) return parts(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return `${Math.floor(whole / 86400)} days`;
};

export const age = (value) => (known(value) ? `${duration(value)} old` : "age unknown");

// A simulation counts from zero: such a time is of no calendar.
const FIRST_CALENDAR_S = 1e8;
const ofSimulation = (at_s) => at_s < FIRST_CALENDAR_S;

const iso = (at_s) => new Date(at_s * 1000).toISOString();

// without its zone, for columns that name it
export const clock = (at_s) => {
  if (!known(at_s)) return UNKNOWN;
  if (!ofSimulation(at_s) || at_s < 0) return iso(at_s).slice(11, 19);
  const hours = Math.floor(at_s / 3600);
  return `${String(hours).padStart(2, "0")}:${iso(at_s).slice(14, 19)}`;
};

export const zone = (at_s) => (known(at_s) && ofSimulation(at_s) ? "simulated" : "UTC");

export const time = (at_s) => (known(at_s) ? `${clock(at_s)} ${zone(at_s)}` : UNKNOWN);

export const date = (at_s) => {
  if (!known(at_s)) return UNKNOWN;
  return ofSimulation(at_s) ? `${clock(at_s)} of the simulation` : `${iso(at_s).slice(0, 10)} ${time(at_s)}`;
};

// what plotly reads as a UTC date
export const plotTime = (at_s) => iso(at_s).replace("T", " ").replace("Z", "");

const BYTES = ["bytes", "kB", "MB", "GB", "TB"];

const bytes = (value) => {
  const power = Math.min(BYTES.length - 1, Math.max(0, Math.floor(Math.log10(Math.abs(value) || 1) / 3)));
  return `${number(value / 1000 ** power)} ${BYTES[power]}`;
};

const BY_UNIT = {
  bytes,
  "bytes/s": (value) => `${bytes(value)}/s`,
  "tokens/s": rate,
  s: seconds,
  ratio: percent,
  replicas,
};

export const withUnit = (value, unit) => {
  if (value === null || value === undefined) return UNKNOWN;
  if (typeof value !== "number") return String(value);
  if (!known(value)) return UNKNOWN;
  if (BY_UNIT[unit]) return BY_UNIT[unit](value);
  return unit ? `${number(value)} ${unit}` : number(value);
};

export const join = (words) =>
  words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
