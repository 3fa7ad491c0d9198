// Elements from data. Text is always text: nothing here, or anywhere else in these pages, parses HTML.
const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "rect", "circle", "text", "g", "title", "desc"]);

export function h(tag, attributes, ...children) {
  const drawn = SVG_TAGS.has(tag);
  const made = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  add(made, children);
  return made;
}

function add(to, children) {
  for (const child of children) {
    if (child === undefined || child === null || child === false) continue;
    if (Array.isArray(child)) add(to, child);
    // A sentence of a status names commands and objects between backticks.
    else if (typeof child === "string" && to.matches("p, td.why"))
      to.append(...child.split(/`([^`]+)`/).map((part, index) => (index % 2 ? h("code", null, part) : part)));
    else to.append(child instanceof Node ? child : String(child));
  }
}

export const link = (text, ...parts) =>
  h("a", { href: "#/" + parts.map(encodeURIComponent).join("/") }, text);

// Columns: [head, cell(row), "figure" | "why" | "name"?]. A table that says what it is, to ears too.
// With `cache` (a WeakMap) the row of an object that is the same as the last time is taken again.
export function table(caption, columns, rows, empty, cache) {
  if (!rows.length) return h("p", { class: "quiet" }, empty || "Nothing yet.");
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, h("caption", null, caption),
      h("thead", null, h("tr", null, columns.map(([head, , kind]) => h("th", { scope: "col", class: kind }, head)))),
      h("tbody", null, rows.map((row) => {
        const old = cache?.get(row);
        if (old) return old;
        const made = h("tr", null, columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row))));
        cache?.set(row, made);
        return made;
      }))));
}

export const card = (label, value, more) =>
  h("div", { class: "card" }, h("span", null, label), h("b", null, value ?? "–"), more ? h("small", null, more) : null);

const GOOD = new Set(["Healthy", "Validated", "Passed", "Ready", "fine", "passed", "obeyed", "Won", "Active", "done"]);
const BAD = new Set(["RolledBack", "Failed", "Degraded", "worse", "failed", "refused", "Blocked", "rolled_back"]);
const WARN = new Set(["Paused", "Queued", "undecided", "Suspended", "ignored", "Waiting"]);

export function badge(text) {
  if (!text) return "";
  const tone = GOOD.has(text) ? "good" : BAD.has(text) ? "bad" : WARN.has(text) ? "warn" : "now";
  return h("span", { class: "badge " + tone }, text);
}
