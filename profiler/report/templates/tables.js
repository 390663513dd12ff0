// Tables: sorted by any column, searched in all texts, all times in one unit.

const TEXTS = ["text", "list", "layer"];
const LIMITS = { text: 48, list: 28, layer: 120 }; // characters; the whole text is in the title

class DataTable {
  // columns: {name, label, kind, meaning, minor}; values: name -> array.
  constructor(holder, { name, columns, values, sort, shown, search, action, variants }) {
    Object.assign(this, { holder, name, columns, values, action, variants });
    this.step = this.limit = shown;
    this.order = { column: sort ?? null, down: true };
    this.query = "";
    this.measure();
    this.count = element("p", { class: "count", "aria-live": "polite" });
    this.more = element("button", { type: "button", class: "quiet", onclick: () => this.grow() });
    this.head = element("tr");
    this.rows = element("tbody");
    const caption = element("caption", { class: "hidden" }, name);
    const table = element("table", {}, caption, element("thead", {}, this.head), this.rows);
    const tools = element("div", { class: "tools" }, this.searchBox(search), this.choice(variants), this.count);
    const foot = element("div", { class: "foot" }, this.more);
    holder.append(search || variants ? tools : "", element("div", { class: "scroll" }, table), foot);
    this.draw();
  }

  get size() { return this.values[this.columns[0].name].length; }

  searchBox(wanted) {
    if (!wanted) return null;
    return this.searched = element("input", {
      type: "search", placeholder: `Search ${this.name}`, "aria-label": `Search ${this.name}`,
      spellcheck: "false", autocomplete: "off",
      oninput: (event) => {
        this.query = event.target.value;
        this.limit = this.step;
        this.draw();
      },
    });
  }

  // Other rows for the same columns, such as operators one by one instead of folded.
  choice(variants) {
    if (!variants) return null;
    const options = variants.map(({ label }, i) => element("option", { value: String(i) }, label));
    this.chosen = element("select", { onchange: () => {
      this.take(Number(this.chosen.value));
      this.draw();
    } }, options);
    return element("label", {}, "One row a ", this.chosen);
  }

  take(variant) {
    this.values = this.variants[variant].values;
    this.limit = this.step;
    this.measure();
  }

  // Search for a text from elsewhere on the page, among all variants, and go there.
  find(text) {
    this.query = this.searched.value = text;
    this.limit = this.step;
    for (let i = 0; !this.found().length && i < (this.variants?.length ?? 0); i++) {
      this.take(i);
      this.chosen.value = String(i);
    }
    this.draw();
    this.holder.scrollIntoView();
    this.searched.focus({ preventScroll: true });
  }

  // One unit for all times, so that columns compare; digits by column; texts for the search.
  measure() {
    this.scales = {};
    const times = this.columns.filter((column) => column.kind === "ns");
    const largestOf = ({ name }) =>
      this.values[name].reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 0);
    const most = Math.max(0, ...times.map(largestOf));
    const [unit, factor] = most >= 1e11 ? ["s", 1e9] : most >= 1e6 ? ["ms", 1e6]
      : most >= 1e3 ? ["µs", 1e3] : ["ns", 1];
    for (const column of times) {
      const { name } = column, largest = largestOf(column);
      const digits = factor === 1 ? 0 : largest / factor >= 1000 ? 1 : largest / factor >= 100 ? 2 : 3;
      this.scales[name] = { unit, factor, digits };
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

  found() {
    const words = this.query.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [];
    for (let i = 0; i < this.size; i++) {
      if (words.every((word) => this.haystack[i].includes(word))) rows.push(i);
    }
    const values = this.values[this.order.column], sign = this.order.down ? -1 : 1;
    if (!values) return rows;
    return rows.sort((a, b) => {
      const one = values[a] ?? null, other = values[b] ?? null;
      if (one === null || other === null) return (one === null) - (other === null) || a - b;
      return (one < other ? -1 : one > other ? 1 : 0) * sign || a - b;
    });
  }

  draw() {
    const rows = this.found();
    this.head.replaceChildren(...this.columns.map((column) => this.heading(column)));
    this.rows.replaceChildren(...rows.slice(0, this.limit).map((row) => this.row(row)));
    const drawn = Math.min(this.limit, rows.length);
    const of = rows.length === this.size ? "" : ` found of ${format.count(this.size)}`;
    this.count.textContent = `${format.count(drawn)} of ${format.count(rows.length)}${of}`;
    this.more.hidden = drawn >= rows.length;
    this.more.textContent = `Show more (${format.count(rows.length - drawn)} left)`;
  }

  heading({ name, label, kind, meaning, minor }) {
    const sorted = this.order.column === name;
    const unit = this.scales[name]?.unit ?? "";
    const button = element(
      "button", { type: "button", "data-column": name, title: meaning, onclick: () => this.sortBy(name, kind) },
      label, unit ? element("span", { class: "unit" }, ` ${unit}`) : null,
      element("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (this.order.down ? "▾" : "▴") : ""),
    );
    const direction = sorted ? (this.order.down ? "descending" : "ascending") : "none";
    return element("th", { scope: "col", class: this.classes(kind, minor), "aria-sort": direction }, button);
  }

  classes(kind, minor) {
    const alignment = { layer: "layer", text: "text", list: "text" }[kind] ?? "number";
    return minor ? `${alignment} minor` : alignment;
  }

  row(i) {
    const cells = this.columns.map((column) => this.cell(column, i));
    if (!this.action) return element("tr", {}, cells);
    const button = element("button", { type: "button", class: "link", onclick: () => this.action.run(i) });
    button.append(...cells[0].childNodes);
    button.title = this.action.title;
    cells[0].append(button);
    return element("tr", {}, cells);
  }

  cell({ name, kind, minor }, i) {
    const value = this.values[name][i];
    const properties = { class: this.classes(kind, minor) };
    if (value === null || value === undefined || value === "") return element("td", properties, NOTHING);
    if (kind === "share") {
      properties.class += " share";
      properties.style = { "--part": `${Math.min(value, 1) * 100}%` };
    }
    const limit = LIMITS[kind] ?? Infinity;
    if (kind === "layer" || value.length > limit) properties.title = value;
    const text = this.shown(value, kind, name);
    const shown = kind === "layer" ? breakable(shortened(text, limit)) : shortened(text, limit);
    const colour = colourOf(name, value);
    return element("td", properties, colour ? swatch(colour) : null, shown);
  }

  shown(value, kind, name) {
    if (kind === "ns") {
      const { factor, digits } = this.scales[name];
      const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
      const least = 10 ** -digits / 2; // what is more than nothing never reads as nothing
      if (value > 0 && value / factor < least) return `<${(2 * least).toFixed(digits)}`;
      return (value / factor).toLocaleString("en-US", options);
    }
    if (kind === "count") return format.count(value);
    if (kind === "bytes") return format.size(value);
    if (kind === "number") return format.number(value);
    if (kind === "ratio" || kind === "share") return format.percent(value);
    if (kind === "factor") return format.factor(value);
    if (kind === "flag") return value ? "yes" : "no";
    if (kind === "step") return value < 0 ? NOTHING : String(value);
    return String(value);
  }
}

// Submodules and roles have the colour that they have in figures.
function colourOf(column, value) {
  const colours = { submodule: page.palette.submodules, role: page.palette.roles }[column];
  return colours && Object.hasOwn(colours, value) ? colours[value] : null;
}

// Layer names may break behind a dot or a slash.
function breakable(name) {
  return name.split(/(?<=[./])/).flatMap((part, i) => (i ? [element("wbr"), part] : [part]));
}

// A patch of colour that follows the theme by itself.
function swatch(pair) {
  const style = { "--light": pair.light, "--dark": pair.dark };
  return element("span", { class: "swatch", style, "aria-hidden": "true" });
}
