// One row of the list of jobs. It is created once and updated in place, so that it keeps the focus.

import { colourOf, hasColour } from "./colours.js";
import { element, setAttribute, setText } from "./dom.js";
import { formatClock, formatDuration, formatWhole, joinWords } from "./format.js";
import { offerActions } from "./job_actions.js";
import { isActive } from "./service.js";

/** The columns: a heading, and the order that a click on it asks for. */
export const COLUMNS = [
  { title: "Job", sort: "name" },
  { title: "State", sort: "state" },
  { title: "Progress" },
  { title: "Servers", isNumber: true },
  { title: "Time", isNumber: true },
  { title: "Left", sort: "eta", isNumber: true },
  { title: "Actions", isHidden: true },
];

// How many characters of a command or of an error are shown; the style cuts them to one line.
const MAX_NOTE = 300;

/** Return the address of the page of a job. */
export function linkTo(name) {
  return `#/jobs/${encodeURIComponent(name)}`;
}

/** Say what a job waits for, or return "". */
export function describeWait(job) {
  if (job.waits_for.length > 3) return `after ${job.waits_for.length} jobs`;
  if (job.waits_for.length > 0) return `after ${joinWords(job.waits_for)}`;
  return job.waits_because;
}

/** Say how many servers a job holds, and how many are planned if they differ. */
export function describeServers(job) {
  if (!isActive(job)) return "";
  const isChanging = job.planned !== null && job.planned !== job.servers;
  return isChanging ? `${job.servers} → ${job.planned}` : String(job.servers);
}

/** Say how much time a job is predicted to need; `age` is how old the prediction is. */
export function describeLeft(job, age) {
  if (job.eta === null || !isActive(job)) return "";
  const left = job.eta - age;
  return left > 0.5 ? formatClock(left) : "soon";
}

/** Say how long a job is or was in the system. */
export function describeTime(job, time) {
  if (job.flow_time !== null && !isActive(job)) return formatDuration(job.flow_time);
  return job.arrived === null ? "" : formatClock(time - job.arrived);
}

/** Return a bar with the progress of a job, and a function that updates it. */
export function createProgress(job) {
  const bar = element("progress", { max: 1, "aria-label": `Progress of ${job.name}` });
  const text = element("span", { class: "items" });
  const update = (current) => {
    // A single command tells nothing of its progress.
    const isSingle = current.items === 1;
    const isKnown = current.progress !== null && !(isSingle && isActive(current));
    bar.hidden = !isKnown;
    if (isKnown) bar.value = current.progress;
    setAttribute(bar, "class", `is-${current.state}`);
    const failed = current.failed ? `, ${formatWhole(current.failed)} failed` : "";
    const count = (items) => `${formatWhole(current.done)}/${formatWhole(items)}${failed}`;
    setText(text, current.items === null || isSingle ? "" : count(current.items));
  };
  update(job);
  return { node: element("div", { class: "progress" }, bar, text), update };
}

/** Return the state of a job or an item with its colour. */
export function createState(state) {
  const node = element("span", {});
  const update = (current) => {
    setAttribute(node, "class", `state is-${current.replaceAll(" ", "-")}`);
    setText(node, current);
  };
  update(state);
  return { node, update };
}

export class JobRow {
  constructor(job, service) {
    this.job = job;
    this.service = service;
    this.swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    const address = { href: linkTo(job.name), title: job.name };
    this.link = element("a", { ...address, class: "name" }, job.name);
    this.group = element("span", { class: "tag" });
    this.note = element("span", {});
    this.state = createState(job.state);
    this.progress = createProgress(job);
    this.cells = {
      job: this.#cell("rowheader", "job", this.swatch, this.link, this.group, this.note),
      state: this.#cell("cell", "state-cell", this.state.node),
      progress: this.#cell("cell", "progress-cell", this.progress.node),
      servers: this.#cell("cell", "number servers"),
      time: this.#cell("cell", "number time"),
      left: this.#cell("cell", "number left"),
      actions: this.#cell("cell", "actions owner-only"),
    };
    this.node = element("tr", { role: "row" }, ...Object.values(this.cells));
    this.buttons = {};
    this.update(job);
  }

  /** Show a newer state of the job. */
  update(job) {
    this.job = job;
    this.updated = this.service.time;
    this.state.update(job.state);
    this.progress.update(job);
    setText(this.group, job.group);
    this.group.hidden = !job.group;
    this.#describe();
    setText(this.cells.servers, describeServers(job));
    this.cells.servers.dataset.unit = (job.planned ?? job.servers) === 1 ? "server" : "servers";
    offerActions(this.cells.actions, this.buttons, () => this.job, this.link);
    this.tick();
  }

  /** Show the times that pass by themselves, and the colour in the areas. */
  tick() {
    const { time } = this.service;
    setText(this.cells.time, describeTime(this.job, time));
    setText(this.cells.left, describeLeft(this.job, time - this.updated));
    this.swatch.classList.toggle("is-none", !hasColour(this.job.name));
    this.swatch.style.background = colourOf(this.job.name);
  }

  #describe() {
    const { job } = this;
    const wait = isActive(job) ? describeWait(job) : "";
    const error = job.state === "failed" ? job.error : "";
    const note = wait ? `waits: ${wait}` : error || job.command || "";
    setText(this.note, note.slice(0, MAX_NOTE));
    setAttribute(this.note, "class", wait ? "note" : error ? "note is-error" : "note code");
  }

  #cell(role, className, ...children) {
    // The roles are explicit because narrow screens show rows as cards.
    const tag = role === "rowheader" ? "th" : "td";
    const scope = tag === "th" ? "row" : null;
    return element(tag, { role, class: className, scope }, ...children);
  }
}
