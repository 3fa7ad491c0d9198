// One rollout, live: the sentence, the arms, each test's result and need, and the decisions.
import { weights } from "./charts.js";
import { badge, card, h, link, table } from "./dom.js";
import { agentOf, clock, figure, interval, percent, since, status, why } from "./format.js";
import { about, buttons, offered, undoes } from "./orders.js";
import { read } from "./reads.js";
import { curve, get } from "./store.js";

export function rollout(redraw, namespace, name) {
  const object = get("modeldeployments", namespace, name);
  if (!object) return [h("h1", null, name), h("p", { class: "problem" }, `No rollout of this name in ${namespace}, or you may not read it.`)];
  const now = status(object), agent = agentOf(object);
  const tone = now.phase === "RolledBack" ? "bad" : now.phase === "Healthy" ? "good" : "";
  return [
    h("h1", null, name, badge(now.phase)),
    agent ? h("p", { class: "quiet" }, "A rollout of ", link(agent, namespace, "agents", agent), ".") : null,
    h("p", { class: "verdict " + tone }, why(object)),
    buttons(offered(object), namespace, name, why(object), about(object), undoes(object)),
    h("div", { class: "cards" },
      card("canary's weight", now.weight === undefined ? "–" : `${now.weight} %`, now.stepText ? `step ${now.stepText}, for ${since(now.stepStartedAt)}` : ""),
      ["stable", "canary", "previous"].filter((role) => now[role]).map((role) => arm(role, now[role]))),
    h("h2", null, "Since this page was opened"),
    weights(curve("modeldeployments", namespace, name)),
    h("h2", null, "Evidence"),
    table("Sequential tests", [
      ["Metric", (item) => item.name],
      ["Claim", (item) => item.claim],
      ["Says", (item) => [badge(item.verdict), item.dryRun ? " dry run" : ""]],
      ["Worse", (item) => chance(item.chanceWorse, "bad"), "figure"],
      ["Not worse", (item) => chance(item.chanceFine, "good"), "figure"],
      ["Mean of each arm", (item) => [mean("canary", object, item), mean("stable", object, item)], "name"],
      ["Still needed", (item) => [item.neededEpisodes ? `${item.neededEpisodes} episodes` : "", item.estimatedAt ? h("div", null, `about ${clock(item.estimatedAt)}`) : null]],
    ], now.evidence || [], untested(now)),
    now.evidence?.length ? h("p", { class: "quiet" }, "Worse and Not worse are 1 minus an always-valid p-value: they hold whenever you look. ",
      "Means are of values scaled to 0 to 1, with an always-valid 95 % interval and the episodes compared.") : null,
    arms(now.experiment), gates(now.gates),
    now.shadow?.message ? [h("h2", null, "Shadow"), h("p", null, now.shadow.message)] : null,
    h("h2", null, "What happened"), happened(read("happened", { namespace, plural: "modeldeployments", name }, 10)),
    h("h2", null, "Rolled back"),
    table("Blocked revisions", [
      ["At", (item) => clock(item.at), "name"], ["Revision", (item) => h("code", null, item.revision)],
      ["Reason", (item) => item.reason], ["Why", (item) => item.message, "why"],
    ], [...(now.blockedRevisions || [])].reverse(), "No model was rolled back here."),
    h("h2", null, "Decisions of people"),
    table("Decisions", [
      ["At", (item) => clock(item.at), "name"], ["Order", (item) => item.verb], ["About", (item) => h("code", null, item.revision || "")],
      ["By", (item) => `${item.by || "not named"}${item.by && !item.verified ? " (as claimed)" : ""}`, "why"],
      ["Outcome", (item) => badge(item.outcome)], ["Why", (item) => item.message, "why"],
    ], [...(now.decisions || [])].reverse(), "No orders here yet."),
  ];
}

// Tests end with the canary that they compare: a status without one keeps their sentence and not their figures.
function untested(now) {
  if (now.canary || now.experiment?.phase === "Running") return "No sequential test has looked yet: the sentence above says what the thresholds found.";
  if (now.phase === "RolledBack") return "No test runs now: they ended with the canary. What they found is in its sentence, under Rolled back.";
  return "No test runs now: they begin with the next canary.";
}

function happened(answer) {
  if (answer.error) return h("p", { class: "problem" }, `Events cannot be read. ${answer.error}`);
  if (answer.value === undefined) return h("p", { class: "quiet reading" }, "Reading events …");
  return table("Events, newest first", [
    ["At", (item) => clock(item.at), "name"], ["What", (item) => item.reason, "name"], ["Why", (item) => item.note, "why"],
  ], [...answer.value].reverse(), "No event of the last hour, or you may not read events.");
}

function arm(role, state) {
  const shown = state.meanReturn === undefined ? state.revision : `${figure(state.meanReturn)}`;
  const more = [`${state.revision}, ${state.readyReplicas || 0}/${state.replicas || 0} pods ready`, state.episodes === undefined ? "" : `${state.episodes} episode${state.episodes === 1 ? "" : "s"}`,
    state.successRate === undefined ? "" : `${percent(state.successRate)} succeed`, state.message || ""];
  return card(state.meanReturn === undefined ? role : `${role}: mean return`, shown, more.filter(Boolean).join(" · "));
}

function chance(value, tone) {
  if (value === undefined || value === null) return "";
  const width = Math.max(0, Math.min(1, value)) * 60;
  return [h("svg", { class: "meter", viewBox: "0 0 64 12", "aria-hidden": "true" },
    h("rect", { class: "rail", x: 1, y: 1, width: 62, height: 10, rx: 3 }), h("rect", { class: "fill " + tone, x: 2, y: 2, width, height: 8, rx: 2 })), value.toFixed(4)];
}

// Mean, ends of the confidence sequence and episodes, as the server computed them with the operator's own arithmetic.
function mean(role, rollout, item) {
  const figures = rollout.intervals?.[item.name]?.[role];
  if (!figures) return null;
  const [middle, low, high, count] = figures;
  return h("div", null, `${role} ${figure(middle, 3)} [${figure(low, 3)}, ${figure(high, 3)}] of ${figure(count, 0)}`);
}

function arms(experiment) {
  if (!experiment) return null;
  return [h("h2", null, "Experiment ", badge(experiment.phase)), h("p", null, experiment.message || ""),
    table("Arms", [
      ["Arm", (item) => item.name], ["Revision", (item) => h("code", null, item.revision)], ["Weight", (item) => `${item.weight} %`, "figure"],
      ["Return", (item) => interval(item), "figure"], ["Episodes", (item) => item.episodes ?? "", "figure"],
      ["Better than stable", (item) => figure(item.chanceBetter, 4), "figure"], ["Stands", (item) => item.standing], ["Why", (item) => item.message || "", "why"],
    ], experiment.arms || [])];
}

function gates(result) {
  if (!result) return null;
  const rows = result.suites || [];
  return [h("h2", null, "Gates before the first episode ", badge(result.phase)), result.message ? h("p", null, result.message) : null,
    table("Suites", [
      ["Suite", (item) => item.name], ["Says", (item) => badge(item.verdict)], ["Failures", (item) => (item.samples ? `${item.failures ?? 0} of ${item.samples}` : ""), "figure"],
      ["Upper bound / limit", (item) => (item.bound === undefined ? "" : `${figure(item.bound, 4)} / ${figure(item.limit, 4)}`), "figure"],
      ["Why", (item) => item.message || "", "why"],
    ], rows)];
}
