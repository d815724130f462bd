// One row through several models, side by side; labels that not all of them give are marked.

import { byId, fixed, make, say } from "./dom.js";

/** The labels of all answers that are missing in at least one of them. */
export function differing(answers) {
  const sets = answers.filter((answer) => answer.status === 200).map(labelsOf);
  const all = new Set(sets.flatMap((set) => [...set]));
  return new Set([...all].filter((label) => sets.some((set) => !set.has(label))));
}

const labelsOf = ({ answer }) => new Set(answer.predictions[0].labels);

function line(label, score, isDifferent) {
  const item = make("li", { className: isDifferent ? "differs" : "" });
  item.append(make(isDifferent ? "mark" : "span", { className: "name" }, label));
  item.append(make("span", { className: "number" }, fixed(score, 3)));
  if (isDifferent) item.append(make("span", { className: "verdict" }, "not in all"));
  return item;
}

function column(name, { status, answer, milliseconds }, different) {
  const article = make("article", {}, make("h3", {}, name));
  if (status !== 200) {
    article.append(make("p", { className: "failure" }, answer.error.message));
    return article;
  }
  const { labels, scores } = answer.predictions[0];
  article.append(make("p", { className: "hint" }, `${answer.model.method}, ${fixed(milliseconds, 2)} ms`));
  const lines = labels.map((label, i) => line(label, scores[i], different.has(label)));
  article.append(lines.length ? make("ol", {}, ...lines) : make("p", {}, "No label reaches the threshold."));
  return article;
}

/** Show the answers of `POST /compare`, which come in the order of the names. */
export function showAnswers(names, answers) {
  const different = differing(answers);
  byId("answers").replaceChildren(...answers.map((answer, i) => column(names[i], answer, different)));
  const failures = answers.filter((answer) => answer.status !== 200).length;
  const failed = failures ? `, ${failures} of them could not answer` : "";
  const verdict = different.size ? `labels that are not in all answers: ${different.size}` : "all give the same labels";
  say(byId("compare-state"), `Models asked: ${names.length}${failed}; ${verdict}.`);
}

/** Take back what is shown. */
export function hideAnswers() {
  byId("answers").replaceChildren();
  say(byId("compare-state"), "");
}

/** One box a model; those that take the same rows as the chosen one are ticked. */
export function offerModels(models, chosen) {
  const takes = ({ input }) => `${input.kind === "text"} ${input.kind === "text" || input.width}`;
  const boxes = models.map((model) => {
    const box = make("input", { type: "checkbox", value: model.name, checked: takes(model) === takes(chosen) });
    return make("label", {}, box, model.name);
  });
  byId("compared").replaceChildren(...boxes);
}

export const chosenNames = () => [...document.querySelectorAll("#compared :checked")].map((box) => box.value);
