// The live connection: server-sent events, and what happens when they stop.

import { ApiError, addressOf, api } from "./api.js";

const FIRST_WAIT = 0.5; // seconds; doubled after each failure
const LONGEST_WAIT = 15;
// A connection may die without a word, for example while a laptop sleeps. So ask now and then.
const CHECK_EVERY = 20_000; // milliseconds

/** Sends "open", "change" (the change in `detail`), "lost" (the seconds to wait) and "refused". */
export class Connection extends EventTarget {
  #source = null;
  #failures = 0;
  #timer = null;

  start() {
    this.#connect();
    setInterval(() => this.#check(), CHECK_EVERY);
    addEventListener("online", () => this.retry());
    document.addEventListener("visibilitychange", () => !document.hidden && this.#check());
  }

  /** Try now instead of later. */
  retry() {
    if (this.#source === null || this.#source.readyState !== EventSource.OPEN) this.#connect();
  }

  #connect() {
    clearTimeout(this.#timer);
    this.#source?.close();
    const source = new EventSource(addressOf(["events"]));
    this.#source = source;
    source.addEventListener("open", () => {
      this.#failures = 0;
      this.#send("open");
    });
    source.addEventListener("change", (event) => this.#send("change", JSON.parse(event.data)));
    source.addEventListener("error", () => source === this.#source && this.#lose());
  }

  async #lose() {
    // The browser would try again every few seconds for ever, and cannot tell a wrong token.
    this.#source.close();
    this.#source = null;
    const wait = Math.min(FIRST_WAIT * 2 ** this.#failures, LONGEST_WAIT);
    this.#failures += 1;
    this.#timer = setTimeout(() => this.#connect(), 1000 * wait);
    this.#send("lost", { wait });
    try {
      await api.servers();
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401) return;
      clearTimeout(this.#timer);
      this.#send("refused");
    }
  }

  async #check() {
    if (this.#source?.readyState !== EventSource.OPEN) return;
    const source = this.#source;
    try {
      await api.servers();
    } catch {
      if (source === this.#source) this.#lose();
    }
  }

  #send(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
