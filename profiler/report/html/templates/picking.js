// Buttons that choose something for the whole page.

import { NAMED } from "./dimensions.js";
import { element } from "./format.js";
import { say } from "./language.js";

// A button that chooses `pick` and shows whether it is chosen.
export function pickButton(choice, pick, ...content) {
  const entries = Object.entries(pick);
  const pressed = () => String(entries.every(([dimension, value]) => choice.has(dimension, value)));
  const button = element("button", {
    type: "button", class: "pick", "aria-pressed": pressed(),
    title: say("Filter by {choice}", {
      choice: entries.map(([dimension, value]) => NAMED[dimension](String(value))).join(", "),
    }),
    onclick: (event) => {
      inPlace(button, () => choice.pick(pick, event.shiftKey || event.ctrlKey || event.metaKey));
      button.setAttribute("aria-pressed", pressed());
    },
  }, ...content);
  return button;
}

// Do something that changes what stands above, and leave the reader where they are.
export function inPlace(button, change) {
  const place = button.closest("section, [data-figure]"), before = place?.getBoundingClientRect().top;
  change();
  if (place) scrollBy({ top: place.getBoundingClientRect().top - before, behavior: "instant" });
}
