// How busy each device was, as a curve under the lanes: for each pixel the part of its time in which any
// work of the device ran, at any zoom. What waits is no work, as in the table of devices.

import { page } from "./data.js";
import { format } from "./format.js";
import { message, say } from "./language.js";

class UseLane {
  constructor(timeline, device, lanes) {
    Object.assign(this, { timeline, device, lanes, kind: "use", track: message("busy share"), category: "", row: [], rows: 1, deepest: 1, first: 0, count: 0 });
  }

  choose() {}

  matched() { return true; }

  // A pixel stands for an event: it is what is looked at.
  start(x) { return this.timeline.time(x); }

  end(x) { return this.timeline.time(x + 1); }

  // Stretches in which something ran, and how much of them lies before each.
  get stretches() {
    if (this.made) return this.made;
    const begins = [], ends = [], before = [0], at = this.lanes.map(() => 0);
    for (;;) {
      let next = -1, start = Infinity;
      this.lanes.forEach((lane, n) => {
        while (at[n] < lane.count && !worked(lane, at[n])) at[n]++;
        if (at[n] < lane.count && lane.start(at[n]) < start) [next, start] = [n, lane.start(at[n])];
      });
      if (next < 0) break;
      const end = this.lanes[next].end(at[next]++), last = ends.length - 1;
      if (last >= 0 && start <= ends[last]) {
        if (end > ends[last]) ends[last] = end;
      } else {
        if (last >= 0) before.push(before[last] + ends[last] - begins[last]);
        begins.push(start);
        ends.push(end);
      }
    }
    return this.made = { begins: Float64Array.from(begins), ends: Float64Array.from(ends), before: Float64Array.from(before) };
  }

  // Time before `time` in which something ran.
  busyBefore(time) {
    const { begins, ends, before } = this.stretches;
    let low = 0, high = begins.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (begins[middle] <= time) low = middle + 1; else high = middle;
    }
    return low ? before[low - 1] + Math.min(time, ends[low - 1]) - begins[low - 1] : 0;
  }

  // What of a window of time lies within the run.
  within(begin, end) { return { from: Math.max(begin, 0), to: Math.min(end, this.timeline.span) }; }

  // The part of that in which the device was busy, 0 to 1.
  share(begin, end) {
    const { from, to } = this.within(begin, end);
    return to > from ? (this.busyBefore(to) - this.busyBefore(from)) / (to - from) : 0;
  }

  draw(context, { y, height }) {
    const { timeline } = this, { view, width, inks } = timeline, tall = height - 18, ground = y + height - 4;
    const length = view.end - view.begin;
    context.fillStyle = inks.busy;
    let last = this.busyBefore(Math.max(view.begin, 0));
    for (let x = 0; x < width; x++) {
      const from = Math.max(view.begin + (x / width) * length, 0), to = Math.min(view.begin + ((x + 1) / width) * length, timeline.span);
      if (to <= from) continue;
      const now = this.busyBefore(to), high = ((now - last) / (to - from)) * tall;
      last = now;
      if (high > 0) context.fillRect(x, ground - Math.max(high, 0.5), 1, Math.max(high, 0.5));
    }
    context.fillStyle = inks.line;
    context.fillRect(0, ground, width, 1);
    const { from, to } = this.within(view.begin, view.end), share = format.percent(this.share(from, to));
    context.fillStyle = inks.text;
    context.textAlign = "right";
    context.fillText(say("busy {share} of {time}", { share, time: format.duration(Math.max(to - from, 0)) }), width - 6, y + 8);
    context.textAlign = "left";
  }
}

function worked(lane, i) { return page.timeline.work.includes(lane.table.category[lane.first + i]); }

// A curve for each device of which it is known how busy it was: the strip of the first screen has these, too.
export function useLanes(timeline) {
  const known = page.strip.devices.filter(({ busy }) => busy).map(({ device }) => device);
  const devices = [...new Set(timeline.lanes.map(({ device }) => device))].filter((device) => known.includes(device));
  return devices.map((device) => new UseLane(timeline, device, timeline.lanes.filter((lane) => lane.kind === "commands" && lane.device === device)));
}
