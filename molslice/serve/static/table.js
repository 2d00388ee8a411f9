// Tables of predictions: of the properties of one molecule, and of one molecule by all models.

import { element, post } from "./request.js";
import { probabilityText, roundedInterval, withUnit } from "./numbers.js";

export const LEVEL = 0.9; // probability of the intervals and sets
export const PERCENT = `${Math.round(LEVEL * 100)}%`;
const TITLES = { classification: "Probability of class 1", multiclass: "Probability" };

const titles = ["Model", "Property", "Prediction", `${PERCENT} interval or set`, "Domain"]; // of all models

const endpoints = document.getElementById("endpoints");
let latest = 0; // number of the last table of all models; answers for earlier ones are dropped

// Return the texts of a prediction with its interval; without an interval the first alone.
function texts(row, { column, unit, kind }) {
  if (kind !== "regression") return [probabilityText(row.values[column]), "", ""];
  const { lower } = row.uncertainty ?? {};
  if (!lower) return [withUnit(row.values[column], unit), "", ""];
  const [value, ...ends] = roundedInterval(row.values[column], lower[column], row.uncertainty.upper[column]);
  return [unit ? `${value} ${unit}` : value, ...ends];
}

export function valueText(row, target) {
  return texts(row, target)[0];
}

// Whether an interval is not narrower than the one of the measured values themselves; see HeldOut.measured_width.
export function isWide(row, { column, kind }, widths = {}) {
  if (kind !== "regression" || !row.uncertainty?.lower || !(column in widths)) return false;
  const { lower, upper } = row.uncertainty;
  return (upper[column] ?? Infinity) - (lower[column] ?? -Infinity) >= widths[column];
}

export const WIDE = "wide interval: the model knows little more than the mean of the measured values";

export function boundsText(row, target) {
  const [, lower, upper] = texts(row, target);
  if (!lower) return "";
  return target.unit ? `${lower} to ${upper} ${target.unit}` : `${lower} to ${upper}`;
}

function calibratedText(row, { column, kind }) {
  return kind === "classification" ? probabilityText(row.uncertainty.calibrated[column]) : "";
}

export function membersText(row, { column, kind }) {
  return kind === "regression" ? "" : row.uncertainty.set[column].join(" or ") || "no class";
}

// Return the table of one molecule.
export function predictionTable(answer, row) {
  const uncertainty = row.uncertainty ?? {};
  const kinds = new Set(answer.targets.map(({ kind }) => kind));
  const columns = [[kinds.size === 1 ? TITLES[[...kinds][0]] ?? "Prediction" : "Prediction", valueText]];
  if (uncertainty.lower) columns.push([`${PERCENT} interval`, boundsText]);
  if (uncertainty.calibrated) columns.push(["Calibrated probability", calibratedText]);
  if (uncertainty.set) columns.push([`${PERCENT} set`, membersText]);
  const rows = answer.targets.map((target) => element("tr", {}, [
    element("th", { scope: "row", text: target.name }),
    ...columns.map(([title, text], place) => (
      element("td", { className: place ? "" : "number", "data-title": title, text: text(row, target) }) // title: narrow screens
    )),
  ]));
  const headings = ["Property", ...columns.map(([title]) => title)];
  return element("table", { className: "one" }, [
    element("caption", { text: `${answer.model}: ${row.smiles}` }),
    element("thead", {}, [element("tr", {}, headings.map((title) => element("th", { scope: "col", text: title })))]),
    element("tbody", {}, rows),
  ]);
}

export function hideEndpoints() {
  latest += 1;
  endpoints.hidden = true;
}

// Show the predictions of all models for one molecule. `answer` is the one of a model that has predicted it already,
// and `choose` shows another one.
export function showEndpoints(cards, answer, smiles, conditions, choose) {
  const number = ++latest;
  const bodies = cards.map((card) => {
    const body = element("tbody", {}, [messageRow(card, choose, "Predicting …")]);
    endpointRows(card, answer, smiles, conditions, choose).then((rows) => {
      if (number === latest) body.replaceChildren(...rows);
    });
    return body;
  });
  endpoints.querySelector("table").replaceChildren(
    element("thead", {}, [element("tr", {}, titles.map((title) => element("th", { scope: "col", text: title })))]),
    ...bodies,
  );
  endpoints.hidden = false;
}

async function endpointRows(card, known, smiles, conditions, choose) {
  const lacking = card.conditions.filter((name) => !(name in (conditions ?? {})));
  if (lacking.length) return [messageRow(card, choose, `needs ${lacking.join(" and ")}; choose the model to give it`)];
  const given = Object.fromEntries(card.conditions.map((name) => [name, conditions[name]]));
  try {
    const answer = card.name === known.model ? known : await post("/predict", {
      smiles,
      model: card.name,
      interval: card.intervals ? LEVEL : null,
      domain: card.domain,
      conditions: card.conditions.length ? given : null,
    });
    const [row] = answer.predictions;
    if (row.error !== null) return [messageRow(card, choose, row.error)];
    return answer.targets.map((target, place) => element("tr", {}, [
      ...(place ? [] : [modelCell(card, choose, answer.targets.length)]),
      element("th", { scope: "row" }, [target.name, ...(target.kind === "regression" ? [] : [element("span", { className: "soft", text: " probability" })])]),
      element("td", { className: "number", "data-title": titles[2], text: valueText(row, target) }), // title: narrow screens
      element("td", { "data-title": titles[3], text: row.uncertainty === null ? "" : boundsText(row, target) || (row.uncertainty.set ? membersText(row, target) : "") }),
      ...(place ? [] : [element("td", { rowspan: answer.targets.length, className: "domain", "data-title": titles[4], text: domainText(row.domain) })]),
    ]));
  } catch (error) {
    return [messageRow(card, choose, error.message)];
  }
}

function modelCell(card, choose, rows) {
  const button = element("button", { type: "button", className: "link", text: card.name });
  button.addEventListener("click", () => choose(card.name));
  return element("th", { scope: "rowgroup", rowspan: rows }, [button]);
}

function messageRow(card, choose, text) {
  return element("tr", {}, [modelCell(card, choose, 1), element("td", { colspan: 4, className: "soft", text })]);
}

function domainText(domain) {
  if (domain === null) return "";
  return domain.reason ? `${domain.place}: ${domain.reason}` : domain.place;
}
