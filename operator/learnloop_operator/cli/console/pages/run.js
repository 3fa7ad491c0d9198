// One training run: how far, its curves, its proof on held-out episodes, and its gates.
import { lines } from "./charts.js";
import { badge, card, h, link, table } from "./dom.js";
import { clock, figure, interval, percent, share, since, status, text, whole, why } from "./format.js";
import { read } from "./reads.js";
import { get } from "./store.js";

const ENDED = new Set(["Validated", "Failed"]);
const curvesOf = new Map();
const MOST_POINTS = 2000;

export function run(redraw, namespace, name) {
  const job = get("trainingjobs", namespace, name);
  if (!job) return [h("h1", null, name), h("p", { class: "problem" }, `No run of this name in ${namespace}, or you may not read it.`)];
  const now = status(job), ended = ENDED.has(now.phase), agent = now.lineage?.learningAgent;
  const { report, points } = trained(redraw, namespace, job);
  const figures = keep(`${namespace}/${name}`, report.value?.heartbeat);
  return [
    h("h1", null, name, badge(now.phase)),
    agent ? h("p", { class: "quiet" }, "A run of ", link(agent, namespace, "agents", agent), ".") : null,
    h("p", { class: "verdict " + (now.phase === "Validated" ? "good" : now.phase === "Failed" ? "bad" : "") }, why(job)),
    h("div", { class: "cards" },
      card("done", share(now.progress) || (ended ? "" : "–"), now.step === undefined ? "" : `${whole(now.step)} of ${whole(now.totalSteps)} steps`),
      card(ended ? "took" : "left", ended ? since(now.startedAt, now.finishedAt) : now.eta || "–", now.stepsPerSecond ? `${figure(now.stepsPerSecond, 0)} steps a second, ${now.worldSize > 1 ? `${now.worldSize} ranks` : "1 rank"}` : ""),
      card("held out", interval(now.evaluation) || "–", now.evaluation ? `${now.evaluation.episodes} episodes, IQM ${figure(now.evaluation.iqm)}` : "proven when it ends"),
      card("the serving policy", interval(now.baseline) || "–", now.baseline ? "on the same episodes" : ""),
      now.cost ? card("cost", now.cost.currency ? `${figure(now.cost.money)} ${now.cost.currency}` : `${figure(now.cost.cpuHours)} CPU-hours`, costs(now.cost)) : null,
      card("algorithm", job.spec.algorithm, `attempt ${now.attempts ?? 0}${now.preemptions ? `, ${now.preemptions} preemptions` : ""}`)),
    h("h2", null, "Training"),
    whileTraining(report.value?.proof?.while_training),
    points.length ? lines({ label: `Mean return of training episodes against steps, at last ${figure(points.at(-1).y)}`, time: false, xName: "steps", from: 0, to: points.at(-1).x,
      series: [{ name: "mean return of the newest training episodes, with its 95 % interval", points }] }) : ended ? null : h("p", { class: "quiet" }, "No training episode has ended yet."),
    h("div", { class: "cards" }, Object.entries(figures).map(([label, series]) => h("div", { class: "card" }, h("span", null, label.replaceAll("_", " ")), h("b", null, figure(series.at(-1).y)),
      series.length > 1 ? lines({ label: `${label} over steps`, time: false, height: 110, wide: 280, series: [{ name: "", points: series }] }) : null))),
    report.error ? h("p", { class: "quiet" }, `The learner's own figures cannot be read: ${report.error}`) : null,
    h("h2", null, "Gates"),
    table("Each gate", [["Gate", (item) => item.name], ["Says", (item) => badge(item.passed ? "passed" : "failed")], ["Why", (item) => item.message, "why"]], now.gates || [], "Gates are judged when the run has ended."),
    now.suite ? table("Evaluation suite", [["Dimension", (item) => item.dimension], ["IQM", (item) => figure(item.iqm), "figure"], ["Improvement", (item) => percent(item.improvement), "figure"], ["Figures", (item) => item.message, "why"]], now.suite.dimensions || []) : null,
    proven(report.value?.proof),
    h("h2", null, "Where it comes from"),
    table("Lineage", [["What", (item) => item[0]], ["Which", (item) => item[1], "why"]], [
      ["reward policy", now.lineage?.rewardPolicy && `${now.lineage.rewardPolicy} revision ${now.lineage.rewardPolicyRevision || "?"}`],
      ["experience", now.lineage?.trajectories !== undefined && `${now.lineage.trajectories} trajectories when it began`],
      ["artifact", now.artifact && `${now.artifact.uri} sha256 ${now.artifact.sha256.slice(0, 16)}…`], ["backend", now.backend],
      ["began", clock(now.startedAt)], ["ended", clock(now.finishedAt)],
    ].filter((item) => item[1])),
  ];
}

// A run's report and its curve, read again every two seconds until it has ended.
export function trained(redraw, namespace, job) {
  const ended = ENDED.has(status(job).phase), page = location.hash;
  const report = read("run", { namespace, job: job.metadata.name }, ended ? 600 : 2);
  if (!ended) setTimeout(() => location.hash === page && redraw(), 2100);
  const points = (report.value?.heartbeat?.curve || []).map((p) => ({ x: p.step, y: p.mean, low: p.low, high: p.high }));
  return { report, points };
}

function costs(cost) {
  const unit = cost.gpuHours ? "GPU-hour" : "CPU-hour";
  return [cost.currency && `${figure(cost.cpuHours)} CPU-hours`, cost.gpuHours && `${figure(cost.gpuHours)} GPU-hours`,
    cost.gainPerHour !== undefined && `gained ${figure(cost.gainPerHour)} per ${unit}`,
    cost.gainPerMoney !== undefined && `${figure(cost.gainPerMoney)} per ${cost.currency}`].filter(Boolean).join(", ");
}

// The data plane keeps the newest figures alone; the line since this page was opened is kept here.
function keep(place, heartbeat) {
  const curves = curvesOf.get(place) || {};
  curvesOf.set(place, curves);
  for (const [label, value] of Object.entries(heartbeat?.figures || {})) {
    const series = (curves[label] ||= []);
    if (series.at(-1)?.x !== heartbeat.step) series.push({ x: heartbeat.step, y: value });
    if (series.length > MOST_POINTS) series.shift();
  }
  return curves;
}

function whileTraining(record) {
  return record?.points?.length ? lines({ label: "Return of the same episodes at each evaluation while training", time: false, xName: "steps",
    marks: record.best_step === null ? [] : [{ x: record.best_step, label: `best step, ${record.exported} exported`, tone: "good" }],
    series: [{ name: `return of the same ${record.episodes} episodes, evaluated while training`, points: record.points.map((p) => ({ x: p.step, y: p.mean })) }] }) : null;
}

function proven(proof) {
  if (!proof) return null;
  const gain = proof.difference;
  return [h("h2", null, "Proof"), table("What was measured", [["What", (item) => item[0]], ["Figures", (item) => item[1], "why"]], [
    ["more than the serving policy", gain && `${figure(gain.value)} [${figure(gain.low)}, ${figure(gain.high)}], paired by episode`],
    ["export against network", proof.parity && `${percent(proof.parity.action_agreement)} of actions agree on ${proof.parity.observations} observations, largest difference ${proof.parity.max_abs_difference}`],
    ["began from", proof.begun_from], ["shield", proof.actions ? `replaced ${proof.interventions} of ${proof.actions} actions` : null],
    ["versions", proof.versions && text(proof.versions)],
  ].filter((item) => item[1]))];
}
