// What the page knows of the service as a whole: its servers, its clock, counts, and who looks.

const ACTIVE = ["running", "waiting", "paused", "submitted"];

/** All states, in the order in which the page shows them. */
export const STATES = [...ACTIVE, "failed", "done", "cancelled"];

/** Return whether a job has not ended. */
export function isActive(job) {
  return ACTIVE.includes(job.state);
}

/** Sends "change" whenever what it knows has changed. */
export class Service extends EventTarget {
  servers = null;
  counts = {};
  #clockOffset = 0; // what to add to the clock of this browser

  /** Take in what the service said about itself. */
  update({ servers, counts }) {
    if (servers) {
      this.servers = { ...this.servers, ...servers };
      this.#clockOffset = servers.time - Date.now() / 1000;
      document.body.dataset.access = this.servers.access;
    }
    if (counts) this.counts = counts;
    this.dispatchEvent(new Event("change"));
  }

  /** The time by the clock of the service. */
  get time() {
    return Date.now() / 1000 + this.#clockOffset;
  }

  /** The number of jobs in some states, or in all. */
  count(states = STATES) {
    return states.reduce((total, state) => total + (this.counts[state] ?? 0), 0);
  }

  countActive() {
    return this.count(ACTIVE);
  }
}
