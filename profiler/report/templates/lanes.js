// Lanes of the timeline: which events they hold, in which row each stands, what lies in a window.

const MOST_ROWS = 12; // rows of one lane; deeper nesting shares the last and the label says so

// Events of a lane are sorted by start. `reach[i]` is the latest end among events 0..i, so that a
// binary search finds the first event that can touch a window.
class Lane {
  constructor(description, table) {
    Object.assign(this, description);
    this.table = table;
    const { first, count } = description;
    this.reach = new Float64Array(count);
    this.row = new Uint8Array(count);
    this.rows = 1;
    this.deepest = 1;
    const ends = [];
    if (this.kind === "counters") return this.measure();
    for (let i = 0, reach = -Infinity; i < count; i++) {
      const start = table.start[first + i];
      const end = start + Math.max(table.duration[first + i], 0);
      let row = 0;
      while (row < ends.length && ends[row] > start) row++;
      ends[row] = end;
      this.row[i] = Math.min(row, MOST_ROWS - 1);
      this.reach[i] = reach = Math.max(reach, end);
    }
    this.deepest = Math.max(ends.length, 1);
    this.rows = Math.min(this.deepest, MOST_ROWS);
  }

  // A counter has no rows; what matters is its highest value.
  measure() {
    this.most = 0;
    for (let i = 0; i < this.count; i++) this.most = Math.max(this.most, this.value(i));
  }

  value(i) { return this.table.value[this.first + i]; }

  start(i) { return this.table.start[this.first + i]; }

  // A counter's value holds until its next sample.
  end(i) {
    if (this.kind === "counters") return i + 1 < this.count ? this.start(i + 1) : page.timeline.span;
    return this.start(i) + Math.max(this.table.duration[this.first + i], 0);
  }

  // [from, to) of the events that can touch [begin, end].
  window(begin, end) {
    return [firstAbove(this.reach, begin), this.startsBefore(end)];
  }

  startsBefore(time) {
    let low = 0, high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start(middle) <= time) low = middle + 1; else high = middle;
    }
    return low;
  }
}

// The first index of sorted `values` that is at least `limit`.
function firstAbove(values, limit) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < limit) low = middle + 1; else high = middle;
  }
  return low;
}

// Where each lane stands: bands of devices, each with a heading and its lanes, from the top.
function laidOut(lanes, collapsed, { compact, counters }) {
  const bands = [];
  let y = RULER;
  for (const lane of lanes) {
    if (lane.kind === "counters" && !counters) continue;
    let band = bands[bands.length - 1];
    if (!band || band.device !== lane.device) {
      if (band) y += 6;
      band = { device: lane.device, y, lanes: [], collapsed: collapsed.has(lane.device) };
      bands.push(band);
      y += lane.device ? HEADING : 4;
    }
    if (band.collapsed && lane.kind !== "calls") continue;
    const height = compact && lane.rows > 1 ? Math.max(ROW / 2, 4) : ROW;
    const tall = { calls: CALL_ROW, spans: SPAN_ROW, counters: COUNTER_ROW }[lane.kind] ?? height;
    band.lanes.push({ lane, y, row: tall, height: tall * lane.rows + 4 });
    y += tall * lane.rows + 4;
  }
  return { bands, height: y + 6 };
}
const RULER = 26, HEADING = 26, ROW = 18, CALL_ROW = 28, SPAN_ROW = 18, COUNTER_ROW = 34;
