// Servers held over time: stacked areas, a legend, and a slider that reads off any moment.

import { assignColours, colourOf } from "./colours.js";
import { element, setAttribute, setChildren, setText, svgElement } from "./dom.js";
import { formatAgo, formatClock, formatCount, joinWords } from "./format.js";
import { linkTo } from "./job_row.js";

const HEIGHT = 240;
const MARGIN = { top: 8, right: 1, bottom: 22, left: 30 };
const OTHERS = "other jobs";
// Distances between times on the axis, in seconds.
const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800,
  432000, 864000, 2592000,
];
const LEAST_DISTANCE = 70; // pixels between two times on the axis

/** Draws a schedule of the service into `root`, again whenever its width changes. */
export class Areas {
  #schedule = null;
  #chosen = null; // a place in the times, or null for the last one

  constructor(root, timeLabel) {
    this.timeLabel = timeLabel;
    this.svg = svgElement("svg", { role: "img", height: HEIGHT, "aria-labelledby": "areas-title" });
    this.slider = element("input", { type: "range", min: 0, "aria-label": "Moment to read off" });
    this.slider.addEventListener("input", () => this.#choose(Number(this.slider.value)));
    this.svg.addEventListener("pointermove", (event) => this.#point(event));
    this.svg.addEventListener("pointerdown", (event) => this.#point(event));
    this.svg.addEventListener("pointerleave", () => this.#choose(null));
    this.legend = element("ul", { class: "legend", "aria-label": "Servers of each job" });
    this.empty = element("p", { class: "soft" }, "No job has run yet.");
    this.entries = new Map();
    root.append(this.svg, this.slider, this.legend, this.empty);
    new ResizeObserver(() => this.#schedule && this.#draw()).observe(root);
  }

  /** Show a schedule. */
  show({ times, series, others, capacity }) {
    assignColours(series.map(({ name }) => name));
    const hasOthers = others.some((servers) => servers > 0);
    const layers = hasOthers ? [...series, { name: null, servers: others }] : series;
    // Each number holds from its time to the next one, the last as long as the others.
    const end = times.length > 1 ? 2 * times.at(-1) - times.at(-2) : 0;
    this.#schedule = { times, end, layers, capacity, tops: stack(layers, times.length) };
    if (this.#chosen !== null) this.#chosen = Math.min(this.#chosen, times.length - 1);
    this.#draw();
  }

  #draw() {
    const { times, end, layers, capacity, tops } = this.#schedule;
    const isEmpty = times.length < 2 || layers.length === 0;
    this.empty.hidden = !isEmpty;
    for (const part of [this.svg, this.slider, this.legend])
      part.toggleAttribute("hidden", isEmpty);
    if (isEmpty) return;
    const width = this.svg.parentNode.clientWidth;
    const most = Math.max(1, ...capacity, ...tops.at(-1));
    const span = end - times[0] || 1;
    this.x = (time) =>
      MARGIN.left + ((time - times[0]) / span) * (width - MARGIN.left - MARGIN.right);
    this.y = (servers) =>
      HEIGHT - MARGIN.bottom - (servers / most) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    this.cursor = svgElement("line", { class: "cursor", y1: MARGIN.top, y2: this.y(0) });
    setAttribute(this.svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(
      svgElement("desc", {}, this.#describe()),
      ...this.#drawAxes(most, span, width),
      ...layers.map(({ name }, place) => this.#drawArea(name, place)),
      svgElement("path", { class: "capacity", d: this.#steps(capacity) }),
      this.cursor,
    );
    this.slider.max = times.length - 1;
    this.#showLegend();
  }

  #drawArea(name, place) {
    const { times, tops } = this.#schedule;
    const below = place === 0 ? times.map(() => 0) : tops[place - 1];
    const back = this.#steps(below, true);
    return svgElement("path", {
      class: "area",
      fill: colourOf(name),
      d: `${this.#steps(tops[place])}L${back.slice(1)}Z`,
    });
  }

  #steps(values, isBackward = false) {
    const { times, end } = this.#schedule;
    const points = [];
    const add = (time, servers) =>
      points.push(`${this.x(time).toFixed(1)},${this.y(servers).toFixed(1)}`);
    values.forEach((servers, place) => {
      if (place > 0 && servers === values[place - 1]) return;
      if (place > 0) add(times[place], values[place - 1]);
      add(times[place], servers);
    });
    add(end, values.at(-1));
    return `M${(isBackward ? points.reverse() : points).join("L")}`;
  }

  #drawAxes(most, span, width) {
    const { end } = this.#schedule;
    const parts = [];
    const step = chooseServerStep(most);
    for (let servers = 0; servers <= most; servers += step) {
      const y = this.y(servers);
      parts.push(svgElement("line", { class: "grid", x1: MARGIN.left, x2: width, y1: y, y2: y }));
      const place = { class: "tick", x: MARGIN.left - 7, y: y + 4, "text-anchor": "end" };
      parts.push(svgElement("text", place, String(servers)));
    }
    const room = Math.max(2, Math.floor((width - MARGIN.left) / LEAST_DISTANCE));
    const distance = STEPS.find((seconds) => span / seconds <= room) ?? span / room;
    const label = (x, text, anchor) =>
      svgElement("text", { class: "tick", x, y: HEIGHT - 5, "text-anchor": anchor }, text);
    parts.push(label(width - MARGIN.right, "now", "end"));
    for (let ago = distance; ago <= span; ago += distance) {
      const x = this.x(end - ago);
      if (x > MARGIN.left + 12) parts.push(label(x, formatAgo(ago, distance), "middle"));
    }
    return parts;
  }

  #showLegend() {
    const { layers } = this.#schedule;
    // From top to bottom as in the figure.
    const names = layers.map(({ name }) => name).reverse();
    for (const name of [...this.entries.keys()])
      if (!names.includes(name)) this.entries.delete(name);
    for (const name of names)
      if (!this.entries.has(name)) this.entries.set(name, createEntry(name));
    setChildren(
      this.legend,
      names.map((name) => this.entries.get(name).node),
    );
    this.#showMoment();
  }

  #showMoment() {
    const { times, layers, capacity, tops } = this.#schedule;
    const last = times.length - 1;
    const place = this.#chosen ?? last;
    for (const { name, servers } of layers) {
      const entry = this.entries.get(name);
      setText(entry.value, String(round(servers[place])));
      entry.node.classList.toggle("is-idle", servers[place] === 0);
      entry.swatch.style.background = colourOf(name);
    }
    const held = `${round(tops.at(-1)[place])} of ${formatCount(round(capacity[place]), "server")}`;
    const moment = this.#nameMoment(place);
    setText(this.timeLabel, `${held} ${moment}`);
    if (this.#chosen === null) this.slider.value = last;
    const words = this.#listHolders(place);
    setAttribute(this.slider, "aria-valuetext", [`${held} ${moment}`, ...words].join(", "));
    const x = this.x(times[place]);
    setAttribute(this.cursor, "x1", x);
    setAttribute(this.cursor, "x2", x);
    this.cursor.classList.toggle("is-hidden", this.#chosen === null);
  }

  // Numbers are means over an interval; the last one reaches to now.
  #nameMoment(place) {
    const { times, end } = this.#schedule;
    const age = end - times[place];
    if (place < times.length - 1) return `${formatClock(age)} ago`;
    return age < 2 ? "now" : `in the last ${formatClock(age)}`;
  }

  #choose(place) {
    const last = (this.#schedule?.times.length ?? 1) - 1;
    this.#chosen = place === null || place >= last ? null : place;
    this.#showMoment();
  }

  #point(event) {
    const { times } = this.#schedule;
    const time = event.clientX - this.svg.getBoundingClientRect().left;
    let place = times.findLastIndex((candidate) => this.x(candidate) <= time);
    if (place < 0) place = 0;
    this.slider.value = place;
    this.#choose(place);
  }

  #listHolders(place) {
    const holding = this.#schedule.layers.filter(({ servers }) => servers[place] > 0);
    return holding.map(({ name, servers }) => `${name ?? OTHERS} ${round(servers[place])}`);
  }

  #describe() {
    const { times, end, capacity, tops } = this.#schedule;
    const total = tops.at(-1);
    const mean = total.reduce((sum, servers) => sum + servers, 0) / total.length;
    const words = this.#listHolders(times.length - 1);
    return [
      `Stacked areas of the servers that jobs held in the last ${formatClock(end - times[0])}.`,
      `On average ${mean.toFixed(1)} of ${formatCount(round(capacity.at(-1)), "server")} were held,`,
      `at most ${round(Math.max(...total))}.`,
      words.length ? `Now: ${joinWords(words)}.` : "Now no job holds servers.",
    ].join(" ");
  }
}

function createEntry(name) {
  const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
  const title =
    name === null ? element("span", {}, OTHERS) : element("a", { href: linkTo(name) }, name);
  const value = element("span", { class: "value" });
  return { node: element("li", {}, swatch, title, value), swatch, value };
}

/** Return the upper edge of each layer, the first one at the bottom. */
function stack(layers, length) {
  const sums = new Array(length).fill(0);
  const tops = layers.map(({ servers }) =>
    servers.map((number, place) => {
      sums[place] += number;
      return sums[place];
    }),
  );
  return tops.length ? tops : [sums];
}

function chooseServerStep(most) {
  for (let scale = 1; ; scale *= 10) {
    const step = [1, 2, 5].find((factor) => most / (factor * scale) <= 5);
    if (step) return step * scale;
  }
}

function round(servers) {
  return Math.round(10 * servers) / 10;
}
