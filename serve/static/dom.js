// Elements are made here and nowhere else: text from the server is only ever a text node.

export const byId = (id) => document.getElementById(id);

/** An element with properties, then children: elements, or what becomes text. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

/** Say something in a live region, once: the same sentence again would be read out again. */
export function say(element, sentence) {
  if (element.textContent !== sentence) element.textContent = sentence;
}

/** A number with so many digits after the point, or a dash where there is none yet. */
export const fixed = (value, digits) => (value === null ? "–" : value.toFixed(digits));

/** A bar from 0 to 1, with a tick where a threshold is; its numbers stand beside it as text. */
export function bar(share, tick = null) {
  const track = make("span", { className: "track", ariaHidden: "true" });
  const fill = make("span", { className: "fill" });
  fill.style.inlineSize = `${100 * Math.min(1, Math.max(0, share))}%`;
  track.append(fill);
  if (tick !== null) {
    const mark = make("span", { className: "tick" });
    mark.style.insetInlineStart = `${100 * tick}%`;
    track.append(mark);
  }
  return track;
}
