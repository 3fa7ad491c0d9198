// Verbs of the command line as buttons: shown where the API server says they are allowed, and asked about first.
import { h } from "./dom.js";
import { status } from "./format.js";
import { order, rights, store } from "./store.js";

const GRAVE = new Set(["abort", "reject", "undo", "promote", "skip"]);

export function offered(rollout) {
  const now = status(rollout), verbs = [];
  if (now.phase === "Paused" || now.gates?.phase === "AwaitingApproval") verbs.push("approve", "reject");
  if (now.canary) verbs.push(now.standingOrder?.verb === "pause" ? "resume" : "pause", "skip", "promote", "restart", "abort");
  else if (now.previous || now.lastStable) verbs.push("undo");
  if (now.blockedRevision) verbs.push("retry");
  return verbs;
}

// The models that an order is about: the server refuses it where that is no longer so when the question is answered.
export function about(rollout) {
  const now = status(rollout), arm = (model) => model?.revision ?? null;
  return { canary: arm(now.canary), stable: arm(now.stable), blocked: arm(now.blockedRevision), step: now.step ?? null };
}

// The target of undo: the model before the present one.
export function undoes(rollout) {
  const to = status(rollout).previous ?? status(rollout).lastStable;
  return to ? `Goes back to ${to.uri}.` : "";
}

export function buttons(verbs, namespace, name, what, shown, undone = "") {
  if (!store.rights[namespace]) { rights(namespace); return null; }
  const allowed = verbs.filter((verb) => store.rights[namespace][verb]);
  if (!verbs.length) return null;
  if (!allowed.length) return h("p", { class: "quiet" }, "You may look here and not steer: your account lacks the right to patch.");
  if (!sessionStorage.getItem("key"))
    return h("p", { class: "quiet" }, "This tab may look only. Steer from the tab that the printed address opened.");
  return h("div", { class: "tools", role: "group", "aria-label": `Orders for ${name}` },
    allowed.map((verb) => h("button", { type: "button", class: GRAVE.has(verb) ? "grave" : "", id: `verb-${verb}`,
      onclick: () => confirmed(verb, namespace, name, verb === "undo" ? undone : what, shown) }, verb)));
}

function confirmed(verb, namespace, name, what, shown) {
  const dialog = document.getElementById("dialog");
  const go = h("button", { type: "button", class: "first", id: "confirm" }, `${verb} ${name}`);
  go.addEventListener("click", async () => {
    go.disabled = true;
    try { say(await order(verb, namespace, name, shown)); } catch (error) { say(`Refused: ${error.message}`); }
    dialog.close();
  });
  dialog.replaceChildren(
    h("h2", { id: "dialog-title" }, `${verb} ${namespace}/${name}?`),
    h("p", null, store.about.orders[verb] || ""),
    what ? h("p", { class: "quiet" }, what) : "",
    h("p", { class: "quiet" }, `As ${store.about.user || "you"}; the same as `, h("code", null, `kubectl learnloop ${verb} ${name} -n ${namespace}`)),
    h("div", { class: "tools" }, go, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
  dialog.showModal();
}

// Another page is about other objects: a question about this one does not stay open over it.
addEventListener("hashchange", () => document.getElementById("dialog").close());

let timer;
export function say(sentence) {
  const place = document.getElementById("message");
  place.textContent = sentence;
  clearTimeout(timer);
  timer = setTimeout(() => { place.textContent = ""; }, 12000);
}
