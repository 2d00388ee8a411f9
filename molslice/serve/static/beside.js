// The predictions of the other models beside the ones of a table.

import { post } from "./request.js";
import { refresh, showBeside, showProgress, showTableProblem } from "./many.js";

const button = document.getElementById("beside");

const PIECE = 32; // molecules that are predicted at once

let begin = () => {}; // computes for the table that is shown
let computing = 0; // number of the last computation; an earlier one is given up

// Offer the other models for a table that is complete. `cards` are all models, and `asked` says what a prediction by one
// of them has. Models with conditions are left out.
export function offerBeside(source, { cards, asked, patiently }) {
  stopBeside();
  const others = cards.filter(({ name, conditions }) => name !== source.model && !conditions.length);
  button.textContent = `Add ${others.map(({ name }) => name).join(", ")}`;
  button.hidden = !others.length;
  begin = () => compute(source, others, asked, patiently);
}

export function hideBeside() {
  stopBeside();
  button.hidden = true;
}

export function stopBeside() {
  computing += 1;
  button.disabled = false;
}

async function compute(source, others, asked, patiently) {
  const turn = ++computing;
  const lacks = (row) => others.some(({ name }) => !row.beside?.[name]);
  const rows = source.rows.filter((row) => row.error === null && lacks(row));
  button.disabled = true;
  showBeside(others);
  try {
    for (let start = 0; start < rows.length; start += PIECE) {
      const piece = rows.slice(start, start + PIECE);
      for (const { name } of others) {
        const request = { smiles: piece.map(({ smiles }) => smiles), ...asked(name), domain: false };
        const answer = await patiently(() => post("/predict", request));
        if (turn !== computing) return;
        answer.predictions.forEach((predicted, place) => { (piece[place].beside ??= {})[name] = predicted; });
      }
      refresh(piece);
      showProgress((start + piece.length) / rows.length);
    }
    button.hidden = true;
  } catch (error) {
    if (turn === computing) showTableProblem(error.message);
  } finally {
    if (turn === computing) {
      button.disabled = false;
      showProgress(null);
    }
  }
}

button.addEventListener("click", () => begin());
