// The last request in other forms, such as for a shell. A key is named, never shown.

import { address, apiKey } from "./api.js";
import { copies, element, fill } from "./dom.js";

const LIBRETRANSLATE_FIELDS = ["q", "source", "target", "format", "alternatives"];

/** The forms in which a request to `translate` can be written. */
export const translateForms = {
  "curl": (body) => curl("translate", body),
  "Python": (body) => requests("translate", body, 'print(answer["translatedText"])'),
  "LibreTranslate, curl": (body) => curl("translate", libreTranslateBody(body)),
  "LibreTranslate, Python": libreTranslate,
};

/** The forms of a request to `v1/completions`. */
export const completionForms = {
  "curl": (body) => curl("v1/completions", body, body.stream ? " --no-buffer" : ""),
  "OpenAI, Python": openai,
};

/** The forms of a request to an encoder: its path and its body. */
export const encoderForms = {
  "curl": ({ path, body }) => curl(path, body),
  "Python": ({ path, body }) => requests(path, body, "print(answer)"),
};

/** The panel `<id>-form`, `<id>-code`, `<id>-copy` inside `<id>`; returns a function that shows a request. */
export function snippets(id, forms) {
  const [select, code] = [element(`${id}-form`), element(`${id}-code`)];
  let body = null;
  const show = () => (code.textContent = forms[select.value](body));
  fill(select, Object.keys(forms).map((name) => [name, name]));
  select.addEventListener("change", show);
  copies(element(`${id}-copy`), () => code.textContent);
  return (request) => {
    body = request;
    element(id).hidden = false;
    show();
  };
}

function curl(path, body, flags = "") {
  const key = apiKey() ? ` \\\n  -H "Authorization: Bearer $API_KEY"` : "";
  const data = JSON.stringify(body).replaceAll("'", "'\\''");
  return (
    `curl -s${flags} ${address(path)} \\\n` +
    `  -H 'Content-Type: application/json'${key} \\\n  -d '${data}'`
  );
}

function requests(path, body, use) {
  const headers = apiKey()
    ? '    headers={"Authorization": f"Bearer {os.environ[\'API_KEY\']}"},\n'
    : "";
  return (
    `${apiKey() ? "import os\n\n" : ""}import requests\n\n` +
    `answer = requests.post(\n    ${python(address(path))},\n` +
    `    json=${python(body)},\n${headers}    timeout=60,\n).json()\n${use}`
  );
}

function libreTranslateBody(body) {
  return Object.fromEntries(LIBRETRANSLATE_FIELDS.filter((f) => f in body).map((f) => [f, body[f]]));
}

function libreTranslate({ q, source, target }) {
  const key = apiKey() ? ', os.environ["API_KEY"]' : "";
  return (
    `${key ? "import os\n\n" : ""}from libretranslatepy import LibreTranslateAPI\n\n` +
    `client = LibreTranslateAPI(${python(address(""))}${key})\n` +
    `print(client.translate(${[q, source, target].map(python).join(", ")}))`
  );
}

function openai(body) {
  const key = apiKey() ? 'os.environ["API_KEY"]' : '"none"';
  const fields = Object.entries(body).map(([name, value]) => `    ${name}=${python(value)},\n`);
  return (
    `${apiKey() ? "import os\n\n" : ""}from openai import OpenAI\n\n` +
    `client = OpenAI(base_url=${python(address("v1"))}, api_key=${key})\n` +
    `stream = client.completions.create(\n${fields.join("")})\n` +
    `for chunk in stream:\n    for choice in chunk.choices:\n` +
    `        print(choice.text, end="", flush=True)`
  );
}

/** JSON as a Python literal. */
function python(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  const fields = Object.entries(value).map(([name, v]) => `${python(name)}: ${python(v)}`);
  return `{${fields.join(", ")}}`;
}
