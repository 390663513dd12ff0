// The room of figures: they are as tall before they are drawn as after, at any width and in any language,
// so that nothing below them moves. profiler/report/html/figure_rooms.py says what a figure needs until
// its chart is there.

import { page } from "./data.js";
import { speech, whenSpoken } from "./language.js";

export const LEGEND_LINE = 20; // pixels
export const LEGEND_LINES = 2; // for which the height of a figure has room

export function figurePlaces() { return [...document.querySelectorAll("[data-figure]")]; }

// Entries of a legend are as wide as the widest of them, of so many characters.
export function legendLines(entries, longest, width) {
  return Math.ceil(entries / Math.max(1, Math.floor((0.75 * width) / (7 * longest + 55))));
}

// What the lines of a legend add to the height of a figure.
export function legendRoom(lines) { return LEGEND_LINE * Math.max(0, lines - LEGEND_LINES); }

export function startRooms() {
  const reserve = () => {
    if (page.figures) return; // figures.js goes by the charts
    const widths = new Map(figurePlaces().map((place) => [place, place.clientWidth]));
    for (const [place, width] of widths) {
      const { height, legend } = place.dataset, { entries = 0, longest = {} } = JSON.parse(legend ?? "{}");
      const lines = width ? legendLines(entries, longest[speech.language] ?? 0, width) : 0;
      place.style.height = `${Number(height) + legendRoom(lines)}px`;
    }
  };
  whenSpoken(reserve);
  new ResizeObserver(reserve).observe(document.querySelector("main"));
  reserve();
}
