// Figures, times and the parts of objects that several pages read.
export const status = (object) => (object && object.status) || {};
export const named = (object) => object.metadata.name;
export const spaced = (object) => object.metadata.namespace;
export const condition = (object, type) => (status(object).conditions || []).find((item) => item.type === type) || {};
export const why = (object) =>
  status(object).verdict || condition(object, "Ready").message || "The operator has not looked at it yet.";

export function figure(value, digits) {
  if (value === undefined || value === null || Number.isNaN(Number(value))) return "";
  const size = Math.abs(value);
  return Number(value).toFixed(digits ?? (size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.01 || size === 0 ? 2 : 4));
}

export const whole = (value) => (Math.round(value) + 0).toLocaleString("en");

export const interval = (item) =>
  item ? `${figure(item.mean)} [${figure(item.ciLow ?? item.low)}, ${figure(item.ciHigh ?? item.high)}]` : "";
export const percent = (value) => (value === undefined || value === null ? "" : `${Math.round(100 * value)} %`);

// "25%", as a status has it, is written as all other shares are.
export const share = (text) => (text ? String(text).replace(/(\d)%$/, "$1 %") : "");

export function clock(text) {
  if (!text) return "";
  const at = new Date(text);
  const today = at.toDateString() === new Date().toDateString();
  return today ? at.toLocaleTimeString() : at.toLocaleString();
}

export function since(text, until) {
  if (!text) return "";
  const seconds = Math.max(0, ((until ? new Date(until) : new Date()) - new Date(text)) / 1000);
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

// The agent whose model a rollout serves, and the runs of an agent.
export const agentOf = (rollout) => rollout.spec?.model?.learningAgentRef?.name;
export const runOf = (job, agent) =>
  status(job).lineage?.learningAgent === agent ||
  (job.metadata.ownerReferences || []).some((owner) => owner.kind === "LearningAgent" && owner.name === agent);
