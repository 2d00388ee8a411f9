// The molecules that are asked for: one, a list, or a file. Text from the server and from people is only ever written
// as text, never as HTML.

import { hideBeside, offerBeside, stopBeside } from "./beside.js";
import { openEditor } from "./editor.js";
import { watchFiles, predictFile } from "./files.js";
import { hideInsight, showDomain, showExplanation } from "./insight.js";
import {
  focusRows, hideRows, setFormats, showProgress, showRows, showTableProblem, unhideRows, update,
} from "./many.js";
import { offerNext, stopNext } from "./next.js";
import { readList } from "./pasted.js";
import { element, post, request } from "./request.js";
import { dark, drawIn, redraw } from "./structure.js";
import { hideEndpoints, isWide, LEVEL, predictionTable, showEndpoints, WIDE } from "./table.js";

const form = document.getElementById("molecule");
const smiles = document.getElementById("smiles");
const problem = document.getElementById("smiles-problem");
const models = document.getElementById("model");
const conditionFields = document.getElementById("conditions");
const structure = document.getElementById("structure");
const values = document.getElementById("values");
const missing = document.getElementById("missing");
const result = document.getElementById("result");
const resultTitle = document.getElementById("result-title");
const backField = document.getElementById("back-field");
const button = document.getElementById("predict");
const draw = document.getElementById("draw");
const offline = document.getElementById("offline");

const FIRST_PIECE = 8; // molecules of a list that are predicted at once, so that something is soon seen
const PIECE = 32; // and then
const RETRIES = 5; // of a piece, while the queue of the service is full
const PAUSE = 2000; // milliseconds before the next
const MOST_LINES = 8; // of the field, without scrolling
const ABILITIES = {
  intervals: "intervals and sets",
  domain: "nearest training molecules",
  explanations: "contributions of the atoms",
};

const cards = new Map(); // models by name
const limits = request("/limits");
let largest = Infinity; // number of molecules of a request
let editor = null;
let shown = null; // what is predicted again by another model: one molecule, or a list
let table = null; // the source of the table, and `shown` for it
let latest = 0; // number of the last request for one molecule; answers to earlier ones are dropped
let looks = 0; // number of what was asked for last; a file that ends later does not take its place

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

function card(name = models.value) {
  return cards.get(name) ?? { kind: "", intervals: false, domain: false, explanations: false, conditions: [] };
}

// What a table needs to know of a model.
function described(name) {
  const { targets, intervals, domain, measured_widths } = card(name);
  return { targets, intervals, domain, measured_widths };
}

// What a prediction by a model has besides.
function asked(name) {
  return { model: name || null, interval: card(name).intervals ? LEVEL : null, domain: card(name).domain };
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

// Say why there is no prediction; a table that was there before is there again.
function showProblem(message) {
  result.hidden = true;
  if (table !== null) showTableAgain();
  problem.textContent = message;
  problem.hidden = false;
  smiles.setAttribute("aria-invalid", "true");
}

function hideProblem() {
  problem.hidden = true;
  smiles.removeAttribute("aria-invalid");
}

function fitField() {
  smiles.rows = Math.min(smiles.value.split("\n").length, MOST_LINES);
}

// Show a prediction with what the model has besides: nearest training molecules and contributions of the atoms.
function showPrediction(answer, text, conditions) {
  const [row] = answer.predictions;
  const model = card(answer.model);
  const wide = answer.targets.filter((target) => isWide(row, target, model.measured_widths)).map(({ name }) => name);
  const hint = wide.length ? [element("p", { className: "hint", text: `${wide.join(", ")}: ${WIDE}.` })] : [];
  values.replaceChildren(predictionTable(answer, row), ...hint);
  if (cards.size > 1) showEndpoints([...cards.values()], answer, text, conditions, chooseModel);
  if (row.domain !== null) showDomain(row.domain, answer.targets);
  if (model.explanations) showExplanation({ smiles: text, model: answer.model, conditions }, answer.targets, model.method);
  const lacking = Object.keys(ABILITIES).filter((name) => !model[name]).map((name) => ABILITIES[name]);
  missing.textContent = `Not available for ${answer.model}: ${lacking.join(", ")}.`;
  missing.hidden = lacking.length === 0;
}

// Predict one molecule and show all that is known of it.
async function predictOne({ text, model, conditions, name = "" }) {
  const number = ++latest;
  looks += 1;
  shown = { one: { text, conditions, name } };
  button.disabled = true;
  hideRows();
  backField.hidden = table === null;
  resultTitle.textContent = name ? `Prediction: ${name}` : "Prediction";
  result.hidden = false;
  missing.hidden = true;
  hideProblem();
  values.replaceChildren(element("p", { className: "hint", text: "Predicting …" }));
  drawIn(structure, text, `Structure of ${text}`);
  hideInsight();
  hideEndpoints();
  try {
    const answer = await post("/predict", { smiles: text, ...asked(model), conditions });
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

// Predict a list piece by piece, and show its table at once. A long list is sent as a file.
async function predictList(text) {
  await limits.catch(() => null);
  const listed = readList(text);
  if (listed.length > largest) {
    predictFile(new File([text], "list.smi"), fileQuery(), begin(), showJob);
    return;
  }
  const model = models.value;
  const conditions = givenConditions();
  const source = { ...described(model), title: "List", stem: "molecules", model, conditions, rows: [], total: listed.length };
  showTable(source, { list: text });
  showProgress(0);
  try {
    while (source.rows.length < listed.length) {
      const start = source.rows.length;
      const piece = listed.slice(start, start + (start ? PIECE : FIRST_PIECE));
      const answer = await patiently(() => post("/predict", { smiles: piece.map((row) => row.smiles), ...asked(model), conditions }));
      if (table.source !== source) return;
      answer.predictions.forEach((row, place) => source.rows.push({ ...row, name: piece[place].name, number: start + place + 1 }));
      update();
      showProgress(source.rows.length / listed.length);
    }
  } catch (error) {
    if (table.source === source) showTableProblem(`Stopped after ${source.rows.length} of ${listed.length} molecules: ${error.message}`);
  } finally {
    if (table.source === source) {
      showProgress(null);
      offerOthers(source);
    }
  }
}

function offerOthers(source) {
  offerBeside(source, { cards: [...cards.values()], asked, patiently });
}

// Send a request again while the queue of the service is full.
async function patiently(send) {
  for (let trial = 1; ; trial += 1) {
    try {
      return await send();
    } catch (error) {
      if (error.status !== 429 || trial > RETRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
  }
}

// Show a table in place of a molecule. `again` is what another model predicts again.
function showTable(source, again) {
  table = { source, again };
  latest += 1;
  looks += 1;
  shown = again;
  button.disabled = false;
  result.hidden = true;
  hideProblem();
  showRows(source, (row) => openRow(row, source));
  showProgress(null);
  hideBeside();
  offerNext(source, { molecules: largest, patiently });
  const section = document.getElementById("table");
  if (section.getBoundingClientRect().top > innerHeight / 2) section.scrollIntoView();
}

function showTableAgain() {
  shown = table.again;
  unhideRows();
}

function openRow(row, { model, conditions }) {
  predictOne({ text: row.smiles, model, conditions: row.conditions ?? conditions ?? null, name: row.name });
  resultTitle.focus();
  result.scrollIntoView();
}

function fileQuery() {
  const { model, interval, domain } = asked(models.value);
  return { model, domain, ...(interval === null ? {} : { interval }) };
}

// Return what shows the rows of a file when it is done, unless something else was asked for.
function begin() {
  const number = ++looks;
  return (job) => (number === looks ? showJob(job) : null);
}

async function showJob(job) {
  const number = ++looks;
  const answer = await request(`/files/${job.id}/rows`);
  if (number !== looks) return;
  const rows = answer.predictions.map((row, place) => ({ ...row, number: place + 1 }));
  const stem = job.name.replace(/\.gz$/i, "").replace(/\.[^.]+$/, "");
  const source = { ...described(job.model), title: job.name, stem, model: job.model, targets: answer.targets, rows, total: answer.rows, job };
  showTable(source, null);
  offerOthers(source);
}

function ask() {
  const text = smiles.value.trim();
  if (!text) return;
  if (text.includes("\n")) predictList(text);
  else {
    const [{ smiles: one, name }] = readList(text);
    predictOne({ text: one, model: models.value, conditions: givenConditions(), name });
  }
}

function chooseModel(name) {
  models.value = name;
  models.dispatchEvent(new Event("change"));
  models.focus();
}

form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
smiles.addEventListener("input", () => { hideProblem(); fitField(); });
smiles.addEventListener("keydown", (event) => {
  const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing && (!smiles.value.includes("\n") || event.ctrlKey || event.metaKey);
  if (!sends) return;
  event.preventDefault();
  form.requestSubmit();
});
models.addEventListener("change", () => {
  showConditions();
  if (card().conditions.length) return;
  if (shown?.one) predictOne({ ...shown.one, model: models.value, conditions: null });
  else if (shown?.list) predictList(shown.list);
});
for (const example of document.querySelectorAll("[data-smiles]")) {
  example.addEventListener("click", () => {
    smiles.value = example.dataset.smiles;
    fitField();
    editor?.show(smiles.value);
    ask();
  });
}
smiles.addEventListener("change", () => { if (draw.open) editor?.show(smiles.value.trim()); });
document.getElementById("back").addEventListener("click", () => {
  latest += 1;
  looks += 1;
  button.disabled = false;
  result.hidden = true;
  showTableAgain();
  focusRows();
});
document.getElementById("table-stop").addEventListener("click", () => {
  table = { source: null, again: table.again };
  stopNext();
  stopBeside();
  showProgress(null);
});

draw.addEventListener("toggle", async () => {
  if (!draw.open) return;
  try {
    editor ??= await openEditor(document.getElementById("editor"), (drawn) => { smiles.value = drawn; hideProblem(); fitField(); });
    editor.show(readList(smiles.value)[0]?.smiles ?? "");
  } catch (error) {
    document.getElementById("editor-hint").textContent = `The editor cannot be loaded: ${error.message}`;
  }
});

limits.then(({ formats, molecules }) => { largest = molecules; setFormats(formats); }).catch(() => null);
watchFiles({ options: fileQuery, begin, show: showJob, limits });
showModels();
