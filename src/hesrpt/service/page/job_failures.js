// The items of a job that failed, and why.

import { element } from "./dom.js";
import { formatCount } from "./format.js";

export class Failures {
  #shown = "";

  constructor() {
    this.title = element("h2", { id: "job-failures" });
    this.list = element("div", {});
    const head = element("div", { class: "panel-head" }, this.title);
    this.node = element(
      "section",
      { class: "panel", "aria-labelledby": "job-failures" },
      head,
      this.list,
    );
  }

  /** Show failures. Those that are shown already are left alone, because they may be unfolded. */
  show(failures) {
    const text = JSON.stringify(failures);
    this.node.hidden = failures.length === 0;
    if (text === this.#shown) return;
    this.#shown = text;
    this.title.textContent = formatCount(failures.length, "failure");
    this.list.replaceChildren(...failures.map(createFailure));
  }
}

function createFailure({ item, value, attempts, error, traceback }) {
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
