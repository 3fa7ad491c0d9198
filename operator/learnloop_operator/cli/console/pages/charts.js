// Pictures as SVG. Each has a sentence for ears, and its figures stand in a table next to it.
import { h } from "./dom.js";
import { figure, whole } from "./format.js";

const WIDEST = 860, LEFT = 56, RIGHT = 14, TOP = 16, BELOW = 24;
const MOST_ROWS = 10, SIGN = 6.6;  // width of a sign of a label, about
// On a narrow screen a chart has fewer units, or its labels would shrink with it.
const width = () => Math.max(280, Math.min(WIDEST, document.getElementById("main").clientWidth - 24));

const range = (values) => {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return [0, 1];
  if (low === high) return [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
  return [low, high];
};

// A round distance of grid lines, so that about `wanted` fit.
function gridGap(low, high, wanted) {
  const rough = (high - low) / wanted, size = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((by) => by * size).find((by) => by >= rough * 0.999) || rough;
}

const moment = (value, span) => {
  const at = new Date(value);
  return span > 172800000 ? at.toLocaleDateString() : at.toLocaleTimeString([], span < 600000 ? undefined : { hour: "2-digit", minute: "2-digit" });
};

// series: [{ name, points: [{ x, y, low?, high?, begins? }], step? }]; a line is broken before a point that begins another.
// marks: [{ x, label, tone }].
export function lines({ label, series, marks = [], time = true, height = 240, xName = "", from, to, zero = false, wide = width() }) {
  const all = series.flatMap((one) => one.points);
  if (!all.length) return h("p", { class: "quiet" }, "No figures yet.");
  const [x0, x1] = from !== undefined ? [from, to] : range(all.map((p) => p.x));
  const shown = all.filter((p) => p.x >= x0 && p.x <= x1);
  let [y0, y1] = range(shown.flatMap((p) => [p.y, p.low, p.high]));
  if (zero) { y0 = 0; y1 = Math.max(y1, zero); }
  const gap = gridGap(y0, y1, Math.max(2, height / 60));
  y0 = Math.floor(y0 / gap + 1e-9) * gap; y1 = Math.ceil(y1 / gap - 1e-9) * gap;
  const X = (x) => LEFT + ((x - x0) / (x1 - x0 || 1)) * (wide - LEFT - RIGHT);
  const Y = (y) => height - BELOW - ((y - y0) / (y1 - y0 || 1)) * (height - TOP - BELOW);
  const at = (x, y) => `${X(x).toFixed(1)},${Y(y).toFixed(1)}`;
  const drawing = h("svg", { class: "chart", viewBox: `0 0 ${wide} ${height}`, role: "img", "aria-label": label });
  for (let y = y0; y <= y1 + gap / 1e6; y += gap)
    drawing.append(h("line", { class: "axis", x1: LEFT, x2: wide - RIGHT, y1: Y(y), y2: Y(y) }), h("text", { x: LEFT - 6, y: Y(y) + 4, "text-anchor": "end" }, figure(y, Math.abs(y1 - y0) < 0.5 ? 2 : Math.abs(y1 - y0) < 8 ? 1 : 0)));
  const count = Math.max(1, Math.min(5, Math.floor(wide / 150)));
  const apart = time ? (x1 - x0) / count : gridGap(x0, x1 > x0 ? x1 : x0 + 1, count), begin = time ? x0 : Math.ceil(x0 / apart - 1e-9) * apart;
  for (let x = begin; x <= x1 + apart / 1e6; x += apart) {
    const room = X(x) - LEFT < 20 ? "start" : wide - X(x) < 60 ? "end" : "middle";
    drawing.append(h("text", { x: X(x), y: height - 6, "text-anchor": room }, time ? moment(x, x1 - x0) : whole(x) + (xName && x + apart > x1 ? " " + xName : "")));
    if (x1 === x0) break;
  }
  series.forEach((one, index) => {
    const points = one.points.filter((p) => Number.isFinite(p.y) && p.x >= x0 && p.x <= x1), tint = index % 4;
    if (!points.length) return;
    if (points.every((p) => Number.isFinite(p.low) && Number.isFinite(p.high)) && points.length > 1)
      drawing.append(h("path", { class: `band a${tint}`, d: `M${points.map((p) => at(p.x, p.high)).join("L")}L${[...points].reverse().map((p) => at(p.x, p.low)).join("L")}Z` }));
    const way = points.map((p, i) => (!i || p.begins ? "M" : one.step ? `L${at(p.x, points[i - 1].y)}L` : "L") + at(p.x, p.y));
    if (points.length > 1) drawing.append(h("path", { class: `line s${tint}`, d: way.join("") }));
    else drawing.append(h("circle", { class: `a${tint}`, cx: X(points[0].x), cy: Y(points[0].y), r: 4 }));
  });
  const ends = [];  // of the labels in each row: one that would run into another goes a row down
  for (const mark of [...marks].filter((m) => m.x >= x0 && m.x <= x1).sort((a, b) => a.x - b.x)) {
    const x = X(mark.x), long = mark.label.length * SIGN, last = x + long > wide, begins = last ? x - 4 - long : x + 4;
    let row = ends.findIndex((end) => end < begins);
    if (row < 0) row = ends.length;
    ends[row] = begins + long;
    drawing.append(h("line", { class: `mark ${mark.tone}`, x1: x, x2: x, y1: TOP, y2: height - BELOW }),
      h("text", { class: mark.tone, x: x + (last ? -4 : 4), y: TOP + 10 + 13 * (row % MOST_ROWS), "text-anchor": last ? "end" : "start" }, mark.label));
  }
  return h("div", null, drawing, series.length > 1 || series[0].name ? legend(series.map((one) => one.name)) : null);
}

export const legend = (names) => h("ul", { class: "legend" }, names.map((name, index) => h("li", null,
  h("svg", { class: "chart", viewBox: "0 0 12 12", "aria-hidden": "true" }, h("rect", { class: `a${index % 4}`, width: 12, height: 12, rx: 2 })), name)));

// Shares of episodes by model over time: what users were really given. buckets: [{ x, shares: { name: 0..1 } }].
export function shares(names, buckets, label, from, to) {
  const WIDE = width(), height = 110, drawing = h("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${height}`, role: "img", "aria-label": label });
  const X = (x) => LEFT + ((x - from) / (to - from || 1)) * (WIDE - LEFT - RIGHT), wide = (WIDE - LEFT - RIGHT) / Math.max(1, buckets.count);
  for (const y of [0, 0.5, 1]) {
    const at = height - 8 - y * (height - 20);
    drawing.append(h("line", { class: "axis", x1: LEFT, x2: WIDE - RIGHT, y1: at, y2: at }), h("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, `${100 * y} %`));
  }
  for (const bucket of buckets.items) {
    let base = 0;
    names.forEach((name, index) => {
      const share = bucket.shares[name] || 0, tall = share * (height - 20);
      if (share) drawing.append(h("rect", { class: `share a${index % 4}`, x: X(bucket.x) - wide / 2, width: wide, y: height - 8 - base - tall, height: tall }));
      base += tall;
    });
  }
  return h("div", null, drawing, legend(names));
}

// An arm's line ends with the arm: the next model of that role begins a line of its own.
function armReturns(points, role, end) {
  const of = (p) => p?.[role]?.meanReturn, shown = points.length ? [...points, { ...points.at(-1), at: end }] : [];
  return shown.flatMap((p, i) => (Number.isFinite(of(p))
    ? [{ x: p.at, y: of(p), begins: !Number.isFinite(of(shown[i - 1])) || shown[i - 1][role].revision !== p[role].revision }] : []));
}

export function weights(points) {
  const end = Date.now(), begin = points.length ? points[0].at : end - 1;
  const held = points.map((p) => ({ x: p.at, y: p.weight }));
  if (held.length) held.push({ x: end, y: held.at(-1).y });
  const returns = ["canary", "stable"].map((role) => ({ name: `${role}'s mean return`, points: armReturns(points, role, end) }));
  return h("div", null,
    lines({ label: `Canary's weight, now ${held.at(-1)?.y ?? 0} percent`, series: [{ name: "canary's weight, percent of new episodes", points: held, step: true }], height: 120, from: begin, to: end, zero: 100 }),
    returns.some((one) => one.points.length) ? lines({ label: "Mean return of both arms", series: returns.filter((one) => one.points.length), height: 170, from: begin, to: end }) : null);
}
