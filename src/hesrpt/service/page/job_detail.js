// The page of one job: what it is, how far it is, what failed, its output and its items.

import { api } from "./api.js";
import { createPanel, element, setAttribute, setText } from "./dom.js";
import { formatAmount, formatClock, formatCount, formatDuration, formatWhole } from "./format.js";
import { offerActions, setWeight } from "./job_actions.js";
import { FailureList, createFailure, createHook } from "./job_failures.js";
import { JobItems } from "./job_items.js";
import { JobLog } from "./job_log.js";
import {
  createProgress,
  createState,
  describeLeft,
  describeServers,
  describeTime,
  describeWait,
  linkTo,
} from "./job_row.js";
import { showError } from "./notices.js";
import { isActive } from "./service.js";
import { createWeightForm } from "./weight_form.js";

const RELOAD_EVERY = 2000; // milliseconds, while the job changes
const RELOAD_HOOKS_EVERY = 5000; // while hooks are to be called

export class JobDetail {
  #timer = null;
  #isOpen = false;
  #buttons = {};
  #facts = new Map();

  constructor(service, job) {
    this.service = service;
    this.job = job;
    this.#build();
  }

  /** Show the job in `root`, and its output and items as they come. */
  open(root) {
    this.#isOpen = true;
    root.replaceChildren(this.node);
    this.#showAll(this.job);
    this.items.load().catch(showError);
    this.log.open(isActive(this.job));
  }

  close() {
    this.#isOpen = false;
    clearTimeout(this.#timer);
    this.log.close();
  }

  /** Show a newer state of the job, and ask for the rest of it soon. */
  update(job) {
    const wasActive = isActive(this.job);
    this.job = { ...this.job, ...job };
    this.updated = this.service.time;
    this.state.update(job.state);
    this.progress.update(job);
    this.weight.update(job.weight);
    this.weight.node.hidden = !isActive(job);
    if (job.failed === 0) this.failures.show([]);
    const wait = isActive(job) ? describeWait(job) : "";
    setText(this.wait, wait ? `Waits: ${wait}` : "");
    this.wait.hidden = !wait;
    setText(this.error, job.error ?? "");
    this.error.hidden = !job.error || this.job.failures.length > 0;
    const done = (answer) => answer.job && this.update(answer.job);
    offerActions(this.actions, this.#buttons, () => this.job, this.title, { withText: true, done });
    this.#showFacts();
    if (isActive(job) && !wasActive) this.log.open(true);
  }

  /** Take in a change that the service announced. */
  apply({ jobs, removed }) {
    const job = jobs.find(({ name }) => name === this.job.name);
    if (job) {
      this.update(job);
      this.#reloadIn(RELOAD_EVERY);
    }
    return !removed.includes(this.job.name);
  }

  /** Ask the service for everything again. */
  async reload() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const job = await api.job(this.job.name);
    if (!this.#isOpen) return;
    this.#showAll(job);
    await this.items.load();
  }

  #showAll(job) {
    this.failures.show(job.failures, formatCount(job.failures.length, "failure"));
    this.hooks.show(job.hooks.filter(({ error }) => error !== null));
    this.update(job);
    // The service announces what becomes of jobs, but not of their hooks.
    if (job.hooks.some(({ pending }) => pending)) this.#reloadIn(RELOAD_HOOKS_EVERY);
  }

  #reloadIn(wait) {
    this.#timer ??= setTimeout(() => this.reload().catch(() => {}), wait);
  }

  /** Catch up after the connection was lost. */
  async reconnect() {
    await this.reload();
    await this.log.open(isActive(this.job));
  }

  /** Show the times that pass by themselves. */
  tick() {
    this.#showFacts();
  }

  #build() {
    const { job } = this;
    this.state = createState(job.state);
    this.progress = createProgress(job);
    this.actions = element("div", { class: "job-actions owner-only" });
    this.weight = createWeightForm(`Weight of ${job.name}`, async (weight) => {
      const answer = await setWeight(this.job, weight);
      if (answer) this.update(answer.job);
    });
    this.wait = element("p", { class: "wait" });
    this.error = element("p", { class: "form-error" });
    this.list = element("dl", { class: "facts" });
    this.failures = new FailureList("Failures", "div", createFailure);
    this.hooks = new FailureList("Hooks", "ul", createHook);
    this.log = new JobLog(job);
    this.items = new JobItems(job);
    const group = element(
      "a",
      { class: "tag", href: `#/?group=${encodeURIComponent(job.group)}` },
      job.group,
    );
    group.hidden = !job.group;
    this.title = element("h1", { id: "job-title", tabindex: -1 }, job.name);
    this.node = element(
      "article",
      { "aria-labelledby": "job-title" },
      element("p", {}, element("a", { href: "#/", class: "back" }, "All jobs")),
      element(
        "section",
        { class: "panel" },
        element("div", { class: "job-head" }, this.title, this.state.node, group, this.actions),
        this.progress.node,
        this.wait,
        this.error,
        job.command_full ? element("pre", { class: "command" }, job.command_full) : null,
        this.list,
        this.weight.node,
      ),
      this.failures.node,
      this.hooks.node,
      createPanel("Output", this.log.state, this.log.output),
      this.items.node,
    );
  }

  #showFacts() {
    const { job, service } = this;
    const { time } = service;
    const limits = [
      job.min_servers > 1 ? `at least ${job.min_servers}` : "",
      job.max_servers ? `at most ${job.max_servers}` : "",
    ];
    this.#setFact("Servers", describeServers(job));
    this.#setFact("Left", describeLeft(job, time - this.updated));
    this.#setFact(isActive(job) ? "Time so far" : "Flow time", describeTime(job, time));
    this.#setFact(isActive(job) ? "Flow time" : "Time so far", "");
    this.#setFact("Weight", job.weight === 1 && isActive(job) ? "1" : String(job.weight));
    this.#setFact("Limits", limits.filter(Boolean).join(", "));
    this.#setFact(
      "Needs",
      Object.entries(job.resources)
        .map(([kind, amount]) => `${formatAmount(amount, kind)} ${kind}`)
        .join(", "),
    );
    this.#setFact("Time limit", job.timeout ? describeTimeout(job) : "");
    this.#setFact("Retries", formatWhole(job.retries));
    this.#setFact("Arrived", describeAge(job.arrived, time));
    this.#setFact("Ended", describeAge(job.ended, time));
    this.#setFact("Work on one server", job.size ? formatDuration(job.size) : "");
    this.#setFact("Speedup on k servers", job.p ? `k^${job.p.toFixed(2)}` : "");
    this.#setFact("Directory", job.cwd ?? "");
    this.#setLinks("After", job.after);
  }

  #setFact(title, text) {
    const value = this.#getFact(title, text === "");
    setText(value, text);
  }

  #setLinks(title, names) {
    const value = this.#getFact(title, names.length === 0);
    if (value.childElementCount === names.length) return;
    value.replaceChildren(...names.map((name) => element("a", { href: linkTo(name) }, name)));
  }

  #getFact(title, isHidden) {
    if (!this.#facts.has(title)) {
      const value = element("dd", {});
      const node = element("div", {}, element("dt", {}, title), value);
      this.#facts.set(title, { node, value });
      this.list.append(node);
    }
    const { node, value } = this.#facts.get(title);
    setAttribute(node, "hidden", isHidden ? "" : null);
    return value;
  }
}

function describeTimeout({ timeout, items }) {
  return formatDuration(timeout) + (items === 1 ? "" : " for an item");
}

function describeAge(then, time) {
  return then === null ? "" : `${formatClock(time - then)} ago`;
}
