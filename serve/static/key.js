// A server with --api-keys: ask for a key when it wants one. The key stays in this tab alone.

import { byId, make } from "./dom.js";
import { useKey, whenUnauthorized } from "./server.js";

function showForm(onKey) {
  if (byId("key") !== null) return;
  const input = make("input", { id: "key", type: "password", required: true, pattern: "\\s*[!-~]+\\s*" });
  input.autocomplete = "off";
  const hint = "This server wants a key; this tab keeps it until it is closed.";
  const form = make(
    "form",
    {},
    make("label", { htmlFor: "key" }, "Key"),
    make("p", { className: "hint" }, hint),
    input,
    make("button", { type: "submit" }, "Use this key"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    useKey(input.value.trim());
    byId("door").replaceChildren();
    onKey();
  });
  byId("door").replaceChildren(form);
  input.focus();
}

/** Show the form whenever the server refuses a request for want of a key. */
export const askForKeys = (onKey) => whenUnauthorized(() => showForm(onKey));
