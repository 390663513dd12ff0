// Drawing of lanes on a canvas. Events at least a pixel wide are bars; narrower ones are added up
// for each pixel and drawn as strongly as they cover it: nothing is left out at any zoom.

import { colouring } from "./colourings.js";
import { contrast, hatching, LOOKS, mixed, readable } from "./contrast.js";
import { page } from "./data.js";

export const TINTS = [0, 0.14, 0.27]; // how far neighbouring commands of one colour go to the surface
const SEEN = 3, READ = 4.5; // least contrast of a bar to the surface, of text to its bar
const EDGE = 2; // pixels in full colour below what is drawn by how much it covers: that it is there is seen
const PALE = 0.2; // what is left of the colour of events that were not chosen

// The fill and the text colour of every event, by the chosen colouring.
export class Paints {
  constructor(tables, theme, mode) {
    this.tables = tables;
    this.theme = theme;
    this.fills = [];
    this.pales = [];
    this.inks = [];
    this.quiet = []; // of text on pales
    this.words = []; // the fills as a little-endian image has them, transparent
    this.known = new Map();
    const { calls, commands } = tables;
    const text = page.timeline.strings;
    this.calls = Uint16Array.from({ length: calls.rows }, (_, i) =>
      this.key(page.palette.submodules[text[calls.submodule[i]]]));
    this.modules = Uint16Array.from({ length: tables.modules.rows }, (_, i) =>
      this.calls[tables.modules.call[i]] + 2);
    this.spans = this.key(page.palette.page.frame);
    const categories = page.timeline.categories.map((name) => this.key(page.palette.categories[name]));
    this.bases = Uint16Array.from(commands.category, (code) => categories[code]);
    this.paint(colouring(mode, tables));
    this.paintWaits();
  }

  paint(how) {
    if (!how) return;
    const keys = Array.from(how.pairs, (pair) => (pair ? this.key(pair) : -1)), rest = how.rest ? this.key(how.rest, "dotted") : -1;
    for (let i = 0; i < this.tables.commands.rows; i++) {
      const code = how.code(i), key = code >= 0 ? keys[code] ?? -1 : -1;
      if (key >= 0 || rest >= 0) this.bases[i] = key >= 0 ? key : rest;
    }
  }

  // Waiting looks as on the first screen, whatever else has colours.
  paintWaits() {
    const key = this.key(page.palette.page["wait-line"], "hatched");
    const { commands } = this.tables, sync = page.timeline.categories.indexOf("sync");
    for (let i = 0; i < commands.rows; i++) if (commands.category[i] === sync) this.bases[i] = key;
  }

  // Number of a colour pair, drawn in a look of contrast.js if one is given; its tints follow it.
  key(pair, look = "") {
    const colour = pair[this.theme], name = colour + look;
    if (!this.known.has(name)) {
      this.known.set(name, this.fills.length);
      for (const fill of tinted(colour, this.theme)) this.add(fill, look);
    }
    return this.known.get(name);
  }

  add(fill, look) {
    const { palette } = page, { theme } = this, channel = (i) => parseInt(fill.slice(i, i + 2), 16);
    const [ground, line, shape] = (LOOKS[look] ?? []).map((name) => palette.page[name]?.[theme] ?? name), plain = ground ?? fill;
    const paled = (colour) => mixed(colour, palette.surface[theme], 1 - PALE), pale = paled(plain), muted = palette.page.muted[theme];
    this.fills.push(look ? hatching(ground, line, window.devicePixelRatio, shape) : fill);
    this.pales.push(look ? hatching(pale, paled(line), window.devicePixelRatio, shape) : pale);
    this.inks.push(readable(plain));
    this.quiet.push(contrast(muted, pale) < READ ? readable(pale) : muted);
    this.words.push(channel(1) | (channel(3) << 8) | (channel(5) << 16));
  }
}

// A colour and its tints: towards the surface, or away from it if they could not be seen there.
export function tinted(colour, theme) {
  const { surface, page: { text } } = page.palette;
  return TINTS.map((tint) => {
    const fill = mixed(colour, surface[theme], tint);
    return tint && contrast(fill, surface[theme]) < SEEN ? mixed(colour, text[theme], tint) : fill;
  });
}

// Sums of events narrower than a pixel, for rows of lanes: how much of each pixel they cover, and
// what the longest of them is, of all events and of the chosen ones. Drawn as an image of a pixel's
// height a row, which costs as much for a thousand events as for a million.
export class Cover {
  constructor(width, rows) {
    this.width = width;
    this.rows = rows;
    const size = width * rows;
    this.all = { part: new Float32Array(size), longest: new Float32Array(size), key: new Uint16Array(size) };
    this.chosen = { part: new Float32Array(size), longest: new Float32Array(size), key: new Uint16Array(size) };
    this.image = new OffscreenCanvas(Math.max(width, 1), Math.max(2 * rows, 1)); // covers, then full colours
    this.context = this.image.getContext("2d");
    this.pixels = this.context.createImageData(this.image.width, this.image.height);
    this.colours = new Uint32Array(this.pixels.data.buffer);
  }

  clear() {
    for (const { part, longest } of [this.all, this.chosen]) {
      part.fill(0);
      longest.fill(0);
    }
  }

  // Add `amount` pixels of events between x0 and x1; `longest` of them has the colour `key`.
  add({ part, longest: best, key: keys }, row, x0, x1, amount, longest, key) {
    const first = Math.max(Math.floor(x0), 0), last = Math.min(Math.floor(x1), this.width - 1);
    const length = x1 - x0;
    for (let x = first; x <= last; x++) {
      const here = length > 0 ? (Math.min(x1, x + 1) - Math.max(x0, x)) / length : 1;
      const at = row * this.width + x, most = Math.min(longest, 1) * here;
      part[at] += Math.max(amount * here, 1e-6);
      if (most >= best[at]) {
        best[at] = most;
        keys[at] = key;
      }
    }
  }

  // Colours of all pixels, and of the edge below that shows in full if anything is there; if something was
  // chosen the rest is pale.
  finish(words, choosing) {
    const { all, chosen, colours } = this, edge = all.part.length;
    for (let at = 0; at < edge; at++) {
      const kept = choosing && chosen.part[at] > 0, word = words[(kept ? chosen : all).key[at]];
      if (all.part[at] === 0) colours[at] = colours[edge + at] = 0;
      else if (kept) colours[at] = word | (strength(chosen.part[at], 0.5) << 24);
      else colours[at] = word | ((strength(all.part[at], 0.17) * (choosing ? PALE : 1)) << 24);
      if (all.part[at] > 0) colours[edge + at] = word | ((choosing && !kept ? 255 * PALE : 255) << 24);
    }
    this.context.putImageData(this.pixels, 0, 0);
  }

  draw(context, row, top, height) {
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, 0, row, this.width, 1, 0, top, this.width, height - EDGE);
    context.drawImage(this.image, 0, this.rows + row, this.width, 1, 0, top + height - EDGE, this.width, EDGE);
  }
}

// How strongly a pixel is drawn that is covered by `part`, 0 to 255: the least that exists is seen.
function strength(part, least) {
  return Math.round(255 * Math.max(Math.min(part, 1), least));
}

// Text in bars, measured once.
export class Labels {
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
