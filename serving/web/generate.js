// The tab of the language models: a text is continued, and shown as it arrives.

import { Latest, stream } from "./api.js";
import { announce, attempt, clearError, copies, create, element, fill } from "./dom.js";
import { completionForms, snippets } from "./snippets.js";

const FIELDS = { temperature: "temperature", top_p: "top-p", max_tokens: "max-tokens", seed: "seed" };
const ENDS = { stop: "end of text", length: "max tokens reached" };

export class GeneratePanel {
  constructor() {
    this._requests = new Latest();
    this._showSnippet = snippets("completion-snippet", completionForms);
    this._output = element("generated");
    element("generate").addEventListener("click", () => this.generate());
    element("stop").addEventListener("click", () => this._requests.stop());
    element("prompt").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.generate();
    });
    element("language-model").addEventListener("change", () => this._choose());
    copies(element("copy-generated"), () => this._output.textContent);
  }

  use(server) {
    this._server = server;
    element("generate-tab").hidden = !server.languageModels.length;
    fill(element("language-model"), server.languageModels.map(({ id }) => [id, id]));
    this._choose();
  }

  _choose() {
    const { value } = element("language-model");
    element("language-model-demonstration").textContent = this._server.demonstration(value);
  }

  async generate() {
    const signal = this._requests.next();
    const body = this._body();
    clearError();
    this._showSnippet(body);
    this._output.replaceChildren(create("span", { className: "given", textContent: body.prompt }));
    this._setBusy(true);
    const details = element("generated-details");
    details.textContent = "";
    const end = await attempt(() => this._follow(body, signal));
    if (!this._requests.isLatest(signal)) return;
    this._setBusy(false);
    details.textContent = end ?? (signal.aborted ? "stopped" : "failed");
    announce(details.textContent);
  }

  /** Show a stream's text as it arrives; returns how it ended, in words. */
  async _follow(body, signal) {
    const start = performance.now();
    let first = null;
    let reason = null;
    let usage = null;
    for await (const chunk of stream("v1/completions", body, signal)) {
      usage = chunk.usage ?? usage;
      for (const choice of chunk.choices) {
        first ??= performance.now();
        reason = choice.finish_reason ?? reason;
        this._output.append(choice.text);
      }
    }
    const seconds = (performance.now() - start) / 1000;
    const parts = [ENDS[reason] ?? reason];
    if (usage) {
      const speed = (usage.completion_tokens / seconds).toFixed(0);
      parts.push(`${usage.completion_tokens} tokens`, `${speed} tokens/s`);
    }
    if (first !== null) parts.push(`first after ${(first - start).toFixed(0)} ms`);
    return parts.filter(Boolean).join(" · ");
  }

  _body() {
    const body = { model: element("language-model").value, prompt: element("prompt").value };
    for (const [name, id] of Object.entries(FIELDS)) {
      const { value } = element(id);
      if (value !== "") body[name] = Number(value);
    }
    return { ...body, stream: true, stream_options: { include_usage: true } };
  }

  _setBusy(busy) {
    this._output.setAttribute("aria-busy", busy);
    element("stop").disabled = !busy;
  }
}
