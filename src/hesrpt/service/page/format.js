// Numbers, durations and times as text, in the words and digits of the command line.

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;

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

/** Return a duration that changes every second, in whole seconds: "42 s", "3 min 5 s". */
export function formatClock(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 100) return `${whole} s`;
  if (whole < HOUR) return `${Math.floor(whole / MINUTE)} min ${whole % MINUTE} s`;
  const minutes = Math.floor(whole / MINUTE);
  if (whole < DAY) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  const hours = Math.floor(whole / HOUR);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Return a number of things: "1 job", "1,200 jobs". */
export function formatCount(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
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

/** Return an amount of a resource; large ones, such as bytes, with a prefix: "4 G". */
export function formatAmount(amount) {
  for (const [size, prefix] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
  ]) {
    if (amount >= size) return `${formatNumber(amount / size)} ${prefix}`;
  }
  return amount.toLocaleString("en", { maximumFractionDigits: 3 });
}

/** Join words: "a", "a and b", "a, b and c". */
export function joinWords(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
