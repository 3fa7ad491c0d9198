// One episode, step by step: what was seen, done and earned, and what each step is credited with.
import { lines } from "./charts.js";
import { badge, card, h, table } from "./dom.js";
import { figure, text } from "./format.js";
import { missing, read } from "./reads.js";

const PAGE = 100;
const state = { at: 0, of: "" };

export function episode(redraw, namespace, name, agent, [trajectory]) {
  const answer = read("episode", { namespace, agent: name, trajectory }, 3600);
  const gone = missing(answer, "The episode");
  if (gone) return [h("h2", null, `Episode ${trajectory}`), gone];
  const { episode: it, credits } = answer.value;
  if (state.of !== trajectory) Object.assign(state, { of: trajectory, at: 0 });
  const go = (by) => () => { state.at = Math.max(0, Math.min(it.steps.length - 1, state.at + by)); redraw(); };
  const from = Math.floor(state.at / PAGE) * PAGE, step = it.steps[state.at];
  return [
    h("h2", null, `Episode ${trajectory}`, badge(it.status)),
    h("div", { class: "cards" }, card("return", figure(it.episode_return)), card("steps", it.steps.length), card("success", it.success === null || it.success === undefined ? "–" : it.success ? "yes" : "no"),
      card("model", h("code", null, it.policy_revision)), credits ? card("reward", figure(credits.reward), "after normalisation") : null),
    lines({ label: "Reward of each step, and what it is credited with", time: false, height: 180, xName: "step",
      marks: [{ x: state.at, label: `step ${state.at}`, tone: "now" }],
      series: [{ name: "environment's reward", points: it.steps.map((one, x) => ({ x, y: one.reward })) }, ...(credits ? [{ name: "credit", points: credits.credits.map((y, x) => ({ x, y })) }] : [])] }),
    h("div", { class: "tools", role: "group", "aria-label": "Step through the episode" },
      h("button", { type: "button", id: "step-first", onclick: go(-1e9) }, "First"), h("button", { type: "button", id: "step-back", onclick: go(-1) }, "Back"),
      h("span", { role: "status" }, `Step ${state.at} of 0 to ${it.steps.length - 1}`),
      h("button", { type: "button", id: "step-on", onclick: go(1) }, "On"), h("button", { type: "button", id: "step-last", onclick: go(1e9) }, "Last")),
    h("div", { class: "cards" },
      h("div", { class: "card" }, h("span", null, "saw"), h("pre", { tabindex: "0", "aria-label": "Observation" }, shown(step.observation))),
      h("div", { class: "card" }, h("span", null, step.exploration ? "did, exploring" : "did"), h("pre", { tabindex: "0", "aria-label": "Action" }, shown(step.action)),
        h("small", null, step.log_prob === null || step.log_prob === undefined ? "" : `with log-probability ${figure(step.log_prob, 3)}`)),
      h("div", { class: "card" }, h("span", null, "earned"), h("b", null, figure(step.reward)), h("small", null, credits ? `credited with ${figure(credits.credits[state.at], 4)}` : ""),
        h("small", null, step.terminated ? "the environment ended it here" : step.truncated ? "a limit ended it here" : ""))),
    Object.keys(it.values || {}).length ? h("p", null, "Outcome: ", h("code", null, text(it.values))) : null,
    table(`Steps ${from} to ${Math.min(from + PAGE, it.steps.length) - 1}`, [
      ["Step", ([index]) => index, "figure"], ["Did", ([, one]) => short(one.action)], ["Reward", ([, one]) => figure(one.reward), "figure"],
      ["Credit", ([index]) => (credits ? figure(credits.credits[index], 4) : ""), "figure"], ["Explored", ([, one]) => (one.exploration ? "yes" : "")], ["Saw", ([, one]) => short(one.observation), "why"],
    ], it.steps.slice(from, from + PAGE).map((one, index) => [from + index, one])),
  ];
}

const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, Array.isArray(value) ? 0 : 2)).slice(0, 20000);
const short = (value) => { const all = text(value); return all.length > 160 ? all.slice(0, 160) + " …" : all; };
