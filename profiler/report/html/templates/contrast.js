// Colours between two others, and the colour of text that can be read on one.

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

export function readable(fill) {
  return luminance(fill) > 0.2 ? "#14171c" : "#ffffff";
}
