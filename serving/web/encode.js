// The tab of the encoders: classes of a text or a pair, or the similarity of two texts.

import { Latest, post } from "./api.js";
import { announce, attempt, clearError, element, fill } from "./dom.js";
import { encoderForms, snippets } from "./snippets.js";
import { showClasses } from "./tables.js";

const MOST_CLASSES = 20;
const WORDS = {
  classify: { verb: "Classify", does: "finds the class of a text, or of a pair of texts", second: "A second text, for models of pairs" },
  encode: { verb: "Compare", does: "compares two texts", second: "Another text" },
};

export class EncodePanel {
  constructor() {
    this._requests = new Latest();
    this._showSnippet = snippets("encode-snippet", encoderForms);
    element("encoder").addEventListener("change", () => this._choose());
    element("encode").addEventListener("click", () => this.encode());
    for (const id of ["first-text", "second-text"]) {
      element(id).addEventListener("keydown", (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.encode();
      });
    }
  }

  use(server) {
    this._server = server;
    this._encoders = server.encoders;
    element("encode-tab").hidden = !this._encoders.length;
    if (!this._encoders.length) return;
    fill(element("encoder"), this._encoders.map(({ id }) => [id, id]));
    this._choose();
  }

  async encode() {
    const signal = this._requests.next();
    const request = this._request();
    clearError();
    this._showSnippet(request);
    this._clear();
    const given = await attempt(() => post(request.path, request.body, signal));
    if (!given || !this._requests.isLatest(signal)) return;
    const told = this._task === "encode" ? this._showSimilarity(given) : this._showClasses(given);
    element("encoded-details").textContent = `round trip ${given.roundTrip.toFixed(1)} ms`;
    announce(told);
  }

  get _task() {
    const chosen = element("encoder").value;
    return this._encoders.find(({ id }) => id === chosen).task;
  }

  _choose() {
    const { verb, does, second } = WORDS[this._task];
    element("encode").textContent = verb;
    element("encoder-does").textContent = does;
    element("second-text").placeholder = second;
    element("encoder-demonstration").textContent = this._server.demonstration(element("encoder").value);
    this._requests.stop();
    this._clear();
  }

  _clear() {
    for (const id of ["similarity", "classes"]) element(id).hidden = true;
    element("encoded-details").textContent = "";
  }

  _request() {
    const [first, second] = ["first-text", "second-text"].map((id) => element(id).value);
    const model = element("encoder").value;
    if (this._task === "encode") {
      const inputs = { source_sentence: first, sentences: [second] };
      return { path: "similarity", body: { model, inputs } };
    }
    const pair = second ? { pair: second } : {};
    return { path: "classify", body: { model, q: first, ...pair } };
  }

  _showSimilarity({ answer }) {
    const [likeness] = answer;
    element("similarity").textContent = `Cosine similarity ${likeness.toFixed(3)}`;
    element("similarity").hidden = false;
    return element("similarity").textContent;
  }

  _showClasses({ answer }) {
    const [{ label, labels }] = answer.classifications;
    showClasses(element("class-rows"), labels.slice(0, MOST_CLASSES));
    element("classes").hidden = false;
    return label;
  }
}
