// What failed of a job: its items, and what was to be done at its end.

import { createPanel, element } from "./dom.js";
import { formatCount } from "./format.js";

/** A panel with a list of failures, which is hidden while there are none. */
export class FailureList {
  #shown = "";

  constructor(title, tag, createEntry) {
    this.list = element(tag, {});
    this.createEntry = createEntry;
    this.node = createPanel(title, this.list);
  }

  /** Show failures. Those that are shown already are left alone, because they may be unfolded. */
  show(failures, title = null) {
    const text = JSON.stringify(failures);
    this.node.hidden = failures.length === 0;
    if (text === this.#shown) return;
    this.#shown = text;
    if (title !== null) this.node.querySelector("h2").textContent = title;
    this.list.replaceChildren(...failures.map(this.createEntry));
  }
}

/** Return why an item failed. */
export function createFailure({ item, value, attempts, error, traceback }) {
  const name = value || `item ${item}`;
  const summary = element(
    "summary",
    {},
    element("span", { class: "code" }, name),
    element("span", { class: "is-error" }, error.split("\n", 1)[0]),
    element("span", { class: "soft" }, `after ${formatCount(attempts, "attempt")}`),
  );
  return element(
    "details",
    { class: "failure" },
    summary,
    element(
      "pre",
      { class: "log", tabindex: 0, "aria-label": `Traceback of ${name}` },
      traceback || error,
    ),
  );
}

/** Return why a hook failed. */
export function createHook({ target, error, attempts, pending }) {
  const tries = `after ${formatCount(attempts, "attempt")}`;
  return element(
    "li",
    { class: "hook" },
    target === null
      ? element("span", { class: "soft" }, "what it calls is shown to the owner only")
      : element("span", { class: "code" }, target),
    element("span", { class: "is-error" }, error.split("\n", 1)[0]),
    element("span", { class: "soft" }, pending ? `${tries}; is tried again` : `${tries}; given up`),
  );
}
