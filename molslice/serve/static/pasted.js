// Lists of molecules that are typed or pasted.

const HEADINGS = ["smiles", "canonical_smiles", "isomeric_smiles", "smi"];
// a SMILES, a block of CXSMILES, what divides the line, and the name
const LINE = /^([^\s,;]+(?:[ \t]+\|[^|]*\|)?)[\s,;]*(.*)$/;

// Return SMILES and name of each line that is not blank, without a line of column names.
export function readList(text) {
  const lines = text.split(/\r\n|\r|\n/).map((line) => line.trim()).filter((line) => line);
  const rows = lines.map((line) => {
    const [, smiles, rest] = LINE.exec(line) ?? [null, line, ""];
    return { smiles, name: rest.split("\t")[0].trim() };
  });
  return rows.length > 1 && HEADINGS.includes(rows[0].smiles.toLowerCase()) ? rows.slice(1) : rows;
}

// Return a table as CSV.
export function asCsv(names, rows) {
  return [names, ...rows].map((cells) => cells.map((cell) => `"${String(cell).replaceAll('"', '""')}"`).join(",") + "\n").join("");
}
