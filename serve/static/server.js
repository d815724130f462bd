// The server's answers, or its own sentence about what is wrong. Paths are relative, so that the
// page also works below a prefix of a proxy.

/** A request that got no answer; the message is one sentence for people. */
export class ServerError extends Error {}

const KEY = "labelwright-key";
let onUnauthorized = () => {};

/** Show this key from now on, for as long as the tab is open. */
export const useKey = (key) => sessionStorage.setItem(KEY, key);

export function whenUnauthorized(work) {
  onUnauthorized = work;
}

function withKey(options = {}) {
  const key = sessionStorage.getItem(KEY);
  if (key === null) return options;
  return { ...options, headers: { ...options.headers, authorization: `Bearer ${key}` } };
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, withKey(options));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("the server cannot be reached: see whether it runs");
  }
  let body = null;
  try {
    body = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (response.status === 401) onUnauthorized();
  if (!response.ok || body === null) {
    throw new ServerError(body?.error?.message ?? `the server answered with status ${response.status} and no JSON`);
  }
  return body;
}

const post = (path, body, signal) =>
  ask(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

export const models = async () => (await ask("models")).models;
export const detail = (name, signal) => ask(`models/${encodeURIComponent(name)}`, { signal });
export const example = (name, row) => ask(`models/${encodeURIComponent(name)}/example?row=${row}`);
export const predict = (body, signal) => post("predict", body, signal);
export const compare = async (body, signal) => (await post("compare", body, signal)).answers;
export const speeds = () => ask("compare");

/** Calls of which only the last one counts: a new one aborts the one before. */
export function latest() {
  let controller = new AbortController();
  return () => {
    controller.abort();
    controller = new AbortController();
    return controller.signal;
  };
}
