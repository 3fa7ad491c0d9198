// Reads of the data plane for the page that is shown: kept while one looks, asked again when they are old.
import { h } from "./dom.js";
import { ask, tell } from "./store.js";

const kept = new Map();
const MOST = 60;

// { value, error, busy } of a read; begins it where it is missing or older than `seconds`.
export function read(what, query, seconds = 30) {
  const name = what + "?" + new URLSearchParams(query);
  let found = kept.get(name);
  if (!found) {
    if (kept.size >= MOST) kept.delete(kept.keys().next().value);
    kept.set(name, (found = { at: -Infinity }));
  }
  if (!found.busy && performance.now() - found.at > 1000 * seconds) {
    found.busy = true;
    ask(what === "happened" ? "/happened" : "/records/" + what, query)
      .then((value) => { found.value = value; found.error = null; })
      .catch((error) => { found.error = error.message; })
      .finally(() => { found.busy = false; found.at = performance.now(); tell("read"); });
  }
  return found;
}

// What to show in place of figures that are not there.
export function missing(found, what) {
  if (found.error) return h("div", { class: "problem" }, h("b", null, `${what} cannot be read. `), found.error,
    h("p", { class: "quiet" }, "They come from the data plane, as a service account of the namespace: that takes create on serviceaccounts/token, and get and create on services/proxy."));
  return found.value === undefined ? h("p", { class: "quiet reading" }, `Reading ${what.toLowerCase()} …`) : null;
}
