// The table of predictions: one row for each property, with what is known of its uncertainty.

import { element } from "./request.js";
import { rounded, roundedInterval, withUnit } from "./numbers.js";

// Return the table of one molecule. `level` is the probability of the intervals and sets.
export function predictionTable(answer, row, level) {
  const uncertainty = row.uncertainty ?? {};
  const percent = `${Math.round(level * 100)}%`;
  const titles = { classification: "Probability of class 1", multiclass: "Probability" };
  const kinds = new Set(answer.targets.map(({ kind }) => kind));
  const columns = [[kinds.size === 1 ? titles[[...kinds][0]] ?? "Prediction" : "Prediction", value]];
  if (uncertainty.lower) columns.push([`${percent} interval`, bounds]);
  if (uncertainty.calibrated) columns.push(["Calibrated probability", calibrated]);
  if (uncertainty.set) columns.push([`${percent} set`, members]);
  const rows = answer.targets.map((target) => element("tr", {}, [
    element("th", { scope: "row", text: target.name }),
    ...columns.map(([title, text], place) => (
      element("td", { className: place ? "" : "number", "data-title": title, text: text(target) }) // title: narrow screens
    )),
  ]));
  const headings = ["Property", ...columns.map(([title]) => title)];

  function texts(column) {
    return roundedInterval(row.values[column], uncertainty.lower[column], uncertainty.upper[column]);
  }
  function value({ column, unit, kind }) {
    if (kind !== "regression" || !uncertainty.lower) return withUnit(row.values[column], unit);
    return unit ? `${texts(column)[0]} ${unit}` : texts(column)[0];
  }
  function bounds({ column, unit, kind }) {
    if (kind !== "regression") return "";
    const [, lower, upper] = texts(column);
    return unit ? `${lower} to ${upper} ${unit}` : `${lower} to ${upper}`;
  }
  function calibrated({ column, kind }) { return kind === "classification" ? rounded(uncertainty.calibrated[column]) : ""; }
  function members({ column, kind }) { return kind === "regression" ? "" : uncertainty.set[column].join(" or ") || "no class"; }

  return element("table", {}, [
    element("caption", { text: `${answer.model}: ${row.smiles}` }),
    element("thead", {}, [element("tr", {}, headings.map((title) => element("th", { scope: "col", text: title })))]),
    element("tbody", {}, rows),
  ]);
}
