// What next: the probability that molecules of the table meet a goal, and a diverse choice of them.

import { typedNumber } from "./numbers.js";
import { element, post } from "./request.js";
import { rankedRows, refresh, showChoice, showGoal, showProgress } from "./many.js";

const field = document.getElementById("next-field");
const goalForm = document.getElementById("goal");
const property = document.getElementById("goal-property");
const relation = document.getElementById("goal-relation");
const limit = document.getElementById("goal-limit");
const choice = document.getElementById("choice");
const note = document.getElementById("goal-note");
const number = document.getElementById("choice-number");
const all = document.getElementById("choice-all");
const state = document.getElementById("next-state");
const problem = document.getElementById("next-problem");

const PIECE = 32; // molecules whose probabilities are computed at once

let source = null; // of the table
let most = Infinity; // molecules of a request
let send = post; // a request that waits while the service is busy
let computing = 0; // number of the last goal; an earlier one is given up

// Offer what fits a table: goals for numbers with intervals, in one condition.
export function offerNext(shown, { molecules, patiently }) {
  [source, most, send] = [shown, molecules, patiently];
  computing += 1;
  const numbers = source.targets.filter(({ kind }) => kind === "regression");
  property.replaceChildren(...numbers.map(({ name, unit }) => element("option", { value: name, text: unit ? `${name} [${unit}]` : name })));
  goalForm.hidden = !source.intervals || !numbers.length || source.rows.some((row) => row.conditions);
  showState("");
  note.textContent = "";
  all.hidden = true;
  field.hidden = false;
}

function showState(message) {
  state.textContent = message;
  problem.hidden = true;
}

// Write notes of the service as sentences.
function sentences(notes) {
  return notes.map((note) => `${note[0].toUpperCase()}${note.slice(1)}.`).join(" ");
}

function showProblem(message) {
  showState("");
  problem.textContent = message;
  problem.hidden = false;
}

export function stopNext() {
  computing += 1;
}

goalForm.addEventListener("submit", async (event) => {
  event.preventDefault();
  const asked = source;
  const turn = ++computing;
  const goal = `${property.value} ${relation.value} ${typedNumber(limit.value)}`;
  const rows = asked.rows.filter(({ error }) => error === null);
  showState("");
  note.textContent = "";
  all.hidden = true;
  try {
    for (let start = 0; start < rows.length; start += PIECE) {
      const piece = rows.slice(start, start + PIECE);
      const answer = await send(() => post("/predict", {
        smiles: piece.map(({ smiles }) => smiles), model: asked.model, goals: [goal], conditions: asked.conditions ?? null,
      }));
      if (turn !== computing) return;
      if (!start) {
        for (const row of asked.rows) delete row.probability;
        showGoal(goal);
        note.textContent = sentences(answer.notes);
      }
      answer.predictions.forEach(({ probability }, place) => { piece[place].probability = probability; });
      refresh(piece);
      showProgress((start + piece.length) / rows.length);
    }
  } catch (error) {
    if (turn === computing) showProblem(error.message);
  } finally {
    if (turn === computing) showProgress(null);
  }
});

choice.addEventListener("submit", async (event) => {
  event.preventDefault();
  const ranked = rankedRows();
  if (ranked === null) {
    showState("Sort the table first, by a value, an interval or a probability: the best rows come first.");
    return;
  }
  const asked = source;
  const kept = ranked.rows.map((row, place) => ({ row, score: ranked.scores[place] })).filter(({ row }) => !row.domain?.is_training).slice(0, most);
  try {
    const { choices } = await post("/choose", {
      smiles: kept.map(({ row }) => row.smiles), scores: kept.map(({ score }) => score), number: Number(number.value), model: asked.model,
    });
    if (asked !== source) return;
    const rows = [];
    choices.forEach((chosen, place) => {
      if (chosen === null) return;
      rows[chosen.rank - 1] = kept[place].row;
      kept[place].row.before = chosen.similarity;
    });
    const measured = ranked.rows.filter((row) => row.domain?.is_training).length;
    const fewer = rows.length < Number(number.value) ? `There are only ${rows.length} molecules to choose from. ` : "";
    showState(`${fewer}${measured ? `Without ${measured} of the training table.` : ""}`.trim());
    all.hidden = false;
    showChoice(rows);
  } catch (error) {
    showProblem(error.message);
  }
});

all.addEventListener("click", () => {
  all.hidden = true;
  showState("");
  showChoice(null);
});
