// Numbers as people read them, and elements built without markup. Mirrors profiler/report/units.py.

import { page } from "./data.js";

export const SPACE = "\u00a0";
export const NOTHING = "\u2013";

function scaled(value, step, units) {
  const sign = value < 0 ? "\u2212" : "";
  value = Math.abs(value);
  let unit = 0;
  const limit = step === 1000 ? 999.5 : step;
  while (value >= limit && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  const whole = unit === 0 && Number.isInteger(value);
  const digits = whole || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return sign + value.toFixed(digits) + SPACE + units[unit];
}

export const format = {
  duration: (ns) => scaled(ns, 1000, ["ns", "µs", "ms", "s"]),
  size: (bytes) => scaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]),
  flops: (n) => scaled(n, 1000, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"]),
  count: (n) => Math.round(n).toLocaleString("en-US"),
  factor: (n) => n.toFixed(2),
  // Rates and intensities, which differ by orders: three significant digits.
  number(n) {
    const digits = Math.abs(n) >= 99.95 || n === 0 ? 0 : Math.abs(n) >= 9.995 ? 1 : Math.abs(n) >= 0.0995 ? 2 : 3;
    return n.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  },
  percent(ratio) {
    let value = Math.abs(ratio) * 100;
    const sign = ratio < 0 ? "\u2212" : "";
    if (value === 0) return "0" + SPACE + "%";
    if (value < 0.01) return sign + "<0.01" + SPACE + "%";
    let digits = value >= 9.95 ? 0 : value >= 0.995 ? 1 : 2;
    if (value >= 99.5 && value < 100) [digits, value] = [1, Math.min(value, 99.9)];
    // Halfway between two texts it is the even one, as Python has it: toFixed rounds up.
    const scaled = value * 10 ** digits, below = Math.floor(scaled);
    if (scaled - below === 0.5 && Number.isInteger(value * 2 ** (digits + 1)) && below % 2 === 0) value = below / 10 ** digits;
    return sign + value.toFixed(digits) + SPACE + "%";
  },
  // An instant of the run in one unit for the whole page, so that instants can be compared.
  instant(ns) {
    const [factor, unit] = page.timeline.span < 1e6 ? [1e3, "µs"] : [1e6, "ms"];
    const options = { minimumFractionDigits: 3, maximumFractionDigits: 3 };
    return (ns / factor).toLocaleString("en-US", options) + SPACE + unit;
  },
};

// An element with properties and children; strings become text, never markup.
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") {
      for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
    }
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

// A long path keeps its end, which distinguishes layers; other names keep their beginning.
export function shortened(name, limit) {
  if (name.length <= limit) return name;
  if (!/[./]/.test(name) || name.includes(", ")) return name.slice(0, limit - 1) + "\u2026";
  return "\u2026" + name.slice(name.length - limit + 1).replace(/^[./_]+/, "");
}

// Text as plotly shows it literally; it reads a subset of HTML.
export function literal(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\n/g, "<br>");
}

export const TEXTS = ["text", "word", "list", "layer", "file"]; // kinds of columns
