// Sums for the choice over cells (profiler/analysis/cells.py): rows of call, device, role and layer with
// commands, time, bytes and FLOPs. Nothing but these adds up; all else is that of the whole run.

import { unpackedTable } from "./data.js";
import { sameValue } from "./dimensions.js";
import { pattern } from "./nodes.js";

const SUMS = ["commands", "total_ns", "bytes", "flops"];
const BOOKS = ["work", "place"]; // what the cells' keys are of: commands, and their times and places

export class Cells {
  constructor({ tables, keys, dropped }, bytes, text) {
    Object.assign(this, { keys, dropped, rows: unpackedTable(bytes, tables.cells) });
    const decoded = {
      host: Boolean, call: (number) => (number < 0 ? null : number), step: (number) => (number < 0 ? null : number),
    };
    this.books = BOOKS.map((book) => {
      const { rows: size, ...numbers } = unpackedTable(bytes, tables[book]), attributes = {};
      for (const [name, codes] of Object.entries(numbers)) {
        attributes[name] = Array.from(codes, decoded[name] ?? ((code) => (code < 0 ? null : text[code])));
      }
      return { size, attributes, of: this.rows[book] };
    });
  }

  has(name) { return this.books.some(({ attributes }) => Object.hasOwn(attributes, name)); }

  // Whether all dimensions of a choice are keys of the cells.
  distinguishes(chosen) { return [...chosen.keys()].every((dimension) => this.has(attributeOf(dimension))); }

  // Flags of the cells that match a choice (dimension -> values); null if the keys do not distinguish that.
  matching(chosen) {
    if (!this.distinguishes(chosen)) return null;
    const flags = new Uint8Array(this.rows.rows).fill(1);
    for (const { size, attributes, of } of this.books) {
      const here = [...chosen].filter(([dimension]) => Object.hasOwn(attributes, attributeOf(dimension)));
      const passes = (entry) => here.every(([dimension, values]) => {
        const value = attributes[attributeOf(dimension)][entry];
        return value !== null && values.some((one) => sameValue(dimension, value, one));
      });
      const entries = Array.from({ length: size }, (_, entry) => Number(passes(entry)));
      for (let i = 0; i < flags.length; i++) flags[i] &= entries[of[i]];
    }
    return flags;
  }

  // What the flagged cells add up to: all commands, and what those of devices took, moved and computed.
  total(flags) {
    const { host } = this.books[0].attributes, { rows } = this, found = { ...NO_SUMS };
    for (let i = 0; i < flags.length; i++) {
      if (!flags[i]) continue;
      found.commands += rows.commands[i];
      if (!host[rows.work[i]]) for (const name of SUMS.slice(1)) found[name] += rows[name][i];
    }
    return found;
  }

  // The sums of the flagged cells by their keys `names`, of one `role` if there is one. A layer of a
  // repeated block counts for its pattern, too.
  grouped(names, flags, role = "") {
    const groups = new Map(), roles = this.books[0].attributes.role;
    const texts = this.books.map(({ size, attributes }) => Array.from({ length: size }, (_, entry) => {
      const own = names.filter((name) => Object.hasOwn(attributes, name)), values = own.map((name) => attributes[name][entry]);
      const folded = values.map((value, i) => (own[i] === "layer" ? pattern(value) : value));
      return [...new Set([values, folded].map((found) => JSON.stringify(found)))];
    }));
    for (let i = 0; i < flags.length; i++) {
      if (!flags[i] || (role && roles[this.rows.work[i]] !== role)) continue;
      for (const work of texts[0][this.rows.work[i]]) {
        const key = work + texts[1][this.rows.place[i]][0];
        if (!groups.has(key)) groups.set(key, { ...NO_SUMS });
        const sums = groups.get(key);
        for (const name of SUMS) sums[name] += this.rows[name][i];
      }
    }
    return (row) => groups.get(this.books.map(({ attributes }) =>
      JSON.stringify(names.filter((name) => Object.hasOwn(attributes, name)).map(row))).join(""));
  }

  // {values, kept} of a table for flagged cells: sums instead of the run's `values` in columns that add up,
  // and the rows that have a cell. Null if no column does, or cells do not distinguish its rows.
  addedUp({ columns, host }, values, flags) {
    const adding = columns.filter(({ adds }) => adds), names = columns.filter(({ key }) => key).map(({ name }) => name);
    if (!flags || !adding.length || !names.length || !names.every((name) => this.has(name))) return null;
    const size = values[names[0]].length, rows = Array.from({ length: size }, (_, i) => (name) => (name === "host" ? host : values[name][i]));
    const keys = host === undefined ? names : [...names, "host"];
    const of = (role) => rows.map(this.grouped(keys, flags, role));
    const all = of(""), kept = all.map(Boolean), made = {};
    for (const { name, adds: { of: sum, role, within } } of adding) {
      const found = (role ? of(role) : all).map((sums) => sums?.[sum] ?? 0), wholes = new Map();
      if (!within) {
        made[name] = found;
        continue;
      }
      const place = rows.map((row) => JSON.stringify(within.map(row)));
      all.forEach((sums, i) => wholes.set(place[i], (wholes.get(place[i]) ?? 0) + (sums?.[sum] ?? 0)));
      made[name] = found.map((value, i) => (wholes.get(place[i]) ? value / wholes.get(place[i]) : null));
    }
    return { values: made, kept };
  }
}

const NO_SUMS = Object.fromEntries(SUMS.map((name) => [name, 0]));

// The key of cells for a dimension of the choice.
export function attributeOf(dimension) { return ["operator", "module"].includes(dimension) ? "layer" : dimension; }
