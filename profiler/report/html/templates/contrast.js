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

// Black or white, of which one has a contrast of 4.5 on any colour (WCAG AA).
export function readable(fill) {
  return luminance(fill) > 0.179 ? "#000000" : "#ffffff";
}

const HATCH = 7; // pixels from one line to the next
const hatchings = new Map();

// Lines across a ground, for a canvas to fill with; `ratio` is of its pixels to those of the page.
export function hatching(ground, line, ratio = 1) {
  const key = [ground, line, ratio].join(" ");
  if (!hatchings.has(key)) hatchings.set(key, madeHatching(ground, line, Math.round(HATCH * ratio)));
  return hatchings.get(key);
}

function madeHatching(ground, line, side) {
  const tile = new OffscreenCanvas(side, side), context = tile.getContext("2d");
  context.fillStyle = ground;
  context.fillRect(0, 0, side, side);
  context.strokeStyle = line;
  context.lineWidth = (1.2 * side) / HATCH;
  for (const x of [-side, 0, side]) {
    context.moveTo(x, side);
    context.lineTo(x + side, 0);
  }
  context.stroke();
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(HATCH / side));
  return pattern;
}
