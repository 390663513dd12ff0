// What the reader chose, for the whole page: values of dimensions, combined by AND; several values
// of one dimension by OR. Views ask it what to mark and tell it what was clicked.

import { attributeOf } from "./cells.js";
import { DIMENSIONS, NAMED, OF_WORK } from "./dimensions.js";
import { format, shortened } from "./format.js";
import { say } from "./language.js";
import { liesIn, modulePaths, pattern } from "./nodes.js";

export class Choice {
  constructor(timeline, cells) {
    Object.assign(this, { timeline, cells });
    this.values = new Map(); // dimension -> its chosen values, never an empty list
    this.matches = null;
    this.followers = [];
    this.known = knownValues(timeline);
  }

  // The sums of the whole run.
  get totals() { return this.whole ??= this.cells.total(this.cells.matching(new Map())); }

  get active() { return this.values.size > 0; }

  of(dimension) { return this.values.get(dimension) ?? []; }

  has(dimension, value) { return this.of(dimension).includes(value); }

  exists(dimension, value) { return this.known[dimension].has(value); }

  // Choose what `pick` (dimension -> value or values) names, and only that of its dimensions; with
  // `more` beside what is chosen there. What is chosen already is let go.
  pick(pick, more = false) {
    const entries = Object.entries(pick).map(([dimension, value]) => [dimension, [value].flat()])
      .map(([dimension, values]) => [dimension, values.filter((value) => this.exists(dimension, value))])
      .filter(([, values]) => values.length);
    if (!entries.length) return;
    const all = entries.every(([dimension, values]) => values.every((value) => this.has(dimension, value)));
    const next = new Map(this.values);
    for (const [dimension, values] of entries) {
      const others = this.of(dimension).filter((value) => !values.includes(value));
      const kept = all ? (more || others.length ? others : []) : more ? [...others, ...values] : values;
      if (kept.length) next.set(dimension, kept); else next.delete(dimension);
    }
    this.become(next);
  }

  drop(dimension, value) {
    const next = new Map(this.values), kept = this.of(dimension).filter((other) => other !== value);
    if (kept.length) next.set(dimension, kept); else next.delete(dimension);
    this.become(next);
  }

  clear() { if (this.active) this.become(new Map()); }

  // Take other values altogether; `source` says to followers who asked.
  become(values, source = "reader") {
    this.values = new Map(DIMENSIONS.filter((name) => values.has(name)).map((name) => [name, values.get(name)]));
    this.matches = this.active ? this.computed() : null;
    this.timeline.choose(this.matches);
    for (const follow of this.followers) follow(source);
  }

  follow(follower) { this.followers.push(follower); }

  // "step 7, role attention"; of `only` some dimensions.
  sentence(only = DIMENSIONS) {
    return [...this.values].filter(([dimension]) => only.includes(dimension))
      .flatMap(([dimension, values]) => values.map((value) => NAMED[dimension](shortened(String(value), 60))))
      .join(", ");
  }

  // Why less is counted than was executed: calls that match without their operators; "" for none.
  untraced() {
    const { calls, untraced } = this.counts;
    if (!this.active || !untraced) return "";
    const values = { count: format.count(untraced), all: format.count(calls) };
    if (calls === 1) return say("Operators were not traced in the call that matches.");
    return untraced === calls ? say("Operators were traced in none of the {all} calls that match.", values)
      : say("Operators were not traced in {count} of the {all} calls that match.", values);
  }

  // Why cells have no sums for the choice: the run has too many; "" if they have.
  coarse() {
    if (!this.active || this.matches.cells) return "";
    const others = this.sentence([...this.values.keys()].filter((dimension) => !this.cells.has(attributeOf(dimension))));
    return say("No sums by {others}: the run is too large for the page to hold them.", { others });
  }

  // Flags of the rows of all tables, and sums over what matches.
  computed() {
    const { timeline } = this, { calls, commands, modules, spans } = timeline.tables;
    const found = {
      calls: new Uint8Array(calls.rows), commands: new Uint8Array(commands.rows),
      modules: new Uint8Array(modules.rows), spans: new Uint8Array(spans.rows),
    };
    const work = OF_WORK.some((name) => this.values.has(name));
    const withWork = new Uint8Array(calls.rows);
    const placed = this.matchCalls(found.calls);
    this.matchCommands(found.calls, found.commands, withWork);
    found.cells = this.cells.matching(this.values);
    this.sums = found.cells && this.cells.total(found.cells);
    for (let i = 0; i < calls.rows; i++) found.calls[i] &= placed[i] | withWork[i];
    if (work) for (let i = 0; i < calls.rows; i++) found.calls[i] &= withWork[i] | Number(!calls.traced[i]);
    this.matchModules(found);
    this.matchSpans(found.spans);
    this.counts = { calls: 0, untraced: 0 };
    for (let i = 0; i < calls.rows; i++) {
      this.counts.calls += found.calls[i];
      this.counts.untraced += found.calls[i] & Number(!calls.traced[i]);
    }
    return found;
  }

  // Calls match by what they are of. Returned are flags of those that are placed on a device that
  // was chosen; others match with their commands there.
  matchCalls(flags) {
    const { calls } = this.timeline.tables, tests = [
      this.codes("submodule", calls.submodule), this.codes("stage", calls.stage),
      this.codes("branch", calls.branch), this.numbers("step", calls.step), this.numbers("call", calls.call),
    ].filter(Boolean), placed = new Uint8Array(calls.rows);
    for (const lane of this.timeline.lanes) {
      if (lane.kind !== "calls") continue;
      if (this.allows(lane)) placed.fill(1, lane.first, lane.first + lane.count);
      for (let i = lane.first; i < lane.first + lane.count; i++) {
        if (tests.every((test) => test(i))) flags[i] = 1;
      }
    }
    return placed;
  }

  allows(lane) { return !this.values.has("device") || this.has("device", lane.device); }

  // A test of rows by a column of texts, of numbers; null if nothing of it was chosen.
  codes(dimension, column) {
    if (!this.values.has(dimension)) return null;
    const wanted = this.wantedTexts(dimension);
    return (row) => column[row] >= 0 && wanted[column[row]] === 1;
  }

  numbers(dimension, column) {
    if (!this.values.has(dimension)) return null;
    const wanted = new Set(this.of(dimension));
    return (row) => wanted.has(column[row]);
  }

  // Which of the page's texts are chosen; an operator is a layer or its pattern, a module what lies in it.
  wantedTexts(dimension) {
    const values = this.of(dimension), wanted = new Set(values), folded = dimension === "operator";
    if (dimension === "module") {
      return Uint8Array.from(this.timeline.text, (text) => Number(values.some((module) => liesIn(text, module))));
    }
    return Uint8Array.from(this.timeline.text, (text) =>
      Number(wanted.has(text) || (folded && wanted.has(pattern(text)))));
  }

  // Which texts are layers that are chosen, by operator and by module; null if neither is.
  wantedLayers() {
    const found = ["operator", "module"].filter((name) => this.values.has(name)).map((name) => this.wantedTexts(name));
    return found.length ? found.reduce((all, one) => all.map((flag, code) => flag & one[code])) : null;
  }

  // Commands match by their own step, stage, role and layer and by submodule, branch and number of
  // their call; their flags go into `flags`, those of their calls into `hit`.
  matchCommands(callFlags, flags, hit) {
    const { tables, lanes } = this.timeline, { call, step, stage, role, layer } = tables.commands;
    const texts = (dimension) => (this.values.has(dimension) ? this.wantedTexts(dimension) : null);
    const steps = this.values.has("step") ? new Set(this.of("step")) : null;
    const layers = this.wantedLayers(), roles = texts("role"), stages = texts("stage");
    const byCall = ["submodule", "branch", "call"].some((name) => this.values.has(name));
    for (const lane of lanes) {
      if (lane.kind !== "commands" || !this.allows(lane)) continue;
      const end = lane.first + lane.count;
      for (let at = lane.first; at < end; at++) {
        if (layers !== null && (layer[at] < 0 || layers[layer[at]] === 0)) continue;
        if (roles !== null && (role[at] < 0 || roles[role[at]] === 0)) continue;
        if (stages !== null && (stage[at] < 0 || stages[stage[at]] === 0)) continue;
        if (steps !== null && !steps.has(step[at])) continue;
        if (byCall && (call[at] < 0 || callFlags[call[at]] === 0)) continue;
        flags[at] = 1;
        if (call[at] >= 0) hit[call[at]] = 1;
      }
    }
  }

  // A module matches with its call and, if operators were chosen, if one of them begins like it.
  matchModules({ calls, modules: flags }) {
    const { modules } = this.timeline.tables, { text } = this.timeline;
    let wanted = null;
    const layers = this.wantedLayers();
    if (layers) {
      const prefixes = new Set(text.filter((_, code) => layers[code]).map((layer) => MODULE.exec(layer)?.[1]));
      wanted = text.map((name) => prefixes.has(name));
    }
    for (let i = 0; i < modules.rows; i++) {
      flags[i] = Number(calls[modules.call[i]] === 1 && (!wanted || wanted[modules.name[i]]));
    }
  }

  matchSpans(flags) {
    const { spans } = this.timeline.tables;
    const stage = this.codes("stage", spans.stage), step = this.numbers("step", spans.step);
    for (let i = 0; i < spans.rows; i++) {
      flags[i] = Number((!stage || stage(i)) && (!step || spans.step[i] < 0 || step(i)));
    }
  }

  // Lanes and flags of what "next match" goes through: calls if no work was chosen, else commands.
  get walked() {
    const ofCalls = this.timeline.tables.calls.rows > 0 && !OF_WORK.some((name) => this.values.has(name));
    const kind = ofCalls ? "calls" : "commands";
    return { lanes: this.timeline.lanes.filter((lane) => lane.kind === kind), flags: this.matches[kind] };
  }

  // The match after (`direction` 1) or before (-1) an event or, without one, the window's edge; from
  // the last on to the first. With its number among all; null if nothing matches.
  neighbour(from, direction) {
    const { lanes } = this.walked, { view } = this.timeline;
    const at = (number, i) => ({ start: lanes[number].start(i), number, i });
    const apart = (a, b) => a.start - b.start || a.number - b.number || a.i - b.i;
    const edge = direction > 0 ? { start: view.begin, number: -1, i: 0 } : { start: view.end, number: lanes.length, i: 0 };
    const origin = from && lanes.includes(from.lane) ? at(lanes.indexOf(from.lane), from.i) : edge;
    let next = null, first = null, total = 0;
    this.eachMatch((number, i) => {
      const place = at(number, i);
      total++;
      if (!first || apart(place, first) * direction < 0) first = place;
      if (apart(place, origin) * direction > 0 && (!next || apart(place, next) * direction < 0)) next = place;
    });
    const found = next ?? first;
    if (!found) return null;
    let before = 0;
    this.eachMatch((number, i) => (before += apart(at(number, i), found) < 0));
    return { lane: lanes[found.number], i: found.i, number: before + 1, total };
  }

  eachMatch(visit) {
    const { lanes, flags } = this.walked;
    lanes.forEach((lane, number) => {
      for (let i = 0; i < lane.count; i++) if (flags[lane.first + i]) visit(number, i);
    });
  }
}

// "transformer_blocks.7" of "transformer_blocks.7.ff.net.0", as profiler/report/timeline.py has it.
const MODULE = /^(.*?[./_[][0-9]+)(?:[./\]]|$)/;

// By dimension the values that the run has: nothing else can be chosen.
function knownValues({ tables, lanes, text }) {
  const { calls, commands, spans } = tables;
  const texts = (...columns) => {
    const seen = new Uint8Array(text.length);
    for (const column of columns) for (const code of column) if (code >= 0) seen[code] = 1;
    return new Set(text.filter((name, code) => seen[code] && name !== ""));
  };
  const steps = new Set();
  for (const { step } of [calls, commands, spans]) for (const value of step) if (value >= 0) steps.add(value);
  const layers = texts(commands.layer), operators = new Set(layers);
  for (const layer of layers) operators.add(pattern(layer));
  return {
    stage: texts(calls.stage, commands.stage, spans.stage), submodule: texts(calls.submodule),
    branch: texts(calls.branch), step: new Set([...steps].sort((a, b) => a - b)),
    device: new Set(lanes.filter(({ kind }) => kind !== "spans").map(({ device }) => device).filter(Boolean)),
    role: texts(commands.role), operator: operators, module: new Set(modulePaths()), call: new Set([...calls.call].sort((a, b) => a - b)),
  };
}
