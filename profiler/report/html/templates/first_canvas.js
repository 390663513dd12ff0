// What the canvases of the first screen share: size, theme, pointer, keys, the line that says what is
// under them, their table. A canvas has `items`, each with a box; what it draws is its own.

import { hatching, LOOKS, mixed, readable } from "./contrast.js";
import { page } from "./data.js";
import { sameValue } from "./dimensions.js";
import { element } from "./format.js";
import { say, speech, whenSpoken } from "./language.js";
import { DataTable, swatch } from "./tables.js";
import { currentTheme, report } from "./theme.js";

const FADED = 0.22; // of the colour of what was not chosen

// Resolves when something can be chosen; on pages without a choice never.
const choosing = new Promise((resolve) => (report.choosable = resolve));

export class FirstCanvas {
  constructor(place) {
    this.place = place;
    this.canvas = place.querySelector("canvas");
    this.status = place.querySelector(".status");
    this.legendPlace = place.querySelector(".legend");
    this.holder = place.querySelector("details");
    this.hovered = this.focused = null;
    this.at = 0;
  }

  // Draw for the first time, and from now on after each change; before the rest of the page is ready.
  start() {
    this.setTheme(currentTheme());
    this.resize();
    this.say();
    this.listen();
    report.themed.push((theme) => {
      this.setTheme(theme);
      this.draw();
    });
    whenSpoken(() => {
      this.say();
      this.draw();
    });
    new ResizeObserver(() => this.canvas.parentElement.clientWidth !== this.width && this.resize()).observe(this.canvas.parentElement);
    choosing.then(() => {
      report.choice.follow(() => this.draw());
      this.draw();
    });
  }

  setTheme(theme) {
    this.theme = theme;
    this.inks = Object.fromEntries(Object.entries(page.palette.page).map(([name, pair]) => [name, pair[theme]]));
  }

  resize() {
    this.width = Math.max(this.canvas.parentElement.clientWidth, 60);
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.draw();
  }

  draw() {
    const context = this.canvas.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = page.palette.surface[this.theme];
    context.fillRect(0, 0, this.width, this.height);
    context.font = `11.5px ${page.font}`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    this.paint(context);
    this.outline(context, this.hovered, 1);
    if (document.activeElement === this.canvas) this.outline(context, this.items[this.at], 2);
    this.drawLegend();
  }

  outline(context, item, width) {
    const box = item && this.box(item);
    if (!box) return;
    context.strokeStyle = this.inks.text;
    context.lineWidth = width;
    context.strokeRect(box.left + width / 2, box.top + width / 2, Math.max(box.width - width, 1), Math.max(box.height - width, 1));
  }

  // The colour of an item: pale if the choice is of something else.
  fill(colour, item) {
    return this.matches(item) ? colour : mixed(colour, page.palette.surface[this.theme], 1 - FADED);
  }

  matches(item) {
    const { choice } = report;
    if (!choice?.active || !item) return true;
    const picks = this.picks(item);
    return [...choice.values].every(([dimension, values]) =>
      picks[dimension] === undefined || values.some((value) => sameValue(dimension, picks[dimension], value)));
  }

  // The first of `texts` that has room there, in the middle of its box.
  label(context, texts, left, top, width, height, fill) {
    const begin = Math.max(left, 0) + 4, text = this.fitted(context, texts, left + width - begin - 4);
    if (!text) return;
    context.fillStyle = readable(fill);
    context.fillText(text, begin, top + height / 2 + 0.5);
  }

  // What fills a box of that look.
  pattern(look, item) {
    const [ground, line, shape] = LOOKS[look];
    return hatching(this.fill(this.inks[ground], item), this.fill(this.inks[line], item), this.ratio, shape);
  }

  // A box of waiting, or of another look: lines across its ground, and its text on the ground alone.
  hatch(context, left, top, width, height, texts = [], item = null, look = "hatched") {
    const ground = this.fill(this.inks[LOOKS[look][0]], item);
    context.fillStyle = this.pattern(look, item);
    context.fillRect(left, top, width, height);
    const begin = Math.max(left, 0) + 4, text = this.fitted(context, texts, left + width - begin - 4);
    if (!text) return;
    context.fillStyle = ground;
    context.fillRect(begin - 2, top + 3, context.measureText(text).width + 4, height - 6);
    context.fillStyle = readable(ground);
    context.fillText(text, begin, top + height / 2 + 0.5);
  }

  // A box that is only an outline, with its text.
  frame(context, left, top, width, height, texts = [], item = null) {
    const ground = page.palette.surface[this.theme];
    context.fillStyle = this.fill(this.inks.frame, item);
    context.fillRect(left, top, width, height);
    context.fillStyle = ground;
    if (width > 2) context.fillRect(left + 1, top + 1, width - 2, height - 2);
    this.label(context, texts, left, top, width, height, ground);
  }

  fitted(context, texts, room) { return texts.find((text) => text && context.measureText(text).width <= room) ?? ""; }

  drawLegend() {
    const entries = this.legend(), key = JSON.stringify([entries, speech.language]);
    if (key === this.told_legend) return;
    this.told_legend = key;
    this.legendPlace.replaceChildren(...entries.map(([pair, name, look]) => element("li", {}, ...(pair ? [swatch(pair, look)] : []), name)));
  }

  say(item = this.hovered ?? (document.activeElement === this.canvas ? this.items[this.at] : null)) {
    this.status.textContent = item ? this.sentence(item) : this.hint();
    this.status.classList.toggle("hint", !item);
  }

  hint() { return say("Arrow keys move, a click or Space filters by it."); }

  under({ offsetX, offsetY }) {
    const inside = ({ left, top, width, height }) => offsetX >= left - 1 && offsetX <= left + width + 1 && offsetY >= top && offsetY <= top + height;
    return this.items.findLast((item) => {
      const box = this.box(item);
      return box && inside(box);
    }) ?? null;
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => this.hover(this.under(event)));
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("click", (event) => {
      const item = this.under(event);
      if (!item) return;
      this.at = this.items.indexOf(item);
      this.choose(item, event.shiftKey || event.ctrlKey || event.metaKey);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    for (const kind of ["focus", "blur"]) {
      canvas.addEventListener(kind, () => {
        this.say();
        this.draw();
      });
    }
    this.holder.addEventListener("toggle", () => this.holder.open && this.fillTable());
  }

  hover(item) {
    if (item === this.hovered) return;
    this.hovered = item;
    this.canvas.classList.toggle("over", Boolean(item));
    this.say();
    this.draw();
  }

  // What was clicked before the page is ready is chosen when it is.
  choose(item, more = false) {
    choosing.then(() => report.choice.pick(this.pick(item), more));
    this.say(item);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.items.length) return;
    if (event.key.startsWith("Arrow")) {
      event.preventDefault();
      const next = this.move(event.key);
      if (next >= 0 && next < this.items.length) this.at = next;
    } else if (event.key === " ") {
      event.preventDefault();
      this.choose(this.items[this.at], event.shiftKey);
    } else if (!this.pressed?.(event)) return;
    this.say(this.items[this.at]);
    this.draw();
  }

  // The same figures as a table, made when somebody opens it.
  fillTable() {
    if (this.filled) return;
    this.filled = true;
    const { name, columns, rows } = this.table();
    const known = columns.filter(({ name: column }) => rows.some((row) => (row[column] ?? null) !== null));
    const values = Object.fromEntries(known.map(({ name: column }) => [column, rows.map((row) => row[column] ?? null)]));
    new DataTable(this.holder.lastElementChild, { name, columns: known, values, shown: 15, search: rows.length > 15 });
  }
}
