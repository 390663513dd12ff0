// Levels of detail of one row of a lane. Events stand in groups of GROUP, these in groups of groups
// and so on; each group knows its extent, the time of its events and the longest of them. A
// group that is narrower than a pixel is drawn as one; wider ones are opened, so that every event
// that has a pixel of its own is met by itself at any zoom.

const GROUP = 8;

export class Pyramid {
  constructor(lane, events) {
    this.lane = lane;
    this.events = events;
    this.levels = [];
    for (let size = events.length; size > 1 || !this.levels.length; ) {
      const below = this.levels[this.levels.length - 1];
      size = Math.ceil(size / GROUP);
      this.levels.push(below ? this.above(below, size) : this.lowest(size));
    }
    this.matches = null;
  }

  lowest(size) {
    const level = emptyLevel(size), { lane, events } = this;
    for (let at = 0; at < events.length; at++) {
      const i = events[at], start = lane.start(i), end = lane.end(i), group = (at / GROUP) | 0;
      if (at % GROUP === 0) level.begin[group] = start;
      if (end > level.end[group]) level.end[group] = end;
      level.time[group] += end - start;
      level.count[group]++;
      if (end - start > level.most[group]) {
        level.most[group] = end - start;
        level.longest[group] = i;
      }
    }
    return level;
  }

  above(below, size) {
    const level = emptyLevel(size);
    for (let from = 0; from < below.begin.length; from++) {
      const group = (from / GROUP) | 0;
      if (from % GROUP === 0) level.begin[group] = below.begin[from];
      if (below.end[from] > level.end[group]) level.end[group] = below.end[from];
      level.time[group] += below.time[from];
      level.count[group] += below.count[from];
      if (below.most[from] > level.most[group]) {
        level.most[group] = below.most[from];
        level.longest[group] = below.longest[from];
      }
    }
    return level;
  }

  // Keep the time of the chosen events of each group and the longest of these (-1: none).
  choose(matches) {
    this.matches = matches;
    if (!matches) return;
    const { lane, events, levels } = this;
    for (const level of levels) {
      level.chosenTime ??= new Float64Array(level.begin.length);
      level.chosenMost ??= new Float64Array(level.begin.length);
      level.chosen ??= new Int32Array(level.begin.length);
      level.chosenTime.fill(0);
      level.chosenMost.fill(-1);
      level.chosen.fill(-1);
    }
    for (let at = 0; at < events.length; at++) {
      const i = events[at];
      if (matches[lane.first + i]) addChosen(levels[0], (at / GROUP) | 0, lane.end(i) - lane.start(i), i);
    }
    for (let n = 1; n < levels.length; n++) {
      const below = levels[n - 1];
      for (let from = 0; from < below.begin.length; from++) {
        if (below.chosen[from] < 0) continue;
        const group = (from / GROUP) | 0, time = levels[n].chosenTime[group] + below.chosenTime[from];
        addChosen(levels[n], group, below.chosenMost[from], below.chosen[from]);
        levels[n].chosenTime[group] = time;
      }
    }
  }

  // Call `one(i)` for each event in [begin, end] that is met by itself, and `many(level, group)` for
  // each group that is shorter than `pixel`, in order of time.
  visit(begin, end, pixel, one, many) {
    if (this.events.length) this.open(this.levels.length - 1, 0, { begin, end, pixel, one, many });
  }

  open(at, group, asked) {
    const level = this.levels[at];
    if (level.end[group] < asked.begin || level.begin[group] > asked.end) return;
    const inside = level.begin[group] >= asked.begin && level.end[group] <= asked.end;
    if (inside && level.end[group] - level.begin[group] < asked.pixel) return asked.many(level, group);
    const from = group * GROUP;
    if (at > 0) {
      const to = Math.min(from + GROUP, this.levels[at - 1].begin.length);
      for (let child = from; child < to; child++) this.open(at - 1, child, asked);
      return;
    }
    const to = Math.min(from + GROUP, this.events.length);
    for (let child = from; child < to; child++) {
      const i = this.events[child];
      if (this.lane.end(i) >= asked.begin && this.lane.start(i) <= asked.end) asked.one(i);
    }
  }
}

function emptyLevel(size) {
  return {
    begin: new Float64Array(size), end: new Float64Array(size), time: new Float64Array(size),
    most: new Float64Array(size).fill(-1), longest: new Int32Array(size), count: new Uint32Array(size),
  };
}

function addChosen(level, group, time, i) {
  level.chosenTime[group] += time;
  if (time > level.chosenMost[group]) {
    level.chosenMost[group] = time;
    level.chosen[group] = i;
  }
}
