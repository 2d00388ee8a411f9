// Why a prediction is what it is, and which training molecules are like the molecule.

import { element, request } from "./request.js";
import { rounded, withUnit } from "./numbers.js";
import { drawIn } from "./structure.js";

const contributions = document.getElementById("contributions");
const contributionsText = document.getElementById("contributions-text");
const contributionsPicture = document.getElementById("contributions-picture");
const askField = document.getElementById("explain-field");
const ask = document.getElementById("explain");
const target = document.getElementById("target");
const targetField = document.getElementById("target-field");
const nearest = document.getElementById("nearest");
const nearestText = document.getElementById("nearest-text");
const neighbors = document.getElementById("neighbors");

let latest = 0; // number of the last request; answers to earlier ones are dropped
let explained = null; // molecule and model of the contributions

export function hideInsight() {
  latest += 1;
  contributions.hidden = true;
  nearest.hidden = true;
}

// Show how a molecule compares with the training molecules, and the nearest of them with their measured values.
export function showDomain(domain, targets) {
  nearestText.textContent = `The molecule is ${domain.place}${domain.reason ? `: ${domain.reason}` : ""}.`;
  neighbors.replaceChildren(...domain.neighbors.map((each) => neighbor(each, targets)));
  nearest.hidden = false;
}

function neighbor({ smiles, similarity, measured }, targets) {
  const picture = element("img", { alt: "", width: "480", height: "320" });
  drawIn(picture, smiles, `Structure of ${smiles}`);
  const lines = [element("p", { text: `Similarity ${rounded(similarity)}` })];
  for (const { name, column, unit } of measured === null ? [] : targets.filter(({ column }) => column in measured)) {
    const value = measured[column];
    lines.push(element("p", { text: `${name}: ${value === null ? "not measured" : `${withUnit(value, unit)} measured`}` }));
  }
  lines.push(element("p", { className: "smiles", text: smiles }));
  return element("li", {}, [picture, element("div", {}, lines)]);
}

// Show the contributions of the atoms to the chosen property, which stays chosen for the next molecule. They are
// computed at once by gradients, and when the person asks for them by a method that takes longer.
export function showExplanation(asked, targets, method) {
  const names = targets.filter(({ kind }) => kind !== "multiclass").map(({ name }) => name);
  const chosen = names.includes(target.value) ? target.value : names[0];
  target.replaceChildren(...names.map((name) => element("option", { value: name, text: name })));
  target.value = chosen;
  targetField.hidden = names.length < 2;
  explained = asked;
  askField.hidden = method === "gradients";
  contributions.hidden = false;
  begin();
}

// Compute, or wait for the button if there is one.
function begin() {
  if (askField.hidden) explain();
  else hidePicture("Computed when you ask for them, in some seconds.");
}

function hidePicture(text) {
  latest += 1;
  contributionsText.textContent = text;
  contributionsPicture.hidden = true;
}

target.addEventListener("change", () => begin());
ask.addEventListener("click", () => explain());

async function explain() {
  hidePicture("Computing …");
  const number = latest;
  try {
    const found = await request("/explain", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...explained, target: target.value }),
    });
    if (number !== latest) return;
    const { headline } = found;
    const same = headline.unit === found.unit && !found.note;
    const prediction = `${withUnit(found.prediction, found.unit)}${same ? "" : ` (${headline.label}: ${withUnit(headline.value, headline.unit)})`}`;
    contributionsText.textContent = `${found.target}: ${withUnit(found.baseline, found.unit)} for the saturated hydrocarbon with the same `
      + `skeleton, plus ${withUnit(found.sum, found.unit)} from the atoms, gives `
      + `${prediction}.${found.note ? ` This explains ${found.note}.` : ""}`;
    const atoms = found.atoms.map((atom) => `${atom.element}${atom.index} ${rounded(atom.contribution)}`);
    contributionsPicture.alt = `Contributions by atom: ${atoms.join(", ")}`;
    contributionsPicture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(found.svg)}`;
    contributionsPicture.hidden = false;
  } catch (error) {
    if (number === latest) contributionsText.textContent = error.message;
  }
}
