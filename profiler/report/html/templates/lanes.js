// Lanes of the timeline: which events they hold, in which row each stands, what lies in a window.
// Their pyramids are in pyramid.js.

import { page } from "./data.js";
import { message, say } from "./language.js";
import { Pyramid } from "./pyramid.js";

const MOST_ROWS = 12; // rows of one lane; deeper nesting shares the last and the label says so

// Events of a lane are sorted by start; those that lie within others stand in rows below them.
export class Lane {
  constructor(description, table) {
    Object.assign(this, description);
    this.table = table;
    const { first, count } = description;
    this.row = new Uint8Array(count);
    this.rows = 1;
    this.deepest = 1;
    const ends = [];
    if (this.kind === "counters") return this.measure();
    for (let i = 0; i < count; i++) {
      const start = table.start[first + i];
      const end = start + Math.max(table.duration[first + i], 0);
      let row = 0;
      while (row < ends.length && ends[row] > start) row++;
      ends[row] = end;
      this.row[i] = Math.min(row, MOST_ROWS - 1);
    }
    this.deepest = Math.max(ends.length, 1);
    this.rows = Math.min(this.deepest, MOST_ROWS);
    this.pyramids = this.byRow().map((events) => new Pyramid(this, events));
  }

  // The events of each row, in order.
  byRow() {
    const sizes = new Uint32Array(this.rows);
    for (let i = 0; i < this.count; i++) sizes[this.row[i]]++;
    const rows = Array.from(sizes, (size) => new Uint32Array(size)), filled = new Uint32Array(this.rows);
    for (let i = 0; i < this.count; i++) rows[this.row[i]][filled[this.row[i]]++] = i;
    return rows;
  }

  // `matches[i]` of the lane's table says which events were chosen; null if nothing was.
  choose(matches) {
    this.matches = matches;
    for (const pyramid of this.pyramids ?? []) pyramid.choose(matches);
  }

  matched(i) { return !this.matches || this.matches[this.first + i] === 1; }

  // A counter has no rows; what matters is its highest value.
  measure() {
    this.most = 0;
    for (let i = 0; i < this.count; i++) this.most = Math.max(this.most, this.value(i));
  }

  value(i) { return this.table.value[this.first + i] / this.parts; }

  start(i) { return this.table.start[this.first + i]; }

  // A counter's value holds until its next sample.
  end(i) {
    if (this.kind === "counters") return i + 1 < this.count ? this.start(i + 1) : page.timeline.span;
    return this.start(i) + Math.max(this.table.duration[this.first + i], 0);
  }

  // How many events start at `time` or before.
  startsBefore(time) {
    let low = 0, high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start(middle) <= time) low = middle + 1; else high = middle;
    }
    return low;
  }
}

// The place of each lane: bands with a heading and their lanes, from the top: what was pinned, then each
// device, then the curves of all devices.
export function laidOut(lanes, collapsed, { compact, counters, pinned }) {
  const bands = [];
  let y = RULER;
  for (const [key, lane] of inBands(lanes, counters, pinned)) {
    let band = bands[bands.length - 1];
    if (!band || band.key !== key) {
      if (band) y += 6;
      band = { key, device: Object.hasOwn(BANDS, key) ? "" : key, title: titleOf(key), y, lanes: [], collapsed: collapsed.has(key) };
      bands.push(band);
      y += band.title ? HEADING : 4;
    }
    if (band.collapsed && (lane.kind !== "calls" || Object.hasOwn(BANDS, key))) continue;
    const height = compact && lane.rows > 1 ? Math.max(ROW / 2, 4) : ROW;
    const tall = { calls: CALL_ROW, spans: SPAN_ROW, counters: COUNTER_ROW, use: COUNTER_ROW }[lane.kind] ?? height;
    band.lanes.push({ lane, y, row: tall, height: tall * lane.rows + 4 });
    y += tall * lane.rows + 4;
  }
  return { bands, height: y + 6 };
}

const BANDS = { "\0pinned": message("Pinned"), "\0curves": message("Use and memory") };

function titleOf(key) { return Object.hasOwn(BANDS, key) ? () => say(BANDS[key]) : key ? () => key : null; }

// [key of its band, lane] of each lane that is seen.
function inBands(lanes, counters, pinned) {
  const curve = (lane) => lane.kind === "use" || (lane.kind === "counters" && lane.category === "bytes");
  const found = [...pinned].map((lane) => ["\0pinned", lane]), curves = [];
  for (const lane of lanes) {
    if (pinned.has(lane)) continue;
    if (curve(lane)) curves.push(["\0curves", lane]);
    else if (lane.kind !== "counters" || counters) found.push([lane.device, lane]);
  }
  return [...found, ...curves];
}

export const RULER = 26, HEADING = 26, ROW = 18, CALL_ROW = 28, SPAN_ROW = 18, COUNTER_ROW = 34;

// Lanes of calls, spans, modules and curves have names of ours; tracks have those of their producers.
export function laneName({ kind, track }) {
  return ["calls", "spans", "modules", "use"].includes(kind) ? say(track) : track;
}

// The name of a lane in its band: with its device if lanes of several stand together.
export function nameIn(band, lane) { return !band.device && lane.device ? `${lane.device} ${laneName(lane)}` : laneName(lane); }
