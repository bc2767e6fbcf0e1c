// Starts the page: connects its parts, and shows what the address asks for.

import { prepareAddJob } from "./add_job.js";
import { api } from "./api.js";
import { Areas } from "./areas.js";
import { showComparison, titleOf } from "./comparison.js";
import { confirm } from "./dialogs.js";
import { byId, element, setText } from "./dom.js";
import { Connection } from "./events.js";
import { formatCount, formatWhole } from "./format.js";
import { Groups } from "./groups.js";
import { perform } from "./job_actions.js";
import { JobDetail } from "./job_detail.js";
import { JobList } from "./job_list.js";
import { Announcer, showError } from "./notices.js";
import { Service } from "./service.js";
import { Tiles } from "./tiles.js";

const POINTS = 400;
// How often to draw the areas again, in seconds: when they have changed by a few points.
const CHANGED_POINTS = 4;
const [MIN_INTERVAL, MAX_INTERVAL] = [2, 60];
const JOBS_IN_AREAS = 8;

const service = new Service();
const connection = new Connection();
const announcer = new Announcer();
const tiles = new Tiles();
const areas = new Areas(byId("areas"), byId("areas-time"));
const groups = new Groups(service);
const list = new JobList(service);
let detail = null; // the job that is shown, if it is not the overview
let schedule = null;
let isScheduleStale = true;
let areGroupsStale = true;
let drawnAt = -Infinity; // milliseconds, by the clock of the browser
let openedAt = Infinity; // when the connection was made, by the clock of the service

// --- What is shown -----------------------------------------------------------------------------

async function route() {
  const { hash } = location;
  detail?.close();
  detail = null;
  if (hash.startsWith("#/jobs/")) await showJob(decode(hash.slice("#/jobs/".length)));
  else await showOverview(hash.startsWith("#/?") ? hash.slice(3) : "");
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody typed a percent sign
  }
}

async function showJob(name) {
  const { hash } = location;
  show("job");
  byId("job").replaceChildren();
  try {
    const job = await api.job(name);
    if (location.hash !== hash) return; // somebody went on to another page meanwhile
    detail = new JobDetail(service, job);
    detail.open(byId("job"));
    document.title = `${job.name} · hesrpt`;
    detail.title.focus({ preventScroll: true });
    scrollTo(0, 0);
  } catch (error) {
    if (location.hash !== hash) return;
    showMissingJob(error.status === 404 ? `There is no job “${name}”` : error.message);
  }
}

function showMissingJob(problem) {
  const title = element("h1", { tabindex: -1 }, problem);
  const back = element("p", {}, element("a", { href: "#/", class: "back" }, "All jobs"));
  byId("job").replaceChildren(
    element("article", {}, back, element("section", { class: "panel" }, title)),
  );
  document.title = "hesrpt";
  title.focus({ preventScroll: true });
}

async function showOverview(query) {
  const wasElsewhere = byId("overview").hidden;
  show("overview");
  // Coming back from a job, the focus goes to the top of the list; at the start it stays put. It moves
  // before anything is loaded, so that it is not taken from somebody who has gone on meanwhile.
  if (wasElsewhere && byId("job").hasChildNodes()) byId("overview").querySelector("h1").focus();
  describeService();
  await Promise.all([list.open(query), loadSchedule(), loadGroups()]);
}

function show(id) {
  for (const other of ["overview", "job"]) byId(other).hidden = other !== id;
}

function describeService() {
  const { servers } = service;
  if (servers === null) return;
  const words = [
    formatCount(servers.servers, "server"),
    `policy ${titleOf(servers.policy)}`,
    `engine ${servers.engine}`,
  ];
  if (servers.stopping) words.push("stopping, takes no more jobs");
  setText(byId("about-service"), words.join(" · "));
  setText(byId("footer"), `hesrpt ${servers.version}`);
  const isEmpty = service.count() === 0;
  byId("welcome").hidden = !isEmpty;
  for (const id of ["now", "charts", "jobs-panel"]) byId(id).hidden = isEmpty;
  const isPaused = service.countActive() > 0 && service.countActive() === service.count(["paused"]);
  setText(byId("pause-all"), isPaused ? "Resume all" : "Pause all");
  byId("pause-all").hidden = service.countActive() === 0;
  tiles.show(service, schedule);
  if (detail === null) {
    const running = service.count(["running"]);
    document.title = running ? `${formatWhole(running)} running · hesrpt` : "hesrpt";
  }
}

async function loadSchedule() {
  isScheduleStale = false;
  drawnAt = performance.now();
  try {
    schedule = await api.schedule(POINTS, JOBS_IN_AREAS);
    areas.show(schedule);
    if (service.servers !== null) showComparison(byId("comparison"), schedule, service.servers);
    describeService();
    list.tick();
  } catch {
    isScheduleStale = true; // asked again soon
  }
}

async function loadGroups() {
  areGroupsStale = false;
  try {
    list.setGroups(await groups.load());
  } catch {
    // The connection is lost, which the page says elsewhere.
  }
}

// --- The live connection -----------------------------------------------------------------------

function showConnection(state, text) {
  byId("connection").dataset.state = state;
  setText(byId("connection").firstElementChild, text);
}

let countdown = null;

connection.addEventListener("open", async () => {
  clearInterval(countdown);
  if (!byId("banner").hidden) announcer.say("Connected again.");
  byId("banner").hidden = true;
  showConnection("live", "Live");
  try {
    service.update({ servers: await api.servers() });
  } catch {
    return; // the connection reports it
  }
  openedAt = service.time;
  if (detail) await detail.reconnect().catch(showError);
  else await route();
});

connection.addEventListener("change", ({ detail: change }) => {
  service.update(change);
  announcer.note(change.jobs, openedAt);
  isScheduleStale = true;
  areGroupsStale ||= change.jobs.some((job) => job.group);
  if (change.jobs.some((job) => job.group && !groups.has(job.group))) loadGroups();
  if (detail === null) list.apply(change);
  else if (!detail.apply(change)) {
    showError(new Error(`${detail.job.name} was removed.`));
    location.hash = "#/";
  }
});

connection.addEventListener("lost", ({ detail: { wait } }) => {
  showConnection("lost", "Offline");
  byId("banner").hidden = false;
  setText(byId("banner-text"), "The connection is lost. What you see may be old.");
  let left = Math.ceil(wait);
  // Not for screen readers, which would read every second.
  const tell = () => setText(byId("countdown"), `Trying again in ${left} s.`);
  clearInterval(countdown);
  countdown = setInterval(() => {
    left = Math.max(0, left - 1);
    tell();
  }, 1000);
  tell();
});

// Another token is needed, for which the service asks.
connection.addEventListener("refused", () => location.reload());

byId("banner")
  .querySelector("button")
  .addEventListener("click", () => connection.retry());

// --- The rest ----------------------------------------------------------------------------------

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});

byId("pause-all").addEventListener("click", async () => {
  const isPaused = byId("pause-all").textContent === "Resume all";
  const question = {
    title: "Pause all jobs?",
    text: "Nothing new starts until they are resumed. This concerns everybody who uses this queue.",
    yes: "Pause all jobs",
    no: "Let them run",
  };
  if (!isPaused && !(await confirm(question))) return;
  const verb = isPaused ? "Resumed" : "Paused";
  await perform(
    () => api.changeAll({ paused: !isPaused }),
    ({ jobs }) => `${verb} ${formatCount(jobs.length, "job")}.`,
  );
});

prepareAddJob([byId("open-add-job"), byId("welcome-add-job")]);
service.addEventListener("change", describeService);
addEventListener("hashchange", route);
setInterval(() => {
  (detail ?? list).tick();
  if (document.hidden || detail !== null || service.servers === null) return;
  const seconds = (CHANGED_POINTS * (schedule?.times.at(-1) - schedule?.times[0])) / POINTS || 0;
  const interval = Math.min(Math.max(seconds, MIN_INTERVAL), MAX_INTERVAL);
  const isDue = performance.now() - drawnAt >= 1000 * interval;
  if (isDue && isScheduleStale) loadSchedule();
  if (isDue && areGroupsStale) loadGroups();
}, 1000);
connection.start();
