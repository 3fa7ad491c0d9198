// The server's news: all objects by key, and their history since this page was opened.
export const store = { objects: new Map(), about: { orders: {} }, rights: Object.create(null), live: false, away: "", curves: new Map() };
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
  const response = await fetch(path + (query ? "?" + new URLSearchParams(query) : ""));
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
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

const KEYED = () => ({ "Content-Type": "application/json", "X-Learnloop-Key": sessionStorage.getItem("key") || "" });

// The server goes with its last answer, so no answer is one, too.
export async function end() {
  const response = await fetch("/end", { method: "POST", headers: KEYED(), body: "{}" }).catch(() => null);
  if (response && !response.ok) throw new Error((await response.json()).error);
  sessionStorage.clear();
}

export async function order(verb, namespace, name, shown) {
  const response = await fetch("/orders", {
    method: "POST",
    headers: KEYED(),
    body: JSON.stringify({ verb, namespace, name, shown }),
  });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return body.message;
}

// EventSource connects again by itself, and then begins with a snapshot.
export function follow() {
  let source;
  const on = (name, work) => source.addEventListener(name, (event) => {
    work(JSON.parse(event.data));
    tell("objects");
  });
  const close = () => { source?.close(); source = null; };
  const open = () => {
    if (source && source.readyState !== EventSource.CLOSED) return;
    source = new EventSource("/events");
    source.addEventListener("open", () => { store.live = true; store.away = ""; tell("link"); });
    on("cluster", ({ away }) => { store.away = away; tell("link"); });
    source.addEventListener("error", lost);
    on("snapshot", (objects) => {
      store.objects.clear();
      objects.forEach(put);
      store.ready = true;
    });
    on("changes", (changes) => changes.forEach((change) => {
      if (change.object) put(change.object);
      else store.objects.delete(key(change.plural, change.namespace, change.name));
    }));
  };
  const lost = () => {
    store.live = false;
    tell("link");
    // Refused, e.g. because too many pages are open: then the browser tries no more by itself.
    if (source?.readyState === EventSource.CLOSED) setTimeout(() => source && open(), 2000);
  };
  open();
  resting(open, close);
}

// Browsers give all tabs of a server six connections, and a stream holds one for as long as it lasts. Of the tabs that
// are hidden only a few keep theirs, or the seventh tab stands still, and no tab has one left for an order.
const HIDDEN_STREAMS = 2;
function resting(open, close) {
  let letGo = null;
  document.addEventListener("visibilitychange", async () => {
    if (!document.hidden) {
      letGo?.();
      letGo = null;
      open();
      return;
    }
    for (let place = 0; place < HIDDEN_STREAMS && document.hidden && !letGo; place++)
      await new Promise((decided) => navigator.locks.request(`hidden-stream-${place}`, { ifAvailable: true }, (lock) => {
        const held = lock && new Promise((free) => { letGo = free; });
        decided();
        return held;
      }));
    if (document.hidden && !letGo) close();
    else if (!document.hidden) letGo?.();
  });
}

function put(object) {
  const place = key(object.plural, object.metadata.namespace, object.metadata.name);
  store.objects.set(place, object);
  const point = measured(object);
  if (!point) return;
  const points = store.curves.get(place) || [];
  const last = points.at(-1);
  if (last && JSON.stringify({ ...last, at: 0 }) === JSON.stringify({ ...point, at: 0 })) return;
  points.push(point);
  if (points.length > MOST_POINTS) points.splice(0, points.length - MOST_POINTS);
  store.curves.set(place, points);
}

const measuredArm = (arm) => ({ revision: arm?.revision, meanReturn: arm?.meanReturn });

function measured(object) {
  const now = Date.now(), status = object.status || {};
  if (object.plural === "modeldeployments") return { at: now, canary: measuredArm(status.canary), stable: measuredArm(status.stable), weight: status.weight || 0 };
  if (object.plural === "learningagents" && status.recentReturn !== undefined) return { at: now, y: status.recentReturn };
  return null;
}
