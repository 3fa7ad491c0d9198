// Reads of the data plane for the page that is shown: cached while one looks, read again when they are old.
import { h } from "./dom.js";
import { ask, tell } from "./store.js";

const cache = new Map();
const MOST = 60;

// { value, error, busy } of a read; begins it where it is missing or older than `seconds`.
export function read(what, query, seconds = 30) {
  const name = what + "?" + new URLSearchParams(query);
  let entry = cache.get(name);
  if (!entry) {
    if (cache.size >= MOST) cache.delete(cache.keys().next().value);
    cache.set(name, (entry = { at: -Infinity }));
  }
  if (!entry.busy && performance.now() - entry.at > 1000 * seconds) {
    entry.busy = true;
    ask(what === "happened" ? "/happened" : "/records/" + what, query)
      .then((value) => { entry.value = value; entry.error = null; })
      .catch((error) => { entry.error = error.message; })
      .finally(() => { entry.busy = false; entry.at = performance.now(); tell("read"); });
  }
  return entry;
}

// The text in place of missing figures.
export function missing(entry, what) {
  if (entry.error) return h("div", { class: "problem" }, h("b", null, `${what} cannot be read. `), entry.error,
    h("p", { class: "quiet" }, "They come from the data plane, as a service account of the namespace: that takes create on serviceaccounts/token, and get and create on services/proxy."));
  return entry.value === undefined ? h("p", { class: "quiet reading" }, `Reading ${what.toLowerCase()} …`) : null;
}
