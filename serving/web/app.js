// The page: tabs, theme, key, and the features of the server.

import { apiKey, setApiKey } from "./api.js";
import { attempt, clearError, element } from "./dom.js";
import { EncodePanel } from "./encode.js";
import { GeneratePanel } from "./generate.js";
import { Imports } from "./imports.js";
import { Server } from "./server.js";
import { work } from "./storage.js";
import { tabs } from "./tabs.js";
import { theme } from "./theme.js";
import { TranslatePanel } from "./translate.js";

const translating = new TranslatePanel();
const generating = new GeneratePanel();
const encoding = new EncodePanel();
const importing = new Imports(load);

let wanted = work();

/** `added` is a model that has just been imported. */
async function load(added) {
  await attempt(async () => {
    const server = await Server.read(added);
    clearError();
    element("translate-tab").hidden = !server.models.length;
    if (server.models.length) translating.use(server, wanted);
    wanted = new URLSearchParams(); // read again with another key, the page stays as it is
    generating.use(server);
    encoding.use(server);
    importing.use(server);
    showSome();
    element("attribution").textContent = attribution(server);
    element("page").hidden = false;
    if (document.activeElement === document.body) element("text").focus({ preventScroll: true });
  });
  element("loading").hidden = true;
}

/** The training data of the models, each with the models' names. */
function attribution({ models, languageModels, encoders }) {
  const names = new Map();
  const others = [...languageModels, ...encoders].map((card) => ({ ...card, name: card.id }));
  const cards = [...models, ...others];
  for (const { name, attribution } of cards) {
    if (attribution) names.set(attribution, [...(names.get(attribution) ?? []), name]);
  }
  return [...names].map(([text, of]) => `${of.join(", ")}: ${text.replace(/\.$/, "")}.`).join(" ");
}

theme(element("theme"));
const showSome = tabs(element("tabs"));
element("error-close").addEventListener("click", clearError);
element("key").value = apiKey();
element("key").addEventListener("change", () => {
  setApiKey(element("key").value.trim());
  load();
});
load();
