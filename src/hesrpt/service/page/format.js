// Numbers, durations and times as text, in the words and digits of the command line.

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;
const BYTES = ["B", "KB", "MB", "GB", "TB", "PB"];

/** Return a number to three significant digits, or to the nearest whole number above 100. */
export function formatNumber(value) {
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

function chooseTimeUnit(seconds) {
  if (seconds < 2 * MINUTE) return [1, "s"];
  if (seconds < 2 * HOUR) return [MINUTE, "min"];
  return seconds < 3 * DAY ? [HOUR, "h"] : [DAY, "d"];
}

/** Return a duration to three significant digits: "0.48 ms", "42.3 s", "5.1 h". */
export function formatDuration(seconds) {
  const isShort = seconds > 0 && seconds < 0.01;
  const [unit, symbol] = isShort ? [1e-3, "ms"] : chooseTimeUnit(seconds);
  return `${formatNumber(seconds / unit)} ${symbol}`;
}

/** Return a duration with a margin in the same unit, rounded up to the same digits. */
export function formatDurationWithMargin(seconds, margin) {
  const [unit, symbol] = chooseTimeUnit(seconds);
  const value = seconds / unit;
  const magnitude = value > 0 ? 2 - Math.floor(Math.log10(value)) : 2;
  const digits = Math.min(Math.max(magnitude, 0), 3);
  const scale = 10 ** digits;
  const width = Math.ceil(Number(((margin / unit) * scale).toFixed(6))) / scale;
  const show = (number) =>
    number.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return `${show(value)} ± ${show(width)} ${symbol}`;
}

/** Return a duration that changes while one looks, with whole seconds: "42 s", "14.3 min". */
export function formatClock(seconds) {
  return formatDuration(Math.max(0, Math.round(seconds)));
}

/** Return a whole number: "1,200". */
export function formatWhole(number) {
  return number.toLocaleString("en");
}

/** Return a number of things: "1 job", "1,200 jobs". */
export function formatCount(number, noun) {
  return `${formatWhole(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Return a ratio above 1 as a percentage: 1.063 is "6%". */
export function formatExcess(ratio) {
  const percent = 100 * (ratio - 1);
  return `${percent >= 9.5 ? Math.round(percent) : Number(percent.toPrecision(1))}%`;
}

/** Return how long ago something was, in the unit of an axis with this distance between times. */
export function formatAgo(seconds, distance) {
  const [unit, symbol] = [
    [DAY, "d"],
    [HOUR, "h"],
    [MINUTE, "min"],
  ].find(([size]) => distance % size === 0) ?? [1, "s"];
  return `−${formatNumber(seconds / unit)} ${symbol}`;
}

/** Return an amount of a resource; memory is counted in bytes: "4 GB". */
export function formatAmount(amount, kind) {
  if (kind !== "memory") return formatNumber(amount);
  let [value, power] = [amount, 0];
  while (value >= 999.5 && power < BYTES.length - 1) [value, power] = [value / 1000, power + 1];
  return `${formatNumber(value)} ${BYTES[power]}`;
}

/** Join words: "a", "a and b", "a, b and c". */
export function joinWords(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
