// What can be done with a job: which buttons it has, the question before, the answer after.

import { api } from "./api.js";
import { confirm } from "./dialogs.js";
import { element, setChildren, svgElement } from "./dom.js";
import { formatCount, formatWhole } from "./format.js";
import { clearErrors, showAnswer, showError } from "./notices.js";
import { isActive } from "./service.js";

/** Send a request, and show what the service did or why not; return its answer, or null. */
export async function perform(request, describe) {
  clearErrors();
  try {
    const answer = await request();
    showAnswer(describe(answer));
    return answer;
  } catch (error) {
    showError(error);
    return null;
  }
}

/** Send a request about a job or a group, and show the words of the service about it. */
export function performOn({ name }, request) {
  return perform(request, ({ text }) => `${name}: ${text}.`);
}

async function cancel(job) {
  const running = job.servers > 0 ? ` It holds ${formatCount(job.servers, "server")} now.` : "";
  const done = job.items ? ` ${formatWhole(job.done)} of ${formatCount(job.items, "item")} done.` : "";
  const agreed = await confirm({
    title: `Cancel ${job.name}?`,
    text: `What runs of it is stopped. Retry goes on with the rest.${running}${done}`,
    yes: "Cancel the job",
    no: "Keep it",
  });
  return agreed ? performOn(job, () => api.cancelJob(job.name)) : null;
}

function change(job, values) {
  return performOn(job, () => api.changeJob(job.name, values));
}

/** Set the weight of a job. */
export function setWeight(job, weight) {
  return change(job, { weight });
}

const ACTIONS = {
  pause: {
    label: "Pause",
    act: (job) => change(job, { paused: true }),
    path: "M4 3h3v10H4zM9 3h3v10H9z",
  },
  resume: { label: "Resume", act: (job) => change(job, { paused: false }), path: "M5 3l8 5-8 5z" },
  retry: {
    label: "Retry",
    act: (job) => change(job, { retry: true }),
    path: "M8 2.5a5.5 5.5 0 1 0 5.3 7h-1.6A4 4 0 1 1 11 5.2L9 7.2h5v-5l-1.9 1.9A5.5 5.5 0 0 0 8 2.5z",
  },
  cancel: {
    label: "Cancel",
    act: cancel,
    path: "M4 3l4 4 4-4 1 1-4 4 4 4-1 1-4-4-4 4-1-1 4-4-4-4z",
  },
};

function createIcon(path) {
  return svgElement(
    "svg",
    { viewBox: "0 0 16 16", "aria-hidden": "true" },
    svgElement("path", { d: path }),
  );
}

/** Return the names of the actions that a job offers now. */
function listActions(job) {
  const names = [];
  if (isActive(job)) names.push(job.state === "paused" ? "resume" : "pause");
  if (job.failed > 0 || ["failed", "cancelled"].includes(job.state)) names.push("retry");
  if (isActive(job)) names.push("cancel");
  return names;
}

/** Return a button for an action; `getJob` returns the job as it is when the button is used. */
function createButton(name, getJob, { withText = false, done = () => {} } = {}) {
  const { label, act, path } = ACTIONS[name];
  const button = element("button", { type: "button", class: withText ? "quiet" : "icon" });
  button.append(createIcon(path));
  if (withText) button.append(label);
  else button.setAttribute("aria-label", `${label} ${getJob().name}`);
  if (!withText) button.title = label;
  if (name === "cancel") button.classList.add("is-danger");
  button.addEventListener("click", async () => {
    // A disabled button would lose the focus.
    if (button.ariaBusy === "true") return;
    button.ariaBusy = "true";
    const answer = await act(getJob());
    button.ariaBusy = "false";
    if (answer) done(answer);
  });
  return button;
}

/** Show the buttons of a job in `parent`; each is created once. `fallback` may get their focus. */
export function offerActions(parent, buttons, getJob, fallback, options) {
  const names = listActions(getJob());
  for (const name of names) buttons[name] ??= createButton(name, getJob, options);
  setChildren(
    parent,
    names.map((name) => buttons[name]),
    fallback,
  );
}
