// The table of many molecules, from a list or a file: sorted, filtered, page by page, and saved.

import { probabilityText, typedNumber } from "./numbers.js";
import { element } from "./request.js";
import { saveRows } from "./saving.js";
import { drawIn } from "./structure.js";
import { boundsText, isWide, membersText, PERCENT, valueText, WIDE } from "./table.js";

const PAGE_ROWS = 50;

const section = document.getElementById("table");
const title = document.getElementById("table-title");
const problem = document.getElementById("table-problem");
const progress = document.getElementById("table-progress");
const state = document.getElementById("table-state");
const scroll = document.getElementById("table-scroll");
const [head, body] = document.getElementById("rows").children;
const filters = document.getElementById("filters");
const text = document.getElementById("filter-text");
const property = document.getElementById("filter-property");
const limits = [document.getElementById("filter-low"), document.getElementById("filter-high")];
const domain = document.getElementById("filter-domain");
const [previous, next] = ["previous", "next"].map((id) => document.getElementById(id));
const downloads = document.getElementById("downloads");
const downloadState = document.getElementById("download-state");

let source = null; // what is shown; see `showRows`
let columns = [];
let order = null; // column and direction; null is the order of the source
let page = 0; // number of the page, from 0
let matching = []; // the rows that the filters keep, in order
let elements = new WeakMap(); // the <tr> of a row, so that structures are drawn once
let chosen = null; // the rows of a diverse choice, in its order
let goal = null; // the goal of which rows have a probability
let openRow = () => {};
let opened = null; // the button of the row that was opened

// Show a table. A source has a `title`, a `model`, `targets`, `rows` as of /predict with `name` and `number`, `total`,
// whether there are `intervals` and a `domain`, and what `saveRows` needs. `open` is called with a row.
export function showRows(shown, open) {
  [source, openRow] = [shown, open];
  [order, page, opened, chosen, goal] = [null, 0, null, null, null];
  problem.hidden = true;
  downloadState.textContent = "";
  title.textContent = `${source.title}: ${source.model}`;
  filters.reset();
  document.getElementById("filter-domain-field").hidden = !source.domain;
  property.replaceChildren(...source.targets.map(({ name, column }) => element("option", { value: column, text: name })));
  markLimits();
  scroll.scrollLeft = 0;
  section.hidden = false;
  rebuild();
}

// Make the columns and all rows anew.
function rebuild() {
  columns = columnsOf(source);
  elements = new WeakMap();
  const sorting = columns.find(({ id }) => id === order?.column.id);
  order = sorting ? { ...order, column: sorting } : null;
  head.replaceChildren(element("tr", {}, columns.map(heading)));
  markOrder();
  update();
}

// Show the probability of a goal, which rows get one after the other, and the most probable first.
export function showGoal(name) {
  goal = name;
  chosen = null;
  order = { column: { id: "probability" }, down: true };
  page = 0;
  rebuild();
}

// Show the columns of further models, whose predictions rows get one after the other in `beside`, by the name of the model.
export function showBeside(cards) {
  source.beside = cards;
  rebuild();
}

// Show rows that have changed.
export function refresh(rows) {
  for (const row of rows) elements.delete(row);
  update();
}

// Show rows in an order, each with `before`, its similarity to the ones before; null shows all rows again.
export function showChoice(rows) {
  chosen = rows;
  page = 0;
  rebuild();
}

// Return the rows that are shown and have a number in the column that sorts them, the best first, with their scores:
// the distance from the last one, and for falling probabilities the probability. Null if no number sorts them.
export function rankedRows() {
  if (!order?.column.isNumber) return null;
  const { column, down } = order;
  const rows = sorted(source.rows.filter(wanted())).filter((row) => column.key(row) !== null);
  const finite = rows.map((row) => column.key(row)).filter(Number.isFinite);
  const largest = Math.max(0, ...finite.slice(0, 1), ...finite.slice(-1));
  const keys = rows.map((row) => Math.min(column.key(row), largest)); // of an interval without an end
  const last = column.isProbability && down ? 0 : keys.at(-1);
  return { rows, scores: keys.map((key) => Math.abs(key - last)) };
}

// Show rows that were added to the source.
export function update() {
  matching = chosen ?? sorted(source.rows.filter(wanted()));
  page = Math.min(page, Math.max(0, Math.ceil(matching.length / PAGE_ROWS) - 1));
  const first = page * PAGE_ROWS;
  const rows = matching.slice(first, first + PAGE_ROWS);
  const drawn = rows.map((row) => elements.get(row) ?? made(row));
  if (drawn.length !== body.children.length || drawn.some((each, place) => each !== body.children[place])) body.replaceChildren(...drawn);
  document.getElementById("page-text").textContent = rows.length ? `${count(first + 1)} to ${count(first + rows.length)} of ${count(matching.length)}` : "";
  document.getElementById("pages").hidden = matching.length <= PAGE_ROWS;
  previous.disabled = page === 0;
  next.disabled = first + PAGE_ROWS >= matching.length;
  showState();
}

function showState() {
  const { rows, total } = source;
  const failed = rows.filter(({ error }) => error !== null).length;
  const parts = [];
  if (chosen) parts.push(`${molecules(chosen.length)} chosen of ${count(rows.length)}`);
  else if (matching.length < rows.length) parts.push(`${count(matching.length)} of ${molecules(rows.length)} match`);
  else parts.push(molecules(rows.length));
  if (failed) parts.push(`${count(failed)} without a prediction`);
  if (total > rows.length && source.job) parts.push(`the first of ${count(total)} rows; the file has all`);
  state.textContent = `${parts.join(", ")}.`;
  document.getElementById("download-text").textContent = matching.length === rows.length ? "Download" : `Download ${molecules(matching.length)}`;
  for (const button of downloads.children) button.disabled = !matching.length;
}

// Show how far a list is, as a share; null hides it.
export function showProgress(share) {
  progress.hidden = share === null;
  if (share !== null) progress.querySelector("progress").value = share;
}

export function showTableProblem(message) {
  problem.textContent = message;
  problem.hidden = false;
}

// Move to the row that was opened.
export function focusRows() {
  (opened ?? title).focus();
}

export function hideRows() {
  section.hidden = true;
}

export function unhideRows() {
  section.hidden = false;
}

export function setFormats(formats) {
  const labels = { csv: "CSV", sdf: "SDF", xlsx: "Excel" };
  downloads.replaceChildren(...formats.map((format) => {
    const button = element("button", { type: "button", text: labels[format] ?? format });
    button.addEventListener("click", () => save(format));
    return button;
  }));
}

async function save(format) {
  const all = order === null && !chosen && matching.length === source.rows.length;
  const added = {};
  if (goal) added.probability = matching.map(({ probability }) => String(probability ?? ""));
  if (chosen) added.similarity_before = matching.map(({ before }) => String(before));
  for (const card of source.beside ?? []) Object.assign(added, savedColumns(card));
  downloadState.textContent = "Writing …";
  try {
    await saveRows(source, all && !Object.keys(added).length ? null : matching, format, added);
    downloadState.textContent = "";
  } catch (error) {
    downloadState.textContent = error.message;
  }
}

// The cells of the predictions of a further model for the rows that are saved, by the name of the column.
function savedColumns({ name, targets, intervals }) {
  const cells = (read) => matching.map((row) => String((row.beside?.[name]?.values && read(row.beside[name])) ?? ""));
  const saved = {};
  for (const target of targets) {
    const { column, kind } = target;
    saved[`${name}: ${column}`] = cells(({ values }) => values[column]);
    if (kind !== "regression" || !intervals) continue;
    for (const end of ["lower", "upper"]) saved[`${name}: ${start(target)}_${end}`] = cells(({ uncertainty }) => uncertainty[end][column]);
  }
  return saved;
}

function count(number) {
  return number.toLocaleString("en");
}

function molecules(number) {
  return `${count(number)} molecule${number === 1 ? "" : "s"}`;
}

// The beginning of the names of the columns beside a prediction, as in files.
function start({ name, unit, column }) {
  return unit ? name : column;
}

// The columns: `id`, `title`, which is the name in files, `hint`, what it is, `order`, by what rows are sorted if it is not the
// value, `key` by which they are sorted (null at the end), and the cell of a row.
function columnsOf(shown) {
  const { beside = [], model, domain: hasDomain } = shown;
  const all = [{ id: "molecule", title: "Molecule", key: (row) => (row.name || row.smiles).toLowerCase() }];
  all.push(...predictionColumns(shown, (row) => row, "", beside.length ? model : ""));
  if (hasDomain) {
    all.push({
      id: "domain",
      isNumber: true,
      title: "domain",
      order: "nearest_similarity",
      key: (row) => row.domain?.neighbors[0]?.similarity ?? null,
      cell: (row) => domainCell(row.domain),
    });
  }
  for (const card of beside) all.push(...predictionColumns(card, (row) => row.beside?.[card.name], `${card.name}: `, card.name));
  if (goal) {
    all.splice(1, 0, {
      id: "probability",
      isNumber: true,
      isProbability: true,
      title: "probability",
      hint: goal,
      key: (row) => row.probability ?? null,
      cell: (row) => element("td", { className: "number", text: typeof row.probability === "number" ? probabilityText(row.probability) : "" }),
    });
  }
  if (chosen) {
    all.splice(1, 0, {
      id: "before",
      title: "similarity_before",
      hint: "to those above",
      key: (row) => row.before,
      cell: (row) => element("td", { className: "number", text: row.before.toFixed(2) }),
    });
  }
  return all;
}

// The columns of one model. `of` returns its prediction for a row, and `prefix` begins the `id` of its columns. `model`
// is its name if there are several.
function predictionColumns({ targets, intervals, measured_widths: widths }, of, prefix, model) {
  const all = [];
  const named = (label) => (model ? `${label} (${model})` : label);
  for (const [place, target] of targets.entries()) {
    const { column, name, kind } = target;
    const value = (row) => of(row)?.values?.[column] ?? null;
    all.push({
      id: `${prefix}${column}`,
      isNumber: true,
      isProbability: kind !== "regression",
      title: column,
      hint: [model, kind === "regression" ? "" : "probability"].filter(Boolean).join(", "),
      key: value,
      cell: (row) => cellOf(of(row), { className: "number" }, (predicted) => valueText(predicted, { ...target, unit: "" })),
    });
    if (!intervals) continue;
    if (kind === "regression") {
      all.push({
        id: `${prefix}${column} width`,
        isNumber: true,
        title: `${start(target)}_lower, _upper`,
        hint: [model, `${PERCENT} interval`].filter(Boolean).join(", "),
        order: "width",
        label: named(`${PERCENT} interval of ${name}, by width`),
        key: (row) => (value(row) === null ? null : width(of(row).uncertainty, column)),
        cell: (row) => {
          const cell = cellOf(of(row), { className: "bounds" }, (predicted) => boundsText(predicted, { ...target, unit: "" }));
          if (value(row) !== null && isWide(of(row), target, widths)) cell.append(element("p", { className: "soft", text: "wide", title: WIDE }));
          return cell;
        },
      });
    } else if (kind !== "multiclass" || stem(target) !== stem(targets[place + 1])) { // after the last of several classes
      all.push({
        id: `${prefix}${column} set`,
        title: `${stem(target) ?? column}_set`,
        hint: [model, `${PERCENT} set`].filter(Boolean).join(", "),
        label: named(`${PERCENT} set of ${kind === "multiclass" ? stem(target) : name}`),
        key: (row) => (value(row) === null ? null : membersText(of(row), target)),
        cell: (row) => cellOf(of(row), {}, (predicted) => membersText(predicted, target)),
      });
    }
  }
  return all;
}

// The cell of a prediction; it is empty while there is none.
function cellOf(predicted, attributes, text) {
  if (!predicted) return element("td");
  if (predicted.error !== null) return element("td", { className: "soft", text: "no prediction", title: predicted.error });
  return element("td", { ...attributes, text: text(predicted) });
}

function width({ lower, upper }, column) {
  return (upper[column] ?? Infinity) - (lower[column] ?? -Infinity);
}

// Return the name of a target of several classes without the class.
function stem(target) {
  return target?.kind === "multiclass" ? target.target : null;
}

function domainCell(compared) {
  const [nearest] = compared?.neighbors ?? [];
  if (!nearest) return element("td");
  const similarity = compared.reason.startsWith("similarity ") ? "" : `, ${nearest.similarity.toFixed(2)}`; // the reason has it
  const place = `${compared.place}${similarity}${compared.is_training ? "; in the training table" : ""}`;
  return element("td", { className: "domain" }, [place, ...(compared.reason ? [element("p", { className: "soft", text: compared.reason })] : [])]);
}

function heading(column) {
  const button = element("button", { type: "button" }, [element("span", {}, breakable(column.title))]);
  const hint = [column.hint, column.order && `by ${column.order}`].filter(Boolean).join(", ");
  if (hint) button.append(element("span", { className: "soft", text: hint }));
  if (column.label) button.setAttribute("aria-label", column.label);
  button.addEventListener("click", () => sortBy(column));
  return element("th", { scope: "col" }, [button]);
}

// Return a name that may be broken after each _.
function breakable(name) {
  return name.split(/(?<=\w_)/).flatMap((piece, place) => (place ? [element("wbr"), piece] : [piece]));
}

// Sort by a column: up, then down, then as in the source.
function sortBy(column) {
  const { id } = column;
  if (order?.column !== column) order = { column, down: false };
  else order = order.down ? null : { column, down: true };
  page = 0;
  if (chosen === null) {
    markOrder();
    update();
    return;
  }
  chosen = null;
  rebuild();
  head.querySelectorAll("button")[Math.max(0, columns.findIndex((each) => each.id === id))].focus();
}

function markOrder() {
  [...head.querySelectorAll("th")].forEach((cell, place) => {
    const sorts = !chosen && order?.column === columns[place];
    cell.setAttribute("aria-sort", sorts ? (order.down ? "descending" : "ascending") : "none");
  });
}

function sorted(rows) {
  if (!order) return rows;
  const { column: { key }, down } = order;
  const keyed = rows.map((row) => [key(row), row]);
  const sign = down ? -1 : 1;
  keyed.sort(([one], [other]) => {
    if (one === null || other === null) return (one === null) - (other === null); // without a prediction at the end
    return one < other ? -sign : one > other ? sign : 0;
  });
  return keyed.map(([, row]) => row);
}

// Return the limits of the filter; null for one that is empty or no number.
function markLimits() {
  return limits.map((field) => {
    const given = typedNumber(field.value);
    const number = given === "" ? null : Number(given);
    const isWrong = number !== null && !Number.isFinite(number);
    if (isWrong) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
    return isWrong ? null : number;
  });
}

// Return the function that decides whether a row is shown.
function wanted() {
  const words = text.value.trim().toLowerCase();
  const [low, high] = markLimits();
  const column = property.value;
  return (row) => {
    if (words && !row.name.toLowerCase().includes(words) && !row.smiles.toLowerCase().includes(words)) return false;
    if (domain.value && row.domain?.place !== domain.value) return false;
    if (low === null && high === null) return true;
    const value = row.values?.[column] ?? null;
    return value !== null && (low === null || value >= low) && (high === null || value <= high);
  };
}

function made(row) {
  const shown = row.name || row.smiles || `row ${row.number}`;
  const picture = element("img", { alt: "", loading: "lazy", width: "120", height: "80" });
  const name = element("span", { className: row.name ? "name" : "smiles", text: shown, title: row.name ? `${row.name}\n${row.smiles}` : row.smiles });
  const button = element("button", { type: "button", className: "open" }, [picture, name]);
  button.setAttribute("aria-label", `Open ${shown}`.slice(0, 300));
  button.addEventListener("click", () => { opened = button; openRow(row); });
  if (row.error === null) drawIn(picture, row.smiles, "");
  else { picture.remove(); button.disabled = true; }
  const cells = row.error === null ? columns.slice(1).map((column) => titled(column.cell(row), column))
    : [element("td", { colspan: columns.length - 1, className: "failed", text: row.name ? `${row.error}: ${row.smiles}` : row.error })];
  const line = element("tr", {}, [element("th", { scope: "row" }, [button]), ...cells]);
  elements.set(row, line);
  return line;
}

// Name a cell by its column, for narrow screens.
function titled(cell, { title, hint }) {
  cell.dataset.title = hint ? `${title} (${hint})` : title;
  return cell;
}

function turn(pages) {
  page += pages;
  update();
  title.focus({ preventScroll: true });
  section.scrollIntoView();
}

previous.addEventListener("click", () => turn(-1));
next.addEventListener("click", () => turn(1));
filters.addEventListener("submit", (event) => event.preventDefault());
filters.addEventListener("input", () => {
  page = 0;
  if (chosen) showChoice(null);
  else update();
});
