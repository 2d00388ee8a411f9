// Requests to the API, and elements of the page.

// Return an answer; throw an Error with the reason of a refusal and its `status`.
async function answered(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("the service cannot be reached");
  }
  if (answer.ok) return answer;
  const content = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(content.detail ?? `status ${answer.status}`), { status: answer.status });
}

// Return the JSON of an answer; null of one without content.
export async function request(path, options = {}) {
  const answer = await answered(path, options);
  if (answer.status === 204) return null;
  return answer.json().catch(() => { throw new Error(`status ${answer.status}`); });
}

// Send JSON, and return the JSON of the answer.
export function post(path, content) {
  return request(path, posted(content));
}

// Send JSON, and return the file that is the answer.
export async function postForFile(path, content) {
  return (await answered(path, posted(content))).blob();
}

function posted(content) {
  return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(content) };
}

// Create an element with attributes, text and children. `text` is never parsed as HTML.
export function element(tag, { text, className, ...attributes } = {}, children = []) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
