// What the page says: answers of the service, errors, and news for screen readers.

import { byId, element } from "./dom.js";
import { formatCount, joinWords } from "./format.js";

const ANSWER_STAYS = 7000; // milliseconds; errors stay until they are dismissed
const NEWS_EVERY = 4000;
const NEWS_AFTER = 500; // others may end together
const ENDS = { done: "done", failed: "failed", cancelled: "cancelled" };

/** Show the answer of the service to a request. */
export function showAnswer(text) {
  const notice = add("answers", text);
  setTimeout(() => notice.remove(), ANSWER_STAYS);
}

/** Show why something did not work. */
export function showError(error) {
  add("errors", error.message);
}

/** Show nothing more of earlier errors. */
export function clearErrors() {
  byId("errors").replaceChildren();
}

function add(id, text) {
  const notice = element("div", { class: "notice" });
  const close = () => notice.remove();
  notice.append(
    element("p", {}, text),
    element(
      "button",
      { type: "button", class: "icon", "aria-label": "Dismiss", click: close },
      "×",
    ),
  );
  byId(id).append(notice);
  return notice;
}

/** Tells screen readers which jobs have ended: a sentence every few seconds at most. */
export class Announcer {
  #ended = new Map();
  #timer = null;
  #told = 0;

  /** Note jobs that changed; those that ended after `since` are news. */
  note(jobs, since) {
    for (const job of jobs) {
      if (job.state in ENDS && job.ended > since) this.#ended.set(job.name, job.state);
    }
    if (this.#ended.size === 0) return;
    const wait = Math.max(NEWS_AFTER, this.#told + NEWS_EVERY - Date.now());
    this.#timer ??= setTimeout(() => this.#tell(), wait);
  }

  say(text) {
    byId("announcer").replaceChildren(element("p", {}, text));
  }

  #tell() {
    const names = [...this.#ended];
    this.#timer = null;
    this.#told = Date.now();
    this.#ended = new Map();
    if (names.length <= 3) {
      this.say(joinWords(names.map(([name, state]) => `${name} ${ENDS[state]}`)));
      return;
    }
    const parts = Object.keys(ENDS).map((state) => {
      const count = names.filter(([, ended]) => ended === state).length;
      return count ? `${formatCount(count, "job")} ${state}` : "";
    });
    this.say(joinWords(parts.filter(Boolean)));
  }
}
