// Models by name, for holders of the admin key: downloaded, imported and served while the page watches.

import { change, get } from "./api.js";
import { announce, attempt, clearError, element } from "./dom.js";

const LOOK_MS = 1000;
const ENDS = { stopped: "Stopped.", failed: "Failed.", none: "" };

export class Imports {
  /** `onServed` is called with the name of a model that has been added. */
  constructor(onServed) {
    this._onServed = onServed;
    this._following = false;
    element("import-start").addEventListener("click", () => this._start());
    element("import-stop").addEventListener("click", () => attempt(() => this._send("DELETE")));
    element("import-name").addEventListener("keydown", (event) => {
      if (event.key === "Enter") this._start();
    });
    // An import that was started before is shown too.
    element("admin-key").addEventListener("change", () => attempt(() => this._follow()));
  }

  use(server) {
    element("imports").hidden = !server.imports;
  }

  async _start() {
    clearError();
    const name = element("import-name").value.trim();
    if (await attempt(() => this._send("POST", { name }))) await attempt(() => this._follow());
  }

  _send(method, body) {
    return change(method, "admin/imports", body, element("admin-key").value.trim());
  }

  /** Show the progress of an import until it ends. */
  async _follow() {
    if (this._following) return;
    this._following = true;
    try {
      let wasRunning = false;
      for (;;) {
        const report = await get("admin/imports", element("admin-key").value.trim());
        this._show(report);
        if (report.state !== "running") return await this._ended(report, wasRunning);
        wasRunning = true;
        await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      }
    } finally {
      this._following = false;
      this._setRunning(false);
    }
  }

  async _ended({ state, name, model, error }, wasRunning) {
    const news = state === "done" ? `${name} is served as ${model}.` : (error ?? ENDS[state]);
    element("import-state").textContent = news;
    announce(news);
    if (state === "done" && wasRunning) await this._onServed(model);
  }

  _show({ state, name, lines }) {
    this._setRunning(state === "running");
    element("import-state").textContent = state === "running" ? `Importing ${name} …` : "";
    element("import-log").textContent = lines.join("\n");
    element("import-log").hidden = !lines.length;
  }

  _setRunning(running) {
    element("import-start").disabled = running;
    element("import-stop").hidden = !running;
  }
}
