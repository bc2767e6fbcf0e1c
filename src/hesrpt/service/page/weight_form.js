// A field for a weight, and the button that sets it.

import { element } from "./dom.js";

let forms = 0;

/** Return a form that calls `set` with a number, and a function that shows the current weight. */
export function createWeightForm(label, set) {
  forms += 1;
  const id = `weight-${forms}`;
  const input = element("input", { id, type: "number", min: 0, step: "any", required: true });
  const form = element(
    "form",
    { class: "weight owner-only" },
    element("label", { for: id, class: "visually-hidden" }, label),
    input,
    element("button", { type: "submit", class: "quiet small" }, "Set weight"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    set(input.valueAsNumber);
  });
  const update = (weight) => {
    // Somebody may be typing.
    if (document.activeElement !== input) input.value = weight;
  };
  return { node: form, update };
}
