// Colours between two others, the colour of text that can be read on one, and the look of waiting.

export function mixed(colour, other, part) {
  const channel = (text, i) => parseInt(text.slice(i, i + 2), 16);
  const mix = (i) => Math.round(channel(colour, i) * (1 - part) + channel(other, i) * part);
  return "#" + [1, 3, 5].map((i) => mix(i).toString(16).padStart(2, "0")).join("");
}

function luminance(colour) {
  const linear = [1, 3, 5].map((i) => {
    const value = parseInt(colour.slice(i, i + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

// WCAG's contrast of two colours, from 1 to 21.
export function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

// Black or white, of which one has a contrast of 4.5 on any colour (WCAG AA).
export function readable(fill) {
  return luminance(fill) > 0.179 ? "#000000" : "#ffffff";
}

const HATCH = 7; // pixels from one line to the next
const hatchings = new Map();

// What fills a canvas if a colour alone would not be understood: names of the palette's ground and line, and
// the shape of the lines, as plotly calls it. CSS has the same for swatches.
export const LOOKS = { hatched: ["wait", "wait-line", "/"], dotted: ["surface", "frame", "."], lined: ["surface", "frame", "\\"] };

// Lines or dots on a ground, for a canvas to fill with; `ratio` is of its pixels to those of the page.
export function hatching(ground, line, ratio = 1, shape = "/") {
  const key = [ground, line, ratio, shape].join(" ");
  if (!hatchings.has(key)) hatchings.set(key, madeHatching(ground, line, Math.round(HATCH * ratio), shape));
  return hatchings.get(key);
}

function madeHatching(ground, line, side, shape) {
  const tile = new OffscreenCanvas(side, side), context = tile.getContext("2d");
  context.fillStyle = ground;
  context.fillRect(0, 0, side, side);
  context.strokeStyle = context.fillStyle = line;
  context.lineWidth = (1.2 * side) / HATCH;
  const [from, to] = shape === "/" ? [side, 0] : [0, side], dot = (1.8 * side) / HATCH;
  for (const x of shape === "." ? [] : [-side, 0, side]) {
    context.moveTo(x, from);
    context.lineTo(x + side, to);
  }
  context.stroke();
  for (const at of shape === "." ? [0.25, 0.75] : []) context.fillRect(at * side - dot / 2, at * side - dot / 2, dot, dot);
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(HATCH / side));
  return pattern;
}
