// The prediction of one molecule. Text from the server and from people is only ever written as text, never as HTML.

import { openEditor } from "./editor.js";
import { watchFiles } from "./files.js";
import { hideInsight, showDomain, showExplanation } from "./insight.js";
import { element, request } from "./request.js";
import { dark, drawIn, redraw } from "./structure.js";
import { predictionTable } from "./table.js";

const form = document.getElementById("molecule");
const smiles = document.getElementById("smiles");
const problem = document.getElementById("smiles-problem");
const models = document.getElementById("model");
const conditionFields = document.getElementById("conditions");
const structure = document.getElementById("structure");
const values = document.getElementById("values");
const missing = document.getElementById("missing");
const result = document.getElementById("result");
const button = document.getElementById("predict");
const draw = document.getElementById("draw");
const offline = document.getElementById("offline");

const LEVEL = 0.9; // probability of the intervals
const ABILITIES = {
  intervals: "intervals and sets",
  domain: "nearest training molecules",
  explanations: "contributions of the atoms",
};

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
    showConditions();
  } catch (error) {
    offline.textContent = `The service does not answer: ${error.message}`;
    offline.hidden = false;
  }
}

dark.addEventListener("change", () => { for (const picture of document.images) redraw(picture); });

function card() {
  return cards.get(models.value) ?? { kind: "", intervals: false, domain: false, explanations: false, conditions: [] };
}

// The probability of intervals; null for a model without them.
function level() {
  return card().intervals ? LEVEL : null;
}

// A field for each condition that the model takes, such as a temperature.
function showConditions() {
  conditionFields.replaceChildren(...card().conditions.map((name) => {
    const label = element("label", { text: name });
    label.append(element("input", { type: "text", name, autocomplete: "off", required: "" }));
    return label;
  }));
}

// The value of each condition by name; null for a model without them.
function givenConditions() {
  const given = [...conditionFields.querySelectorAll("input")].map((field) => [field.name, field.value.trim()]);
  return given.length ? Object.fromEntries(given) : null;
}

function showProblem(message) {
  result.hidden = true;
  problem.textContent = message;
  problem.hidden = false;
  smiles.setAttribute("aria-invalid", "true");
}

function hideProblem() {
  problem.hidden = true;
  smiles.removeAttribute("aria-invalid");
}

// Show a prediction with what the model has besides: nearest training molecules and contributions of the atoms.
function showPrediction(answer, text, conditions) {
  const [row] = answer.predictions;
  const found = cards.get(answer.model) ?? card();
  values.replaceChildren(predictionTable(answer, row, LEVEL));
  if (row.domain !== null) showDomain(row.domain, answer.targets);
  if (found.explanations) showExplanation({ smiles: text, model: answer.model, conditions }, answer.targets, found.method);
  const lacking = Object.keys(ABILITIES).filter((name) => !found[name]).map((name) => ABILITIES[name]);
  missing.textContent = `Not available for ${answer.model}: ${lacking.join(", ")}.`;
  missing.hidden = lacking.length === 0;
}

async function predict() {
  const text = smiles.value.trim();
  if (!text) return;
  const number = ++latest;
  const conditions = givenConditions();
  shown = text;
  button.disabled = true;
  result.hidden = false;
  missing.hidden = true;
  hideProblem();
  values.replaceChildren(element("p", { className: "hint", text: "Predicting …" }));
  drawIn(structure, text, `Structure of ${text}`);
  hideInsight();
  try {
    const answer = await request("/predict", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        smiles: text, model: models.value || null, interval: level(), domain: card().domain, conditions,
      }),
    });
    if (number !== latest) return;
    const { error } = answer.predictions[0];
    if (error === null) showPrediction(answer, text, conditions);
    else showProblem(error);
  } catch (error) {
    if (number === latest) showProblem(error.message);
  } finally {
    if (number === latest) button.disabled = false;
  }
}

form.addEventListener("submit", (event) => { event.preventDefault(); predict(); });
smiles.addEventListener("input", hideProblem);
models.addEventListener("change", () => {
  showConditions();
  if (shown && !card().conditions.length) predict();
});
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
    editor ??= await openEditor(document.getElementById("editor"), (drawn) => { smiles.value = drawn; hideProblem(); });
    editor.show(smiles.value.trim());
  } catch (error) {
    document.getElementById("editor-hint").textContent = `The editor cannot be loaded: ${error.message}`;
  }
});

watchFiles(() => ({ model: models.value, ...(level() ? { interval: level() } : {}), domain: card().domain }));
showModels();
