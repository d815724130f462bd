// What a model is: data, method, scores, thresholds, versions, as `GET /models/{name}` says.

import { byId, fixed, make } from "./dom.js";

const HEADLINES = ["example_f1", "micro_f1", "macro_f1", "subset_accuracy", "precision@1"];

function rowText({ kind, width, encoding, max_tokens: tokens }) {
  if (kind !== "text") return `${width} numbers${kind === "sparse" ? ", most of them 0" : ""}`;
  return encoding === "tokens" ? `text, of which ${tokens} tokens count` : `text, as weights of ${width} terms`;
}

function perLabelText(values) {
  if (!values) return "one a label, too many to show";
  return `${fixed(Math.min(...values), 2)} to ${fixed(Math.max(...values), 2)}`;
}

function originFacts(origin) {
  if (!origin) return [];
  const { rule, seed, fraction, train, validation, test } = origin.split;
  const share = fraction === 1 ? "" : `, ${fraction} of the train rows`;
  const facts = [
    ["Split", `${rule}, seed ${seed}${share}`],
    ["Rows", `${train} train, ${validation} validation, ${test} test`],
    ["Trained", `seed ${origin.seed}, epoch ${origin.epoch}`],
  ];
  if (origin.command) facts.push(["Command", origin.command]);
  return facts;
}

function searchText({ kind, recall, rows }) {
  return `${kind}: finds ${fixed(100 * recall, 1)} % of the 10 best labels of ${rows} rows`;
}

function facts(model) {
  return [
    ["Method", model.method],
    ["Task", model.task],
    ["Data set", model.dataset],
    ...originFacts(model.origin),
    ["One row", rowText(model.input)],
    ["Labels", String(model.label_count)],
    ["Tuned threshold", fixed(model.thresholds.tuned, 2)],
    ["Thresholds per label", perLabelText(model.thresholds.per_label)],
    ["Difference by export", `at most ${model.largest_difference.toExponential(1)} in a score`],
    ["Search", model.search ? searchText(model.search) : "every label is scored"],
    ["Version", model.version],
    ["Runs on", model.providers.join(", ")],
    ["Made with", Object.entries(model.versions).map(([name, number]) => `${name} ${number}`).join(", ")],
  ];
}

function scoreTable(caption, names, scores) {
  const lines = names.map((name) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", { className: "number" }, fixed(scores[name], 4))),
  );
  return make("table", {}, make("caption", {}, caption), make("tbody", {}, ...lines));
}

/** Show the card of one model. */
export function showCard(model) {
  const scores = model.test_scores;
  const headlines = HEADLINES.filter((name) => name in scores);
  const list = make("dl");
  for (const [name, value] of facts(model)) list.append(make("dt", {}, name), make("dd", {}, value));
  const all = make("details", {}, make("summary", {}, "All test scores"));
  all.append(scoreTable("Test rows, threshold 0.5", Object.keys(scores), scores));
  const figures = make("div", {}, scoreTable("Test rows, threshold 0.5", headlines, scores), all);
  byId("card").replaceChildren(make("h3", {}, model.name), make("div", { className: "card" }, list, figures));
}
