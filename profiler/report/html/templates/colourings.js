// By what commands are coloured: which value each has, and the colour of each value.

import { page } from "./data.js";
import { shortened } from "./format.js";
import { say } from "./language.js";
import { report } from "./theme.js";

const MOST_SHAPES = 12; // that have a colour of their own: those with the most time

// {code(i), pairs by code, rest} of a colouring, null if commands keep the colour of their category;
// `rest` is the pair of commands without a value.
export function colouring(mode, { calls, commands }) {
  const { palette, timeline: { strings, bounds } } = page;
  const named = (colours) => strings.map((name) => (Object.hasOwn(colours, name) ? colours[name] : null));
  const made = {
    submodule: () => ({ code: (i) => (commands.call[i] < 0 ? -1 : calls.submodule[commands.call[i]]), pairs: named(palette.submodules) }),
    role: () => ({ code: (i) => commands.role[i], pairs: named(palette.roles) }),
    bound: () => ({ code: (i) => commands.bound[i], pairs: bounds.map((name) => palette.bounds[name]), rest: palette.unknown }),
    shape: () => {
      const pairs = [];
      for (const [place, code] of costliestShapes(commands).entries()) pairs[code] = shapeColours()[place];
      return { code: (i) => commands.shapes[i], pairs, rest: palette.unknown };
    },
  };
  return made[mode]?.() ?? null;
}

// Codes of the shapes with the most time.
function costliestShapes(commands) {
  if (report.shapes) return report.shapes;
  const times = new Map();
  for (let i = 0; i < commands.rows; i++) {
    const code = commands.shapes[i];
    if (code >= 0 && page.timeline.strings[code]) times.set(code, (times.get(code) ?? 0) + Math.max(commands.duration[i], 0));
  }
  return report.shapes = [...times].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, Math.min(MOST_SHAPES, shapeColours().length)).map(([code]) => code);
}

function shapeColours() {
  const seen = new Map(Object.values(page.palette.roles).map((pair) => [pair.light, pair]));
  return [...seen.values()].filter(({ light }) => light !== page.palette.unknown.light);
}

// [pair, name, value that can be chosen or undefined] of what a colouring shows.
export function colourEntries(mode, { commands }) {
  const { palette, timeline } = page;
  if (mode === "shape") return costliestShapes(commands).map((code, place) => [shapeColours()[place], shortened(timeline.strings[code].replace(/^in: /, ""), 44)]);
  if (mode === "bound") return timeline.bounds.map((name) => [palette.bounds[name], say(name)]);
  const colours = { submodule: palette.submodules, role: palette.roles, category: palette.categories }[mode];
  return Object.entries(colours).map(([name, pair]) => [pair, name, name]);
}

// [pair, name, no value, look] of commands that the colouring has no colour for: by category, or all alike.
export function restEntries(mode, tables) {
  const how = colouring(mode, tables), { commands } = tables, { palette, timeline: { categories } } = page, left = new Set();
  if (!how) return [];
  for (let i = 0; i < commands.rows; i++) if (!how.pairs[how.code(i)]) left.add(commands.category[i]);
  const names = [...left].sort((a, b) => a - b).map((code) => categories[code]).filter((name) => name !== "sync"); // that waits
  if (how.rest) return names.length ? [[how.rest, say("unknown"), undefined, "dotted"]] : [];
  const said = (category) => (mode === "role" ? say("{category}, no role", { category }) : say("{category}, no call", { category }));
  return names.map((name) => [palette.categories[name], said(name)]);
}

// Colourings of which this run has nothing.
export function uselessColourings({ calls, commands }) {
  const any = (column) => column.some((code) => code >= 0);
  return { submodule: !calls.rows, role: !any(commands.role), shape: !costliestShapes(commands).length, bound: !any(commands.bound) };
}
