// Tables and figures that follow the choice by combining partial results.

// Whenever something is chosen, once the timeline is drawn: html[data-combined] is then
// html[data-asked].
function startCombining(tables, choice, combiner) {
  let asked = 0;
  const { dataset } = document.documentElement, following = Object.entries(tables).filter(([, { selected }]) => selected);
  const combine = async (number) => {
    for (const [key, table] of following) {
      if (number !== asked) return;
      const found = choice.active && combiner.tells(table.selected.table, choice.values) ? combinedValues(table, choice, combiner) : null;
      table.combine(found);
      report.combined[key] = found && asRows(found.values);
      await new Promise((resolve) => setTimeout(resolve)); // the page stays alive between two
    }
    if (number !== asked) return;
    dataset.combined = String(number);
    for (const follow of report.followers) follow();
  };
  choice.follow(() => {
    asked += 1;
    const number = asked;
    dataset.asked = String(number);
    setTimeout(() => number === asked && combine(number));
  });
}

// Values of a table for the choice, and of its variants: blocks folded where it folds them.
function combinedValues({ selected, columns, folding, whole, ranked }, choice, combiner) {
  const ofRun = (whole.variants?.at(-1) ?? whole).values;
  const single = inOrder(combiner.rows(selected, columns, choice.values, { whole: ofRun }), columns, ofRun, ranked);
  if (!folding) return { values: single, variants: undefined };
  const values = folded(single, columns, folding, ranked);
  return { values, variants: whole.variants?.map(({ label }, i) => ({ label, values: i ? single : values })) };
}

// Rows in the order that they have in the whole run, and by the column that ranks them.
function inOrder(values, columns, all, ranked) {
  const keys = columns.filter(({ key }) => key).map(({ name }) => name);
  const key = (from, row) => keyOf(keys.map((name) => from[name][row]));
  const places = new Map(all[keys[0]].map((_, row) => [key(all, row), row]));
  const place = values[keys[0]].map((_, row) => places.get(key(values, row)) ?? Infinity);
  return sorted(values, (a, b) => (ranked ? values[ranked][b] - values[ranked][a] : 0) || (place[a] < place[b] ? -1 : Number(place[a] > place[b])));
}

function sorted(values, apart) {
  const rows = [...Object.values(values)[0].keys()].sort(apart);
  return Object.fromEntries(Object.entries(values).map(([name, all]) => [name, rows.map((row) => all[row])]));
}

// How columns of rows of one pattern fold (profiler/report/patterns.py); a value that is null for one
// of them is null for all.
const FOLDS = {
  sum: (values) => values.reduce((total, value) => total + value, 0),
  most: (values) => values.reduce((most, value) => Math.max(most, value), 0),
  first: ([value]) => value,
  names: (values) => [...new Set(values.flatMap((value) => value.split(", ")))].sort().join(", "),
  mean(values, weights) {
    const whole = FOLDS.sum(weights);
    return whole > 0 ? FOLDS.sum(values.map((value, i) => value * weights[i])) / whole : null;
  },
  single: (values) => (values.length === 1 ? values[0] : null),
};

// Rows of repeated blocks as one; `more` are keys beside those that columns have.
function folded(values, columns, { columns: folds, weight }, ranked, more = []) {
  const keys = [...columns.filter(({ key }) => key).map(({ name }) => name), ...more], groups = new Map();
  const told = (name, row) => (name === "layer" ? pattern(values[name][row]) : values[name][row]);
  values[keys[0]].forEach((_, row) => {
    const key = JSON.stringify(keys.map((name) => told(name, row)));
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  });
  const rows = [...groups.values()];
  const fold = (name, group) => {
    if (keys.includes(name)) return group.length > 1 ? told(name, group[0]) : values[name][group[0]];
    const of = (column) => group.map((row) => values[column][row]), all = of(name);
    const weights = folds[name] === "mean" ? of(weight) : all.map(() => 1); // means alone need that column
    const counted = [...group.keys()].filter((i) => weights[i] !== 0);
    const missing = weights.includes(null) || counted.some((i) => all[i] === null);
    return missing ? null : FOLDS[folds[name]](counted.map((i) => all[i]), counted.map((i) => weights[i]));
  };
  const made = Object.fromEntries(columns.map(({ name }) => [name, rows.map((group) => fold(name, group))]));
  return sorted(made, (a, b) => made[ranked][b] - made[ranked][a] || a - b);
}

// {column: values} as a list of rows.
function asRows(values) {
  const names = Object.keys(values);
  return values[names[0]].map((_, row) => Object.fromEntries(names.map((name) => [name, values[name][row]])));
}
