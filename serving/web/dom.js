// Small helpers for the page's document.

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

/** Set the choices of a select; the chosen one stays if it is still offered. */
export function fill(select, choices) {
  const kept = select.value;
  select.replaceChildren(...choices.map(([value, label]) => new Option(label, value)));
  if (choices.some(([value]) => value === kept)) select.value = kept;
}

/** Have a screen reader say something after it has finished speaking. */
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

/** Ask before something is deleted for good. */
export function isToBeDeleted(kind, name) {
  return confirm(`Delete the ${kind} “${name}” and all that is in it? It cannot be brought back.`);
}

/** Run a user's action; show the reason if it fails, unless it was aborted. */
export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    if (error.name !== "AbortError") showError(error.message);
    return undefined;
  }
}

/** Run a user's action at each click on a button, but never twice at once. */
export function acts(button, action) {
  let running = false;
  button.addEventListener("click", async () => {
    if (running) return;
    running = true;
    await attempt(action);
    running = false;
  });
}

const holds = new WeakMap();

/** Run an action, until whose end fields cannot be changed, as it reads or replaces what they hold. */
export async function holding(fields, action) {
  const hold = (field, more) => {
    holds.set(field, (holds.get(field) ?? 0) + more);
    field.readOnly = holds.get(field) > 0;
  };
  fields.forEach((field) => hold(field, 1));
  try {
    return await action();
  } finally {
    fields.forEach((field) => hold(field, -1));
  }
}

/** An action that is delayed until it has not been requested again for a while. */
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
    return copiedByCommand(text); // the clipboard API needs TLS or localhost
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
