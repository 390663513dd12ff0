// Dependencies between commands, such as from a launch to its kernel: found by either end, drawn as curves.

import { element, shortened } from "./format.js";
import { say } from "./language.js";

export class Flows {
  constructor(timeline) {
    this.timeline = timeline;
    this.table = timeline.tables.flows;
  }

  // Numbers of the flows of each command, in the order of commands: those of `at` lie from
  // `first[at]` to `first[at + 1]`. Made when somebody asks first.
  get index() {
    if (this.made) return this.made;
    const { rows, source, target } = this.table, first = new Uint32Array(this.timeline.tables.commands.rows + 1);
    for (let k = 0; k < rows; k++) for (const end of new Set([source[k], target[k]])) first[end + 1]++;
    for (let at = 1; at < first.length; at++) first[at] += first[at - 1];
    const numbers = new Uint32Array(first[first.length - 1]), filled = first.slice();
    for (let k = 0; k < rows; k++) for (const end of new Set([source[k], target[k]])) numbers[filled[end]++] = k;
    return this.made = { first, numbers };
  }

  // The dependencies of a command: {source, target} as events.
  of({ lane, i }) {
    if (!this.table.rows) return [];
    const at = lane.first + i, { first, numbers } = this.index;
    return Array.from(numbers.subarray(first[at], first[at + 1]), (k) =>
      ({ source: this.event(this.table.source[k]), target: this.event(this.table.target[k]) }));
  }

  event(at) {
    const lane = this.timeline.lanes.find(
      (entry) => entry.kind === "commands" && at >= entry.first && at < entry.first + entry.count,
    );
    return { lane, i: at - lane.first };
  }

  // A curve from the end of what was waited for to the begin of what waited.
  draw(context, mark) {
    context.lineWidth = 1.2;
    for (const { source, target } of this.of(mark)) {
      const from = this.timeline.box(source), to = this.timeline.box(target);
      if (!from || !to) continue;
      const bend = Math.min(Math.max(Math.abs(to.left - from.right) / 2, 14), 60);
      const y0 = from.top + from.tall / 2, y1 = to.top + to.tall / 2;
      context.beginPath();
      context.moveTo(from.right, y0);
      context.bezierCurveTo(from.right + bend, y0, to.left - bend, y1, to.left, y1);
      context.stroke();
    }
  }
}

// Buttons below a command's card: to what it waited for, and to what waited for it.
const MOST_FLOWS = 6; // buttons
export function flowButtons(explorer, found) {
  if (found.lane.kind !== "commands") return null;
  const at = ({ lane, i }) => lane.first + i, { timeline } = explorer;
  const buttons = timeline.flows.of(found).slice(0, MOST_FLOWS).map(({ source, target }) => {
    const other = at(source) === at(found) ? target : source, name = shortened(timeline.names(other.lane, other.i)[0], 48);
    const text = other === source ? say("Waits for {name}", { name }) : say("Needed by {name}", { name });
    return element("button", { type: "button", class: "link", onclick: () => explorer.visit(other) }, text);
  });
  return buttons.length ? element("div", { class: "only" }, element("span", {}, say("Go to:")), buttons) : null;
}
