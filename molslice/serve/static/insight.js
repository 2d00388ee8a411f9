// Why a prediction is what it is, and which training molecules are like the molecule.

import { element, post } from "./request.js";
import { rounded, roundedInterval, withUnit } from "./numbers.js";
import { dark, drawIn } from "./structure.js";

const contributions = document.getElementById("contributions");
const contributionsText = document.getElementById("contributions-text");
const contributionsPicture = document.getElementById("contributions-picture");
const pictureField = document.getElementById("contributions-field");
const scale = document.getElementById("contributions-scale");
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

// Show how a molecule compares with the training molecules, and the nearest of them with their values.
export function showDomain(domain, targets) {
  const place = domain.is_training ? "in the training table" : `${domain.place}${domain.reason ? `: ${domain.reason}` : ""}`;
  nearestText.textContent = `The molecule is ${place}.`;
  neighbors.replaceChildren(...domain.neighbors.map((each) => neighbor(each, targets)));
  nearest.hidden = false;
}

function neighbor({ smiles, similarity, measured }, targets) {
  const picture = element("img", { alt: "", width: "480", height: "320" });
  drawIn(picture, smiles, `Structure of ${smiles}`);
  const lines = [element("p", { text: `Similarity ${similarity.toFixed(2)}` })];
  for (const { name, column, unit } of measured === null ? [] : targets.filter(({ column }) => column in measured)) {
    const value = measured[column];
    lines.push(element("p", { text: `${name}: ${value === null ? "no value" : `${withUnit(value, unit)} in the training data`}` }));
  }
  lines.push(element("p", { className: "smiles", text: smiles }));
  return element("li", {}, [picture, element("div", {}, lines)]);
}

// Show the contributions of the atoms to the chosen property, which stays chosen for the next molecule. They are
// computed when the person asks for them.
export function showExplanation(asked, targets, method) {
  // of several classes, a column is the name of a target with its class
  const values = targets.map(({ name, column, kind }) => kind === "multiclass" ? column : name);
  const chosen = values.includes(target.value) ? target.value : values[0];
  target.replaceChildren(...targets.map(({ name }, place) => element("option", { value: values[place], text: name })));
  target.value = chosen;
  targetField.hidden = values.length < 2;
  explained = asked;
  hidePicture(method === "gradients" ? "Computed when you ask for them." : "Computed when you ask for them, in some seconds.");
  contributions.hidden = false;
}

function hidePicture(text) {
  latest += 1;
  contributionsText.textContent = text;
  pictureField.hidden = true;
  scale.hidden = true;
}

// A person who has asked for a picture gets one of another property too, and in other colors.
target.addEventListener("change", () => { if (!pictureField.hidden) explain(); });
dark.addEventListener("change", () => { if (!pictureField.hidden) explain(); });
ask.addEventListener("click", () => explain());

async function explain() {
  hidePicture("Computing …");
  const number = latest;
  const theme = dark.matches ? "dark" : "light";
  try {
    const answer = await post("/explain", { ...explained, target: target.value, theme });
    if (number !== latest) return;
    const { headline } = answer;
    const same = headline.unit === answer.unit && !answer.note;
    const [prediction, baseline, sum] = sumTexts(answer, same).map((text) => (answer.unit ? `${text} ${answer.unit}` : text));
    const explanation = `${prediction}${same ? "" : ` (${headline.label}: ${withUnit(headline.value, headline.unit)})`}`;
    contributionsText.textContent = `${answer.target}: ${baseline} for the saturated hydrocarbon with the same `
      + `skeleton, plus ${sum} from the atoms, gives `
      + `${explanation}.${answer.note ? ` This explains ${answer.note}.` : ""}${answer.warning ? ` ${answer.warning}.` : ""}`;
    const atoms = answer.atoms.map((atom) => `${atom.element}${atom.index} ${rounded(atom.contribution)}`);
    contributionsPicture.alt = `Contributions by atom: ${atoms.join(", ")}`;
    contributionsPicture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(answer.svg)}`;
    pictureField.hidden = false;
    const largest = Math.max(...answer.atoms.map(({ contribution }) => Math.abs(contribution)));
    const [low, , high] = scale.children;
    [low.textContent, high.textContent] = [`-${withTwoDigits(largest)}`, `+${withTwoDigits(largest)}${answer.unit ? ` ${answer.unit}` : ""}`];
    scale.hidden = !(largest > 0);
  } catch (error) {
    if (number === latest) contributionsText.textContent = error.message;
  }
}

// The prediction, the baseline and the sum of the atoms, with the decimals of the headline where it is explained.
function sumTexts({ prediction, baseline, sum, headline: { interval } }, isHeadline) {
  const numbers = [prediction, baseline, sum];
  if (!isHeadline || interval === null) return numbers.map(rounded);
  const { lower, upper } = interval;
  const moved = (end, number) => (end === null ? null : number + end - prediction);
  return numbers.map((number) => roundedInterval(number, moved(lower, number), moved(upper, number))[0]);
}

function withTwoDigits(number) {
  return String(Number(number.toPrecision(2)));
}
