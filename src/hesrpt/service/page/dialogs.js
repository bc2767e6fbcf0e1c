// A question before something that stops work.

import { byId, setText } from "./dom.js";

/** Ask, and return whether the answer is yes. Escape and a click beside the question mean no. */
export function confirm({ title, text, yes, no }) {
  const dialog = byId("confirm");
  const texts = { title, text, yes, no };
  for (const [part, words] of Object.entries(texts)) setText(byId(`confirm-${part}`), words);
  return new Promise((resolve) => {
    const listening = new AbortController();
    const on = (node, event, act) =>
      node.addEventListener(event, act, { signal: listening.signal });
    const answer = (isYes) => {
      listening.abort();
      dialog.close();
      resolve(isYes);
    };
    on(byId("confirm-yes"), "click", () => answer(true));
    on(byId("confirm-no"), "click", () => answer(false));
    on(dialog, "click", (event) => event.target === dialog && answer(false));
    on(dialog, "cancel", () => answer(false));
    dialog.showModal();
    byId("confirm-no").focus();
  });
}
