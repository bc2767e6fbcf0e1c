// The output of a job, live: what there is, then what comes.

import { addressOf, api } from "./api.js";
import { element } from "./dom.js";

const MOST = 200_000; // characters; older ones are dropped
// Colours and movements of the cursor, as terminals understand them.
const TERMINAL_CODES = /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007]*\u0007|\u001b[@-_]/g;

/** Return text as a terminal would leave it: without codes, and overwritten lines once. */
export function cleanText(text) {
  const plain = text.replace(TERMINAL_CODES, "").replaceAll("\r\n", "\n");
  return plain.replace(/[^\n]*\r(?=[^\n])/g, "");
}

export class JobLog {
  #source = null;
  #text = "";

  constructor(job) {
    this.name = job.name;
    this.output = element("pre", {
      class: "log",
      tabindex: 0,
      role: "region",
      "aria-label": `Output of ${job.name}`,
    });
    this.state = element("p", { class: "soft" });
  }

  /** Show the output so far, and follow it while the job runs. */
  async open(isRunning) {
    this.close();
    try {
      this.#text = await api.logs(this.name, "");
      this.#show();
    } catch (error) {
      this.state.textContent = error.message;
      return;
    }
    if (isRunning) this.#follow();
  }

  close() {
    this.#source?.close();
    this.#source = null;
  }

  #follow() {
    const query = { follow: 1, tail: 0 };
    this.#source = new EventSource(addressOf(["jobs", this.name, "logs"], query));
    this.#source.addEventListener("message", (event) => {
      this.#text += JSON.parse(event.data).text;
      this.#show();
    });
    this.#source.addEventListener("error", () => this.close());
  }

  #show() {
    this.#text = this.#text.slice(-MOST);
    const { output } = this;
    const isAtEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 30;
    output.textContent = cleanText(this.#text);
    this.state.textContent = this.#text ? "" : "No output yet.";
    output.hidden = !this.#text;
    if (isAtEnd) output.scrollTop = output.scrollHeight;
  }
}
