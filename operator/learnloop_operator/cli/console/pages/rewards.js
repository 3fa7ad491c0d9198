// The worth of episodes, component by component; the worst ones lead to their steps.
import { lines } from "./charts.js";
import { h, link, table } from "./dom.js";
import { clock, condition, figure, percent } from "./format.js";
import { missing, read } from "./reads.js";
import { get } from "./store.js";

const SHOWN = 15;

export function rewards(redraw, namespace, name, agent) {
  const history = read("rewards", { namespace, agent: name });
  const gone = missing(history, "Rewards");
  if (gone) return gone;
  const all = history.value.rewards;
  if (!all.length) return h("p", { class: "quiet" }, "No episode is rewarded yet.");
  const names = [...new Set(all.flatMap((item) => Object.keys(item.components)))];
  const policy = get("rewardpolicies", namespace, agent.spec?.rewardPolicyRef?.name || "");
  const suspicions = ["RewardHackingSuspected", "BiasSuspected"].map((type) => policy && condition(policy, type));
  const worst = [...all].sort((a, b) => a.raw_reward - b.raw_reward).slice(0, SHOWN);
  const columns = [
    ["At", (item) => clock(item.computed_at)],
    ["Episode", (item) => link(item.trajectory_id.slice(0, 20), namespace, "agents", name, "episodes", item.trajectory_id), "name"],
    ["Model", (item) => h("code", null, item.metadata.policy_revision || "")],
    ["Raw", (item) => figure(item.raw_reward), "figure"], ["Reward", (item) => figure(item.reward), "figure"],
    ["Sure", (item) => percent(item.confidence), "figure"],
    ...names.slice(0, 8).map((part) => [part, (item) => figure(item.components[part]), "figure"]),
    ["Broken", (item) => item.violated.join(", ")],
  ];
  return [
    ...suspicions.map((one) => (one?.message ? h("p", { class: "verdict " + (one.status === "True" ? "bad" : "") }, one.message) : null)),
    h("h2", null, "Components over the newest episodes"),
    lines({ label: `Means of ${names.join(", ")} over the newest ${all.length} episodes`, time: false, xName: "episodes",
      series: names.slice(0, 4).map((part) => ({ name: part, points: smoothed([...all].reverse().map((item) => item.components[part])) })) }),
    table("Each component", [
      ["Component", (part) => part], ["Weight", (part) => figure(all[0].weights?.[part]), "figure"],
      ["Mean", (part) => figure(average(all.map((item) => item.components[part]))), "figure"],
      ["Newest 100", (part) => figure(average(all.slice(0, 100).map((item) => item.components[part]))), "figure"],
      ["Measured in", (part) => percent(all.filter((item) => part in item.components).length / all.length), "figure"],
    ], names),
    h("h2", null, "Worst episodes"), table(`The worst ${worst.length} of ${all.length}`, columns, worst),
    h("h2", null, "Newest episodes"), table(`The newest ${SHOWN}`, columns, all.slice(0, SHOWN)),
  ];
}

const average = (values) => {
  const finite = values.filter(Number.isFinite);
  return finite.length ? finite.reduce((sum, value) => sum + value, 0) / finite.length : undefined;
};

function smoothed(values) {
  const wide = Math.max(1, Math.round(values.length / 50)), points = [];
  for (let at = 0; at < values.length; at += wide) {
    const y = average(values.slice(at, at + wide));
    if (y !== undefined) points.push({ x: at + wide / 2, y });
  }
  return points;
}
