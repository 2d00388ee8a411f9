// The prediction of one molecule. Text from the server and from people is only ever written as text, never as HTML.

import { openEditor } from "./editor.js";
import { watchFiles } from "./files.js";
import { dark, drawIn, redraw } from "./structure.js";
import { hideInsight, rounded, showDomain, showExplanation, withUnit } from "./insight.js";
import { element, request } from "./request.js";

const form = document.getElementById("molecule");
const smiles = document.getElementById("smiles");
const models = document.getElementById("model");
const structure = document.getElementById("structure");
const values = document.getElementById("values");
const result = document.getElementById("result");
const button = document.getElementById("predict");
const draw = document.getElementById("draw");
const offline = document.getElementById("offline");

const LEVEL = 0.9; // probability of the intervals

const cards = new Map(); // models by name
let editor = null;
let shown = ""; // the SMILES of the result
let latest = 0; // number of the last request; answers to earlier ones are dropped

async function showModels() {
  try {
    for (const model of await request("/models")) {
      cards.set(model.name, model);
      models.append(element("option", { value: model.name, text: model.name }));
    }
  } catch (error) {
    offline.textContent = `The service does not answer: ${error.message}`;
    offline.hidden = false;
  }
}

dark.addEventListener("change", () => { for (const picture of document.images) redraw(picture); });

function showRow(answer, text) {
  const [row] = answer.predictions;
  if (row.error !== null) {
    showProblem(row.error);
    return;
  }
  const uncertainty = row.uncertainty;
  const percent = `${Math.round(LEVEL * 100)} %`;
  const titles = ["Property", "Prediction"];
  if (uncertainty?.lower) titles.push(`${percent} interval`);
  if (uncertainty?.set) titles.push("Calibrated", `${percent} set`);
  const rows = answer.targets.map((target) => {
    const numbers = [withUnit(row.values[target.column], target.unit)];
    if (uncertainty?.lower) {
      numbers.push(interval(uncertainty.lower[target.column], uncertainty.upper[target.column], target.unit));
    }
    if (uncertainty?.set) {
      const members = uncertainty.set[target.column];
      numbers.push(rounded(uncertainty.calibrated[target.column]), members.length ? members.join(" or ") : "neither");
    }
    return element("tr", {}, [
      element("th", { scope: "row", text: target.name }),
      ...numbers.map((text, place) => element("td", { className: place ? "" : "number", text })),
    ]);
  });
  values.replaceChildren(element("table", {}, [
    element("caption", { text: `${answer.model}: ${text}` }),
    element("thead", {}, [element("tr", {}, titles.map((title) => element("th", { scope: "col", text: title })))]),
    element("tbody", {}, rows),
  ]));
}

function interval(lower, upper, unit) {
  return `${rounded(lower)} to ${withUnit(upper, unit)}`;
}

function showProblem(message) {
  values.replaceChildren(element("p", { className: "problem", text: message }));
}

function card() {
  return cards.get(models.value) ?? { intervals: false, domain: false, explanations: false };
}

// Show the nearest training molecule and the contributions of the atoms, as far as the model has them.
function showInsight(answer, text, number) {
  const [row] = answer.predictions;
  if (row.domain !== null) showDomain(row.domain);
  if (cards.get(answer.model)?.explanations) {
    showExplanation({ smiles: text, model: answer.model }, () => number === latest);
  }
}

// The probability of intervals; null for a model without them.
function level() {
  return card().intervals ? LEVEL : null;
}

async function predict() {
  const text = smiles.value.trim();
  if (!text) return;
  const number = ++latest;
  shown = text;
  button.disabled = true;
  result.hidden = false;
  values.replaceChildren(element("p", { className: "hint", text: "Predicting …" }));
  drawIn(structure, text, `Structure of ${text}`);
  hideInsight();
  try {
    const answer = await request("/predict", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ smiles: text, model: models.value || null, interval: level(), domain: card().domain }),
    });
    if (number !== latest) return;
    showRow(answer, text);
    if (answer.predictions[0].error === null) showInsight(answer, text, number);
  } catch (error) {
    if (number === latest) showProblem(error.message);
  } finally {
    if (number === latest) button.disabled = false;
  }
}

form.addEventListener("submit", (event) => { event.preventDefault(); predict(); });
models.addEventListener("change", () => { if (shown) predict(); });
for (const example of document.querySelectorAll("[data-smiles]")) {
  example.addEventListener("click", () => {
    smiles.value = example.dataset.smiles;
    editor?.show(smiles.value);
    predict();
  });
}
smiles.addEventListener("change", () => { if (draw.open) editor?.show(smiles.value.trim()); });

draw.addEventListener("toggle", async () => {
  if (!draw.open) return;
  try {
    editor ??= await openEditor(document.getElementById("editor"), (drawn) => { smiles.value = drawn; });
    editor.show(smiles.value.trim());
  } catch (error) {
    document.getElementById("editor-hint").textContent = `The editor cannot be loaded: ${error.message}`;
  }
});

watchFiles(() => ({ model: models.value, ...(level() ? { interval: level() } : {}), domain: card().domain }));
showModels();
