// Small helpers around the document.

export const element = (id) => document.getElementById(id);

/** A new element; `properties` are its properties, `children` nodes or texts. */
export function create(tag, properties = {}, ...children) {
  const { dataset, aria, ...plain } = properties;
  const node = Object.assign(document.createElement(tag), plain);
  Object.assign(node.dataset, dataset);
  for (const [name, value] of Object.entries(aria ?? {})) node.setAttribute(`aria-${name}`, value);
  node.append(...children);
  return node;
}

/** Choices of a select; what was chosen stays so where it is still offered. */
export function fill(select, choices) {
  const kept = select.value;
  select.replaceChildren(...choices.map(([value, label]) => new Option(label, value)));
  if (choices.some(([value]) => value === kept)) select.value = kept;
}

/** Have a screen reader say something, once it has finished what it is saying. */
export function announce(text) {
  element("announcer").textContent = text;
}

export function showError(message) {
  element("error-text").textContent = message;
  element("error").hidden = false;
}

export function clearError() {
  element("error").hidden = true;
}

/** Run what a person asked for; show why it failed, but for what was called off. */
export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    if (error.name !== "AbortError") showError(error.message);
    return undefined;
  }
}

/** An action that is put off until it has not been asked for again for a while. */
export class Debounced {
  constructor(action, milliseconds) {
    this._action = action;
    this._milliseconds = milliseconds;
  }

  ask() {
    this.cancel();
    this._timer = setTimeout(this._action, this._milliseconds);
  }

  cancel() {
    clearTimeout(this._timer);
  }
}

/** A button that copies what `text()` returns, and says that it has. */
export function copies(button, text) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    const done = (await copied(text())) ? "Copied" : "Could not copy";
    button.textContent = done;
    announce(done);
    setTimeout(() => (button.textContent = label), 1500);
  });
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedByCommand(text); // the clipboard API is there for TLS and localhost only
  }
}

function copiedByCommand(text) {
  const active = document.activeElement;
  const area = create("textarea", { value: text, className: "visually-hidden" });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  active?.focus();
  return done;
}
