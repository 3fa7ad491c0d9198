// Decisions: people's orders on every rollout of a namespace, and its audit chain.
import { badge, h, link, table } from "./dom.js";
import { clock, named, status, text } from "./format.js";
import { missing, read } from "./reads.js";
import { every } from "./store.js";

const VIEWS = [["rollout.decision", "People's orders"], ["", "Everything"]];
let view = VIEWS[0][0];

export function decisions(redraw, namespace) {
  const choose = (action) => () => { view = action; redraw(); };
  const orders = every("modeldeployments", namespace).flatMap((item) => (status(item).decisions || []).map((one) => ({ ...one, rollout: named(item) })));
  orders.sort((a, b) => b.at.localeCompare(a.at));
  const chain = read("audit", view ? { namespace, action: view } : { namespace });
  return [
    h("h1", null, `Decisions in ${namespace}`),
    table("Orders of people", [
      ["At", (item) => clock(item.at), "name"], ["Rollout", (item) => link(item.rollout, namespace, "rollouts", item.rollout), "name"], ["Order", (item) => item.verb],
      ["By", (item) => `${item.by || "not named"}${item.by && !item.verified ? " (as claimed)" : ""}`], ["Outcome", (item) => badge(item.outcome)], ["Why", (item) => item.message, "why"],
    ], orders, "No orders yet."),
    h("h2", null, "Audit chain"),
    h("p", { class: "quiet" }, "The newest records. ", h("code", null, `kubectl learnloop audit verify -n ${namespace}`), " checks that none was changed."),
    h("div", { class: "tools", role: "group", "aria-label": "Which records" }, VIEWS.map(([action, title]) =>
      h("button", { type: "button", id: `view-${action || "all"}`, "aria-pressed": String(view === action), onclick: choose(action) }, title))),
    missing(chain, "The audit chain") || table("Records, newest first", [
      ["No.", (item) => item.seq, "figure"], ["At", (item) => clock(item.at), "name"], ["Action", (item) => item.action, "name"], ["About", (item) => item.subject],
      ["By", (item) => item.detail?.by || item.actor, "why"], ["Outcome", (item) => badge(item.outcome)], ["Detail", (item) => detail(item.detail), "why"],
    ], [...chain.value.records].reverse(), "No such record among the newest 5,000."),
  ];
}

const detail = (value) => { const all = text(value ?? ""); return h("code", null, all.length > 200 ? all.slice(0, 200) + " …" : all); };
