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
    const texts = (code) => severalOf(text[code]), told = { text: texts, any: texts, flag: (value) => value === 1, number: (value) => value, real: (value) => value };
    this.books = Object.entries(books).map(([book, kinds]) => {
      const { rows: size, ...numbers } = packed(`${name}.${book}`), attributes = {};
      for (const [attribute, kind] of Object.entries(kinds)) {
        attributes[attribute] = Array.from(numbers[attribute], (value) => (value < 0 || Number.isNaN(value) ? null : told[kind](value)));
      }
      return { size, attributes, kinds, codes: columns[book] };
    });
    this.enough = new Map(Object.values(books).flatMap((kinds) => Object.entries(kinds))
      .filter(([, kind]) => kind === "any").map(([attribute]) => [dimensionOf(attribute), attribute]));
  }

  // The dimension of the choice that an attribute tells, undefined for none.
  dimensionOf(attribute) {
    const dimension = dimensionOf(attribute), enough = this.enough.get(dimension);
    return enough === undefined || enough === attribute ? dimension : undefined;
  }

  book(...attributes) { return this.books.find((book) => attributes.every((name) => Object.hasOwn(book.attributes, name))); }

  // Whether an attribute tells a dimension of the choice.
  tells(attribute, dimension) {
    return this.dimensionOf(attribute) === dimension || (dimension === "module" && tells(attribute, dimension));
  }

  // Whether the parts tell all dimensions of what was chosen.
  tellsAll(chosen) {
    const attributes = this.books.flatMap((book) => Object.keys(book.attributes));
    return [...chosen.keys()].every((dimension) => attributes.some((name) => this.tells(name, dimension)));
  }

  // What each part is of what was chosen (dimension -> values), among those with the values `where`:
  // at most cut where attributes do not tell a dimension.
  states(chosen, where) {
    const states = new Uint8Array(this.rows).fill(this.tellsAll(chosen) ? IN : CUT);
    for (const { size, attributes, kinds, codes } of this.books) {
      const tests = Object.entries(attributes).flatMap(([name, values]) => {
        const chosenHere = [...chosen].filter(([dimension]) => this.tells(name, dimension));
        return [
          ...chosenHere.map(([dimension, wanted]) => (i) => stateOf(dimension, values[i], wanted, kinds[name] === "any")),
          Object.hasOwn(where, name) && ((i) => (values[i] === where[name] ? IN : OUT)),
        ];
      }).filter(Boolean);
      if (!tests.length) continue;
      const entries = Uint8Array.from({ length: size }, (_, i) => Math.min(...tests.map((test) => test(i))));
      for (let i = 0; i < states.length; i++) if (entries[codes[i]] < states[i]) states[i] = entries[codes[i]];
    }
    return states;
  }
}

function severalOf(text) { return text.includes(SEVERAL) ? text.split(SEVERAL) : text; }

function stateOf(dimension, value, chosen, enough) {
  if (value === null) return OUT;
  const all = [value].flat(), kept = all.filter((one) => chosen.some((other) => sameValue(dimension, one, other)));
  return kept.length === all.length || (enough && kept.length) ? IN : kept.length ? CUT : OUT;
}

// The rows of one table for what was chosen. Parts that are cut leave what is made of them NaN. A row
// of which parts are left out or cut is broken: it is not what `whole`, the table of the run, has.
class Combination {
  constructor(partials, columns, { chosen, where, keys, whole }) {
    Object.assign(this, { partials, columns, keys, whole, rows: [], made: new Map(), index: new Map() });
    this.unplaced = new Set(partials.filter((part) => !keys.every((name) => part.book(name)))); // keys were left out
    this.required = columns.filter(({ combine, nullable }) => combine?.rule === "key" && !nullable).map(({ name }) => name);
    this.places = partials.map((part, number) => {
      const states = part.states(chosen, where), wanted = part.states(new Map(), where), places = new Int32Array(part.rows).fill(-1);
      if (this.unplaced.has(part)) return places;
      const rowOf = this.finder(part);
      for (let i = 0; i < part.rows; i++) {
        const row = wanted[i] === OUT ? null : rowOf(i);
        if (row === null) continue;
        if (states[i] !== IN) row.broken = true;
        if (states[i] !== OUT && row.place < 0 && (number === 0 || states[i] === IN)) row.place = this.rows.push(row) - 1;
        if (states[i] !== OUT && row.place >= 0) places[i] = states[i] === CUT ? -2 - row.place : row.place; // below -1: cut
      }
      return places;
    });
    this.size = this.rows.length;
    if (this.unplaced.size) for (const row of this.rows) row.broken = true;
    this.places.slice(1).forEach((places, i) => this.keepCuts(partials[i + 1], places));
  }

  // The row of a part, the same for equal keys; null where it has none of a key that every row has.
  finder(part) {
    const books = [...new Set(this.keys.map((name) => part.book(name)))], known = new Map();
    const told = this.keys.map((name) => [name, part.book(name)]);
    const found = (i) => {
      const values = Object.fromEntries(told.map(([name, { attributes, codes }]) => [name, attributes[name][codes[i]]]));
      if (this.required.some((name) => values[name] === null)) return null;
      const key = keyOf(this.keys.map((name) => values[name]));
      if (!this.index.has(key)) this.index.set(key, { key, values, place: -1, broken: false, sample: [part, i] });
      return this.index.get(key);
    };
    return (i) => {
      let entry = 0;
      for (const { size, codes } of books) entry = entry * size + codes[i];
      if (!known.has(entry)) known.set(entry, found(i));
      return known.get(entry);
    };
  }

  // A part that two dimensions cut may have nothing of what was chosen by both: that is out.
  keepCuts(part, places) {
    const [first] = this.partials, units = first.book(UNIT), own = part.book(UNIT);
    if (!units || !own || !places.some((place) => place < -1)) return;
    const chosen = new Set(), { size } = this;
    const place = ({ codes, attributes }, i, row) => attributes[UNIT][codes[i]] * size + row;
    this.places[0].forEach((row, i) => row >= 0 && chosen.add(place(units, i, row)));
    places.forEach((row, i) => {
      if (row < -1 && !chosen.has(place(own, i, -2 - row))) places[i] = -1;
    });
  }

  // Visit the parts of the partials `part` that are whole, and the rows of those that are cut.
  eachPart(part, whole, cut = () => {}) {
    const places = this.places[this.partials.indexOf(part)];
    for (let i = 0; i < places.length; i++) {
      if (places[i] >= 0) whole(i, places[i]);
      else if (places[i] < -1) cut(-2 - places[i]);
    }
  }

  with(...columns) { return this.partials.find((part) => columns.every((name) => Object.hasOwn(part.columns, name))); }

  sum({ of, where }) {
    const sums = new Float64Array(this.size);
    for (const name of of) {
      const part = this.with(name), values = part.columns[name];
      if (this.unplaced.has(part)) return sums.fill(NaN);
      const book = where && part.book(where[0]), kept = where && book.attributes[where[0]].map((value) => value === where[1]);
      this.eachPart(part, (i, row) => {
        if (!where || kept[book.codes[i]]) sums[row] += values[i];
      }, (row) => (sums[row] = NaN));
    }
    return sums;
  }

  // For each row the values of a partial column in parts with a value of an attribute, of all where
  // none has it; null where one is cut.
  known({ of, where = null }) {
    const part = this.with(of), values = part.columns[of], found = this.rows.map(() => []), special = this.rows.map(() => []);
    const book = where && part.book(where[0]);
    const cut = new Set();
    this.eachPart(part, (i, row) => {
      if (where && book.attributes[where[0]][book.codes[i]] === where[1]) special[row].push(values[i]);
      found[row].push(values[i]);
    }, (row) => cut.add(row));
    return found.map((all, row) => (cut.has(row) ? null : special[row].length ? special[row] : all).filter((value) => !Number.isNaN(value)));
  }

  // Of each row the value that `least` finds among known ones.
  among(rule, least) { return this.known(rule).map((values) => (values?.length ? least(values) : null)); }

  first({ of, by }) {
    const part = this.with(of, by), found = this.rows.map(() => null);
    this.eachPart(part, (i, row) => {
      if (found[row] === null || part.columns[by][i] < part.columns[by][found[row]]) found[row] = i;
    });
    return found.map((i) => (i === null ? null : part.columns[of][i]));
  }

  union({ of, begin, end }) {
    const part = this.with(of, begin, end), { [of]: amounts, [begin]: begins, [end]: ends } = part.columns, found = this.rows.map(() => []);
    this.eachPart(part, (i, row) => ends[i] > begins[i] && found[row].push(i));
    return found.map((parts) => {
      parts.sort((a, b) => begins[a] - begins[b]);
      const beside = parts.some((one, i) => i && begins[one] < ends[parts[i - 1]]);
      return beside ? null : parts.reduce((sum, i) => sum + amounts[i], 0);
    });
  }

  // Whether parts do not tell attributes any more, or no row (profiler/analysis/partials.py).
  leftOut(attributes, column) {
    const part = this.counted(column);
    return this.unplaced.has(part) || !attributes.every((name) => part.book(name));
  }

  // For each row the tuples of values of attributes, with the sum of a partial column; with `where`
  // of parts with that value of an attribute.
  values(attributes, by = "", where = null) {
    const part = this.counted(by), chosen = where && part.book(where[0]);
    const sources = attributes.map((name) => [part.book(name).attributes[name], part.book(name).codes]), numbers = new Map(), all = [];
    const sums = new Map(), rows = this.rows.map(() => []);
    this.eachPart(part, (i, row) => {
      if (where && chosen.attributes[where[0]][chosen.codes[i]] !== where[1]) return;
      const value = sources.map(([values, codes]) => values[codes[i]]), name = sources.length > 1 ? keyOf(value) : value[0];
      if (!numbers.has(name)) numbers.set(name, all.push(value) - 1);
      const key = numbers.get(name) * this.size + row;
      sums.set(key, (sums.get(key) ?? 0) + (by ? part.columns[by][i] : 0));
    });
    for (const [key, sum] of sums) {
      const value = all[Math.floor(key / this.size)];
      if (!value.includes(null)) rows[key % this.size].push([value[0], sum]);
    }
    return rows;
  }

  // The parts of which values are counted: those with a column, or those that hold the keys.
  counted(column) { return column ? this.with(column) : this.partials[0]; }

  attribute(name) {
    return this.rows.map(({ sample: [part, i] }) => {
      const { codes, attributes } = part.book(name);
      return attributes[name][codes[i]];
    });
  }

  // What the table of the run has in the row; undefined where it has no such row.
  ofWhole(name) {
    if (!this.whole?.[name] || this.keys.some((key) => !this.whole[key])) return this.rows.map(() => undefined);
    this.inWhole ??= new Map(this.whole[name].map((_, i) => [keyOf(this.keys.map((key) => this.whole[key][i])), i]));
    return this.rows.map(({ key }) => this.whole[name][this.inWhole.get(key)]);
  }

  column(name) {
    if (!this.made.has(name)) this.made.set(name, this.combined(this.columns.find((column) => column.name === name)));
    return this.made.get(name);
  }

  combined({ name, combine }) {
    const rules = {
      key: () => this.rows.map(({ values }) => values[name]),
      kept: () => this.ofWhole(name),
      sum: () => this.sum(combine),
      min: () => this.among(combine, (values) => values.reduce((least, value) => Math.min(least, value))),
      max: () => this.among(combine, (values) => values.reduce((most, value) => Math.max(most, value))),
      median: () => this.among(combine, (values) => {
        const ordered = values.slice().sort((a, b) => a - b), half = Math.floor(ordered.length / 2);
        return Math.trunc(ordered.length % 2 ? ordered[half] : (ordered[half - 1] + ordered[half]) / 2);
      }),
      first: () => this.first(combine),
      union: () => this.union(combine),
      distinct: () => this.values(combine.of, combine.among, combine.where).map((found) => found.length),
      names: () => this.values([combine.of], combine.by).map((found) => (combine.as_they_come ? found : found
        .sort(([a, one], [b, other]) => other - one || (a < b ? -1 : 1))).map(([value]) => value).join(", ")),
      ratio: () => {
        const to = this.sum(combine.to);
        return Array.from(this.sum(combine.of), (value, row) => (to[row] > 0 ? value / to[row] : null));
      },
      share: () => {
        const values = this.column(combine.of), sums = new Map();
        const others = combine.within.filter((other) => this.keys.includes(other)).map((other) => this.attribute(other));
        const wholes = Array.from(values, (_, row) => keyOf(others.map((other) => other[row])));
        values.forEach((value, row) => sums.set(wholes[row], (sums.get(wholes[row]) ?? 0) + value));
        return Array.from(values, (value, row) => (sums.get(wholes[row]) > 0 ? value / sums.get(wholes[row]) : null));
      },
      scaled: () => {
        const factors = this.attribute(combine.by);
        return Array.from(this.column(combine.of), (value, row) => (factors[row] === null ? null : Math.round(value * factors[row])));
      },
    };
    const untold = ["distinct", "names"].includes(combine?.rule) && this.leftOut([combine.of].flat(), combine.among ?? combine.by);
    const found = !combine || untold ? this.rows.map(() => null) : Array.from(rules[combine.rule](), (value) => (Number.isNaN(value) ? null : value));
    if (!this.whole || !found.includes(null)) return found;
    const ofRun = this.ofWhole(name);
    return found.map((value, row) => (value === null && !this.rows[row].broken ? ofRun[row] ?? null : value));
  }
}

function keyOf(values) { return JSON.stringify(values); }

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
    if (!this.tables?.[table]) return false;
    return this.of(table)[0].tellsAll(chosen);
  }

  // {column: values} of the rows of `selected` (profiler/report/model.py) by what was chosen, with
  // those of its keys, `more` ones beside those that the columns have. `whole` is the table of the
  // run: what a row has there stays where nothing of it is left out.
  rows({ table, where = {}, known = [], positive = "", shown_rows = false }, columns, chosen, { more = [], whole = null } = {}) {
    const keys = [...columns.filter(({ key }) => key).map(({ name }) => name), ...more];
    const found = new Combination(this.of(table), columns, { chosen, where, keys, whole });
    const values = Object.fromEntries([
      ...more.map((name) => [name, found.attribute(name)]), ...columns.map(({ name }) => [name, found.column(name)]),
    ]);
    const inRun = shown_rows ? found.ofWhole(keys[0]) : null;
    return chosenRows(values, (row) => known.every((name) => values[name][row] !== null)
      && (!positive || values[positive][row] > 0) && (!inRun || inRun[row] !== undefined));
  }
}

// The rows of {column: values} that are wanted.
function chosenRows(values, wanted) {
  const rows = [...Object.values(values)[0].keys()].filter(wanted);
  return Object.fromEntries(Object.entries(values).map(([name, all]) => [name, rows.map((row) => all[row])]));
}
