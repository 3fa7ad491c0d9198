// One agent: the picture of its loop, and the tabs to everything else of it.
import { lines, shares } from "./charts.js";
import { badge, card, h, link, table } from "./dom.js";
import { agentOf, clock, figure, interval, named, percent, runOf, share, since, status, whole, why } from "./format.js";
import { episode } from "./episode.js";
import { buttons } from "./orders.js";
import { memories } from "./memories.js";
import { missing, read } from "./reads.js";
import { rewards } from "./rewards.js";
import { trained } from "./run.js";
import { curve, every, get } from "./store.js";

const TABS = [["", "Loop"], ["runs", "Runs"], ["rewards", "Rewards"], ["memories", "Memories"]];
const BUCKETS = 60, MOST_COMPARED = 4;
const compared = new Map();

export function agent(redraw, namespace, name, [tab, ...more]) {
  const item = get("learningagents", namespace, name);
  if (!item) return [h("h1", null, name), h("p", { class: "problem" }, `No agent of this name in ${namespace}, or you may not read it.`)];
  const tabs = { runs, rewards, memories, episodes: episode };
  const body = Object.hasOwn(tabs, tab) ? tabs[tab] : loop;
  return [
    h("h1", null, name, badge(status(item).phase)),
    h("p", { class: "verdict" }, why(item)),
    h("nav", { class: "tabs", "aria-label": "About this agent" }, TABS.map(([path, title]) =>
      h("a", { href: `#/${namespace}/agents/${name}${path ? "/" + path : ""}`, "aria-current": (tab || "") === path ? "page" : null }, title))),
    body(redraw, namespace, name, item, more),
  ];
}

function loop(redraw, namespace, name, item) {
  const now = status(item), history = read("rewards", { namespace, agent: name });
  const rollouts = every("modeldeployments", namespace).filter((item) => agentOf(item) === name || named(item) === name);
  return [
    h("div", { class: "cards" },
      card("mean return, newest episodes", figure(now.recentReturn), now.baselineReturn === undefined ? "" : `at first ${figure(now.baselineReturn)}`),
      card("succeed", percent(now.successRate)),
      card("episodes", now.trajectories, now.rewarded === undefined ? "" : `${now.rewarded} rewarded, ${now.rewardedSinceTraining ?? 0} since the last run`),
      card("runs", now.trainings ?? 0, now.lastTraining ? `${now.lastTraining.name}: ${now.lastTraining.phase || "new"}` : ""),
      card("canary's weight", share(now.weight) || "–", now.servingRevision ? `stable ${now.servingRevision}` : "")),
    item.spec?.training ? buttons(["train"], namespace, name, why(item)) : null,
    h("h2", null, "The loop"),
    missing(history, "Rewards") || picture(history.value.rewards, marks(namespace, rollouts)),
    history.error ? lines({ label: "Mean return since this page was opened", series: [{ name: "mean return of the newest episodes, since this page was opened", points: curve("learningagents", namespace, name).map((p) => ({ x: p.at, y: p.y })) }] }) : null,
    weeks(read("progress", { namespace, agent: name }, 600)),
    h("h2", null, "Rollouts"),
    table("Rollouts of this agent", [
      ["Rollout", (item) => link(named(item), namespace, "rollouts", named(item)), "name"], ["Phase", (item) => badge(status(item).phase)],
      ["Weight", (item) => `${status(item).weight ?? 0} %`, "figure"], ["Why", why, "why"],
    ], rollouts, "No rollout yet: the first proven model makes one."),
  ];
}

const spent = (item) => (item.currency ? `${figure(item.money)} ${item.currency}` : "");

function weeks(answer) {
  if (!answer.value?.weeks?.length) return null;
  const columns = [
    ["Week of", (item) => item.week, "name"], ["Episodes", (item) => item.episodes ?? "", "figure"], ["Success", (item) => percent(item.success_rate), "figure"],
    ["Reward", (item) => figure(item.raw_reward), "figure"], ["Seconds", (item) => figure(item.completion_seconds), "figure"], ["Rated", (item) => figure(item.satisfaction), "figure"],
    ["Trainings", (item) => item.trainings ?? "", "figure"], ["Gain", (item) => figure(item.gain_per_training), "figure"],
    ["CPU-hours", (item) => figure(item.cpu_hours), "figure"], ["GPU-hours", (item) => figure(item.gpu_hours), "figure"], ["Cost", spent, "figure"],
    ["Promotions", (item) => item.promotions ?? "", "figure"], ["Rolled back", (item) => item.rollbacks ?? "", "figure"],
  ];
  const known = columns.filter(([, cell]) => answer.value.weeks.some((week) => cell(week) !== ""));
  return [h("h2", null, "Week by week"), table("What it got better at", known, [...answer.value.weeks].reverse())];
}

// Promotions and rollbacks: on record where that can be read, and in the status where not.
function marks(namespace, rollouts) {
  const events = [];
  for (const item of rollouts) {
    const record = read("deployed", { namespace, deployment: named(item) });
    for (const one of record.value?.deployed || [])
      events.push({ x: Date.parse(one.deployed_at), revision: one.revision, what: one.event, why: one.verdict || one.reason });
    if (record.value) continue;
    const now = status(item);
    if (now.promotedAt) events.push({ x: Date.parse(now.promotedAt), revision: now.stable?.revision || "", what: "deployed", why: now.verdict || "" });
    for (const one of now.blockedRevisions || []) events.push({ x: Date.parse(one.at), revision: one.revision, what: "rolled_back", why: one.message });
  }
  return events.sort((a, b) => a.x - b.x);
}

function picture(rewards, happened) {
  if (!rewards.length) return h("p", { class: "quiet" }, "No episode is rewarded yet.");
  const points = rewards.map((item) => ({ x: Date.parse(item.computed_at), y: item.raw_reward, revision: item.metadata.policy_revision || "unknown" })).sort((a, b) => a.x - b.x);
  const from = points[0].x, to = Math.max(points.at(-1).x, from + 1000), wide = (to - from) / BUCKETS;
  const count = {};
  points.forEach((p) => { count[p.revision] = (count[p.revision] || 0) + 1; });
  const first = {};
  points.forEach((p) => { first[p.revision] ??= p.x; });
  const top = Object.keys(count).sort((a, b) => count[b] - count[a]).slice(0, 4).sort((a, b) => first[a] - first[b]);
  const cells = Array.from({ length: BUCKETS }, (_, index) => ({ x: from + (index + 0.5) * wide, of: [] }));
  points.forEach((p) => cells[Math.min(BUCKETS - 1, Math.floor((p.x - from) / wide))].of.push(p));
  const series = top.map((revision) => ({ name: revision, points: cells.flatMap((cell) => mean(cell.x, cell.of.filter((p) => p.revision === revision))) }));
  const all = { items: cells.filter((cell) => cell.of.length).map((cell) => ({ x: cell.x, shares: Object.fromEntries(top.map((revision) => [revision, cell.of.filter((p) => p.revision === revision).length / cell.of.length])) })), count: BUCKETS };
  const changes = happened.map((item) => ({ x: item.x, tone: item.what === "deployed" ? "good" : "bad", label: `${item.what === "deployed" ? "serves" : "rolled back"} ${item.revision.slice(0, 8)}` }));
  const last = mean(0, points.slice(-100))[0];
  return [
    h("p", { class: "quiet" }, `Reward of the newest ${points.length} episodes by the model that played them, with 95 % intervals of each mean; below, which share of episodes each model was given.`),
    lines({ label: `Mean reward over time by model, with ${changes.length} promotions and rollbacks. The newest 100 episodes: ${figure(last.y)}.`, series, marks: changes, from, to }),
    shares(top, all, "Share of episodes by model over time", from, to),
    h("details", { id: "figures" }, h("summary", null, "The same as a table"),
      table("Models", [
        ["Model", (item) => h("code", null, item)], ["Episodes", (item) => count[item], "figure"],
        ["Mean reward", (item) => { const got = mean(0, points.filter((p) => p.revision === item))[0]; return `${figure(got.y)}${got.low === undefined ? "" : ` [${figure(got.low)}, ${figure(got.high)}]`}`; }, "figure"],
        ["First seen", (item) => clock(first[item])],
      ], top),
      table("Promotions and rollbacks", [
        ["At", (item) => clock(item.x)], ["Model", (item) => h("code", null, item.revision)],
        ["What", (item) => badge(item.what)], ["Why", (item) => item.why || "", "why"],
      ], [...happened].reverse())),
  ];
}

// A bucket's mean with a normal 95 % interval; a single episode has none.
function mean(x, of) {
  if (!of.length) return [];
  const middle = of.reduce((sum, p) => sum + p.y, 0) / of.length;
  if (of.length < 2) return [{ x, y: middle }];
  const spread = Math.sqrt(of.reduce((sum, p) => sum + (p.y - middle) ** 2, 0) / (of.length - 1) / of.length);
  return [{ x, y: middle, low: middle - 1.96 * spread, high: middle + 1.96 * spread }];
}

function runs(redraw, namespace, name) {
  const trainings = every("trainingjobs", namespace).filter((item) => runOf(item, name) || named(item).replace(/-\d+$/, "") === name);
  trainings.sort((a, b) => (status(b).startedAt || "~").localeCompare(status(a).startedAt || "~"));
  const place = `${namespace}/${name}`, chosen = compared.get(place) || trainings.slice(0, 2).map(named);
  const choose = (run) => () => {
    compared.set(place, chosen.includes(run) ? chosen.filter((other) => other !== run) : [...chosen, run].slice(-MOST_COMPARED));
    redraw();
  };
  const curves = trainings.filter((item) => chosen.includes(named(item))).reverse().map((item) => ({ name: named(item), ...trained(redraw, namespace, item) }));
  const drawn = curves.filter((one) => one.points.length), unread = curves.find((one) => one.report.error);
  return [
    trainings.length ? h("h2", null, "Training curves") : null,
    drawn.length ? [h("p", { class: "quiet" }, `Mean return of each run's newest training episodes against its steps, with 95 % intervals. Choose up to ${MOST_COMPARED} runs below.`),
      lines({ label: `Training curves of ${drawn.map((one) => one.name).join(", ")}`, time: false, xName: "steps", from: 0, to: Math.max(...drawn.map((one) => one.points.at(-1).x)),
        series: drawn.map((one) => ({ ...one, name: `${one.name}: ${figure(one.points.at(-1).y)} after ${whole(one.points.at(-1).x)} steps` })) })]
      : trainings.length ? unread ? missing(unread.report, "Training curves") : h("p", { class: "quiet" }, "No chosen run has a curve.") : null,
    table("Runs, newest first", [
      ["Compare", (item) => h("input", { type: "checkbox", id: `compare-${named(item)}`, "aria-label": `Compare ${named(item)}`, checked: chosen.includes(named(item)), onchange: choose(named(item)) })],
      ["Run", (item) => link(named(item), namespace, "runs", named(item)), "name"], ["Phase", (item) => badge(status(item).phase)],
      ["Algorithm", (item) => item.spec.algorithm], ["Done", (item) => share(status(item).progress), "figure"],
      ["Took", (item) => since(status(item).startedAt, status(item).finishedAt), "figure"],
      ["Held out", (item) => interval(status(item).evaluation), "figure"], ["Before", (item) => interval(status(item).baseline), "figure"], ["Why", why, "why"],
    ], trainings, "No run yet."),
  ];
}
