// Why a prediction is what it is, and which training molecules are like the molecule.

import { element, request } from "./request.js";
import { rounded, withUnit } from "./numbers.js";
import { drawIn } from "./structure.js";

const contributions = document.getElementById("contributions");
const contributionsText = document.getElementById("contributions-text");
const contributionsPicture = document.getElementById("contributions-picture");
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
  nearestText.textContent = domain.in_domain ? "The molecule is like the training molecules."
    : `Outside the domain: ${domain.reason}.`;
  neighbors.replaceChildren(...domain.neighbors.map((each) => neighbor(each, targets)));
  nearest.hidden = false;
}

function neighbor({ smiles, similarity, measured }, targets) {
  const picture = element("img", { alt: "", width: "480", height: "320" });
  drawIn(picture, smiles, `Structure of ${smiles}`);
  const lines = [element("p", { text: `Similarity ${rounded(similarity)}` })];
  for (const { name, column, unit } of measured === null ? [] : targets) {
    const value = measured[column];
    lines.push(element("p", { text: `${name}: ${value === null ? "not measured" : `${withUnit(value, unit)} measured`}` }));
  }
  lines.push(element("p", { className: "smiles", text: smiles }));
  return element("li", {}, [picture, element("div", {}, lines)]);
}

// Show the contributions of the atoms to the chosen property, which stays chosen for the next molecule.
export function showExplanation(smiles, model, targets) {
  const names = targets.map(({ name }) => name);
  const chosen = names.includes(target.value) ? target.value : names[0];
  target.replaceChildren(...names.map((name) => element("option", { value: name, text: name })));
  target.value = chosen;
  targetField.hidden = names.length < 2;
  explained = { smiles, model };
  contributions.hidden = false;
  explain();
}

target.addEventListener("change", () => explain());

async function explain() {
  const number = ++latest;
  contributionsText.textContent = "Computing …";
  contributionsPicture.hidden = true;
  try {
    const found = await request("/explain", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...explained, target: target.value }),
    });
    if (number !== latest) return;
    const prediction = withUnit(found.prediction, found.unit);
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
