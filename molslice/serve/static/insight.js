// Why a prediction is what it is, and whether the model knows such molecules.

import { request } from "./request.js";
import { drawIn } from "./structure.js";

const contributions = document.getElementById("contributions");
const contributionsText = document.getElementById("contributions-text");
const contributionsPicture = document.getElementById("contributions-picture");
const nearest = document.getElementById("nearest");
const nearestText = document.getElementById("nearest-text");
const nearestPicture = document.getElementById("nearest-picture");

// Format a number with four digits; null is an infinite bound.
export function rounded(value) {
  return value === null ? "unlimited" : String(Number(value.toPrecision(4)));
}

export function withUnit(value, unit) {
  return unit ? `${rounded(value)} ${unit}` : rounded(value);
}

export function hideInsight() {
  contributions.hidden = true;
  nearest.hidden = true;
}

// Show how a molecule compares with the training molecules.
export function showDomain(domain) {
  const state = domain.in_domain ? "The molecule is like the training molecules." : `Outside the domain: ${domain.reason}.`;
  nearestText.textContent = `${state} Similarity ${rounded(domain.nearest_similarity)} to ${domain.nearest_smiles}`;
  drawIn(nearestPicture, domain.nearest_smiles, `Structure of ${domain.nearest_smiles}`);
  nearest.hidden = false;
}

// Ask for the contributions of the atoms and show them, unless another prediction was asked for since.
export async function showExplanation(body, isWanted) {
  contributionsText.textContent = "Computing …";
  contributionsPicture.hidden = true;
  contributions.hidden = false;
  try {
    const found = await request("/explain", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    if (!isWanted()) return;
    const prediction = withUnit(found.prediction, found.unit);
    contributionsText.textContent = `To ${found.target}: the atoms add ${withUnit(found.sum, found.unit)} to the `
      + `${withUnit(found.baseline, found.unit)} of the saturated hydrocarbon with the same skeleton, which gives `
      + `${prediction}.${found.note ? ` Explained is ${found.note}.` : ""}`;
    const atoms = found.atoms.map((atom) => `${atom.element}${atom.index} ${rounded(atom.contribution)}`);
    contributionsPicture.alt = `Contributions by atom: ${atoms.join(", ")}`;
    contributionsPicture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(found.svg)}`;
    contributionsPicture.hidden = false;
  } catch (error) {
    if (isWanted()) contributionsText.textContent = error.message;
  }
}
