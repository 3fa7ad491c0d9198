// What the server tells: all objects by key, and what they were since this page was opened.
export const store = { objects: new Map(), about: { orders: {} }, rights: {}, live: false, curves: new Map() };
const listeners = new Set();
const MOST_POINTS = 2000;
const key = (plural, namespace, name) => `${plural}/${namespace}/${name}`;

export const listen = (call) => listeners.add(call);
export const tell = (change) => listeners.forEach((call) => call(change));
export const get = (plural, namespace, name) => store.objects.get(key(plural, namespace, name));
export const every = (plural, namespace) =>
  [...store.objects.values()].filter((item) => item.plural === plural && (!namespace || item.metadata.namespace === namespace));
export const curve = (plural, namespace, name) => store.curves.get(key(plural, namespace, name)) || [];

export async function ask(path, query) {
  const found = await fetch(path + (query ? "?" + new URLSearchParams(query) : ""));
  const body = await found.json();
  if (!found.ok) throw new Error(body.error);
  return body;
}

export async function rights(namespace) {
  if (!store.rights[namespace]) {
    store.rights[namespace] = {};
    try { store.rights[namespace] = await ask("/rights", { namespace }); } catch { /* no buttons then */ }
    tell("rights");
    setTimeout(() => delete store.rights[namespace], 30000);
  }
  return store.rights[namespace];
}

export async function order(verb, namespace, name) {
  const found = await fetch("/orders", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Learnloop-Key": sessionStorage.getItem("key") || "" },
    body: JSON.stringify({ verb, namespace, name, confirm: `${verb} ${namespace}/${name}` }),
  });
  const body = await found.json();
  if (!found.ok) throw new Error(body.error);
  return body.said;
}

// EventSource resumes by itself: it names the last id it has seen, and the server sends what came after.
export function follow() {
  const source = new EventSource("/events");
  source.addEventListener("open", () => { store.live = true; tell("link"); });
  source.addEventListener("error", () => { store.live = false; tell("link"); });
  source.addEventListener("snapshot", (event) => {
    store.objects.clear();
    for (const object of JSON.parse(event.data)) put(object);
    store.ready = true;
    tell("objects");
  });
  source.addEventListener("changes", (event) => {
    for (const change of JSON.parse(event.data)) {
      if (change.object) put(change.object);
      else store.objects.delete(key(change.plural, change.namespace, change.name));
    }
    tell("objects");
  });
}

function put(object) {
  const place = key(object.plural, object.metadata.namespace, object.metadata.name);
  store.objects.set(place, object);
  const point = measured(object);
  if (!point) return;
  const points = store.curves.get(place) || [];
  const last = points.at(-1);
  if (last && last.y === point.y && last.weight === point.weight && last.step === point.step) return;
  points.push(point);
  if (points.length > MOST_POINTS) points.splice(0, points.length - MOST_POINTS);
  store.curves.set(place, points);
}

function measured(object) {
  const now = Date.now(), status = object.status || {};
  if (object.plural === "trainingjobs" && status.recentReturn)
    return { at: now, step: status.step || 0, y: status.recentReturn.mean, low: status.recentReturn.ciLow, high: status.recentReturn.ciHigh };
  if (object.plural === "modeldeployments") return { at: now, y: status.canary?.meanReturn, stable: status.stable?.meanReturn, weight: status.weight || 0 };
  if (object.plural === "learningagents" && status.recentReturn !== undefined) return { at: now, y: status.recentReturn };
  return null;
}
