// Keys that work wherever the reader is, and the card that lists them.

import { element } from "./format.js";
import { say } from "./language.js";

export function startKeys(bar, explorer) {
  const card = keyCard();
  document.body.append(card);
  const actions = {
    "/": () => bar.search.focus(),
    f: () => bar.toMatch(1),
    F: () => bar.toMatch(-1),
    "?": () => showKeys(card),
    g: () => explorer.finder.field.focus(),
    Escape: () => {
      if (explorer.measure.edges) explorer.measure.set(null);
      else if (bar.choice.active) bar.choice.clear();
      else if (document.activeElement === explorer.timeline.canvas) explorer.reset();
    },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || card.open) return;
    if (event.target.closest?.("input, select, textarea, [contenteditable]")) return;
    const action = Object.hasOwn(actions, event.key) && actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  return () => showKeys(card);
}

function keyCard() {
  return element("dialog", { id: "keys", onclick: (event) => event.target.id === "keys" && event.target.close() });
}

function showKeys(card) {
  const rows = [
    ["/", say("search for something to filter by")],
    ["f  F", say("next, previous match in the timeline")],
    ["Esc", say("clear the filter: the whole run")],
    ["?", say("these keys")],
    ["← →  A D", say("timeline: earlier, later")],
    ["↑ ↓  W S  + −", say("timeline: closer, farther")],
    ["0", say("timeline: the whole run")],
    ["[  ]", say("timeline: previous, next call")],
    ["g", say("find a kernel, layer or module in the timeline")],
    ["n  N", say("timeline: next, previous of what was found")],
    ["l  L", say("timeline: the longest command, the one after it, back")],
    ["m", say("timeline: measure what is selected, or the middle")],
    ["Shift + ← →", say("timeline: move the end of the measure, with Alt its begin")],
    [say("Shift + drag"), say("timeline: measure")],
    ["p", say("timeline: pin or unpin the lane of what is selected")],
    [say("Shift + click"), say("add it to the filter")],
  ];
  const title = say("Keys");
  card.setAttribute("aria-label", title);
  card.replaceChildren(
    element("h2", {}, title),
    element("dl", {}, rows.map(([key, meaning]) => element("div", {}, element("dt", {}, key), element("dd", {}, meaning)))),
    element("button", { type: "button", onclick: () => card.close() }, say("Close")),
  );
  if (!card.open) card.showModal();
}
