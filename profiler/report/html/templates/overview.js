// The whole run on a strip above the lanes, with the window of the timeline in it.

import { Cover } from "./paint.js";

const OVERVIEW = { height: 34, top: 9, bar: 16 }; // pixels

export function drawOverview(timeline) {
  const { overview, ratio, inks, view, width } = timeline, context = overview.getContext("2d");
  timeline.painted ??= paintedOverview(timeline);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.drawImage(timeline.painted, 0, 0);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const whole = timeline.whole(), scale = width / (whole.end - whole.begin);
  const left = (view.begin - whole.begin) * scale, right = (view.end - whole.begin) * scale;
  context.fillStyle = inks.veil;
  context.fillRect(0, 4, left, 26);
  context.fillRect(right, 4, width - right, 26);
  context.strokeStyle = inks.muted;
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, 4.5, Math.max(right - left - 1, 2), 25);
}

// The run itself, painted once for each width, colouring and choice: calls, or commands without any.
function paintedOverview(timeline) {
  const { overview, ratio, inks, width } = timeline, image = document.createElement("canvas");
  image.width = overview.width;
  image.height = overview.height;
  const context = image.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = inks.surface;
  context.fillRect(0, 0, width, OVERVIEW.height);
  const kind = timeline.tables.calls.rows ? "calls" : "commands";
  const lanes = timeline.lanes.filter((lane) => lane.kind === kind), cover = new Cover(width, lanes.length);
  lanes.forEach((lane, row) => coverLane(cover, row, lane, timeline));
  cover.finish(timeline.paints.words, timeline.choosing);
  lanes.forEach((_, row) => cover.draw(context, row, OVERVIEW.top, OVERVIEW.bar));
  return image;
}

function coverLane(cover, row, lane, timeline) {
  const whole = timeline.whole(), scale = timeline.width / (whole.end - whole.begin);
  const add = (into, from, to, time, most, i) => {
    const x0 = (from - whole.begin) * scale, x1 = Math.max((to - whole.begin) * scale - 0.6, x0);
    const length = Math.max(to - from, 1), width = x1 - x0;
    cover.add(into, row, x0, x1, (time / length) * width, (most / length) * width, timeline.keyOf(lane, i));
  };
  const one = (i) => {
    const start = lane.start(i), end = lane.end(i);
    add(cover.all, start, end, end - start, end - start, i);
    if (lane.matches && lane.matched(i)) add(cover.chosen, start, end, end - start, end - start, i);
  };
  const many = (level, group) => {
    const from = level.begin[group], to = level.end[group];
    add(cover.all, from, to, level.time[group], level.most[group], level.longest[group]);
    if (!lane.matches || level.chosen[group] < 0) return;
    add(cover.chosen, from, to, level.chosenTime[group], level.chosenMost[group], level.chosen[group]);
  };
  for (const pyramid of lane.pyramids) pyramid.visit(whole.begin, whole.end, 1 / scale, one, many);
}
