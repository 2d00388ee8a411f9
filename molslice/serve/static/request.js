// Requests to the API, and elements of the page.

// Return the JSON of an answer; throw an Error with the reason of a refusal.
export async function request(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("the service cannot be reached");
  }
  if (answer.status === 204) return null;
  let content;
  try {
    content = await answer.json();
  } catch {
    throw new Error(`status ${answer.status}`);
  }
  if (!answer.ok) throw new Error(content.detail ?? `status ${answer.status}`);
  return content;
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
