// The figures at the top: what runs now, in a few numbers.

import { byId, element, setAttribute, setText } from "./dom.js";
import { formatAmount, formatDuration, formatExcess, formatWhole } from "./format.js";

export class Tiles {
  #tiles = new Map();

  /** Show the counts of jobs, the servers and resources held, and how good the schedule is. */
  show(service, schedule) {
    const { servers, counts } = service;
    if (servers === null) return;
    this.#set("servers", "servers held", formatWhole(servers.held), `of ${formatWhole(servers.servers)}`);
    this.#set("running", "running", formatWhole(counts.running ?? 0));
    this.#set("waiting", "waiting", formatWhole((counts.waiting ?? 0) + (counts.submitted ?? 0)));
    this.#set("paused", "paused", counts.paused ? formatWhole(counts.paused) : "");
    this.#set("done", "done", formatWhole(counts.done ?? 0));
    this.#set("failed", "failed", counts.failed ? formatWhole(counts.failed) : "");
    for (const [kind, { total, free }] of Object.entries(servers.resources ?? {})) {
      this.#set(
        `resource-${kind}`,
        `${kind} held`,
        formatAmount(total - free, kind),
        `of ${formatAmount(total, kind)}`,
      );
    }
    const mean = schedule?.mean_flow_time ?? null;
    this.#set("mean", "mean flow time", mean === null ? "" : formatDuration(mean));
    const ratio = schedule?.bound?.ratio ?? null;
    const excess = ratio === null || ratio >= 2 ? "" : `≤ ${formatExcess(ratio)}`;
    this.#set("bound", "above the bound", excess);
  }

  #set(key, title, value, detail = "") {
    if (!this.#tiles.has(key)) {
      const parts = {
        value: element("span", { class: "value" }),
        detail: element("span", { class: "soft" }),
      };
      const node = element("div", { class: "tile" });
      node.append(element("dt", {}, title), element("dd", {}, parts.value, " ", parts.detail));
      this.#tiles.set(key, { ...parts, node });
      byId("tiles").append(node);
    }
    const tile = this.#tiles.get(key);
    setText(tile.value, value);
    setText(tile.detail, detail);
    setAttribute(tile.node, "hidden", value === "" ? "" : null);
    setAttribute(tile.node, "data-tile", key);
  }
}
