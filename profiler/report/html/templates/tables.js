// Tables: sorted by any column, searched in all texts, times under one unit a column.

import { ColumnChoice, fitLater } from "./columns.js";
import { page } from "./data.js";
import { determines, dimensionOf, DIMENSIONS, sameValue } from "./dimensions.js";
import { element, format, NOTHING, shortened, TEXTS } from "./format.js";
import { say, whenSpoken } from "./language.js";
import { pickButton } from "./picking.js";
import { copiedBy, markdownOf, tableSaved } from "./table_files.js";

const RATES = { // units as profiler/report/units.py has them: one of each in that of the values
  flop_rate: [[1, "TFLOP/s"], [1e-3, "GFLOP/s"], [1e-6, "MFLOP/s"]], byte_rate: [[1, "GB/s"], [1e-3, "MB/s"]],
};
const SHORT = 16; // characters of a name
const LIMITS = { text: 48, list: 28, layer: 120, file: 48 }; // characters; the whole text is in the title

export class DataTable {
  // columns: {name, label, kind, meaning, minor}; values: name -> array.
  constructor(holder, { name, columns, values, sort, shown, search, action, variants, fold, choice, keys, totals, host }) {
    Object.assign(this, { holder, name, columns, values, action, variants, fold, choice, keys, totals, host });
    this.whole = values; // of the run, whatever is chosen
    this.added = null; // sums for the choice, and the rows that have any
    this.ranked = sort ?? null;
    this.seen = new ColumnChoice(this);
    this.step = this.limit = shown;
    this.order = { column: sort ?? null, down: true };
    this.query = "";
    this.measure();
    this.count = element("p", { class: "count", "aria-live": "polite" });
    this.scope = element("p", { class: "scope", hidden: true });
    this.more = element("button", { type: "button", class: "quiet more", onclick: () => this.grow() });
    this.head = element("tr");
    this.rows = element("tbody", { onkeydown: (event) => this.walk(event) });
    this.caption = element("caption", { class: "hidden" });
    this.sums = totals ? element("tfoot") : null; // rows of the whole run, whatever is chosen
    const table = element("table", {}, this.caption, element("thead", {}, this.head), this.rows, this.sums ?? "");
    const tools = element("div", { class: "tools" }, this.searchBox(search), this.variantPicker(variants), this.count);
    const foot = element("div", { class: "foot" }, this.more, this.seen.button, this.exports()), place = element("div", { class: "scroll" }, table);
    holder.append(search || variants ? tools : "", this.scope, place, foot);
    this.seen.watch(place);
    choice?.follow(() => {
      this.addUp();
      this.draw();
    });
    whenSpoken(() => {
      this.speak();
      this.draw();
    }, holder);
    this.speak();
    this.draw();
  }

  get size() { return this.values[this.columns[0].name].length; }

  searchBox(wanted) {
    if (!wanted) return null;
    return this.searched = element("input", {
      type: "search", spellcheck: "false", autocomplete: "off",
      oninput: (event) => {
        this.query = event.target.value;
        this.limit = this.step;
        this.draw();
      },
    });
  }

  // Buttons that save and copy the table.
  exports() {
    const copy = (button) => copiedBy(button, markdownOf(this));
    this.saving = element("button", { type: "button", class: "quiet save", onclick: () => tableSaved(this) }, "CSV");
    this.copying = element("button", { type: "button", class: "quiet save", onclick: (event) => copy(event.currentTarget) }, "Markdown");
    return element("span", { class: "saves" }, this.saving, this.copying);
  }

  // A value that is saved: if sums stand beside it, what is of the whole run is left out.
  saved(name, i) { return this.added && this.stale(this.columns.find((column) => column.name === name) ?? {}) ? null : this.values[name][i]; }

  // Rows that are saved: all that the search and the filter keep.
  savedRows() { return this.found(); }

  // What stands around the rows, in the reader's language.
  speak() {
    const name = say(this.name);
    for (const [button, text] of [[this.saving, say("Save {name} as CSV", { name })], [this.copying, say("Copy {name} as Markdown", { name })]]) {
      button.title = text;
      button.setAttribute("aria-label", text);
    }
    this.caption.textContent = name;
    this.seen.label();
    if (this.searched) {
      this.searched.placeholder = say("Search {name}", { name });
      this.searched.setAttribute("aria-label", this.searched.placeholder);
    }
    if (!this.chosen) return;
    this.chosenLabel.textContent = say("One row per");
    [...this.chosen.options].forEach((option, i) => (option.textContent = say(this.variants[i].label)));
  }

  // Other rows for the same columns, such as operators one by one instead of folded.
  variantPicker(variants) {
    if (!variants) return null;
    const options = variants.map((_, i) => element("option", { value: String(i) }));
    this.chosen = element("select", { onchange: () => {
      this.take(Number(this.chosen.value));
      this.draw();
    } }, options);
    return element("label", {}, this.chosenLabel = element("span"), " ", this.chosen);
  }

  take(variant) {
    this.show(this.variants[variant].values);
    this.limit = this.step;
  }

  // Other values for the same columns.
  show(values) {
    this.whole = values;
    this.addUp();
  }

  // The values of the run, with sums for the choice in columns that add up.
  addUp() {
    const { cells, matches } = this.choice ?? {};
    this.added = matches ? cells.addedUp(this, this.whole, matches.cells) : null;
    this.values = { ...this.whole, ...this.added?.values };
    this.measure();
  }

  // Rows that have sums for the choice, largest first.
  addedRows() {
    const rows = [...this.added.kept.keys()].filter((i) => this.added.kept[i]), sort = this.values[this.ranked];
    return rows.sort((a, b) => sort[b] - sort[a] || a - b).map((i) => Object.fromEntries(Object.entries(this.values).map(([name, all]) => [name, all[i]])));
  }

  // Whether a column has values of the whole run while something is chosen: all that is counted or measured
  // and does not add up.
  stale({ name, key, kind }) {
    return Boolean(this.choice?.active) && !key && !TEXTS.includes(kind) && !dimensionOf(name) && !Object.hasOwn(this.added?.values ?? {}, name);
  }

  // What gives rows a dimension of the choice: a column, or keys that are not shown; else undefined. If
  // a table declares what distinguishes its rows, other columns do not count.
  telling(dimension) {
    if (!this.choice) return undefined;
    const declared = this.columns.some(({ key }) => key);
    const column = this.columns.find(({ name, key }) => determines(name, dimension) && (!declared || key));
    return column ? this.values[column.name] : this.keys?.[dimension === "module" ? "operator" : dimension];
  }

  // Whether row `i` is of what was chosen, as far as its columns tell.
  kept(i) {
    if (!this.choice?.active) return true;
    if (this.added) return this.added.kept[i];
    for (const [dimension, chosen] of this.choice.values) {
      const value = this.telling(dimension)?.[i];
      if (value === undefined && !this.telling(dimension)) continue;
      if (value === null || value === undefined) return false;
      if (!chosen.some((other) => sameValue(dimension, value, other))) return false;
    }
    return true;
  }

  addedScope() {
    const labels = (wanted) => this.columns.filter(wanted).map(({ label }) => say(label)).join(", ");
    const parts = labels((column) => this.partOfSelection(column));
    return [
      say("Selection: {choice}.", { choice: this.choice.sentence() }),
      this.fold?.host ? "" : this.choice.untraced(),
      parts && say("Of the selection, not of the run: {columns}.", { columns: parts }),
      this.columns.some((column) => this.stale(column)) && say("Grey: of the whole run."),
    ].filter(Boolean).join(" ");
  }

  // What of the choice the table follows, in words.
  drawScope() {
    this.scope.hidden = !this.choice?.active;
    if (this.scope.hidden) return;
    const followable = DIMENSIONS.filter((dimension) => this.telling(dimension));
    const followed = this.choice.sentence(followable);
    const others = this.choice.sentence(DIMENSIONS.filter((dimension) => !followable.includes(dimension)));
    let rows = 0;
    for (let i = 0; i < this.size; i++) rows += this.kept(i);
    const values = { count: format.count(rows), all: format.count(this.size), followed, others };
    this.scope.textContent = this.added ? this.addedScope()
      : !followed ? say("Whole run: this table does not distinguish {others}.", values)
        : others ? say("{count} of {all} rows as in the whole run, by {followed}; not by {others}.", values)
          : say("{count} of {all} rows as in the whole run, by {followed}.", values);
  }

  // Search for a text from elsewhere on the page, or for a value of a column, among all variants, and
  // go there.
  find(text, column = "") {
    this.query = this.searched.value = column && !/\s/.test(text) ? `${column}:${text}` : text;
    this.limit = this.step;
    for (let i = 0; !this.found().length && i < (this.variants?.length ?? 0); i++) {
      this.take(i);
      this.chosen.value = String(i);
    }
    this.draw();
    this.holder.scrollIntoView();
    this.searched.focus({ preventScroll: true });
  }

  // The unit of all times, but for columns of much shorter ones; if rows add up to totals one unit and as
  // many digits as the column's largest has three significant ones, elsewhere three of each; texts for the search.
  measure() {
    this.scales = {};
    const times = this.columns.filter((column) => column.kind === "ns");
    const largestOf = ({ name }) => [...this.values[name], ...(this.totals?.[name] ?? [])]
      .reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 0);
    const most = Math.max(0, ...times.map(largestOf));
    const unitOf = (time) => time >= 1e11 ? ["s", 1e9] : time >= 1e6 ? ["ms", 1e6] : time >= 1e3 ? ["µs", 1e3] : ["ns", 1];
    for (const column of times) {
      const largest = largestOf(column), shorter = !this.totals && largest > 0 && largest < unitOf(most)[1] / 10;
      const [unit, factor] = unitOf(shorter ? largest : most);
      const digits = factor === 1 ? 0 : !this.totals ? 3 : largest / factor >= 10 ? 1 : 2;
      this.scales[column.name] = { unit, factor, digits };
    }
    for (const column of this.columns.filter(({ kind }) => RATES[kind])) {
      const largest = largestOf(column), units = RATES[column.kind];
      const [factor, unit] = units.find(([one]) => largest >= one) ?? units.at(-1);
      this.scales[column.name] = { unit, factor };
    }
    const texts = this.columns.filter((column) => TEXTS.includes(column.kind));
    this.haystack = Array.from({ length: this.size }, (_, i) =>
      texts.map(({ name }) => this.values[name][i] ?? "").join("\n").toLowerCase());
  }

  grow() {
    this.limit = this.limit < 200 ? 200 : this.limit * 5;
    this.draw();
  }

  sortBy(name, kind) {
    const same = this.order.column === name;
    this.order = { column: name, down: same ? !this.order.down : !TEXTS.includes(kind) };
    this.draw();
    this.head.querySelector(`[data-column="${name}"]`)?.focus();
  }

  // Tests of rows, one for each word of the search: a part of any text, or with `submodule:` before
  // it a column's value.
  asked() {
    return this.query.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
      const at = word.indexOf(":"), values = at > 0 && Object.hasOwn(this.values, word.slice(0, at)) && this.values[word.slice(0, at)];
      if (!values) return (i) => this.haystack[i].includes(word);
      return (i) => String(values[i] ?? "").toLowerCase() === word.slice(at + 1);
    });
  }

  found() {
    const asked = this.asked(), rows = [];
    for (let i = 0; i < this.size; i++) if (this.kept(i) && asked.every((test) => test(i))) rows.push(i);
    const values = this.values[this.order.column], sign = this.order.down ? -1 : 1;
    if (!values) return rows;
    return rows.sort((a, b) => {
      const one = values[a] ?? null, other = values[b] ?? null;
      if (one === null || other === null) return (one === null) - (other === null) || a - b;
      return (one < other ? -1 : one > other ? 1 : 0) * sign || a - b;
    });
  }

  draw() {
    const rows = this.found(), focused = this.rows.contains(document.activeElement) && document.activeElement.dataset.pick;
    this.drawScope();
    this.head.replaceChildren(...this.columns.map((column) => this.heading(column)));
    const lines = rows.slice(0, this.limit).map((row) => this.row(row));
    this.rows.replaceChildren(...(this.fold ? lines.flatMap((line, at) => this.fold.foldable(this, rows[at], line)) : lines));
    this.sums?.replaceChildren(...this.totals[this.columns[0].name].map((name, i) => this.totalRow(i)));
    const drawn = Math.min(this.limit, rows.length);
    const counts = { drawn: format.count(drawn), found: format.count(rows.length), all: format.count(this.size) };
    this.count.textContent = rows.length === this.size || !this.query.trim()
      ? say("{drawn} of {found}", counts) : say("{drawn} of {found} found of {all}", counts);
    this.letIn(focused);
    this.more.hidden = drawn >= rows.length;
    this.more.textContent = say("Show more ({count} left)", { count: format.count(rows.length - drawn) });
    this.seen.draw();
    if (this.seen.spared.length) fitLater(this);
  }

  // Whether a column holds parts of what was chosen: its rule divides by the sum of these rows.
  partOfSelection({ name, adds }) { return Boolean(adds?.within && this.added && Object.hasOwn(this.added.values, name)); }

  heading(column) {
    const { name, label, kind, meaning, minor } = column, sorted = this.order.column === name;
    const unit = this.scales[name]?.unit ?? "";
    const stale = this.stale(column), title = this.partOfSelection(column) ? say("{meaning}; here of the selection, not of the run", { meaning: say(meaning) })
      : stale ? say("Of the whole run: a selection has no sums for it. {meaning}", { meaning: say(meaning) }) : say(meaning);
    const button = element(
      "button", { type: "button", "data-column": name, title, onclick: () => this.sortBy(name, kind) },
      say(label), unit ? element("span", { class: "unit" }, ` ${unit}`) : null,
      element("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (this.order.down ? "▾" : "▴") : ""),
    );
    const direction = sorted ? (this.order.down ? "descending" : "ascending") : "none";
    return element("th", { scope: "col", class: this.classes(kind, minor, stale), "aria-sort": direction }, button);
  }

  // The first of the cells that choose is a stop of Tab, or the one that had the focus; arrows lead
  // to the others.
  letIn(focused) {
    const cells = [...this.rows.querySelectorAll("button.pick")];
    const found = focused && cells.find(({ dataset }) => dataset.pick === focused);
    for (const cell of cells) cell.tabIndex = -1;
    if (cells.length) (found || cells[0]).tabIndex = 0;
    if (found) found.focus({ preventScroll: true });
  }

  walk(event) {
    const from = event.target.closest?.("button.pick");
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    if (!from || !Object.hasOwn(steps, event.key)) return;
    const [down, right] = steps[event.key], column = from.closest("td").cellIndex;
    const all = [...this.rows.querySelectorAll("button.pick")], at = all.indexOf(from);
    const next = right ? all[at + right]
      : (down > 0 ? all.slice(at + 1) : all.slice(0, at).reverse()).find((cell) => cell.closest("td").cellIndex === column);
    event.preventDefault();
    if (!next) return;
    from.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  classes(kind, minor, stale = false) {
    const alignment = { layer: "layer", text: "text", word: "text", list: "text", file: "text" }[kind] ?? "number";
    return [alignment, minor && "minor", stale && "stale"].filter(Boolean).join(" ");
  }

  row(i) {
    const cells = this.columns.map((column) => this.cell(column, i));
    if (!this.action) return element("tr", {}, cells);
    const button = element("button", { type: "button", class: "link", onclick: () => this.action.run(i) });
    button.append(...cells[0].childNodes);
    button.title = this.action.title();
    cells[0].append(button);
    return element("tr", {}, cells);
  }

  // A row of the totals; what it is called is a word of ours.
  totalRow(i) {
    const cells = this.columns.map((column) => this.cell(column, i, this.totals));
    cells[0].replaceChildren(say(this.totals[this.columns[0].name][i]));
    return element("tr", {}, cells);
  }

  cell(column, i, values = this.values) {
    const { name, kind, minor } = column, value = values[name][i];
    const stale = values === this.totals ? this.choice?.active && !TEXTS.includes(kind) : this.stale(column);
    const properties = { class: this.classes(kind, minor, stale) };
    if (value === null || value === undefined || value === "") return element("td", properties, NOTHING);
    if (kind === "share") {
      properties.class += " share";
      properties.style = { "--part": `${Math.min(value, 1) * 100}%` };
    }
    const limit = LIMITS[kind] ?? Infinity;
    if (kind === "layer" || value.length > limit) properties.title = value;
    const text = this.shown(value, kind, name);
    if ((kind === "word" || kind === "text") && text.length > 32) properties.class += " long";
    const shown = TEXTS.includes(kind) ? breakable(shortened(text, limit), kind === "layer") : [shortened(text, limit)];
    if (kind === "file") return element("td", properties, element("a", { href: addressOf(value) }, shown));
    const colour = colourOf(name, value);
    if (colour) shown[0] = element("span", { class: "whole" }, swatch(colour), shown[0]); // none on a line of its own
    return element("td", properties, this.pickable(name, value, shown));
  }

  // The content of a cell, as a button if the whole page can follow its value.
  pickable(name, value, content) {
    const dimension = this.choice && dimensionOf(name), leads = this.action && name === this.columns[0].name;
    if (!dimension || leads || !this.choice.exists(dimension, value)) return content;
    const button = pickButton(this.choice, { [dimension]: value }, content);
    button.dataset.pick = `${dimension} ${value}`;
    return button;
  }

  shown(value, kind, name) {
    if (kind === "ns") {
      const { factor, digits } = this.scales[name];
      const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
      const least = 10 ** -digits / 2; // what is more than nothing never reads as nothing
      if (value > 0 && value / factor < least) return `<${(2 * least).toFixed(digits)}`;
      const size = Math.abs(value / factor);
      const text = this.totals || factor === 1 ? size.toLocaleString("en-US", options) : format.number(size);
      return value < 0 && /[1-9]/.test(text) ? `\u2212${text}` : text;
    }
    if (kind === "count") return format.count(value);
    if (kind === "bytes") return format.size(value);
    if (kind === "number") return format.number(value);
    if (RATES[kind]) return format.number(value / this.scales[name].factor);
    if (kind === "ratio" || kind === "share") return format.percent(value);
    if (kind === "instant") return format.instant(value);
    if (kind === "change") return (value > 0 ? "+" : "") + format.percent(value);
    if (kind === "overhead_ratio" && value === 1) return say("within noise");
    if (kind === "factor" || kind === "overhead_ratio") return format.factor(value);
    if (kind === "flag") return value ? say("yes") : say("no");
    if (kind === "word") return say(value);
    if (kind === "step") return value < 0 ? NOTHING : String(value);
    return String(value);
  }
}

// A file beside this page by its path from here, whose names are taken as they are: no scheme, no query.
function addressOf(path) { return `./${path.split("/").map(encodeURIComponent).join("/")}`; }

// Submodules and roles have the colour that they have in figures.
export function colourOf(column, value) {
  const colours = { submodule: page.palette.submodules, role: page.palette.roles }[column];
  return colours && Object.hasOwn(colours, value) ? colours[value] : null;
}

// Names may break behind a dot, a slash or an underscore, those of layers behind a colon, too; short ones
// (`text_encoder_3`, `rank0/cuda:0`) on a telephone only.
function breakable(name, layer) {
  const places = layer ? /(?<=[./:_])(?![/:_])/ : /(?<=[./_])(?![/_])/;
  return name.split(/(?<= )/).flatMap((word) => {
    const parts = word.split(places).flatMap((part, i) => (i ? [element("wbr"), part] : [part]));
    return parts.length > 1 && word.trim().length <= SHORT ? [element("span", { class: "short" }, parts)] : parts;
  });
}

// A patch of colour that follows the theme by itself; `look` is one of contrast.js, or an outline.
export function swatch(pair, look = "") {
  const style = { "--light": pair.light, "--dark": pair.dark };
  return element("span", { class: `swatch ${look}`.trim(), style, "aria-hidden": "true" });
}
