// Translation memories: one is chosen for a translation; they are created, filled and deleted here.

import { change, get, sendFile } from "./api.js";
import { acts, announce, clearError, create, element, fill, holding, isToBeDeleted } from "./dom.js";
import { pairs } from "./pairs.js";
import { AUTO } from "./server.js";

const LISTED = 1000;
const ORIGINS = { memory: "memory", prefix: "model, begun by the memory", model: "model" };

export class Memories {
  /** `pair` has the languages; `onChoice` is called when another memory is chosen, or other settings of it. */
  constructor(pair, onChoice) {
    this._pair = pair;
    this._onChoice = onChoice;
    this._found = [];
    this._shown = "";
    for (const id of ["memory", "memory-threshold", "memory-prefix"]) {
      element(id).addEventListener("change", onChoice);
    }
    element("memory-edited").addEventListener("change", () => this._describe());
    const fields = [element("memory-name"), element("segments")];
    acts(element("memory-save"), () => holding(fields, () => this._save()));
    acts(element("memory-delete"), () => this._delete());
  }

  /** The fields of a request for the memory and its use. */
  get fields() {
    const memory_id = element("memory").value;
    if (!memory_id) return {};
    const fields = { memory_id };
    const threshold = element("memory-threshold");
    if (threshold.value !== "" && threshold.checkValidity()) {
      fields.memory_threshold = Number(threshold.value);
    }
    if (element("memory-prefix").checked) fields.memory_fuzzy = "prefix";
    return fields;
  }

  /** Read the list of memories. */
  async use() {
    this._found = (await get(`memories?limit=${LISTED}`)).memories;
    this.offer();
  }

  /** Offer the memories for the chosen languages. */
  offer() {
    const fitting = this._found.filter((each) => this._fits(each));
    const choices = fitting.map(({ id, name, segment_count: count }) => [id, `${name} (${count})`]);
    fill(element("memory"), [["", "No memory"], ...choices]);
    fill(element("memory-edited"), [["", "New memory"], ...choices]);
    element("memory-pair").textContent = `${this._pair.source} to ${this._pair.target}`;
    this._describe();
  }

  get _edited() {
    return this._found.find(({ id }) => id === element("memory-edited").value);
  }

  /** Whether a memory fits; regions do not count, and if the source is detected, any may fit. */
  _fits({ source, target }) {
    const language = (code) => code.toLowerCase().split("-")[0];
    const { source: from, target: to } = this._pair;
    return [AUTO, language(source)].includes(language(from)) && language(target) === language(to);
  }

  /** Show the memory to change, or an empty one; text typed for a new one stays. */
  _describe() {
    const memory = this._edited;
    if (!memory && this._shown === "") return;
    this._shown = memory?.id ?? "";
    element("memory-name").value = memory?.name ?? "";
    element("memory-name").disabled = Boolean(memory);
    element("memory-delete").disabled = !memory;
  }

  async _save() {
    clearError();
    const segments = pairs(element("segments").value);
    const [file] = element("memory-file").files;
    let memory = this._edited;
    let made;
    if (!memory) {
      const name = element("memory-name").value || file?.name || "";
      const { source, target } = this._pair;
      memory = made = await change("POST", "memories", { name, source, target, segments });
    } else if (segments.length) {
      await change("POST", `memories/${memory.id}/segments`, { segments });
    }
    const news = file ? await this._read(memory, file, made) : "Memory saved";
    element("segments").value = ""; // not before, as a file that cannot be read leaves no new memory
    await this._changed(memory.id, news);
  }

  /** Add a file to a memory; a memory `made` for it is deleted if it cannot be read. */
  async _read(memory, file, made) {
    const form = new FormData();
    form.append("file", file);
    try {
      const { added, skipped } = await sendFile(`memories/${memory.id}/tmx`, form);
      return `${added} sentences added, ${skipped} left out`;
    } catch (error) {
      if (made) await change("DELETE", `memories/${made.id}`);
      throw error;
    } finally {
      element("memory-file").value = "";
    }
  }

  async _delete() {
    clearError();
    const { id, name } = this._edited;
    if (!isToBeDeleted("memory", name)) return;
    await change("DELETE", `memories/${id}`);
    await this._changed("", "Memory deleted");
  }

  async _changed(id, news) {
    await this.use();
    element("memory-edited").value = id;
    element("memory").value = id;
    this._describe();
    element("memory-news").textContent = news;
    announce(news);
    this._onChoice();
  }
}

/** Show the origin of each sentence's translation; nothing if no memory was used. */
export function showOrigins(origins) {
  element("origins").hidden = !origins;
  element("origin-rows").replaceChildren(
    ...(origins ?? []).map(({ sentence, origin, score, segment: kept, prefix }) =>
      create(
        "tr",
        {},
        create("td", { textContent: sentence, dir: "auto", className: "text" }),
        create("td", { textContent: ORIGINS[origin], className: "text" }),
        create("td", { textContent: score === undefined ? "–" : `${score.toFixed(0)} %` }),
        create("td", { textContent: kept ?? "–", dir: "auto", className: "text" }),
        create("td", { textContent: prefix ?? "–", dir: "auto", className: "text" }),
      ),
    ),
  );
}
