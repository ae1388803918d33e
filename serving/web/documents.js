// Documents: a file is uploaded, watched and downloaded.

import { change, fetchFile, get, Latest, sendFile } from "./api.js";
import { acts, announce, attempt, clearError, element, showError } from "./dom.js";

const PAUSE_MS = 400;
const FAILED_PAUSE_MS = 2000;
const MOST_FAILURES = 30;

export class Documents {
  /** `pair` has the languages, `stored()` returns the glossary and memory to use. */
  constructor(pair, stored) {
    this._pair = pair;
    this._stored = stored;
    this._current = null;
    this._uploads = new Latest();
    element("file").addEventListener("change", () => this._take([...element("file").files]));
    element("file-stop").addEventListener("click", () => this._stop());
    acts(element("file-fetch"), () => this._fetch());
    this._takeDropped(element("translate-panel"));
  }

  /** Take files that are dropped anywhere on the page, which a browser would otherwise open in its place. */
  _takeDropped(panel) {
    const fields = (event) => event.target.type === "file"; // each takes what is dropped on it
    document.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files") || fields(event)) return;
      event.preventDefault();
      panel.classList.add("dropping");
    });
    for (const name of ["dragleave", "drop"]) {
      document.addEventListener(name, () => panel.classList.remove("dropping"));
    }
    document.addEventListener("drop", (event) => {
      if (!event.dataTransfer.files.length || fields(event)) return;
      event.preventDefault();
      if (panel.checkVisibility()) this._take([...event.dataTransfer.files]);
    });
  }

  async _take([file, ...others]) {
    element("file").value = ""; // the same file may be chosen again
    if (!file) return;
    clearError();
    if (others.length) return showError("One document at a time: drop a single file.");
    const signal = this._uploads.next();
    await this._stop();
    const form = new FormData();
    form.set("file", file);
    form.set("source", this._pair.source);
    form.set("target", this._pair.target);
    if (this._pair.model) form.set("model", this._pair.model);
    for (const [name, value] of Object.entries(this._stored())) form.set(name, value);
    this._show(`Sending ${file.name} …`);
    const sent = await attempt(() => sendFile("documents", form, signal));
    if (signal.aborted) return; // another file has taken its place
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
      if (this._current === state.id) state = await this._look(state.id);
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

  /** The state of a document, also from a server that is away for a moment. */
  async _look(id) {
    for (let failures = 1; ; failures += 1) {
      try {
        return await get(`documents/${id}`);
      } catch (error) {
        if (error.status < 500 || failures === MOST_FAILURES || this._current !== id) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, FAILED_PAUSE_MS));
    }
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
