// Documents: a file is uploaded, watched and downloaded.

import { change, fetchFile, get, sendFile } from "./api.js";
import { announce, attempt, clearError, element, showError } from "./dom.js";

const PAUSE_MS = 400;

export class Documents {
  /** `pair` has the languages, `stored()` returns the glossary and memory to use. */
  constructor(pair, stored) {
    this._pair = pair;
    this._stored = stored;
    this._current = null;
    element("file").addEventListener("change", () => this._take(element("file").files));
    element("file-stop").addEventListener("click", () => this._stop());
    element("file-fetch").addEventListener("click", () => attempt(() => this._fetch()));
    const place = element("translate-panel");
    place.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      place.classList.add("dropping");
    });
    for (const name of ["dragleave", "drop"]) {
      place.addEventListener(name, () => place.classList.remove("dropping"));
    }
    place.addEventListener("drop", (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this._take(event.dataTransfer.files);
    });
  }

  async _take([file]) {
    element("file").value = ""; // the same file may be chosen again
    if (!file) return;
    clearError();
    await this._stop();
    const form = new FormData();
    form.set("file", file);
    form.set("source", this._pair.source);
    form.set("target", this._pair.target);
    if (this._pair.model) form.set("model", this._pair.model);
    for (const [name, value] of Object.entries(this._stored())) form.set(name, value);
    this._show(`Sending ${file.name} …`);
    const sent = await attempt(() => sendFile("documents", form));
    if (!sent) return this._show("");
    this._current = sent.id;
    const ended = await attempt(() => this._watch(sent));
    if (!ended && this._current === sent.id) this._show("");
  }

  /** Show the progress of a document until its end; nothing if it was stopped. */
  async _watch(state) {
    while (this._current === state.id && !["done", "failed"].includes(state.state)) {
      this._progress(state);
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      if (this._current === state.id) state = await get(`documents/${state.id}`);
    }
    if (this._current !== state.id) return undefined;
    if (state.state === "failed") {
      this._current = null;
      showError(`${state.name}: ${state.error}`);
      this._show("");
      return state;
    }
    this._name = state.output_name;
    this._show([`${state.name} is translated.`, ...state.warnings].join(" "));
    element("file-fetch").textContent = `Download ${state.output_name}`;
    element("file-fetch").hidden = false;
    if (state.pictures) this._draw(state.id).catch(() => {}); // they are optional
    return state;
  }

  _progress({ name, done, total, seconds_left: left }) {
    const bar = element("file-progress");
    bar.hidden = element("file-stop").hidden = false;
    if (total) Object.assign(bar, { max: total, value: done });
    else bar.removeAttribute("value");
    const rest = left === null ? "" : `, about ${Math.ceil(left)} s left`;
    element("file-state").textContent = `Translating ${name}${rest}`;
  }

  /** Show the first page before and after the translation, if the server can draw it. */
  async _draw(id) {
    for (const which of ["before", "after"]) {
      const picture = await fetchFile(`documents/${id}/pictures/${which}`);
      if (this._current !== id) return;
      element(`file-${which}`).src = await asAddress(picture);
    }
    element("file-pictures").hidden = false;
  }

  /** Show a text in place of the progress bar. */
  _show(text) {
    for (const id of ["file-progress", "file-stop", "file-fetch", "file-pictures"]) element(id).hidden = true;
    element("file-state").textContent = text;
    if (text) announce(text);
  }

  async _fetch() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await fetchFile(`documents/${this._current}/result`));
    link.download = this._name;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  /** Drop the present document; the server deletes it. */
  async _stop() {
    const id = this._current;
    this._current = null;
    this._show("");
    if (id) await change("DELETE", `documents/${id}`).catch(() => {}); // it is deleted after a day anyway
  }
}

/** A picture as a data URL, because the page may show no other. */
function asAddress(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(blob);
  });
}
