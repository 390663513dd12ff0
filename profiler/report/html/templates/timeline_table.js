// The timeline as a table: each lane with what lies in the window. Made while somebody has it open.

import { page } from "./data.js";
import { laneName } from "./lanes.js";
import { message, say, whenSpoken } from "./language.js";
import { DataTable } from "./tables.js";

const TABLE_LATER = 200; // ms without movement before it follows

function laneRows(timeline) {
  const { view, span } = timeline, begin = Math.max(view.begin, 0), end = Math.min(view.end, span), length = Math.max(end - begin, 1);
  return timeline.lanes.filter(({ kind }) => kind !== "counters").map((lane) => {
    if (lane.kind === "use") {
      const share = lane.share(begin, end);
      return { device: lane.device, track: say(lane.track), events: null, time: share * length, share };
    }
    let events = 0, time = 0, reached = begin;
    for (let i = 0; i < lane.count && lane.start(i) <= end; i++) {
      const from = Math.max(lane.start(i), reached), to = Math.min(lane.end(i), end);
      if (lane.end(i) < begin) continue;
      events++;
      if (to > from) time += to - from;
      reached = Math.max(reached, to);
    }
    return { device: lane.device || null, track: laneName(lane), events, time, share: time / length };
  });
}

export function startTimelineTable(timeline, explorer) {
  const holder = document.getElementById("timeline-table"), place = holder.lastElementChild;
  let table = null, waiting = 0;
  const fill = () => {
    if (!holder.open) return;
    const rows = laneRows(timeline), columns = page.lane_columns;
    const values = Object.fromEntries(columns.map(({ name }) => [name, rows.map((row) => row[name])]));
    if (table) {
      table.show(values);
      table.draw();
    }
    else table = new DataTable(place, { name: message("timeline in view"), columns, values, shown: 40 });
  };
  holder.addEventListener("toggle", fill);
  whenSpoken(fill);
  explorer.followMoves(() => {
    clearTimeout(waiting);
    if (holder.open) waiting = setTimeout(fill, TABLE_LATER);
  });
}
