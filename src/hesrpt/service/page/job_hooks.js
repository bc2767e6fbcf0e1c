// What was to be done at the end of a job, and failed.

import { createPanel, element } from "./dom.js";
import { formatCount } from "./format.js";

export class JobHooks {
  #shown = "";

  constructor() {
    this.list = element("ul", {});
    this.node = createPanel("Hooks", this.list);
  }

  /** Show the hooks that have failed. */
  show(hooks) {
    const failed = hooks.filter(({ error }) => error !== null);
    const text = JSON.stringify(failed);
    this.node.hidden = failed.length === 0;
    if (text === this.#shown) return;
    this.#shown = text;
    this.list.replaceChildren(...failed.map(createHook));
  }
}

function createHook({ target, error, attempts, pending }) {
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
