// Requests to the server that this page came from, and to no other.
//
// Paths are relative to the page: a proxy may have put it, with the whole server, below a path of its own.

/** The full URL of a path. */
export const address = (path) => new URL(path, document.baseURI).href.replace(/[?#].*$/, "");

const KEY = "macaron-api-key";

export const apiKey = () => sessionStorage.getItem(KEY) ?? "";

export function setApiKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

export async function get(path, key = apiKey()) {
  return (await send(path, { headers: authorization(key) })).json();
}

/** POST a body; returns its answer, and the milliseconds until it arrived. */
export async function post(path, body, signal) {
  const start = performance.now();
  const answer = await (await sendJson(path, body, signal)).json();
  return { answer, roundTrip: performance.now() - start };
}

/** POST a form with a file; returns its answer. */
export async function sendFile(path, form) {
  return (await send(path, { method: "POST", headers: authorization(), body: form })).json();
}

/** Fetch a file. */
export async function fetchFile(path) {
  return (await send(path, { headers: authorization() })).blob();
}

/** Send a body, if there is one, by another method; returns the answer, if there is one. */
export async function change(method, path, body, key) {
  const response = await sendJson(path, body, undefined, method, key);
  return response.status === 204 ? undefined : response.json();
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
  let response;
  try {
    const [plain, query] = path.split("?");
    response = await fetch(address(plain) + (query ? `?${query}` : ""), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer; is it still running?");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Error(reason(body) ?? `${response.status} ${response.statusText}`);
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
