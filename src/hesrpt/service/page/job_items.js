// The items of a job, a page at a time.

import { api } from "./api.js";
import { createPanel, element, setChildren, setText } from "./dom.js";
import { formatCount, formatDuration, formatWhole } from "./format.js";
import { createState } from "./job_row.js";

const PAGE = 25;

export class JobItems {
  #offset = 0;

  constructor(job) {
    this.name = job.name;
    this.isCommand = job.command_full !== null;
    const heads = ["Item", "State", "Time", "Attempts"].map((title, place) =>
      element("th", { scope: "col", class: place > 1 ? "number" : null }, title),
    );
    this.body = element("tbody", {});
    const table = element("table", { class: "items", "aria-label": `Items of ${job.name}` });
    table.append(element("thead", {}, element("tr", {}, ...heads)), this.body);
    this.range = element("p", { class: "soft" });
    this.previous = this.#createPager("Previous", -PAGE);
    this.next = this.#createPager("Next", PAGE);
    this.pager = element("nav", { class: "pager", "aria-label": "Pages of items" });
    this.pager.append(this.range, this.previous, this.next);
    this.node = createPanel("Items", table, this.pager);
    this.node.hidden = true; // until they are known
  }

  /** Ask the service for the items of this page. */
  async load() {
    const { items, total } = await api.items(this.name, this.#offset, PAGE);
    // A single command has one item without a name, of which the page has told everything.
    this.node.hidden = total === 0 || (this.isCommand && total === 1 && items[0]?.value === "");
    setChildren(this.body, items.map(createRow));
    const last = this.#offset + items.length;
    setText(this.range, `${formatWhole(this.#offset + 1)}–${formatWhole(last)} of ${formatCount(total, "item")}`);
    this.previous.disabled = this.#offset === 0;
    this.next.disabled = last >= total;
    this.pager.hidden = total <= PAGE;
  }

  #createPager(text, step) {
    const turn = () => {
      this.#offset = Math.max(0, this.#offset + step);
      return this.load();
    };
    return element("button", { type: "button", class: "quiet small", click: turn }, text);
  }
}

function createRow({ item, value, state, seconds, attempts }) {
  const name = value || `item ${item}`; // those of Python functions have no names
  return element(
    "tr",
    {},
    element("th", { scope: "row", class: "code" }, name),
    element("td", {}, createState(state).node),
    element("td", { class: "number" }, seconds === null ? "" : formatDuration(seconds)),
    element("td", { class: "number" }, String(attempts)),
  );
}
