// Operators and roles of what was chosen, counted in the page from its commands as
// profiler/analysis/operators/table.py and roles/tables.py count those of the run.

const BREATH = 12; // ms of counting before the page may draw again

function startRecounts(tables, choice) {
  let asked = 0;
  const selected = selectedFlags(choice.timeline);
  const count = async (number) => {
    const stale = () => number !== asked;
    const flags = choice.matches?.commands ?? null;
    const counter = flags && new Recount(choice.timeline, both(flags, selected), stale);
    for (const [key, host] of [["operators", false], ["host", true]]) {
      const found = flags && (await counter.operators(host));
      if (stale()) return;
      tables[key]?.recount(found && operatorValues(tables[key], found));
      if (!host) report.recounted.operators = found && byPattern(found);
    }
    const roles = flags && (await counter.roles());
    if (stale()) return;
    tables.roles?.recount(roles && roleValues(tables.roles, roles));
    report.recounted.roles = roles;
    document.documentElement.dataset.recounted = String(number);
    for (const follow of report.recounters) follow();
  };
  choice.follow(() => {
    asked += 1;
    const number = asked;
    document.documentElement.dataset.asked = String(number); // and `recounted` once it is
    setTimeout(() => number === asked && count(number)); // the timeline is drawn before
  });
}

// Commands that the tables of the page are about; null for all.
function selectedFlags(timeline) {
  const values = Object.entries(page.selected ?? {}).filter(([, chosen]) => chosen.length);
  if (!values.length) return null;
  const selection = new Choice(timeline);
  selection.values = new Map(values);
  return selection.computed().commands;
}

function both(flags, others) {
  return others ? flags.map((flag, i) => flag & others[i]) : flags;
}

class Recount {
  constructor(timeline, flags, stale) {
    Object.assign(this, { timeline, flags, stale });
    this.begun = performance.now();
    timeline.laneNumbers ??= laneNumbers(timeline);
    timeline.commandIndex ??= new CommandIndex(timeline);
    this.onLane = new Float64Array(timeline.lanes.length); // time of one operator of a call on each of its lanes
  }

  // Let the page draw where that is due; whether to go on.
  async goOn() {
    if (performance.now() - this.begun > BREATH) {
      await new Promise((resolve) => setTimeout(resolve));
      this.begun = performance.now();
    }
    return !this.stale();
  }

  // Rows of operators, the most time first; null once something else was chosen.
  async operators(host) {
    const { timeline } = this, rows = [];
    for (const group of timeline.commandIndex.groups[Number(host)]) {
      const found = timeline.commandIndex.rowsOf(group).filter((at) => this.flags[at]);
      if (found.length) rows.push(this.folded(group, found));
      if (!(await this.goOn())) return null;
    }
    const total = rows.reduce((sum, row) => sum + row.busy_sum_ns, 0);
    for (const row of rows) row.share = total ? row.busy_sum_ns / total : null;
    return rows.sort((a, b) => b.busy_sum_ns - a.busy_sum_ns);
  }

  // The number by which commands of one call go together; those of no call go by step.
  callOf(at) {
    const { calls, commands } = this.timeline.tables, call = commands.call[at];
    return call < 0 ? -2 - commands.step[at] : calls.call[call];
  }

  // One operator: the commands of each call are a fold, whose sums add up.
  folded({ submodule, layer }, found) {
    const { timeline } = this, { commands } = timeline.tables, { start } = commands;
    const calls = Float64Array.from(found, (at) => this.callOf(at));
    const order = Uint32Array.from(found.keys());
    const apart = (a, b) => calls[a] - calls[b] || start[found[a]] - start[found[b]] || a - b;
    if (order.some((place, i) => i > 0 && apart(place - 1, place) > 0)) order.sort(apart);
    const sums = { wall: 0, busy: 0, worked: 0, possible: 0, busiest: 0, even: 0 }, walls = [], lanes = new Set();
    for (let from = 0, to; from < order.length; from = to) {
      for (to = from + 1; to < order.length && calls[order[to]] === calls[order[from]]; ) to++;
      walls.push(this.addFold(sums, found, order, from, to, lanes));
    }
    const text = (code) => timeline.text[code];
    const devices = [...new Set([...lanes].map((lane) => timeline.lanes[lane].device))].filter(Boolean).sort();
    return {
      layer: text(layer), submodule: submodule < 0 ? null : text(submodule), layers: 1, commands: found.length,
      calls: walls.length, op_types: byTime(found, commands.op_type, commands.duration).map(text).join(", "),
      busy_sum_ns: sums.busy, wall_union_ns: sums.wall,
      parallel_efficiency: sums.possible ? sums.worked / sums.possible : null,
      imbalance: sums.even ? sums.busiest / sums.even : null, devices: devices.join(", "),
      calibrated_ns: calibrated(submodule < 0 ? null : text(submodule), sums.busy),
      median_ns: median(walls.length > 1 ? walls.slice(1) : walls), tracks: lanes.size,
    };
  }

  // Add the commands of one call, `found[order[from]]` to `found[order[to - 1]]` by start, to the sums
  // and their lanes to `lanes`; its wall union.
  addFold(sums, found, order, from, to, lanes) {
    const { timeline, onLane } = this, { start, duration, category } = timeline.tables.commands;
    const used = new Set(), computing = new Set();
    let wall = 0, busy = 0, reach = -Infinity;
    for (let place = from; place < to; place++) {
      const at = found[order[place]], time = Math.max(duration[at], 0), end = start[at] + time;
      const lane = timeline.laneNumbers[at];
      wall += Math.max(end - Math.max(start[at], reach), 0);
      reach = Math.max(reach, end);
      busy += time;
      if (!used.has(lane)) {
        used.add(lane);
        lanes.add(lane);
        onLane[lane] = 0;
      }
      if (category[at] === COMPUTING) computing.add(lane);
      onLane[lane] += time;
    }
    const times = (some) => [...some].map((lane) => onLane[lane]), total = (of) => of.reduce((sum, time) => sum + time, 0);
    const working = total(times(computing)) ? computing : used;
    const worked = total(times(working)), busiest = Math.max(...times(working));
    sums.wall += wall;
    sums.busy += busy;
    sums.worked += worked;
    sums.possible += wall * working.size;
    sums.busiest += busiest;
    sums.even += worked / working.size;
    return wall;
  }

  // Rows of submodules and roles of device work, the most time of each submodule first.
  async roles() {
    const { timeline, flags } = this, { commands, calls } = timeline.tables, found = new Map();
    for (const lane of timeline.lanes) {
      if (lane.kind !== "commands") continue;
      for (let at = lane.first; at < lane.first + lane.count; at++) {
        if (!flags[at] || commands.category[at] === HOST_WORK || commands.call[at] < 0 || commands.role[at] < 0) continue;
        const key = calls.submodule[commands.call[at]] * timeline.text.length + commands.role[at];
        let row = found.get(key);
        if (!row) {
          const submodule = timeline.text[calls.submodule[commands.call[at]]];
          row = { submodule, role: timeline.text[commands.role[at]], commands: 0, busy_ns: 0 };
          found.set(key, row);
        }
        row.commands++;
        row.busy_ns += Math.max(commands.duration[at], 0);
      }
      if (!(await this.goOn())) return null;
    }
    const rows = [...found.values()].filter(({ busy_ns }) => busy_ns > 0), totals = new Map();
    for (const row of rows) totals.set(row.submodule, (totals.get(row.submodule) ?? 0) + row.busy_ns);
    for (const row of rows) {
      row.share = row.busy_ns / totals.get(row.submodule);
      row.calibrated_ns = calibrated(row.submodule, row.busy_ns);
    }
    return rows.sort((a, b) => b.busy_ns - a.busy_ns);
  }
}

// The number of each command's lane.
function laneNumbers({ tables, lanes }) {
  const numbers = new Uint16Array(tables.commands.rows);
  lanes.forEach((lane, number) => {
    if (lane.kind === "commands") numbers.fill(number, lane.first, lane.first + lane.count);
  });
  return numbers;
}

// The different codes of a column among rows, those with the most time first.
function byTime(rows, codes, duration) {
  const times = new Map();
  for (const at of rows) {
    if (codes[at] >= 0) times.set(codes[at], (times.get(codes[at]) ?? 0) + Math.max(duration[at], 0));
  }
  return [...times].sort((a, b) => b[1] - a[1]).map(([code]) => code);
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// Time as untraced calls of the submodule would have it, null where that was not measured.
function calibrated(submodule, ns) {
  const known = page.tables_shown.submodules?.values;
  const factor = known?.calibration?.[known.submodule.indexOf(submodule)];
  return factor ? Math.round(ns * factor) : null;
}

// Operators of repeated blocks as one, as profiler/report/patterns.py folds them.
function byPattern(rows) {
  const groups = new Map();
  for (const row of rows) {
    const key = `${row.submodule ?? ""}\n${pattern(row.layer)}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  const sum = (group, name) => group.reduce((total, row) => total + (row[name] ?? 0), 0);
  const most = (group, name) => group.reduce((largest, row) => Math.max(largest, row[name]), 0);
  const worked = (group) => group.reduce((total, row) => total + row.parallel_efficiency * row.wall_union_ns, 0);
  const made = [...groups.values()].map((group) => (group.length === 1 ? group[0] : {
    ...group[0], layer: pattern(group[0].layer), layers: group.length, imbalance: null,
    commands: sum(group, "commands"), calls: most(group, "calls"), tracks: most(group, "tracks"),
    busy_sum_ns: sum(group, "busy_sum_ns"), wall_union_ns: sum(group, "wall_union_ns"),
    share: sum(group, "share"), median_ns: sum(group, "median_ns"),
    calibrated_ns: group.every((row) => row.calibrated_ns !== null) ? sum(group, "calibrated_ns") : null,
    parallel_efficiency: sum(group, "wall_union_ns") ? worked(group) / sum(group, "wall_union_ns") : null,
    devices: [...new Set(group.flatMap((row) => row.devices.split(", ")))].sort().join(", "),
  }));
  return made.sort((a, b) => b.busy_sum_ns - a.busy_sum_ns);
}

// Rows as the columns of a table, folded and, where it has both, one by one.
function operatorValues(table, rows) {
  const folded = columnsOf(table, byPattern(rows));
  const variants = table.whole.variants?.map(({ label }, i) => ({ label, values: i ? columnsOf(table, rows) : folded }));
  return { values: folded, variants };
}

// What decided roles and kinds of norms stays as it is; streams of images and prompts are not told
// by commands and are left out.
function roleValues(table, rows) {
  const { values } = table.whole;
  const kept = ["norm_kinds", "decided_by"].filter((name) => values[name]);
  for (const row of rows) {
    const at = values.role.findIndex((role, i) => role === row.role && values.submodule[i] === row.submodule);
    for (const name of kept) row[name] = at < 0 ? "" : values[name][at];
  }
  return { values: columnsOf(table, rows) };
}

function columnsOf({ columns }, rows) {
  return Object.fromEntries(columns.map(({ name }) => [name, rows.map((row) => row[name] ?? null)]));
}
