// Drawing of lanes on a canvas. Events at least a pixel wide are bars; narrower ones are added up
// for each pixel and drawn as strongly as they cover it: nothing is left out at any zoom.

const TINTS = [0, 0.14, 0.27]; // how far neighbouring commands of one colour go to the surface

function mixed(colour, other, part) {
  const channel = (text, i) => parseInt(text.slice(i, i + 2), 16);
  const mix = (i) => Math.round(channel(colour, i) * (1 - part) + channel(other, i) * part);
  return "#" + [1, 3, 5].map((i) => mix(i).toString(16).padStart(2, "0")).join("");
}

// The fill and the text colour of every event, by the chosen colouring.
class Paints {
  constructor(tables, theme, mode) {
    this.tables = tables;
    this.theme = theme;
    this.fills = [];
    this.inks = [];
    this.known = new Map();
    const named = page.palette[mode === "submodule" ? "submodules" : mode === "role" ? "roles" : ""];
    const { calls, commands } = tables;
    const text = page.timeline.strings;
    this.calls = Uint16Array.from({ length: calls.rows }, (_, i) =>
      this.key(page.palette.submodules[text[calls.submodule[i]]]));
    this.modules = Uint16Array.from({ length: tables.modules.rows }, (_, i) =>
      this.calls[tables.modules.call[i]] + 2);
    this.bases = new Uint16Array(commands.rows);
    for (const lane of page.timeline.lanes.filter((entry) => entry.kind === "commands")) {
      const fallback = this.key(page.palette.categories[lane.category]);
      this.bases.fill(fallback, lane.first, lane.first + lane.count);
    }
    if (named) this.paint(named, mode, text);
  }

  paint(named, mode, text) {
    const { calls, commands } = this.tables;
    const keys = text.map((name) => (Object.hasOwn(named, name) ? this.key(named[name]) : -1));
    for (let i = 0; i < commands.rows; i++) {
      const call = commands.call[i];
      const code = mode === "role" ? commands.role[i] : call < 0 ? -1 : calls.submodule[call];
      if (code >= 0 && keys[code] >= 0) this.bases[i] = keys[code];
    }
  }

  // Number of a colour pair; its tints follow it.
  key(pair) {
    const colour = pair[this.theme];
    if (!this.known.has(colour)) {
      this.known.set(colour, this.fills.length);
      for (const tint of TINTS) {
        const fill = mixed(colour, page.palette.surface[this.theme], tint);
        this.fills.push(fill);
        this.inks.push(readable(fill));
      }
    }
    return this.known.get(colour);
  }
}

function luminance(colour) {
  const linear = [1, 3, 5].map((i) => {
    const value = parseInt(colour.slice(i, i + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

function readable(fill) {
  return luminance(fill) > 0.2 ? "#14171c" : "#ffffff";
}

// Sums of events narrower than a pixel, for the rows of one lane.
class Cover {
  constructor(width, rows) {
    this.width = width;
    this.part = new Float32Array(width * rows);
    this.longest = new Float32Array(width * rows);
    this.key = new Uint16Array(width * rows);
  }

  add(row, x0, x1, key) {
    const first = Math.max(Math.floor(x0), 0), last = Math.min(Math.floor(x1), this.width - 1);
    for (let x = first; x <= last; x++) {
      const part = Math.min(x1, x + 1) - Math.max(x0, x);
      const at = row * this.width + x;
      this.part[at] += Math.max(part, 1e-6);
      if (part >= this.longest[at]) {
        this.longest[at] = part;
        this.key[at] = key;
      }
    }
  }

  draw(context, fills, top, height, pitch) {
    for (let row = 0; row * this.width < this.part.length; row++) {
      let from = 0, strength = 0, key = 0;
      for (let x = 0; x <= this.width; x++) {
        const at = row * this.width + x;
        const part = x < this.width ? this.part[at] : 0;
        const now = part === 0 ? 0 : Math.max(Math.round(Math.min(part, 1) * 12), 2);
        if (now === strength && (now === 0 || this.key[at] === key) && x < this.width) continue;
        if (strength) {
          context.globalAlpha = strength / 12;
          context.fillStyle = fills[key];
          context.fillRect(from, top + row * pitch, x - from, height);
        }
        [from, strength, key] = [x, now, x < this.width ? this.key[at] : 0];
      }
    }
    context.globalAlpha = 1;
  }
}

// Text in bars, measured once.
class Labels {
  constructor(context) {
    this.context = context;
    this.widths = new Map();
  }

  width(text) {
    if (!this.widths.has(text)) this.widths.set(text, this.context.measureText(text).width);
    return this.widths.get(text);
  }

  // The first of `choices` that fits, else "".
  fit(choices, room) {
    return choices.find((text) => this.width(text) <= room) ?? "";
  }
}
