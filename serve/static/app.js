// What happens when: the controls, what they ask the server, and where the answers are shown.

import { byId, fixed, make, say } from "./dom.js";
import * as server from "./server.js";
import { hideLabels, showLabels, thresholds } from "./labels.js";
import { chosenNames, hideAnswers, offerModels, showAnswers } from "./side.js";
import { showCard } from "./card.js";
import { askForKeys } from "./key.js";
import { watch } from "./live.js";

const MOST_SHOWN = 50;
const WAIT_MS = 100;

let models = [];
let known = "";
let model = null; // the detail of the chosen model, once it is there
let choosing = Promise.resolve(); // until it is
let answer = null; // its last answer, for the row as it stands
let nextExample = 0;
const newestModel = server.latest();
const newestAnswer = server.latest();
const newestComparison = server.latest();

const problem = (sentence) => say(byId("problem"), sentence);

/** Run something that may fail, and show why in the server's words. */
async function attempt(work) {
  try {
    await work();
  } catch (error) {
    if (error.name !== "AbortError") problem(error.message);
  }
}

/** The row as it stands: a text, or what its JSON means. */
function typedRow() {
  const text = byId("row").value;
  if (model.input.kind === "text") return text;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`the row is not JSON (${error.message}): write a list such as [0, 1.5] or an object such as {"3": 1}`);
  }
}

const wantedK = (most) => Math.min(Number(byId("k").value), most);

function thresholdToSend() {
  const rule = byId("rule").value;
  if (rule === "none") return null;
  return rule === "number" ? Number(byId("threshold").value) : rule;
}

function draw() {
  if (answer === null) return;
  showLabels(answer, thresholds(model, byId("rule").value, Number(byId("threshold").value)));
}

const predict = () =>
  attempt(async () => {
    const body = { model: model.name, inputs: [typedRow()], top_k: wantedK(model.label_count) };
    const given = await server.predict(body, newestAnswer());
    if (model?.name !== body.model) return; // another was chosen meanwhile
    answer = given;
    problem("");
    draw();
  });

const compare = () =>
  attempt(async () => {
    const names = chosenNames();
    const most = Math.min(...models.filter(({ name }) => names.includes(name)).map((one) => one.label_count));
    const body = { inputs: [typedRow()], models: names, threshold: thresholdToSend() };
    if (names.length) body.top_k = wantedK(most);
    const answers = await server.compare(body, newestComparison());
    problem("");
    showAnswers(names, answers);
  });

const isCompared = () => byId("answers").childElementCount > 0;

let timer = null;

/** Ask again with the same row, once the control has come to rest. */
function again() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (answer !== null) predict();
    if (isCompared()) compare();
  }, WAIT_MS);
}

/** What is shown is not about this row. */
function forget() {
  newestAnswer();
  newestComparison();
  answer = null;
  hideLabels("Nothing asked yet.");
  hideAnswers();
}

function rowHelp({ kind, width }) {
  if (kind === "text") return "A text to label.";
  return `A JSON list of ${width} numbers, or an object from column number (0 to ${width - 1}) to value.`;
}

function prepareControls() {
  say(byId("row-help"), rowHelp(model.input));
  const k = byId("k");
  k.max = Math.min(MOST_SHOWN, model.label_count);
  byId("k-shown").value = k.value;
  const perLabel = byId("rule").querySelector("[value=per-label]");
  perLabel.disabled = model.thresholds.per_label === null;
  if (perLabel.disabled && byId("rule").value === "per-label") byId("rule").value = "tuned";
  showRule();
}

/** Let the slider stand where the rule is, if that is one number. */
function showRule() {
  const slider = byId("threshold");
  if (model !== null && byId("rule").value === "tuned") slider.value = model.thresholds.tuned;
  byId("threshold-shown").value = fixed(Number(slider.value), 2);
}

const loadModel = () =>
  attempt(async () => {
    forget();
    model = null;
    nextExample = 0;
    say(byId("example-state"), "");
    const chosen = models.find(({ name }) => name === byId("model").value);
    if (chosen === undefined) throw new Error("no model is loaded: load one, this page will see it");
    offerModels(models, chosen);
    model = await server.detail(chosen.name, newestModel());
    problem("");
    prepareControls();
    showCard(model);
  });

function chooseModel() {
  choosing = loadModel();
  return choosing;
}

const loadExample = () =>
  attempt(async () => {
    const name = model.name;
    const { input, row, rows } = await server.example(name, nextExample);
    if (model?.name !== name) return;
    byId("row").value = typeof input === "string" ? input : JSON.stringify(input);
    nextExample = (row + 1) % rows;
    say(byId("example-state"), `Test row ${row + 1} of ${rows}.`);
    if (isCompared()) compare();
    await predict();
  });

/** Fill the list of models; the chosen one stays, if it is still there. */
const listModels = () =>
  attempt(async () => {
    const before = byId("model").value;
    models = await server.models();
    const options = models.map(({ name, method }) => make("option", { value: name }, `${name} (${method})`));
    byId("model").replaceChildren(...options);
    if (models.some(({ name }) => name === before)) byId("model").value = before;
    await chooseModel();
  });

/** Models come and go while a server runs. */
function onModels(loaded) {
  if (loaded === known) return;
  known = loaded;
  listModels();
}

function connect() {
  const on = (id, event, work) => byId(id).addEventListener(event, work);
  const submit = (work) => async (event) => {
    event.preventDefault();
    await choosing;
    if (model !== null) work();
  };
  on("ask", "submit", submit(predict));
  on("compare", "submit", submit(compare));
  on("example", "click", submit(loadExample));
  on("model", "change", chooseModel);
  on("row", "input", forget);
  on("k", "input", () => {
    byId("k-shown").value = byId("k").value;
    again();
  });
  on("rule", "change", () => {
    showRule();
    draw();
    if (isCompared()) again();
  });
  on("threshold", "input", () => {
    byId("rule").value = "number";
    showRule();
    draw();
    if (isCompared()) again();
  });
}

connect();
askForKeys(listModels);
watch(onModels);
