// Files: upload, progress, download.

import { element, request } from "./request.js";

const POLL = 500; // milliseconds
const ENDED = ["done", "failed", "canceled"];

let limits = null;

// Watch the field and the drop zone. `options` returns the model and the interval.
export function watchFiles(options) {
  request("/limits").then((found) => { limits = found; }).catch(() => null); // the server checks too
  const input = document.getElementById("file");
  const zone = document.getElementById("drop");
  const send = (files) => { for (const file of files) predictFile(file, options()); };
  input.addEventListener("change", () => { send(input.files); input.value = ""; });
  for (const kind of ["dragenter", "dragover"]) {
    zone.addEventListener(kind, (event) => { event.preventDefault(); zone.classList.add("over"); });
  }
  for (const kind of ["dragleave", "drop"]) {
    zone.addEventListener(kind, () => zone.classList.remove("over"));
  }
  zone.addEventListener("drop", (event) => { event.preventDefault(); send(event.dataTransfer.files); });
}

async function predictFile(file, options) {
  const bar = element("progress", { max: "1", "aria-label": `Progress of ${file.name}` });
  const state = element("p", { className: "state", role: "status", text: "Uploading …" });
  const remove = element("button", { type: "button", text: "Cancel", "aria-label": `Cancel ${file.name}` });
  const actions = element("span", { className: "actions" }, [remove]);
  const item = element("li", {}, [element("span", { className: "name", text: file.name }), actions, bar, state]);
  document.getElementById("files").prepend(item);
  const upload = new AbortController();
  let job = null;
  let removed = false;
  remove.addEventListener("click", async () => {
    removed = true;
    upload.abort();
    item.remove();
    document.getElementById("file").focus();
    if (job) await request(`/files/${job.id}`, { method: "DELETE" }).catch(() => null);
  });
  try {
    // an answer in the middle of an upload would be lost
    if (limits && file.size > limits.file_bytes) throw new Error(tooLarge());
    const query = new URLSearchParams({ name: file.name, ...options });
    job = await request(`/files?${query}`, { method: "POST", body: file, signal: upload.signal });
    while (!ENDED.includes(job.state) && !removed) {
      await new Promise((resolve) => setTimeout(resolve, POLL));
      if (removed) return;
      job = await request(`/files/${job.id}`);
      if (job.state === "running") {
        bar.value = job.share;
        state.textContent = `${job.rows.toLocaleString("en")} rows predicted`;
      } else if (job.state === "waiting") {
        state.textContent = "Waiting for other files";
      }
    }
    if (job.state === "failed") throw new Error(job.message);
    showDone(job, item, bar, state, actions, remove);
  } catch (error) {
    bar.remove();
    state.className = "problem";
    state.textContent = error.message;
    remove.textContent = "Remove";
    remove.setAttribute("aria-label", `Remove ${file.name}`);
  }
}

function tooLarge() {
  const size = (limits.file_bytes / 1e6).toLocaleString("en");
  return `The file has more than ${size} MB. Use molslice predict for larger files.`;
}

function showDone(job, item, bar, state, actions, remove) {
  bar.remove();
  const rows = `${job.rows.toLocaleString("en")} rows`;
  const failed = job.failed ? `, ${job.failed.toLocaleString("en")} without a prediction` : "";
  state.textContent = `${rows}${failed}. ${job.message}`;
  if (job.refusals.length) {
    const reasons = job.refusals.map(({ count, reason }) => element("li", { text: `${count.toLocaleString("en")}: ${reason}` }));
    item.append(element("ul", { className: "reasons", "aria-label": "Rows without a prediction by reason" }, reasons));
  }
  const link = element("a", { href: `/files/${job.id}/result`, download: "", text: "Download" });
  link.setAttribute("aria-label", `Download the predictions of ${job.name}`);
  actions.prepend(link);
  remove.textContent = "Delete";
  remove.setAttribute("aria-label", `Delete ${job.name} and its predictions`);
}
