// Groups of jobs: what they hold, their weights, and pausing all their jobs at once.

import { api } from "./api.js";
import { byId, element, setAttribute, setChildren, setText } from "./dom.js";
import { formatNumber } from "./format.js";
import { performOn } from "./job_actions.js";
import { createWeightForm } from "./weight_form.js";

export class Groups {
  #rows = new Map();

  constructor(service) {
    this.service = service;
    this.body = element("tbody", {});
    const heads = ["Group", "Jobs", "Servers", "Weight"].map((title, place) =>
      element("th", { scope: "col", class: place ? "number" : null }, title),
    );
    heads.push(
      element(
        "th",
        { scope: "col", class: "owner-only" },
        element("span", { class: "visually-hidden" }, "Actions"),
      ),
    );
    byId("groups").append(
      element(
        "table",
        { class: "groups", "aria-labelledby": "groups-title" },
        element("thead", {}, element("tr", {}, ...heads)),
        this.body,
      ),
    );
  }

  /** Return whether a group is shown. */
  has(name) {
    return this.#rows.has(name);
  }

  /** Ask the service for its groups, show them, and return their names. */
  async load() {
    const { groups } = await api.groups();
    const rows = new Map(
      groups.map((group) => [group.name, this.#rows.get(group.name) ?? this.#createRow(group)]),
    );
    this.#rows = rows;
    for (const group of groups) rows.get(group.name).update(group);
    setChildren(
      this.body,
      [...rows.values()].map((row) => row.node),
    );
    byId("groups-panel").hidden = groups.length === 0;
    return groups.map((group) => group.name);
  }

  #createRow(first) {
    let group = first;
    const cells = {
      jobs: numberCell("jobs"),
      servers: numberCell("servers"),
      weight: numberCell("weight"),
    };
    const state = element("span", { class: "tag" }, "paused");
    const change = async (values) => {
      const answer = await performOn(group, () => api.changeGroup(group.name, values));
      if (answer) this.load();
    };
    const pause = element("button", { type: "button", class: "quiet small" });
    pause.addEventListener("click", () => change({ paused: !group.paused }));
    const weight = createWeightForm(`Weight of group ${first.name}`, (value) =>
      change({ weight: value }),
    );
    const link = element("a", { href: `#/?group=${encodeURIComponent(first.name)}` }, first.name);
    const node = element(
      "tr",
      {},
      element("th", { scope: "row" }, link, state),
      ...Object.values(cells),
      element("td", { class: "owner-only actions" }, weight.node, pause),
    );
    const update = (current) => {
      group = current;
      setText(cells.jobs, String(current.jobs ?? ""));
      setText(cells.servers, String(current.servers ?? ""));
      setText(cells.weight, formatNumber(current.weight));
      state.hidden = !current.paused;
      setText(pause, current.paused ? "Resume" : "Pause");
      setAttribute(
        pause,
        "aria-label",
        `${current.paused ? "Resume" : "Pause"} group ${current.name}`,
      );
      weight.update(current.weight);
    };
    return { node, update };
  }
}

function numberCell(title) {
  return element("td", { class: "number", "data-title": title });
}
