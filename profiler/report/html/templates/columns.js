// Which columns of a table are seen. If a table is wider than its place, as many as it takes of those
// of less importance are put away, `minor` ones first, then by `rank`, and a button brings them back. On
// a narrow screen so are important ones, down to the first: a number that is cut reads as another.

import { element, format } from "./format.js";
import { say } from "./language.js";

const toFit = new Set(); // tables
const widths = new WeakMap(); // place of a table -> {table, width}
const places = new ResizeObserver((entries) => {
  for (const { target, contentRect: { width } } of entries) {
    const place = widths.get(target);
    if (width && width !== place.width) fitLater(place.table);
    place.width = width;
  }
});

const KEPT_RANK = 2; // columns below it stay
const ROUNDED = 2; // pixels: widths of columns are whole ones
const NARROW_PLACE = 640; // pixels: in a narrower place any may go

export class ColumnChoice {
  constructor(table) {
    this.table = table;
    // What may be put away, in that order: of what is important, counts before times and shares.
    this.spared = table.columns.map(({ minor, rank, kind }, place) => ({ minor, rank, place, counts: rank < KEPT_RANK && kind === "count" })).slice(1)
      .sort((a, b) => (b.minor - a.minor) || (a.minor ? 0 : b.rank - a.rank) || (b.counts - a.counts) || (b.place - a.place));
    this.wanted = false; // all columns, however wide
    this.spare = new Set(); // names of columns that the place has no room for
    this.button = element("button", {
      type: "button", class: "quiet columns", hidden: true, onclick: () => {
        this.wanted = !this.wanted;
        fitAll([this.table]);
        this.button.focus();
      },
    });
  }

  // From now on fit the table whenever its place has another width.
  watch(place) {
    this.place = place;
    if (!this.spared.length) return;
    widths.set(place, { table: this.table, width: 0 });
    places.observe(place);
  }

  away({ name }) { return !this.wanted && this.spare.has(name); }

  // Hide the cells of what is away, show all others.
  draw() {
    const { head, rows, sums, columns } = this.table, away = columns.map((column) => this.away(column));
    for (const row of [head, ...rows.rows, ...(sums?.rows ?? [])]) {
      if (!row.classList.contains("unfolded")) [...row.cells].forEach((cell, i) => (cell.hidden = away[i]));
    }
  }

  // Columns to put away so that the table, now shown whole, fits.
  measured() {
    const { columns, head } = this.table, found = new Set(), room = this.place.clientWidth;
    let over = room ? this.place.scrollWidth - room : 0;
    if (over > 0) over += ROUNDED;
    for (const { minor, rank, place } of this.spared) {
      if (over <= 0 || !(minor || rank >= KEPT_RANK || room < NARROW_PLACE)) break;
      found.add(columns[place].name);
      over -= head.cells[place].offsetWidth;
    }
    return found;
  }

  give(spare) {
    if (!spare.size && !this.spare.size) return;
    this.spare = spare;
    this.draw();
  }

  label() {
    const count = format.count(this.spare.size);
    this.button.hidden = !this.spare.size;
    this.button.setAttribute("aria-expanded", String(this.wanted));
    this.button.textContent = this.wanted ? say("Fewer columns") : say("More columns ({count})", { count });
  }
}

// Fit a table before the next frame.
export function fitLater(table) {
  if (!toFit.size) {
    requestAnimationFrame(() => {
      const tables = [...toFit];
      toFit.clear();
      fitAll(tables);
    });
  }
  toFit.add(table);
}

// All of them are shown whole, measured together, and then narrowed if they have to be.
function fitAll(tables) {
  const choices = tables.map(({ seen }) => seen).filter(({ spared, place }) => spared.length && place.isConnected);
  for (const choice of choices) choice.give(new Set());
  const found = choices.map((choice) => choice.measured());
  choices.forEach((choice, i) => {
    choice.give(found[i]);
    choice.label();
  });
}
