// Routes, keys, theme; draws the page again, at most eight times a second, when something it shows has changed.
import { agent } from "./agent.js";
import { decisions } from "./decisions.js";
import { h, link } from "./dom.js";
import { say } from "./orders.js";
import { overview } from "./overview.js";
import { rollout } from "./rollout.js";
import { run } from "./run.js";
import { ask, end, follow, listen, store, tell } from "./store.js";

const PAGES = { agents: agent, rollouts: rollout, runs: run, decisions };
const LEAST_MILLISECONDS = 120, LOST_MILLISECONDS = 60000;
const main = document.getElementById("main");
let lost = 0, drawn = 0, waiting = false, place = "";

function route() {
  return location.hash.replace(/^#\/?/, "").split("/").map(decoded).filter(Boolean);
}

// An address that somebody cut short is an unknown name, and no page that stands still.
function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

function draw() {
  waiting = false;
  drawn = performance.now();
  if (!store.ready) return;
  const [namespace, kind, name, ...more] = route();
  const page = Object.hasOwn(PAGES, kind) && PAGES[kind];
  let made;
  try {
    made = page ? page(redraw, namespace, name, more) : overview(redraw);
  } catch (error) {
    made = [h("h1", null, "This page cannot be drawn"), h("p", { class: "problem" }, error.message)];
  }
  keepFocus(() => main.replaceChildren(...[].concat(made).flat(Infinity).filter(Boolean)));
  const title = main.querySelector("h1");
  document.title = `${title ? title.firstChild.textContent : ""} · learnloop`;
  if (place !== location.hash) {
    place = location.hash;
    crumbs(namespace, kind, name, more);
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

// Drawing again must not take the cursor, the scroll of a table or an open detail away.
function keepFocus(work) {
  const active = document.activeElement, id = main.contains(active) && active.id;
  const range = id && active.selectionStart !== undefined ? [active.selectionStart, active.selectionEnd] : null;
  const open = [...main.querySelectorAll("details[open][id]")].map((item) => item.id);
  const href = !id && main.contains(active) && active.getAttribute("href");
  work();
  open.forEach((name) => document.getElementById(name)?.setAttribute("open", ""));
  const again = id ? document.getElementById(id) : href ? main.querySelector(`a[href="${CSS.escape(href)}"]`) : null;
  if (again) {
    again.focus({ preventScroll: true });
    if (range) again.setSelectionRange?.(...range);
  }
}

function crumbs(namespace, kind, name, more) {
  const parts = [link("all")];
  if (namespace) parts.push(h("span", null, namespace));
  if (kind) parts.push(h("span", kind === "decisions" ? { "aria-current": "page" } : null, kind));
  if (name) parts.push(more.length ? link(name, namespace, kind, name) : h("span", { "aria-current": "page" }, name));
  more.forEach((item) => parts.push(h("span", null, item)));
  document.getElementById("crumbs").replaceChildren(...parts);
  const of = document.getElementById("of");
  of.hidden = !namespace || kind === "decisions";
  of.replaceChildren(namespace ? link(`decisions in ${namespace}`, namespace, "decisions") : "");
}

// Reads must not stay on a screen after the right to read has gone; a stream that comes again begins with all.
function clear(sentence) {
  store.ready = false;
  store.objects.clear();
  store.curves.clear();
  document.getElementById("dialog").close();
  for (const name of ["crumbs", "of", "notice", "message"]) document.getElementById(name).replaceChildren();
  main.replaceChildren(h("h1", null, sentence));
  document.title = "learnloop";
}

export function redraw() {
  if (waiting) return;
  waiting = true;
  setTimeout(() => requestAnimationFrame(draw), Math.max(0, LEAST_MILLISECONDS - (performance.now() - drawn)));
}

function theme(next) {
  if (next) localStorage.setItem("theme", next);
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
}

function otherTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = localStorage.getItem("theme") || (dark ? "dark" : "light");
  theme(now === "dark" ? "light" : "dark");
}

function keys() {
  const dialog = document.getElementById("dialog");
  const rows = [["/", "filter"], ["g", "all namespaces"], ["j, k", "next, previous link of the page"], ["Enter", "open it"], ["u", "one level up"], ["t", "light or dark"], ["?", "these keys"], ["Esc", "close"]];
  dialog.replaceChildren(h("h2", { id: "dialog-title" }, "Keys"),
    h("table", null, h("tbody", null, rows.map(([name, does]) => h("tr", null, h("th", { scope: "row" }, name), h("td", null, does))))),
    h("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  dialog.showModal();
}

function step(by) {
  const links = [...main.querySelectorAll("a[href], button")];
  const at = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea") || document.getElementById("dialog").open) return;
  const does = {
    "/": () => document.getElementById("filter")?.focus(), g: () => { location.hash = "#/"; },
    u: () => { const parts = route(); location.hash = parts.length > 3 ? "#/" + parts.slice(0, 3).map(encodeURIComponent).join("/") : "#/"; },
    t: otherTheme, "?": keys, j: () => step(1), k: () => step(-1),
  }[event.key];
  if (does) { event.preventDefault(); does(); }
});
document.getElementById("end").addEventListener("click", () => end().then(() => clear("The console has ended."), (error) => say(error.message)));
document.getElementById("theme").addEventListener("click", otherTheme);
document.getElementById("keys").addEventListener("click", keys);
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", redraw);
addEventListener("resize", redraw);
setInterval(redraw, 10000);

listen((what) => {
  if (what === "link") {
    const shown = document.getElementById("link");
    const live = store.live && !store.away;
    shown.textContent = live ? "live" : store.live ? "the cluster does not answer" : "lost; trying again";
    shown.title = store.away;
    if (store.live) lost = clearTimeout(lost);
    else lost ||= setTimeout(() => clear("The console does not answer: start `kubectl learnloop console` again."), LOST_MILLISECONDS);
    if (live && shown.className === "lost") about();
    shown.className = live ? "live" : "lost";
  }
  redraw();
});

const given = location.hash.match(/^#key=([\w-]+)$/);
if (given) {
  sessionStorage.setItem("key", given[1]);
  history.replaceState(null, "", "/#/");
}
theme();
follow();

async function about() {
  try {
    store.about = await ask("/about");
    const problems = Object.entries(store.about.problems || {});
    const notice = document.getElementById("notice");
    notice.textContent = [store.about.message, ...problems.map(([where, problem]) => `${where}: ${problem}`)].filter(Boolean).join(" ");
    notice.hidden = !notice.textContent;
    tell("about");
  } catch (error) { say(error.message); }
}
about();
setInterval(about, 20000);
