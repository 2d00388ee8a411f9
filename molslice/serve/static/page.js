// The prediction of one molecule. Text from the server and from people is only ever written as text, never as HTML.

import { openEditor } from "./editor.js";
import { watchFiles } from "./files.js";
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
const dark = matchMedia("(prefers-color-scheme: dark)");

let editor = null;
let shown = ""; // the SMILES of the result
let latest = 0; // number of the last request; answers to earlier ones are dropped

async function showModels() {
  try {
    for (const model of await request("/models")) {
      models.append(element("option", { value: model.name, text: model.name }));
    }
  } catch (error) {
    offline.textContent = `The service does not answer: ${error.message}`;
    offline.hidden = false;
  }
}

function showStructure(text) {
  structure.hidden = true;
  structure.alt = `Structure of ${text.slice(0, 200)}`;
  const theme = dark.matches ? "dark" : "light";
  structure.src = `/draw?${new URLSearchParams({ smiles: text, theme })}`;
}

structure.addEventListener("load", () => { structure.hidden = false; });
structure.addEventListener("error", () => { structure.hidden = true; });
dark.addEventListener("change", () => { if (shown) showStructure(shown); });

function showRow(answer, text) {
  const [row] = answer.predictions;
  if (row.error !== null) {
    showProblem(row.error);
    return;
  }
  const head = element("tr", {}, [
    element("th", { scope: "col", text: "Property" }),
    element("th", { scope: "col", text: "Prediction" }),
  ]);
  const rows = answer.targets.map((target) => element("tr", {}, [
    element("th", { scope: "row", text: target.name }),
    element("td", { className: "number", text: withUnit(row.values[target.column], target.unit) }),
  ]));
  values.replaceChildren(element("table", {}, [
    element("caption", { text: `${answer.model}: ${text}` }),
    element("thead", {}, [head]),
    element("tbody", {}, rows),
  ]));
}

export function withUnit(value, unit) {
  const number = String(Number(value.toPrecision(4)));
  return unit ? `${number} ${unit}` : number;
}

function showProblem(message) {
  values.replaceChildren(element("p", { className: "problem", text: message }));
}

async function predict() {
  const text = smiles.value.trim();
  if (!text) return;
  const number = ++latest;
  shown = text;
  button.disabled = true;
  result.hidden = false;
  values.replaceChildren(element("p", { className: "hint", text: "Predicting …" }));
  showStructure(text);
  try {
    const answer = await request("/predict", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ smiles: text, model: models.value || null }),
    });
    if (number === latest) showRow(answer, text);
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

watchFiles(() => models.value);
showModels();
