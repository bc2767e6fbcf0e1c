// The mean flow time so far, what other policies would have made of the same work, and the bound.

import { element, svgElement } from "./dom.js";
import { formatCount, formatDuration, formatDurationWithMargin, formatExcess } from "./format.js";

const TITLES = {
  adaptive: "adaptive",
  hesrpt: "heSRPT",
  "hesrpt-slowdown": "heSRPT for slowdown",
  "hesrpt-weighted": "heSRPT with weights",
  optimal: "optimal for a batch",
  equi: "EQUI",
  srpt: "SRPT",
  fifo: "FIFO",
};
const MEANINGS = { fifo: "first come, first served", equi: "equal shares" };
// How strongly short jobs are favoured, from which focus on.
const STRENGTHS = [
  [0.95, "as strongly as heSRPT"],
  [0.5, "strongly"],
  [0.2, "moderately"],
  [0, "slightly, close to equal shares"],
];
const BAR = { width: 100, height: 12 }; // the unit of the width is a percentage

/** Return the name of a policy as people write it. */
export function titleOf(policy) {
  return TITLES[policy] ?? policy;
}

/** Show what is known of the mean flow time. */
export function showComparison(root, schedule, servers) {
  const parts = [showMean(schedule, servers), ...showPolicies(schedule.comparison, servers.policy)];
  const bound = describeBound(schedule.bound);
  if (bound) parts.push(element("p", { id: "bound" }, bound));
  const calibration = describeCalibration(servers.calibration);
  if (calibration) parts.push(element("p", { id: "calibration" }, calibration));
  root.replaceChildren(...parts);
}

function showMean({ mean_flow_time: mean, ended }, { policy }) {
  if (mean === null) {
    return element(
      "p",
      { class: "soft" },
      "No job has ended well yet. Their mean time from arrival to end will stand here.",
    );
  }
  const text = ` mean of ${formatCount(ended, "job")} under ${titleOf(policy)}, arrival to end`;
  return element(
    "p",
    { class: "figure-line" },
    element("strong", { class: "figure" }, formatDuration(mean)),
    element("span", { class: "soft" }, text),
  );
}

function showPolicies(comparison, own) {
  if (comparison === null) return [];
  if (comparison.simulated.length === 0) {
    const reason = comparison.reason ? `: ${comparison.reason}` : "";
    return [element("p", { class: "soft" }, `No comparison with other policies${reason}.`)];
  }
  const policies = selectPolicies(comparison.simulated, own);
  const most = Math.max(...policies.map((each) => each.mean_flow_time + each.margin));
  const rows = policies.map((each) => createRow(each, policies[0], most));
  const title = `The latest ${formatCount(comparison.jobs, "job")}, simulated`;
  const table = element(
    "table",
    { class: "policies" },
    element("caption", {}, title),
    element("tbody", {}, ...rows),
  );
  return [table];
}

/** Return this policy first, then FIFO and EQUI. */
function selectPolicies(simulated, own) {
  const first = simulated.filter(({ policy }) => policy === own);
  return [
    ...first,
    ...simulated.filter(({ policy }) => ["fifo", "equi"].includes(policy) && policy !== own),
  ];
}

function createRow(each, own, most) {
  const name = element("span", { class: "policy" }, titleOf(each.policy));
  const meaning = each === own ? "this service" : (MEANINGS[each.policy] ?? "");
  return element(
    "tr",
    { class: each === own ? "is-own" : "" },
    element("th", { scope: "row" }, name, element("span", { class: "soft" }, meaning)),
    element("td", { class: "bar-cell" }, drawBar(each, most)),
    element(
      "td",
      { class: "number" },
      formatDurationWithMargin(each.mean_flow_time, each.margin),
      element("span", { class: "soft" }, each === own ? "" : compare(each, own)),
    ),
  );
}

/** Say how a policy compares with this one; differences within both margins are none. */
export function compare(each, own) {
  const difference = each.mean_flow_time - own.mean_flow_time;
  if (Math.abs(difference) <= each.margin + own.margin) return "about the same";
  const [longer, shorter] = difference > 0 ? [each, own] : [own, each];
  const ratio = longer.mean_flow_time / shorter.mean_flow_time;
  if (difference < 0) return `${formatExcess(2 - 1 / ratio)} shorter`;
  return ratio >= 2 ? `${ratio.toFixed(1)} times as long` : `${formatExcess(ratio)} longer`;
}

function drawBar({ policy, mean_flow_time: mean, margin }, most) {
  const at = (seconds) => `${((BAR.width * seconds) / most).toFixed(2)}%`;
  const middle = BAR.height / 2;
  const fill = `var(--policy-${policy}, var(--policy))`;
  return svgElement(
    "svg",
    { class: "bar-figure", "aria-hidden": "true", height: BAR.height },
    svgElement("rect", { fill, width: at(mean), height: BAR.height, rx: 1.5 }),
    svgElement("line", {
      class: "margin",
      x1: at(Math.max(0, mean - margin)),
      x2: at(mean + margin),
      y1: middle,
      y2: middle,
    }),
  );
}

/** Say how far the mean flow time is above what any scheduler could reach, or return "". */
export function describeBound(bound) {
  if (bound === null) return "";
  const { ratio, reason, jobs, mean_flow_time: least } = bound;
  if (ratio === null) return reason ? `No lower bound: ${reason}.` : "";
  const excess = ratio >= 2 ? `${ratio.toFixed(1)} times` : `${formatExcess(ratio)} above`;
  const words = [
    `At most ${excess} what any scheduler could reach:`,
    `the latest ${formatCount(jobs, "job")} took ${formatDuration(ratio * least)} on average,`,
    `and the lower bound is ${formatDuration(least)}.`,
  ];
  return words.join(" ");
}

/** Say in plain words what the policy adaptive has learned, or return "". */
export function describeCalibration(calibration) {
  if (calibration === null) return "";
  const { focus, jobs_seen: jobs, is_stream: isStream } = calibration;
  if (!isStream) {
    return (
      "adaptive shares as heSRPT does, which is best for a batch: " +
      "no job of known size has joined others yet."
    );
  }
  const [, strength] = STRENGTHS.find(([least]) => focus >= least);
  const words = [
    `adaptive favours short jobs ${strength}: after ${formatCount(jobs, "job")},`,
    `its focus is ${Number(focus.toFixed(2))} between 0 (equal shares) and 1 (heSRPT).`,
  ];
  return words.join(" ");
}
