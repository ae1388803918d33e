// Requests to the server that this page came from, and to no other.
//
// Paths are relative to the page: a proxy may have put it, with the whole server, below a path of its own.

import { storage } from "./storage.js";

/** The full URL of a path. */
export const address = (path) => new URL(path, document.baseURI).href.replace(/[?#].*$/, "");

const KEY = "macaron-api-key";
const session = storage("sessionStorage");

export const apiKey = () => session.getItem(KEY) ?? "";

export function setApiKey(key) {
  if (key) session.setItem(KEY, key);
  else session.removeItem(KEY);
}

export async function get(path, key = apiKey()) {
  return json(await send(path, { headers: authorization(key) }));
}

/** POST a body; returns its answer, and the milliseconds until it arrived. */
export async function post(path, body, signal) {
  const start = performance.now();
  const answer = await json(await sendJson(path, body, signal));
  return { answer, roundTrip: performance.now() - start };
}

/** POST a form with a file; returns its answer. */
export async function sendFile(path, form, signal) {
  return json(await send(path, { method: "POST", headers: authorization(), body: form, signal }));
}

/** Fetch a file. */
export async function fetchFile(path) {
  return (await send(path, { headers: authorization() })).blob();
}

/** Send a body, if there is one, by another method; returns the answer, if there is one. */
export async function change(method, path, body, key) {
  const response = await sendJson(path, body, undefined, method, key);
  return response.status === 204 ? undefined : json(response);
}

/** POST a body; yields the data of each server-sent event as it arrives. */
export async function* stream(path, body, signal) {
  const response = await sendJson(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("The stream was interrupted; the text is incomplete.");
    const events = (waiting + value).split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const parsed = JSON.parse(data);
      if (parsed.error) throw new Error(reason(parsed));
      yield parsed;
    }
  }
}

function sendJson(path, body, signal, method = "POST", key = apiKey()) {
  const headers = { "Content-Type": "application/json", ...authorization(key) };
  return send(path, { method, headers, body: JSON.stringify(body), signal });
}

async function send(path, options) {
  const headers = sendable(options.headers);
  let response;
  try {
    const [plain, query] = path.split("?");
    response = await fetch(address(plain) + (query ? `?${query}` : ""), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer; is it still running?");
  }
  if (response.ok) return response;
  const { status, statusText } = response;
  const body = await response.json().catch(() => ({}));
  const message = status === 401 && !headers.has("Authorization") ? keyIsNeeded(path) : reason(body);
  throw Object.assign(new Error(message ?? `${status} ${statusText}`), { status });
}

/** Headers that can be sent, unlike those with a key that was copied with a character of a text. */
function sendable(headers) {
  try {
    return new Headers(headers);
  } catch {
    throw new Error("The key has a character that no key has; copy it once more.");
  }
}

const keyIsNeeded = (path) =>
  path.startsWith("admin/") ? "Type the admin key first." : "This server needs an API key: type it at the top.";

/** The JSON of an answer, which a proxy may have replaced by a page of its own. */
async function json(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The answer is incomplete, or not from this server; try it once more.");
  }
}

/** The message of an error: in `error` in the native dialect, in `error.message` in OpenAI's. */
function reason(body) {
  return body.error?.message ?? body.error;
}

function authorization(key = apiKey()) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Keeps only the latest of several requests for one purpose. */
export class Latest {
  /** A signal for a new request; the previous one is aborted. */
  next() {
    this.stop();
    this._controller = new AbortController();
    return this._controller.signal;
  }

  isLatest(signal) {
    return this._controller.signal === signal;
  }

  stop() {
    this._controller?.abort();
  }
}
