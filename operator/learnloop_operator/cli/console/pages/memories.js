// An agent's memories, and the reasons for a recall.
import { badge, h, link, table } from "./dom.js";
import { clock, figure, text } from "./format.js";
import { missing, read } from "./reads.js";

const state = { question: "", submitted: "", agent: "" };

export function memories(redraw, namespace, name) {
  const answer = read("memories", { namespace, agent: name });
  const gone = missing(answer, "Memories");
  if (gone) return gone;
  const all = answer.value.memories;
  const place = `${namespace}/${name}`;
  if (state.agent !== place) Object.assign(state, { agent: place, question: "", submitted: "" });
  const ask = () => { state.submitted = state.question.trim(); redraw(); };
  return [
    h("h2", null, "What would it recall, and why?"),
    h("div", { class: "tools" }, h("label", { for: "question" }, "Situation"),
      h("input", { id: "question", value: state.question, maxlength: "2000", size: "50", autocomplete: "off",
        oninput: (event) => { state.question = event.target.value; }, onkeydown: (event) => { if (event.key === "Enter") ask(); } }),
      h("button", { type: "button", id: "ask", onclick: ask }, "Recall")),
    h("p", { class: "quiet" }, "A preview is not logged and does not affect ranking."),
    state.submitted ? recalled(read("recall", { namespace, agent: name, context: state.submitted }, 3600)) : null,
    h("h2", null, "Memories"),
    table(answer.value.next ? `The first ${all.length} that were stored, of more` : `All ${all.length}`, [
      ["Stored", (item) => clock(item.created_at)], ["Kind", (item) => item.memory_type], ["What", (item) => what(item), "why"],
      ["Importance", (item) => figure(item.importance), "figure"], ["Recalled", (item) => item.access_count, "figure"],
      ["Helped / hurt", (item) => `${figure(item.helped)} / ${figure(item.hurt)}`, "figure"], ["From", (item) => from(item, namespace, name)], ["Kept", (item) => (item.pinned ? badge("pinned") : "")],
    ], all, "No memories yet."),
  ];
}

function recalled(answer) {
  const gone = missing(answer, "The recall");
  if (gone) return gone;
  return table("Recalled, best first", [
    ["What", (item) => what(item), "why"], ["Score", (item) => figure(item.score), "figure"], ["Why", (item) => item.why],
  ], answer.value.memories || [], "No matching memories.");
}

const from = (item, namespace, name) => {
  const episode = /^trajectory\/(.+)$/.exec(item.origin || "");
  return episode ? link(episode[1].slice(0, 20), namespace, "agents", name, "episodes", episode[1]) : item.origin || item.source || "";
};
const what = (item) => { const all = typeof item.content?.text === "string" ? item.content.text : text(item.content); return all.length > 400 ? all.slice(0, 400) + " …" : all; };
