// The features of the server, read once at the start.

import { get } from "./api.js";

export const AUTO = "auto";
const LOOK_MS = 500;
const MOST_LOOKS = 20;

export class Server {
  /** Read again until an added model is listed: workers load it one after another, and any of them may answer. */
  static async read(added) {
    const paths = ["languages", "models", "limits", "openapi.json", "v1/models"];
    for (let looks = 1; ; looks += 1) {
      const server = new Server(...(await Promise.all(paths.map((path) => get(path)))));
      if (!added || server._has(added) || looks === MOST_LOOKS) return server;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  constructor(languages, { models, imports }, { limits }, { components }, { data }) {
    this.languages = languages;
    this.models = models.filter(({ task }) => task === "translate");
    this.languageModels = data.filter(({ task }) => task === "generate");
    this.encoders = data.filter(({ task }) => task !== "generate");
    this.imports = imports;
    this._demonstrations = new Map(models.map((model) => [model.name, model.demonstration]));
    this._limits = Object.fromEntries(limits.map((limit) => [limit.name, limit]));
    this._request = components.schemas.TranslateRequest.properties;
  }

  /** Whether a model is in both of the lists. */
  _has(name) {
    const others = [...this.languageModels, ...this.encoders].map(({ id }) => id);
    const listed = [...this.models.map((model) => model.name), ...others];
    return this._demonstrations.has(name) && listed.includes(name);
  }

  limit(name) {
    return this._limits[name];
  }

  /** Purpose and limits of a demonstration model; empty for others. */
  demonstration(name) {
    return this._demonstrations.get(name) ?? "";
  }

  languageName(code) {
    return this.languages.find((language) => language.code === code)?.name ?? code;
  }

  /** Codes of the languages that at least one model reads. */
  get sources() {
    return this.languages.filter((l) => l.targets.length).map((l) => l.code);
  }

  /** Codes of the languages that a source can be translated into, directly or through a third one. */
  targets(source) {
    const found = this.languages.filter(({ code }) => reads(source, code));
    return [...new Set(found.flatMap(({ targets }) => targets))].sort();
  }

  /** Models of a pair of languages, the preferred ones first. */
  modelsFor(source, target) {
    const fits = ([from, to]) => reads(source, from) && to === target;
    return this.models.filter((model) => model.pairs.some(fits));
  }

  /** Whether a text can be translated from one language to the other. */
  translates(source, target) {
    return this.targets(source).includes(target);
  }

  get readsAlignments() {
    return "alignments" in this._request;
  }

  get readsHtml() {
    return Boolean(this._request.format.enum?.includes("html"));
  }

  get splitsSentences() {
    return "split_sentences" in this._request;
  }

  get givesAlternativesAtAPosition() {
    return "return_alternatives" in this._request.options.properties;
  }
}

/** Whether a language matches that of a source, which may be unset. */
function reads(source, code) {
  return source === AUTO || code === source;
}
