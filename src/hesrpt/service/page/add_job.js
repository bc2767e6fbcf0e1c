// The form that adds a job.

import { api, createKey } from "./api.js";
import { byId, setText } from "./dom.js";
import { linkTo } from "./job_row.js";
import { showAnswer } from "./notices.js";

const PLACEHOLDER_OR_BRACE = /\{(?:item|stem|name|index|servers|job)\}|[{}]/g;

/** Let buttons open the form. */
export function prepareAddJob(buttons) {
  const dialog = byId("add-job");
  let sent = { text: "", key: "" };
  for (const button of buttons) button.addEventListener("click", () => open(dialog));
  byId("add-cancel").addEventListener("click", () => dialog.close());
  byId("add-job-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const job = readForm();
    if (!job.command)
      return showProblem("Say which command to run, such as sleep 10.", "add-command");
    // The same job sent again, because no answer came, must not be added twice.
    const text = JSON.stringify(job);
    if (text !== sent.text) sent = { text, key: createKey() };
    byId("add-submit").disabled = true;
    try {
      const { jobs } = await api.addJob(job, sent.key);
      sent = { text: "", key: "" };
      byId("add-job-form").reset();
      dialog.close();
      showAnswer(`Added ${jobs[0].name}.`);
      location.hash = linkTo(jobs[0].name);
    } catch (error) {
      showProblem(error.message, "add-command");
    } finally {
      byId("add-submit").disabled = false;
    }
    return undefined;
  });
}

function open(dialog) {
  byId("add-error").hidden = true;
  dialog.showModal();
  byId("add-command").focus();
}

function readForm() {
  const job = { command: doubleBraces(byId("add-command").value.trim()) };
  const items = byId("add-items")
    .value.split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  const name = byId("add-name").value.trim();
  const group = byId("add-group").value.trim();
  if (items.length > 0) job.items = items;
  if (name) job.name = name;
  if (group) job.group = group;
  return job;
}

/** Let braces mean themselves, except for those of placeholders, as in `hesrpt add`. */
function doubleBraces(command) {
  return command.replaceAll(PLACEHOLDER_OR_BRACE, (found) =>
    found.length === 1 ? found.repeat(2) : found,
  );
}

function showProblem(text, field) {
  setText(byId("add-error"), text);
  byId("add-error").hidden = false;
  byId(field).focus();
}
