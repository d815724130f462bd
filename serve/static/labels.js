// The best labels of a row as bars, with the threshold of each.

import { bar, byId, fixed, make, say } from "./dom.js";

/** A function from a label to its threshold: null where there is none. */
export function thresholds(model, rule, number) {
  if (rule === "none") return () => null;
  if (rule === "number") return () => number;
  if (rule === "tuned") return () => model.thresholds.tuned;
  const columns = new Map(model.labels.map((label, column) => [label, column]));
  return (label) => model.thresholds.per_label[columns.get(label)];
}

// Scores are float32, and so must be what they are compared with.
const reaches = (score, threshold) => Math.fround(score) >= Math.fround(threshold);

function line(label, score, threshold) {
  const item = make("li", {}, make("span", { className: "name" }, label), bar(score, threshold));
  item.append(make("span", { className: "number" }, fixed(score, 3)));
  if (threshold !== null) {
    const isReached = reaches(score, threshold);
    item.classList.toggle("below", !isReached);
    const words = `${isReached ? "reaches" : "below"} ${fixed(threshold, 2)}`;
    item.append(make("span", { className: "verdict" }, words));
  }
  return item;
}

/** Show the answer of `POST /predict` for one row. */
export function showLabels(answer, thresholdOf) {
  const { labels, scores } = answer.predictions[0];
  const limits = labels.map(thresholdOf);
  byId("bars").replaceChildren(...labels.map((label, i) => line(label, scores[i], limits[i])));
  const { name, version } = answer.model;
  const { queue, inference, total } = answer.latency_ms;
  const reached = limits.filter((limit, i) => limit === null || reaches(scores[i], limit)).length;
  const verdict = limits[0] === null ? "no threshold" : `${reached} of ${labels.length} shown reach the threshold`;
  say(
    byId("answer-state"),
    `${name}, version ${version}: ${verdict}. ${fixed(total, 2)} ms, ` +
      `${fixed(queue, 2)} of them in the queue and ${fixed(inference, 2)} in the model.`,
  );
}

/** Take back what is shown, because it is no longer true. */
export function hideLabels(sentence) {
  byId("bars").replaceChildren();
  say(byId("answer-state"), sentence);
}
