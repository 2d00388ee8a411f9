// Files of predictions that the service writes, saved by the browser.

import { postForFile, request } from "./request.js";
import { asCsv } from "./pasted.js";
import { LEVEL } from "./table.js";

const POLL = 500; // milliseconds
const ENDED = ["done", "failed", "canceled"];

// Upload a file and wait for the end of its prediction. `started` and `moved` get the job.
export async function predictUpload(content, query, { signal, started = () => {}, moved = () => {} } = {}) {
  let job = await request(`/files?${new URLSearchParams(query)}`, { method: "POST", body: content, signal });
  started(job);
  while (!ENDED.includes(job.state)) {
    await new Promise((resolve) => setTimeout(resolve, POLL));
    signal?.throwIfAborted();
    job = await request(`/files/${job.id}`, { signal });
    moved(job);
  }
  if (job.state !== "done") throw new Error(job.message);
  return job;
}

// Save rows of a table in their order, or all for null, with `columns` of further cells by name. The rows of a list are
// predicted again as a file.
export async function saveRows(source, rows, format, columns) {
  const name = `${source.stem}_predicted.${format}`;
  if (source.job) {
    save(await postForFile(`/files/${source.job.id}/result`, { format, rows: rows && rows.map(({ number }) => number), columns }), name);
    return;
  }
  const kept = rows ?? source.rows;
  const conditions = Object.entries(source.conditions ?? {});
  const names = kept.some((row) => row.name) ? ["name"] : [];
  const table = asCsv(
    ["smiles", ...names, ...conditions.map(([condition]) => condition)],
    kept.map((row) => [row.smiles, ...(names.length ? [row.name] : []), ...conditions.map(([, value]) => value)]),
  );
  const query = { name: "molecules.csv", model: source.model, domain: source.domain, ...(source.intervals ? { interval: LEVEL } : {}) };
  const job = await predictUpload(table, query);
  try {
    save(await postForFile(`/files/${job.id}/result`, { format, columns }), name);
  } finally {
    request(`/files/${job.id}`, { method: "DELETE" }).catch(() => null);
  }
}

function save(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
