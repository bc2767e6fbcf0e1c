// The output of a job: what there is, and while the job runs, what comes.

import { addressOf, api } from "./api.js";
import { element, setText } from "./dom.js";

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
  #item = null; // whose output came last
  #frame = null;

  constructor(job) {
    this.name = job.name;
    this.hasItems = job.items === null || job.items > 1;
    this.output = element("pre", {
      class: "log",
      tabindex: 0,
      role: "region",
      "aria-label": `Output of ${job.name}`,
      hidden: true,
    });
    this.state = element("p", { class: "soft" });
  }

  /** Show the output so far, and follow it while the job runs. */
  async open(isRunning) {
    this.close();
    this.#text = "";
    this.#item = null;
    if (isRunning) {
      this.#follow();
      return;
    }
    try {
      this.#text = await api.logs(this.name);
      this.#show();
    } catch (error) {
      setText(this.state, error.message);
    }
  }

  close() {
    this.#source?.close();
    this.#source = null;
  }

  #follow() {
    this.#show();
    // The stream begins with all that was printed so far.
    const source = new EventSource(addressOf(["jobs", this.name, "logs"], { follow: 1 }));
    this.#source = source;
    source.addEventListener("message", (event) => {
      const { item, title, text } = JSON.parse(event.data);
      if (this.hasItems && item !== this.#item) this.#text += `--- ${title}\n`;
      this.#item = item;
      this.#text += text;
      // Many messages may come at once, and drawing is slow.
      this.#frame ??= requestAnimationFrame(() => this.#show());
    });
    // When the page is connected again after an error, it opens this anew.
    for (const end of ["end", "error"]) source.addEventListener(end, () => source.close());
  }

  #show() {
    this.#frame = null;
    this.#text = this.#text.slice(-MOST);
    const { output } = this;
    const isAtEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 30;
    output.textContent = cleanText(this.#text);
    output.hidden = this.#text === "";
    setText(this.state, this.#text === "" ? "No output." : "");
    this.state.hidden = this.#text !== "";
    if (isAtEnd) output.scrollTop = output.scrollHeight;
  }
}
