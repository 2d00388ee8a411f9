// Files: upload, progress, download, and their rows in the table.

import { element, request } from "./request.js";
import { predictUpload } from "./saving.js";

let limits = null;

// Watch the field and the drop of files on the page. `options` returns the model and the interval, `begin` is called
// for each file, and what it returns is called with the job when it is done; `show` shows the rows of a job.
export function watchFiles({ options, begin, show, limits: asked }) {
  asked.then((answer) => { limits = answer; }).catch(() => null); // the server checks too
  const input = document.getElementById("file");
  const zone = document.getElementById("drop");
  const send = (files) => { for (const file of files) predictFile(file, options(), begin(), show); };
  input.addEventListener("change", () => { send(input.files); input.value = ""; });
  const hasFiles = (event) => [...event.dataTransfer.types].includes("Files");
  for (const kind of ["dragenter", "dragover"]) {
    document.addEventListener(kind, (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      zone.classList.add("over");
    });
  }
  for (const kind of ["dragleave", "drop"]) {
    document.addEventListener(kind, () => zone.classList.remove("over"));
  }
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    send(event.dataTransfer.files);
  });
}

export async function predictFile(file, options, done, show) {
  const bar = element("progress", { max: "1", "aria-label": `Progress of ${file.name}` });
  const state = element("p", { className: "state", role: "status", text: "Uploading …" });
  const remove = element("button", { type: "button", text: "Cancel", "aria-label": `Cancel ${file.name}` });
  const actions = element("span", { className: "actions" }, [remove]);
  const item = element("li", {}, [element("span", { className: "name", text: file.name }), actions, bar, state]);
  document.getElementById("files").prepend(item);
  const upload = new AbortController();
  let id = null;
  remove.addEventListener("click", async () => {
    upload.abort();
    item.remove();
    document.getElementById("file").focus();
    if (id !== null) await request(`/files/${id}`, { method: "DELETE" }).catch(() => null);
  });
  try {
    // an answer in the middle of an upload would be lost
    if (limits && file.size > limits.file_bytes) throw new Error(tooLarge());
    const job = await predictUpload(file, { name: file.name, ...options }, {
      signal: upload.signal,
      started: (created) => { id = created.id; },
      moved: ({ state: now, share, rows }) => {
        if (now === "running") {
          bar.value = share;
          state.textContent = `${rows.toLocaleString("en")} rows predicted`;
        } else if (now === "waiting") {
          state.textContent = "Waiting for other files";
        }
      },
    });
    showDone(job, item, bar, state, actions, remove, show);
    done(job);
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

function showDone(job, item, bar, state, actions, remove, show) {
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
  const open = element("button", { type: "button", text: "Show", "aria-label": `Show the rows of ${job.name}` });
  open.addEventListener("click", () => show(job).catch((error) => { state.textContent = error.message; }));
  actions.prepend(open, link);
  remove.textContent = "Delete";
  remove.setAttribute("aria-label", `Delete ${job.name} and its predictions`);
}
