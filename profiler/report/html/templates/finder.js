// Finding on the timeline: kernels, layers and modules by name, one after the other in time, and the
// longest first. What is found is marked; nothing is filtered.

import { format } from "./format.js";
import { say, whenSpoken } from "./language.js";

const RANKED = 1000; // how many of the longest are distinguished

export class Finder {
  constructor(explorer, choice) {
    Object.assign(this, { explorer, timeline: explorer.timeline, words: [], found: [], total: 0, rank: -1, at: -1 });
    this.field = document.getElementById("timeline-find");
    this.line = document.getElementById("timeline-found");
    this.field.addEventListener("input", () => this.look());
    this.field.addEventListener("keydown", (event) => this.pressed(event));
    for (const button of document.querySelectorAll("[data-find]")) {
      const [what, by] = button.dataset.find.split(" ");
      button.addEventListener("click", () => this[what](Number(by)));
    }
    this.timeline.overlays.push((context) => this.draw(context));
    choice.follow(() => {
      this.longest = null;
      this.rank = -1;
      this.tell();
    });
    whenSpoken(() => this.tell());
  }

  pressed(event) {
    if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape" && this.field.value) {
      this.field.value = "";
      this.look();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // By lane the events that have every word in their layer, kernel, op type or module.
  look() {
    this.words = this.field.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.longest = null;
    this.rank = this.at = -1;
    const { text, tables: { commands, modules, calls } } = this.timeline;
    const flags = this.words.length ? Uint8Array.from(text, (name) => Number(this.words.every((word) => name.toLowerCase().includes(word)))) : null;
    const has = (column, row) => column[row] >= 0 && flags[column[row]] === 1;
    const tests = {
      commands: (row) => has(commands.layer, row) || has(commands.kernel, row) || has(commands.op_type, row),
      modules: (row) => has(modules.name, row), calls: (row) => has(calls.submodule, row),
    };
    this.found = [];
    for (const lane of flags ? this.timeline.lanes : []) {
      if (!tests[lane.kind]) continue;
      const events = [];
      for (let i = 0; i < lane.count; i++) if (tests[lane.kind](lane.first + i)) events.push(i);
      if (events.length) this.found.push({ lane, events: Uint32Array.from(events) });
    }
    this.total = this.found.reduce((sum, { events }) => sum + events.length, 0);
    this.tell();
    this.timeline.draw();
  }

  // How many of a lane's found events begin before `time`.
  before({ lane, events }, time) {
    let low = 0, high = events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane.start(events[middle]) < time) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Visit the next or previous of what was found, from what is selected or the window's begin.
  step(direction) {
    if (!this.total) return this.tell();
    this.visit(this.neighbour(this.position(), direction));
  }

  // The place from which the search goes on: {start, place, i}, `place` being that of a lane in `found`.
  position() {
    const { selected, view } = this.timeline, place = this.found.findIndex(({ lane }) => lane === selected?.lane);
    if (place >= 0) return { start: selected.lane.start(selected.i), place, i: selected.i };
    return { start: Math.max(view.begin, 0), place: -1, i: -1 };
  }

  neighbour(from, direction) {
    const apart = (a, b) => a.start - b.start || a.place - b.place || a.i - b.i;
    const best = { next: null, edge: null };
    this.found.forEach((of, place) => {
      const { lane, events } = of, at = (k) => ({ start: lane.start(events[k]), place, i: events[k] });
      const consider = (k) => {
        if (k < 0 || k >= events.length) return;
        const one = at(k);
        if (apart(one, from) * direction > 0 && (!best.next || apart(one, best.next) * direction < 0)) best.next = one;
      };
      let k = this.before(of, from.start);
      if (direction > 0) while (k < events.length && apart(at(k), from) <= 0) k++;
      else {
        while (k < events.length && apart(at(k), from) < 0) k++;
        k--;
      }
      consider(k);
      const edge = at(direction > 0 ? 0 : events.length - 1);
      if (!best.edge || apart(edge, best.edge) * direction < 0) best.edge = edge;
    });
    return best.next ?? best.edge;
  }

  visit({ place, i, start }) {
    const { lane } = this.found[place], apart = (a, b) => a.start - b.start || a.place - b.place || a.i - b.i;
    this.at = this.found.reduce((sum, of, other) => {
      let k = this.before(of, start);
      while (k < of.events.length && apart({ start: of.lane.start(of.events[k]), place: other, i: of.events[k] }, { start, place, i }) < 0) k++;
      return sum + k;
    }, 0);
    this.rank = -1;
    this.explorer.visit({ lane, i });
    this.tell();
  }

  // The longest commands, of what was found and is chosen if that is anything, the longest first.
  ranked() {
    if (this.longest) return this.longest;
    const commands = this.timeline.lanes.filter(({ kind }) => kind === "commands");
    const of = this.words.length ? this.found.filter(({ lane }) => lane.kind === "commands")
      : commands.map((lane) => ({ lane, events: null }));
    const each = (visit) => {
      for (const { lane, events } of of) {
        const count = events ? events.length : lane.count;
        for (let k = 0; k < count; k++) {
          const i = events ? events[k] : k;
          if (lane.matched(i)) visit(lane, i, lane.end(i) - lane.start(i));
        }
      }
    };
    let size = 0;
    each(() => size++);
    const lengths = new Float64Array(size);
    let filled = 0;
    each((lane, i, length) => (lengths[filled++] = length));
    const least = lengths.sort()[Math.max(size - RANKED, 0)], found = [];
    each((lane, i, length) => length >= least && found.push({ lane, i, length }));
    found.sort((a, b) => b.length - a.length || a.lane.start(a.i) - b.lane.start(b.i));
    return this.longest = Object.assign(found.slice(0, RANKED), { total: size });
  }

  longer(by) {
    const ranked = this.ranked();
    if (!ranked.length) return this.tell();
    this.rank = Math.min(Math.max(this.rank + by, 0), ranked.length - 1);
    this.at = -1;
    this.explorer.visit(ranked[this.rank]);
    this.tell();
  }

  tell() {
    const { rank, at, words } = this, one = rank >= 0 && this.ranked()[rank];
    this.line.textContent = one ? say("Number {number} of {all} by length: {duration}", {
      number: format.count(rank + 1), all: format.count(this.ranked().total), duration: format.duration(one.length),
    }) : !words.length ? "" : !this.total ? say("Nothing has that name.")
      : at >= 0 ? say("{number} of {all} found", { number: format.count(at + 1), all: format.count(this.total) })
        : say("{all} found", { all: format.count(this.total) });
  }

  // A line below each event that was found, one a pixel.
  draw(context) {
    const { timeline } = this, { view, width } = timeline;
    if (!this.words.length) return;
    context.fillStyle = timeline.inks.text;
    for (const of of this.found) {
      const { lane, events } = of, placed = timeline.placed.find((entry) => entry.lane === lane);
      if (!placed) continue;
      const pixel = (view.end - view.begin) / width;
      for (let k = Math.max(this.before(of, view.begin) - 1, 0); k < events.length;) {
        const i = events[k], start = lane.start(i);
        if (start > view.end) break;
        const left = timeline.x(start), right = Math.max(timeline.x(lane.end(i)), left + 1);
        const bottom = placed.y + 2 + ((lane.row[i] ?? 0) + 1) * placed.row;
        if (right > 0) context.fillRect(left, bottom - 3, Math.min(right, width) - left, 2);
        k = pixel > lane.end(i) - start ? Math.max(this.before(of, start + pixel), k + 1) : k + 1;
      }
    }
  }
}
