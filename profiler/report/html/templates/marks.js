// What is written on the timeline: ticks of its axis, names in bars, values of counters.

import { format, SPACE } from "./format.js";

const TICK_STEPS = [1, 2, 5];

// A counter's value; what it counts or measures, its name says.
export function counted(lane, value) {
  return lane.category === "bytes" ? format.size(value) : Number.isInteger(value) ? format.count(value) : format.number(value);
}

// A module's name, shorter and shorter: its path, its last part, its number.
export function moduleNames(name) {
  const last = name.slice(name.search(/[^./]*[./_[][0-9]+$/));
  return [name, last, last.match(/[0-9]+$/)[0]];
}

// Round instants at least 90 px apart, and how to write them.
export function ticks(view, width) {
  const wanted = ((view.end - view.begin) / width) * 96;
  let step = 10 ** Math.floor(Math.log10(wanted));
  step *= TICK_STEPS.find((factor) => factor * step >= wanted) ?? 10;
  const unit = step >= 1e9 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 100 ? [1e3, "µs"] : [1, "ns"];
  const digits = Math.max(0, -Math.floor(Math.log10(step / unit[0]) + 1e-9));
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  const text = (time) => `${(time / unit[0]).toLocaleString("en-US", options)}${SPACE}${unit[1]}`;
  return { first: Math.max(Math.ceil(view.begin / step) * step, 0), step, text };
}
