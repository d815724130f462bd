// What the models measured so far, asked every two seconds while somebody can see it.

import { bar, byId, fixed, make, say } from "./dom.js";
import { speeds } from "./server.js";

const SECONDS = 2;

let before = null;
let timer = null;

function cells(model, rowsNow) {
  const { p50, p95, p99 } = model.latency_ms;
  const numbers = [
    String(model.requests),
    ...[p50, p95, p99].map((value) => fixed(value, 2)),
    fixed(rowsNow, 1),
    fixed(model.rows_per_second, 0),
    String(model.queued_rows),
  ];
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, model.name),
    make("td", {}, model.method),
    ...numbers.map((number) => make("td", { className: "number" }, number)),
  );
}

/** Rows a second between two looks; null at the first, and after counters began anew. */
function rowsNow(model, now) {
  const earlier = before?.rows.get(model.name);
  if (earlier === undefined || model.rows < earlier) return null;
  return (1000 * (model.rows - earlier)) / (now - before.now);
}

function ratioLine(model, largest, baseline) {
  const what = model.name === baseline ? `${model.name} (baseline)` : model.name;
  const ratio = model.ratio === null ? "–" : `${fixed(model.ratio, 2)} ×`;
  const note = model.ratio === null ? "not asked yet" : model.method;
  return make(
    "li",
    {},
    make("span", { className: "name" }, what),
    bar(model.ratio === null ? 0 : model.ratio / largest),
    make("span", { className: "number" }, ratio),
    make("span", { className: "verdict" }, note),
  );
}

function show({ baseline, models }) {
  const now = performance.now();
  byId("speeds").replaceChildren(...models.map((model) => cells(model, rowsNow(model, now))));
  const largest = Math.max(...models.map((model) => model.ratio ?? 0), 1);
  byId("ratios").replaceChildren(...models.map((model) => ratioLine(model, largest, baseline)));
  before = { now, rows: new Map(models.map((model) => [model.name, model.rows])) };
}

async function look(onModels) {
  timer = null;
  try {
    const measured = await speeds();
    show(measured);
    say(byId("live-state"), `Every ${SECONDS} seconds.`);
    onModels(measured.models.map(({ name, version }) => `${name} ${version}`).join("\n"));
  } catch (error) {
    say(byId("live-state"), error.message);
  }
  plan(onModels);
}

const isPaused = () => document.hidden || byId("pause").ariaPressed === "true";

function plan(onModels) {
  if (timer === null && !isPaused()) timer = setTimeout(look, 1000 * SECONDS, onModels);
}

/** Begin to look; `onModels` is told the names and versions of the loaded models each time. */
export function watch(onModels) {
  const turn = () => {
    clearTimeout(timer);
    timer = null;
    before = null;
    if (isPaused()) say(byId("live-state"), "Paused.");
    else look(onModels);
  };
  byId("pause").addEventListener("click", ({ currentTarget }) => {
    currentTarget.ariaPressed = String(currentTarget.ariaPressed !== "true");
    turn();
  });
  document.addEventListener("visibilitychange", turn);
  turn();
}
