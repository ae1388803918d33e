// Stored glossaries: one is chosen for a translation; they are created, changed and deleted here.

import { change, get } from "./api.js";
import { acts, announce, attempt, clearError, element, fill, holding, isToBeDeleted } from "./dom.js";
import { pairs } from "./pairs.js";

const LISTED = 1000;
const EMPTY = { name: "", entries: "" };

export class Glossaries {
  /** `pair` has the languages; `onChoice` is called when another glossary is chosen. */
  constructor(pair, onChoice) {
    this._pair = pair;
    this._onChoice = onChoice;
    this._found = [];
    this._shown = "";
    this._stored = EMPTY;
    this._unsaved = new Map();
    element("glossary").addEventListener("change", onChoice);
    element("edited").addEventListener("change", () => this._read());
    element("glossaries").addEventListener("toggle", () => this._read());
    this._fields = [element("glossary-name"), element("entries")];
    acts(element("glossary-save"), () => holding(this._fields, () => this._save()));
    acts(element("glossary-delete"), () => this._delete());
  }

  /** The id of the glossary to translate with; empty for none. */
  get chosen() {
    return element("glossary").value;
  }

  /** Read the list of glossaries. */
  async use() {
    this._found = (await get(`glossaries?limit=${LISTED}`)).glossaries;
    fill(element("edited"), [["", "New glossary"], ...this._found.map(({ id, name }) => [id, name])]);
    this.offer();
  }

  /** Offer the glossaries for the chosen languages. */
  offer() {
    const fitting = this._found.filter((each) => this._dictionary(each));
    fill(element("glossary"), [["", "No glossary"], ...fitting.map(({ id, name }) => [id, name])]);
    element("glossary-pair").textContent = `${this._pair.source} to ${this._pair.target}`;
    if (element("glossaries").open) this._read();
  }

  get _edited() {
    return this._found.find(({ id }) => id === element("edited").value);
  }

  _dictionary({ dictionaries }) {
    const { source, target } = this._languages;
    return dictionaries.find((each) => each.source === source && each.target === target);
  }

  /** The languages in the form of glossaries. */
  get _languages() {
    return { source: this._pair.source.toLowerCase(), target: this._pair.target.toLowerCase() };
  }

  /** What the fields hold. */
  get _typed() {
    return { name: element("glossary-name").value, entries: element("entries").value };
  }

  set _typed({ name, entries }) {
    element("glossary-name").value = name;
    element("entries").value = entries;
  }

  /** Keep what has been typed and not saved for the glossary that is shown. */
  _leave() {
    const { name, entries } = this._typed;
    if (name === this._stored.name && entries === this._stored.entries) this._unsaved.delete(this._shown);
    else this._unsaved.set(this._shown, { name, entries });
  }

  /** Show the glossary to change, or an empty one, with what has been typed for it; of `done` nothing is to be kept. */
  async _read(done = null) {
    const glossary = this._edited;
    const shown = glossary ? [glossary.id, ...Object.values(this._languages)].join(" ") : "";
    this._unsaved.delete(done);
    if (this._shown !== done) {
      if (this._shown === shown) return;
      this._leave();
    }
    this._shown = shown;
    element("glossary-delete").disabled = !glossary;
    this._show({ name: glossary?.name ?? "", entries: "" });
    if (!glossary || !this._dictionary(glossary)) return;
    const path = `glossaries/${glossary.id}/entries?${new URLSearchParams(this._languages)}`;
    const read = await attempt(() => holding(this._fields, () => get(path)));
    if (this._shown !== shown) return;
    if (read) this._show({ name: glossary.name, entries: read.entries.map(line).join("\n") });
    else this._shown = null; // the next look reads it
  }

  /** Show a glossary as it is stored, or what has been typed for it since. */
  _show(stored) {
    this._stored = stored;
    this._typed = this._unsaved.get(this._shown) ?? stored;
  }

  async _save() {
    clearError();
    const saved = this._shown;
    const { name } = this._typed;
    const entries = pairs(this._typed.entries);
    const dictionary = { ...this._languages, entries };
    let id = this._edited?.id;
    if (id) {
      await change("PUT", `glossaries/${id}/entries`, dictionary);
      await change("PATCH", `glossaries/${id}`, { name });
    } else {
      ({ id } = await change("POST", "glossaries", { name, dictionaries: [dictionary] }));
    }
    await this._changed(saved, id, "Glossary saved");
  }

  async _delete() {
    clearError();
    const deleted = this._shown;
    const { id, name } = this._edited;
    if (!isToBeDeleted("glossary", name)) return;
    await change("DELETE", `glossaries/${id}`);
    await this._changed(deleted, "", "Glossary deleted");
  }

  /** After what was shown as `done` has been stored or deleted, show the glossary `id`. */
  async _changed(done, id, news) {
    await this.use();
    element("edited").value = id;
    element("glossary").value = id;
    await this._read(done);
    announce(news);
    this._onChoice();
  }
}

/** An entry as a line: `term = translation`, or with a tab if one of the two contains `=`. */
function line({ source, target }) {
  return [source, target].join(`${source}${target}`.includes("=") ? "\t" : " = ");
}
