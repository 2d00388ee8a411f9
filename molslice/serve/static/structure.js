// Drawings of structures by the server, in the colors of the theme.

export const dark = matchMedia("(prefers-color-scheme: dark)");

// Draw a SMILES in an <img>, which stays hidden if it cannot be drawn.
export function drawIn(picture, smiles, description) {
  picture.dataset.drawn = smiles;
  picture.alt = description.slice(0, 300);
  redraw(picture);
}

// Draw the structure of an <img> again, after a change of the theme.
export function redraw(picture) {
  if (picture.dataset.drawn === undefined) return;
  const lazy = picture.loading === "lazy"; // such a picture keeps its place, because a hidden one is not loaded
  const show = (shown) => { if (lazy) picture.style.visibility = shown ? "" : "hidden"; else picture.hidden = !shown; };
  show(false);
  picture.onload = () => show(true);
  picture.onerror = () => show(false);
  const theme = dark.matches ? "dark" : "light";
  picture.src = `/draw?${new URLSearchParams({ smiles: picture.dataset.drawn, theme })}`;
}
