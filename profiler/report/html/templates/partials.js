// Partial results of tables as analyses made them (profiler/analysis/partials.py), combined for what
// was chosen by the rule that each column declares (profiler/table/combining.py). It is the same for
// every table: nothing here knows what a table is about or what a command is.

const OUT = 0, CUT = 1, IN = 2; // how far a part is of what was chosen
const UNIT = "group"; // the attribute of what no part reaches beyond: a call, a step of work of no call
const SEVERAL = "\n"; // between the values of an attribute of which a part has several

// The partials of one name: columns of numbers, and books of attributes that number them.
class Partials {
  constructor(name, books, packed, text) {
    const { rows, ...columns } = packed(name);
    Object.assign(this, { rows, columns });
    const told = { text: (code) => severalOf(text[code]), flag: (value) => value === 1, number: (value) => value, real: (value) => value };
    this.books = Object.entries(books).map(([book, kinds]) => {
      const { rows: size, ...numbers } = packed(`${name}.${book}`), attributes = {};
      for (const [attribute, kind] of Object.entries(kinds)) {
        attributes[attribute] = Array.from(numbers[attribute], (value) => (value < 0 || Number.isNaN(value) ? null : told[kind](value)));
      }
      return { size, attributes, codes: columns[book] };
    });
  }

  book(...attributes) { return this.books.find((book) => attributes.every((name) => Object.hasOwn(book.attributes, name))); }

  // What each part is of what was chosen (dimension -> values), among those with the values `where`:
  // at most cut where attributes do not tell a dimension.
  states(chosen, where) {
    const told = new Set(this.books.flatMap(({ attributes }) => Object.keys(attributes).map(dimensionOf)));
    const states = new Uint8Array(this.rows).fill([...chosen.keys()].every((dimension) => told.has(dimension)) ? IN : CUT);
    for (const { size, attributes, codes } of this.books) {
      const tests = Object.entries(attributes).flatMap(([name, values]) => [
        chosen.has(dimensionOf(name)) && ((i) => stateOf(dimensionOf(name), values[i], chosen.get(dimensionOf(name)))),
        Object.hasOwn(where, name) && ((i) => (values[i] === where[name] ? IN : OUT)),
      ]).filter(Boolean);
      if (!tests.length) continue;
      const entries = Uint8Array.from({ length: size }, (_, i) => Math.min(...tests.map((test) => test(i))));
      for (let i = 0; i < states.length; i++) if (entries[codes[i]] < states[i]) states[i] = entries[codes[i]];
    }
    return states;
  }
}

function severalOf(text) { return text.includes(SEVERAL) ? text.split(SEVERAL) : text; }

function stateOf(dimension, value, chosen) {
  if (value === null) return OUT;
  const all = [value].flat(), kept = all.filter((one) => chosen.some((other) => sameValue(dimension, one, other)));
  return kept.length === all.length ? IN : kept.length ? CUT : OUT;
}

// The rows of one table for what was chosen. Parts that are cut leave what is summed of them NaN.
class Combination {
  constructor(partials, columns, { chosen, where, keys }) {
    Object.assign(this, { partials, columns, keys, samples: [], made: new Map() });
    const index = new Map(), required = columns.filter(({ combine, nullable }) => combine?.rule === "key" && !nullable);
    this.places = partials.map((part, number) => {
      const states = part.states(chosen, where), { codes, attributes, size } = part.book(...keys);
      const rowOf = Int32Array.from({ length: size }, () => -2), places = new Int32Array(part.rows).fill(-1);
      const found = (i) => {
        if (required.some(({ name }) => attributes[name][codes[i]] === null)) return -1;
        const key = JSON.stringify(keys.map((name) => attributes[name][codes[i]]));
        if (!index.has(key) && number === 0) index.set(key, this.samples.push(i) - 1);
        return index.get(key) ?? -1;
      };
      for (let i = 0; i < part.rows; i++) {
        if (states[i] === OUT) continue;
        if (rowOf[codes[i]] === -2) rowOf[codes[i]] = found(i);
        const row = rowOf[codes[i]];
        places[i] = row >= 0 && states[i] === CUT ? -2 - row : row; // below -1: cut
      }
      return places;
    });
    this.places.slice(1).forEach((places, i) => this.keepCuts(partials[i + 1], places));
  }

  // A part that two dimensions cut may have nothing of what was chosen by both: that is out.
  keepCuts(part, places) {
    const [first] = this.partials, units = first.book(UNIT), own = part.book(UNIT);
    if (!units || !own || !places.some((place) => place < -1)) return;
    const chosen = new Set(), size = this.samples.length;
    const place = ({ codes, attributes }, i, row) => attributes[UNIT][codes[i]] * size + row;
    this.places[0].forEach((row, i) => row >= 0 && chosen.add(place(units, i, row)));
    places.forEach((row, i) => {
      if (row < -1 && !chosen.has(place(own, i, -2 - row))) places[i] = -1;
    });
  }

  // Visit the parts of a row that are whole: of the partials that have a column, or the first.
  eachPart(name, whole, cut = () => {}) {
    const number = name ? this.partials.findIndex(({ columns }) => Object.hasOwn(columns, name)) : 0;
    const places = this.places[number];
    for (let i = 0; i < places.length; i++) {
      if (places[i] >= 0) whole(i, places[i]);
      else if (places[i] < -1) cut(-2 - places[i]);
    }
    return this.partials[number];
  }

  sum({ of, where }) {
    const sums = new Float64Array(this.samples.length);
    for (const name of of) {
      const part = this.partials.find(({ columns }) => Object.hasOwn(columns, name)), values = part.columns[name];
      const book = where && part.book(where[0]), kept = where && book.attributes[where[0]].map((value) => value === where[1]);
      this.eachPart(name, (i, row) => {
        if (!where || kept[book.codes[i]]) sums[row] += values[i];
      }, (row) => (sums[row] = NaN));
    }
    return sums;
  }

  // For each row the values of an attribute, with the sum of a partial column.
  values(attribute, by) {
    const { codes, attributes } = this.partials[0].book(attribute), all = [...new Set(attributes[attribute])];
    const numbers = new Map(all.map((value, i) => [value, i])), number = attributes[attribute].map((value) => numbers.get(value));
    const sums = new Map(), amounts = by && this.partials[0].columns[by], rows = this.samples.map(() => []);
    this.eachPart("", (i, row) => {
      const key = row * all.length + number[codes[i]];
      sums.set(key, (sums.get(key) ?? 0) + (by ? amounts[i] : 0));
    });
    for (const [key, sum] of sums) {
      const value = all[key % all.length];
      if (value !== null) rows[Math.floor(key / all.length)].push([value, sum]);
    }
    return rows;
  }

  attribute(name) {
    const { codes, attributes } = this.partials[0].book(name);
    return this.samples.map((i) => attributes[name][codes[i]]);
  }

  column(name) {
    if (!this.made.has(name)) this.made.set(name, this.combined(this.columns.find((column) => column.name === name)));
    return this.made.get(name);
  }

  combined({ name, combine }) {
    const rules = {
      key: () => this.attribute(name),
      sum: () => this.sum(combine),
      distinct: () => this.values(combine.of).map((found) => found.length),
      names: () => this.values(combine.of, combine.by).map((found) => found
        .sort(([a, one], [b, other]) => other - one || (a < b ? -1 : 1)).map(([value]) => value).join(", ")),
      ratio: () => {
        const to = this.sum(combine.to);
        return Array.from(this.sum(combine.of), (value, row) => (to[row] > 0 ? value / to[row] : null));
      },
      share: () => {
        const values = this.column(combine.of), sums = new Map();
        const others = combine.within.filter((other) => this.keys.includes(other)).map((other) => this.attribute(other));
        const wholes = Array.from(values, (_, row) => JSON.stringify(others.map((other) => other[row])));
        values.forEach((value, row) => sums.set(wholes[row], (sums.get(wholes[row]) ?? 0) + value));
        return Array.from(values, (value, row) => (sums.get(wholes[row]) > 0 ? value / sums.get(wholes[row]) : null));
      },
      scaled: () => {
        const factors = this.attribute(combine.by);
        return Array.from(this.column(combine.of), (value, row) => (factors[row] === null ? null : Math.round(value * factors[row])));
      },
    };
    const untold = ["distinct", "names"].includes(combine?.rule) && !this.partials[0].book(combine.of); // left out
    if (!combine || untold) return this.samples.map(() => null);
    return Array.from(rules[combine.rule](), (value) => (Number.isNaN(value) ? null : value));
  }
}

// The partials of all tables, unpacked when they are first asked for.
class Combiner {
  constructor({ tables, known }, packed, text) { Object.assign(this, { tables, known, packed, text, made: new Map() }); }

  of(table) {
    return this.tables[table].map((name) => {
      if (!this.made.has(name)) this.made.set(name, new Partials(name, this.known[name], this.packed, this.text));
      return this.made.get(name);
    });
  }

  // Whether rows of a table can be told by all that was chosen.
  tells(table, chosen) {
    const told = Object.values(this.known[this.tables[table][0]]).flatMap((attributes) => Object.keys(attributes).map(dimensionOf));
    return [...chosen.keys()].every((dimension) => told.includes(dimension));
  }

  // {column: values} of the rows of `selected` (profiler/report/model.py) by what was chosen, with
  // those of its keys, `more` ones beside those that the columns have.
  rows({ table, where = {}, known = [], positive = "" }, columns, chosen, more = []) {
    const keys = [...columns.filter(({ combine }) => combine?.rule === "key").map(({ name }) => name), ...more];
    const found = new Combination(this.of(table), columns, { chosen, where, keys });
    const values = Object.fromEntries([
      ...more.map((name) => [name, found.attribute(name)]), ...columns.map(({ name }) => [name, found.column(name)]),
    ]);
    return chosenRows(values, (row) => known.every((name) => values[name][row] !== null) && (!positive || values[positive][row] > 0));
  }
}

// The rows of {column: values} that are wanted.
function chosenRows(values, wanted) {
  const rows = [...Object.values(values)[0].keys()].filter(wanted);
  return Object.fromEntries(Object.entries(values).map(([name, all]) => [name, rows.map((row) => all[row])]));
}
