// The translation tab: when requests are sent, and how their answers are shown.

import { AlternativesMenu, choicesAfter } from "./alternatives.js";
import { Latest, post } from "./api.js";
import { Documents } from "./documents.js";
import { announce, attempt, clearError, copies, Debounced, element, showError } from "./dom.js";
import { Editor } from "./editor.js";
import { exampleIn } from "./examples.js";
import { Glossaries } from "./glossaries.js";
import { LanguagePair } from "./languages.js";
import { Memories, showOrigins } from "./memories.js";
import { Output } from "./output.js";
import { snippets, translateForms } from "./snippets.js";
import { keepWork } from "./storage.js";
import { comparisonRow, failedRow, showHypotheses, timingLine } from "./tables.js";
import { crossLinks } from "./words.js";

const OPTIONS = { beam_size: "beam-size", length_penalty: "length-penalty" };
const PAUSE_MS = 300;
const ALTERNATIVES = 6;
const COMPARED_COLUMNS = 7;
const NONE = new Set();

export class TranslatePanel {
  constructor() {
    this._translations = new Latest();
    this._alternatives = new Latest();
    this._links = null;
    this._prefix = "";
    this._example = null;
    this._translated = false;
    this._pair = new LanguagePair(() => {
      this._offerStored();
      if (this._editor.text === this._example) this._showExample();
      this._changed();
    });
    this._glossaries = new Glossaries(this._pair, () => this._changed());
    this._memories = new Memories(this._pair, () => this._changed());
    this._editor = new Editor(element("text"), element("mirror"), (n) => this._pointAtSource(n));
    this._output = new Output(
      element("output"),
      (number) => this._pointAtTarget(number),
      (word) => this._offerAlternatives(word),
    );
    this._documents = new Documents(this._pair, () => this._stored);
    this._menu = new AlternativesMenu(element("alternatives"));
    this._showSnippet = snippets("snippet", translateForms);
    this._soon = new Debounced(() => this.translate(), PAUSE_MS);
    this._listen();
  }

  /** Work with a server; `wanted` are the parameters of the page's address. */
  use(server, wanted) {
    const first = !this._server;
    this._server = server;
    element("html-switch").hidden = !server.readsHtml;
    this._pair.use(server, wanted);
    attempt(() => this._glossaries.use());
    attempt(() => this._memories.use());
    if (wanted.has("q")) this._editor.text = wanted.get("q");
    else if (first && !this._editor.text) this._showExample();
    this._describe();
    this._keep();
    this.translate();
  }

  /** Translate the present text at once. */
  async translate() {
    this._soon.cancel();
    const signal = this._translations.next();
    const body = this._body();
    const blank = !body.q.trim();
    clearError();
    const asked = !blank && !this._tooLong();
    if (!asked) this._clearAnswer();
    this._output.busy = asked;
    if (!asked) return;
    const result = await attempt(() => post("translate", body, signal));
    if (signal.aborted) return;
    this._output.busy = false;
    if (!result) return this._clearAnswer(); // what is there is of another text
    this._show(body, result);
    await this._compare(body, result, signal);
  }

  _listen() {
    element("text").addEventListener("input", () => {
      this._editor.refresh();
      this._links = null;
      this._changed();
    });
    element("text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.translate();
    });
    for (const id of ["html", "beam-size", "length-penalty", "hypotheses-count", "comparing"]) {
      element(id).addEventListener("input", () => this._soon.ask());
    }
    element("clear").addEventListener("click", () => this._setText(""));
    element("swap").addEventListener("click", () => this._swap());
    element("prefix-reset").addEventListener("click", () => this._changed());
    copies(element("copy"), () => this._output.text);
    copies(element("link"), () => this._address());
  }

  /** Drop earlier requests, because the text or the languages have changed. */
  _changed() {
    this._translations.stop();
    this._alternatives.stop();
    this._translated = false;
    this._setPrefix("");
    this._describe();
    this._keep();
    this._soon.ask();
  }

  /** Keep the languages, and a text that is not the example, in case the page is loaded again. */
  _keep() {
    const parameters = this._parameters;
    if (this._editor.text === this._example) parameters.delete("q");
    keepWork(parameters);
  }

  /** Show an example; the first typed key replaces it. */
  _showExample() {
    const example = exampleIn(this._pair.source);
    if (!example) return;
    this._example = example;
    this._editor.text = this._example;
    this._editor.select();
  }

  _setText(text) {
    this._editor.text = text;
    this._changed();
    this._editor.focus();
  }

  /** Swap the languages; a text that is not translated yet stays. */
  _swap() {
    const text = this._translated ? this._output.text : this._editor.text;
    this._pair.swap();
    this._offerStored();
    this._setText(text);
  }

  _offerStored() {
    this._glossaries.offer();
    this._memories.offer();
  }

  /** The fields of a request for the glossary and the memory. */
  get _stored() {
    const glossary_id = this._glossaries.chosen;
    return { ...(glossary_id ? { glossary_id } : {}), ...this._memories.fields };
  }

  _body() {
    const html = this._html;
    const body = { q: this._editor.text, source: this._pair.source, target: this._pair.target };
    Object.assign(body, this._stored);
    if (this._pair.model) body.model = this._pair.model;
    if (html) body.format = "html";
    body.alternatives = Math.max(1, Number(element("hypotheses-count").value)) - 1;
    if (this._prefix) this._begin(body, this._prefix);
    if (this._server.readsAlignments && !html && this._pair.card) body.alignments = true;
    const options = {};
    for (const [name, id] of Object.entries(OPTIONS)) {
      if (element(id).value !== "") options[name] = Number(element(id).value);
    }
    if (Object.keys(options).length) body.options = options;
    return body;
  }

  /** Make the translation begin with a prefix, which may span several sentences, and which
   * no memory contains. */
  _begin(body, prefix) {
    body.target_prefix = prefix;
    for (const name of ["memory_id", "memory_threshold", "memory_fuzzy"]) delete body[name];
    if (this._server.splitsSentences) body.split_sentences = false;
  }

  get _html() {
    return this._server.readsHtml && element("html").checked;
  }

  /** Show the length of the text, and the default options. */
  _describe() {
    for (const [name, id] of Object.entries(OPTIONS)) {
      element(id).placeholder = this._pair.card?.defaults[name] ?? "";
    }
    const known = this._pair.card ? this._server.demonstration(this._pair.card.name) : "";
    element("demonstration").textContent = known;
    const { value } = this._server.limit("max_text_chars");
    const counter = element("counter");
    counter.textContent = `${this._editor.length} / ${value} characters`;
    counter.classList.toggle("over", this._editor.length > value);
  }

  _tooLong() {
    const { value, variable } = this._server.limit("max_text_chars");
    const { length } = this._editor;
    if (length > value) {
      showError(`The text has ${length} characters; this server takes ${value} (${variable}).`);
    }
    return length > value;
  }

  _show(body, { answer, roundTrip }) {
    const [translation] = answer.translations;
    const [best] = translation.hypotheses;
    this._links = null;
    this._translated = true;
    this._pair.showDetected(translation);
    if (best && !this._html) {
      const targetWords = this._output.show(best);
      const sourceWords = this._editor.showWords();
      if (best.alignment) this._links = crossLinks(sourceWords, targetWords, best.alignment);
    } else {
      this._output.showPlain(translation.text);
    }
    showHypotheses(element("hypotheses"), translation.hypotheses);
    showOrigins(translation.origins);
    const parts = [answer.model, timingLine(translation.timing, roundTrip), ...translation.warnings];
    element("details").textContent = parts.join(" · ");
    element("answer").hidden = false;
    this._showSnippet(body);
    announce(`Translation: ${translation.text}`);
  }

  _clearAnswer() {
    this._links = null;
    this._translated = false;
    this._output.clear();
    this._pair.showDetected({});
    element("details").textContent = "";
    element("answer").hidden = true;
  }

  _pointAtSource(number) {
    const known = this._links !== null && number !== null;
    this._editor.highlight(known ? new Set([number]) : NONE);
    this._output.highlight(known ? this._links.toTarget[number] : NONE);
  }

  _pointAtTarget(number) {
    const known = this._links !== null && number !== null;
    this._editor.highlight(known ? this._links.toSource[number] : NONE);
    this._output.highlight(known ? new Set([number]) : NONE);
  }

  /** Request the alternatives to a word, and offer them. */
  async _offerAlternatives(word) {
    const signal = this._alternatives.next();
    const { alignments, ...body } = this._body();
    this._begin(body, this._output.text.slice(0, word.start).trimEnd());
    body.alternatives = ALTERNATIVES - 1;
    body.options = { ...body.options };
    if (this._server.givesAlternativesAtAPosition) body.options.return_alternatives = true;
    else body.options.beam_size = Math.max(ALTERNATIVES, body.options.beam_size ?? 0);
    clearError();
    const result = await attempt(() => post("translate", body, signal));
    if (!result || signal.aborted) return;
    const choices = choicesAfter(word.number, result.answer.translations[0].hypotheses);
    this._menu.open(word.span, choices, async (prefix) => {
      this._setPrefix(prefix);
      await this.translate();
      this._output.focusWord(word.number);
    });
  }

  _setPrefix(prefix) {
    this._prefix = prefix;
    element("prefix").hidden = !prefix;
    element("prefix-text").textContent = prefix;
  }

  /** Translate the text with every model of the pair, one after another, so that none slows another down. */
  async _compare(body, shown, signal) {
    const comparing = element("comparing").checked;
    element("comparison").hidden = !comparing;
    if (!comparing) return;
    const rows = element("comparison-rows");
    rows.replaceChildren();
    for (const { name } of this._server.modelsFor(this._pair.knownSource, body.target)) {
      try {
        const known = shown.answer.model === name;
        const result = known ? shown : await post("translate", { ...body, model: name }, signal);
        rows.append(comparisonRow(name, result));
      } catch (error) {
        if (signal.aborted) return;
        rows.append(failedRow(name, error.message, COMPARED_COLUMNS));
      }
    }
  }

  /** The languages, the model and the text, as parameters of the page's address. */
  get _parameters() {
    const { source, target, model } = this._pair;
    const parameters = new URLSearchParams({ source, target, q: this._editor.text });
    if (model) parameters.set("model", model);
    return parameters;
  }

  _address() {
    return `${location.origin}${location.pathname}?${this._parameters}`;
  }
}
