// The list of jobs: filters, order and pages are the service's work; rows change as events come in.

import { api } from "./api.js";
import { byId, element, setAttribute, setChildren, setText } from "./dom.js";
import { formatCount, formatWhole } from "./format.js";
import { COLUMNS, JobRow } from "./job_row.js";
import { showError } from "./notices.js";
import { STATES } from "./service.js";

const PAGE = 25;
// How soon to reload if other jobs may belong here, in milliseconds; later if there are many.
const RELOAD_AFTER = 1000;
const RELOAD_AFTER_PER_JOB = 1;
const SEARCH_AFTER = 250;
const ORDERS = [
  ["state", "asc", "What runs first"],
  ["arrived", "desc", "Newest first"],
  ["arrived", "asc", "Oldest first"],
  ["eta", "asc", "Ends soonest first"],
  ["name", "asc", "By name"],
];
const DEFAULT = { state: "", group: "", search: "", sort: "state", order: "asc", page: "1" };

export class JobList {
  #rows = new Map();
  #shown = [];
  #total = 0;
  #timer = null;
  #request = null;
  #chips = new Map();
  #counts = ""; // when the list was loaded

  constructor(service) {
    this.service = service;
    this.view = { ...DEFAULT };
    this.heads = COLUMNS.map((column) => this.#createHead(column));
    this.body = element("tbody", { role: "rowgroup" });
    this.table = element(
      "table",
      { role: "table", class: "jobs", "aria-labelledby": "jobs-title" },
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...this.heads)),
      this.body,
    );
    this.empty = element("p", { class: "soft" });
    this.range = element("p", { class: "soft", "aria-live": "polite" });
    this.previous = this.#createPager("Previous", -1);
    this.next = this.#createPager("Next", 1);
    this.pager = element("nav", { class: "pager", "aria-label": "Pages of jobs" });
    this.pager.append(this.range, this.previous, this.next);
    byId("jobs").append(this.table, this.empty, this.pager);
    this.#createFilters();
    service.addEventListener("change", () => this.#showCounts());
  }

  /** Show the part of the list that an address asks for, such as "state=failed&page=2". */
  open(query) {
    this.view = { ...DEFAULT, ...Object.fromEntries(new URLSearchParams(query)) };
    this.#showFilters();
    return this.load();
  }

  /** Ask the service for the jobs of this page. */
  async load() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#request?.abort();
    this.#request = new AbortController();
    const { page, ...filters } = this.view;
    const query = { ...filters, offset: (Number(page) - 1) * PAGE, limit: PAGE };
    try {
      const { jobs, total, counts } = await api.jobs(query, this.#request.signal);
      this.#total = total;
      this.service.update({ counts });
      this.#counts = JSON.stringify(counts);
      if (jobs.length === 0 && total > 0) return this.#go({ page: Math.ceil(total / PAGE) });
      this.#show(jobs);
    } catch (error) {
      if (error.name !== "AbortError" && error.status > 0) showError(error);
    }
    return undefined;
  }

  /** Update the rows that are shown, and reload soon if others may belong on this page. */
  apply({ jobs, counts }) {
    for (const job of jobs) this.#rows.get(job.name)?.update(job);
    // Only a job that came, went or changed its state moves others to or from this page.
    if (JSON.stringify(counts) === this.#counts) return;
    const wait = RELOAD_AFTER + RELOAD_AFTER_PER_JOB * this.#total;
    this.#timer ??= setTimeout(() => this.load(), wait);
  }

  /** Show the times that pass by themselves. */
  tick() {
    for (const row of this.#shown) row.tick();
  }

  /** Offer these groups in the filter. */
  setGroups(names) {
    const select = byId("group-filter");
    const wanted = ["", ...names];
    select.hidden = names.length === 0 && !this.view.group;
    if ([...select.options].map((option) => option.value).join("\n") === wanted.join("\n")) return;
    select.replaceChildren(
      ...wanted.map((name) => element("option", { value: name }, name || "All groups")),
    );
    select.value = this.view.group;
  }

  #show(jobs) {
    const rows = new Map();
    for (const job of jobs) {
      const row = this.#rows.get(job.name) ?? new JobRow(job, this.service);
      row.update(job);
      rows.set(job.name, row);
    }
    this.#rows = rows;
    this.#shown = [...rows.values()];
    setChildren(
      this.body,
      this.#shown.map((row) => row.node),
    );
    const first = (Number(this.view.page) - 1) * PAGE;
    const last = first + jobs.length;
    this.table.hidden = jobs.length === 0;
    this.empty.hidden = jobs.length > 0;
    setText(this.empty, "No job matches.");
    const range = `${formatWhole(first + 1)}–${formatWhole(last)}`;
    setText(this.range, jobs.length ? `${range} of ${formatCount(this.#total, "job")}` : "");
    this.previous.disabled = first === 0;
    this.next.disabled = last >= this.#total;
    this.previous.hidden = this.next.hidden = this.#total <= PAGE;
  }

  #go(changes) {
    this.view = { page: "1", ...without(this.view, "page"), ...changes };
    const changed = Object.entries(this.view).filter(([key, value]) => value !== DEFAULT[key]);
    const query = new URLSearchParams(changed.map(([key, value]) => [key, String(value)]));
    // No new entry in the history for each letter of a search.
    history.replaceState(null, "", changed.length ? `#/?${query}` : "#/");
    this.#showFilters();
    return this.load();
  }

  #createFilters() {
    const states = ["", ...STATES.filter((state) => state !== "submitted")];
    for (const state of states) {
      const count = element("span", { class: "count" });
      const choose = () => this.#go({ state, page: "1" });
      const chip = element("button", { type: "button", click: choose }, state || "all", count);
      this.#chips.set(state, { chip, count });
      byId("state-filter").append(chip);
    }
    byId("order").append(
      ...ORDERS.map(([sort, order, text]) =>
        element("option", { value: `${sort} ${order}` }, text),
      ),
    );
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    byId("group-filter").addEventListener("change", (event) =>
      this.#go({ group: event.target.value, page: "1" }),
    );
    byId("order").addEventListener("change", (event) => {
      const [sort, order] = event.target.value.split(" ");
      this.#go({ sort, order, page: "1" });
    });
    let typing = null;
    byId("search").addEventListener("input", (event) => {
      clearTimeout(typing);
      const search = event.target.value.trim();
      typing = setTimeout(() => this.#go({ search, page: "1" }), SEARCH_AFTER);
    });
  }

  #showFilters() {
    const { state, group, search, sort, order } = this.view;
    for (const [value, { chip }] of this.#chips)
      setAttribute(chip, "aria-pressed", value === state);
    byId("group-filter").value = group;
    if (byId("search").value.trim() !== search) byId("search").value = search;
    byId("order").value = `${sort} ${order}`;
    COLUMNS.forEach((column, place) => {
      const direction =
        column.sort === sort ? { asc: "ascending", desc: "descending" }[order] : null;
      setAttribute(this.heads[place], "aria-sort", direction);
    });
  }

  #showCounts() {
    for (const [state, { chip, count }] of this.#chips) {
      const number = state ? this.service.count([state]) : this.service.count();
      setText(count, formatWhole(number));
      chip.hidden = number === 0 && state !== "" && state !== this.view.state;
    }
  }

  #createHead({ title, sort, isNumber, isHidden }) {
    const head = element("th", { role: "columnheader", scope: "col" });
    if (isNumber) head.classList.add("number");
    if (isHidden) head.classList.add("owner-only");
    if (sort) {
      const turn = () => {
        const isAscending = this.view.sort === sort && this.view.order === "asc";
        this.#go({ sort, order: isAscending ? "desc" : "asc", page: "1" });
      };
      head.append(element("button", { type: "button", class: "sort", click: turn }, title));
    } else head.append(isHidden ? element("span", { class: "visually-hidden" }, title) : title);
    return head;
  }

  #createPager(text, step) {
    const turn = async () => {
      await this.#go({ page: String(Number(this.view.page) + step) });
      byId("jobs-panel").scrollIntoView();
    };
    return element("button", { type: "button", class: "quiet", click: turn }, text);
  }
}

function without(values, key) {
  const { [key]: _, ...rest } = values;
  return rest;
}
