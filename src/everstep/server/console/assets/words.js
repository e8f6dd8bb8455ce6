// Times, spans and statuses as people read them.

export const STATUS = {
  completed: { mark: "✓", kind: "good" },
  failed: { mark: "✗", kind: "bad" },
  running: { mark: "▶", kind: "going" },
  halted: { mark: "◔", kind: "waits" },
  cancelled: { mark: "⊘", kind: "quiet" },
  abandoned: { mark: "☓", kind: "bad" },
  paused: { mark: "‖", kind: "waits" },
  skipped: { mark: "↷", kind: "quiet" },
  pending: { mark: "○", kind: "quiet" },
  open: { mark: "◔", kind: "waits" },
};

/** The statuses of runs, what is under way first. */
export const STATUSES = ["running", "halted", "failed", "completed", "cancelled", "abandoned"];

/** How many there are of each status, in that order. */
export const byStatus = (counts) => STATUSES.filter((one) => (counts || {})[one]).map((one) => [one, counts[one]]);

const WHOLE = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  fractionalSecondDigits: 3, timeZoneName: "short",
});
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/** A time of the service in milliseconds, with the microseconds that a Date has no room for. */
export function millis(at) {
  const fraction = /\.(\d+)/.exec(at);
  return Math.floor(Date.parse(at) / 1000) * 1000 + (fraction ? Number(`0.${fraction[1]}`) * 1000 : 0);
}

/** The whole of a time, in the reader's zone. */
export const moment = (at) => WHOLE.format(new Date(at));

/** Where a tick of the axis stands: a time of the day, or within short spans how long after the beginning. */
export function tick({ t, from, span: long, isFirst }, beside) {
  return long >= 10000 || isFirst ? clock(t, isFirst ? beside : t) : `+${span((t - from) / 1000)}`;
}

/** A time of the day, with its day if that is another one than the day beside it. */
export function clock(at, beside) {
  const day = (d) => new Date(d).toDateString();
  return (beside === undefined || day(at) === day(beside) ? CLOCK : DAY).format(new Date(at));
}

/** How long ago, or in how long. */
export function since(at, now = Date.now()) {
  const seconds = (now - new Date(at).getTime()) / 1000;
  if (Math.abs(seconds) < 2) return "now";
  return seconds >= 0 ? `${rough(seconds)} ago` : `in ${rough(-seconds)}`;
}

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** A span in one unit. */
export function rough(seconds) {
  for (const [unit, size] of UNITS) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return "0 s";
}

/** A span as exactly as it is felt: 12 µs, 3.4 ms, 5.2 s, 3 min 4 s, 2 d 3 h. */
export function span(seconds) {
  if (seconds == null) return "–";
  if (seconds < 0) return `-${span(-seconds)}`;
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${trim(seconds * 1000)} ms`;
  if (seconds < 60) return `${trim(seconds)} s`;
  const [big, small] = seconds < 3600 ? ["min", "s"] : seconds < 86400 ? ["h", "min"] : ["d", "h"];
  const size = { s: 1, min: 60, h: 3600, d: 86400 };
  const whole = Math.floor(seconds / size[big]);
  const rest = Math.floor((seconds - whole * size[big]) / size[small]);
  return rest ? `${whole} ${big} ${rest} ${small}` : `${whole} ${big}`;
}

const trim = (n) => (n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2)).replace(/\.?0+$/, (z) => (z.includes(".") ? "" : z));

/** Bytes as people read them. */
export function size(bytes) {
  if (bytes == null) return "–";
  for (const [unit, many] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (bytes >= many) return `${trim(bytes / many)} ${unit}`;
  return `${bytes} B`;
}

/** A number with its thousands apart. */
export const count = (n) => (n == null ? "–" : n.toLocaleString());

/** Tags as people write them, `vip, team=blue`, by their names. */
export const tags = (text) => Object.fromEntries(text.split(",").map((one) => one.trim()).filter(Boolean).map((one) => {
  const [name, ...value] = one.split("=");
  return [name.trim(), value.join("=").trim()];
}));

/** `1 run`, `2 runs`. */
export const many = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;
