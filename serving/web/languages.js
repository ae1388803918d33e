// The selects of source, target and model: each offers only what the models support.

import { element, fill } from "./dom.js";
import { AUTO } from "./server.js";

export class LanguagePair {
  constructor(onChange) {
    [this._source, this._target, this._model] = ["source", "target", "model"].map(element);
    this._detected = null;
    this._source.addEventListener("change", () => this._sourceChanged(onChange));
    this._target.addEventListener("change", () => {
      this._fillModels();
      onChange();
    });
    this._model.addEventListener("change", onChange);
  }

  use(server, wanted) {
    this._server = server;
    const names = server.sources.map((code) => [code, server.languageName(code)]);
    const first = !this._source.options.length;
    fill(this._source, [[AUTO, "Detect language"], ...names]);
    if (first) this._source.value = server.sources[0];
    choose(this._source, wanted.get("source"));
    this._fillTargets();
    choose(this._target, wanted.get("target"));
    this._fillModels();
    choose(this._model, wanted.get("model"));
  }

  get source() {
    return this._source.value;
  }

  get target() {
    return this._target.value;
  }

  /** The chosen model; empty if the server should choose. */
  get model() {
    return this._model.value;
  }

  /** The record of the model that is chosen, or would be; none for a pair translated through a third
   * language. */
  get card() {
    const offered = this._server.modelsFor(this.source, this.target);
    return offered.find(({ name }) => name === this.model) ?? offered[0];
  }

  /** The source language, as detected if none was chosen. */
  get knownSource() {
    return this.source === AUTO ? (this._detected ?? AUTO) : this.source;
  }

  showDetected({ source, detected }) {
    this._detected = source ?? null;
    const name = detected && this._server.languageName(detected.language);
    element("detected").textContent = detected
      ? `detected ${name} (${Math.round(detected.confidence * 100)} %)`
      : "";
    this._allowSwap();
  }

  swap() {
    const [source, target] = [this.target, this.knownSource];
    this._source.value = source;
    this._fillTargets();
    this._target.value = target;
    this._fillModels();
  }

  _sourceChanged(onChange) {
    this.showDetected({});
    this._fillTargets();
    this._fillModels();
    onChange();
  }

  _fillTargets() {
    const codes = this._server.targets(this.source);
    fill(this._target, codes.map((code) => [code, this._server.languageName(code)]));
  }

  _fillModels() {
    const names = this._server.modelsFor(this.source, this.target).map(({ name }) => [name, name]);
    fill(this._model, [["", "Default model"], ...names]);
    this._allowSwap();
  }

  _allowSwap() {
    element("swap").disabled = !this._server.translates(this.target, this.knownSource);
  }
}

function choose(select, value) {
  if ([...select.options].some((option) => option.value === value)) select.value = value;
}
