// All namespaces at a glance: what moves first, then every agent and rollout.
import { badge, card, h, link, table } from "./dom.js";
import { figure, named, share, since, spaced, status, why } from "./format.js";
import { every, store } from "./store.js";

// Rows are made again every half a minute, for their durations.
const OLD = 30000;
const state = { filter: "", agents: new WeakMap(), rollouts: new WeakMap(), since: 0 };
const RANK = { RolledBack: 0, Failed: 0, Degraded: 0, Paused: 1, Progressing: 2, Training: 2 };

export function overview(redraw) {
  if (Date.now() - state.since > OLD) Object.assign(state, { agents: new WeakMap(), rollouts: new WeakMap(), since: Date.now() });
  const wanted = state.filter.toLowerCase();
  const fits = (object) => !wanted || `${spaced(object)}/${named(object)} ${status(object).phase || ""}`.toLowerCase().includes(wanted);
  const rollouts = every("modeldeployments"), agents = every("learningagents"), jobs = every("trainingjobs");
  const spaces = new Set([...store.objects.values()].map(spaced));
  const moving = rollouts.filter((item) => status(item).canary);
  const paused = rollouts.filter((item) => status(item).phase === "Paused");
  const blocked = rollouts.filter((item) => status(item).blockedRevision);
  const busy = jobs.filter((item) => !["Validated", "Failed"].includes(status(item).phase));
  return [
    h("h1", null, "All namespaces"),
    h("div", { class: "cards" },
      card("agents", agents.length, `in ${spaces.size} namespace${spaces.size === 1 ? "" : "s"}`),
      card("canaries under way", moving.length, `of ${rollouts.length} rollout${rollouts.length === 1 ? "" : "s"}`),
      card("wait for a person", paused.length),
      card("with a blocked model", blocked.length),
      card("runs under way", busy.length, `of ${jobs.length}`)),
    h("div", { class: "tools" },
      h("label", { for: "filter" }, "Filter"),
      h("input", { id: "filter", type: "search", value: state.filter, autocomplete: "off", placeholder: "namespace, name or phase",
        oninput: (event) => { state.filter = event.target.value; redraw(); } })),
    table("Agents", [
      ["Namespace", (item) => link(spaced(item), spaced(item), "decisions")],
      ["Agent", (item) => link(named(item), spaced(item), "agents", named(item)), "name"],
      ["Phase", (item) => badge(status(item).phase)],
      ["Return", (item) => figure(status(item).recentReturn), "figure"],
      ["At first", (item) => figure(status(item).baselineReturn), "figure"],
      ["Canary", (item) => share(status(item).weight), "figure"],
      ["Runs", (item) => status(item).trainings ?? "", "figure"],
      ["Why", why, "why"],
    ], sorted(agents.filter(fits)), "No agent in what you may read.", state.agents),
    table("Rollouts", [
      ["Namespace", (item) => spaced(item)],
      ["Rollout", (item) => link(named(item), spaced(item), "rollouts", named(item)), "name"],
      ["Phase", (item) => badge(status(item).phase)],
      ["Step", (item) => status(item).stepText || "", "figure"],
      ["Weight", (item) => (status(item).weight === undefined ? "" : `${status(item).weight} %`), "figure"],
      ["Canary / stable", (item) => pair(item), "figure"],
      ["For", (item) => since(status(item).stepStartedAt || status(item).promotedAt), "figure"],
      ["Why", why, "why"],
    ], sorted(rollouts.filter(fits)), "No rollout in what you may read.", state.rollouts),
    busy.filter(fits).length ? table("Runs under way", [
      ["Namespace", (item) => spaced(item)],
      ["Run", (item) => link(named(item), spaced(item), "runs", named(item)), "name"],
      ["Phase", (item) => badge(status(item).phase)],
      ["Done", (item) => share(status(item).progress), "figure"],
      ["Left", (item) => status(item).eta || "", "figure"],
      ["Why", why, "why"],
    ], sorted(busy.filter(fits))) : null,
  ];
}

function pair(item) {
  const canary = figure(status(item).canary?.meanReturn), stable = figure(status(item).stable?.meanReturn);
  return canary ? `${canary} / ${stable || "?"}` : stable;
}

function sorted(items) {
  const rank = (item) => RANK[status(item).phase] ?? 3;
  return items.sort((a, b) => rank(a) - rank(b) || spaced(a).localeCompare(spaced(b)) || named(a).localeCompare(named(b)));
}
