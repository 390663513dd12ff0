// Measuring on the timeline: a stretch of time between two edges, by Shift and a drag, or by keys.

import { readable } from "./contrast.js";
import { format } from "./format.js";
import { RULER } from "./lanes.js";
import { say, whenSpoken } from "./language.js";

export class Measure {
  constructor(explorer) {
    Object.assign(this, { explorer, timeline: explorer.timeline, edges: null, always: false });
    this.button = document.getElementById("timeline-measure");
    this.button.addEventListener("click", () => this.use(!this.always));
    this.timeline.overlays.push((context) => this.draw(context));
    this.line = document.getElementById("timeline-measured");
    whenSpoken(() => this.tell());
  }

  // From now on a drag measures, without Shift.
  use(always) {
    this.always = always;
    this.button.setAttribute("aria-pressed", String(always));
    this.timeline.canvas.classList.toggle("measuring", always);
    if (!always) this.set(null);
  }

  set(edges) {
    const { span } = this.timeline, inside = (time) => Math.min(Math.max(time, 0), span);
    this.edges = edges && edges.map(inside);
    this.tell();
    this.timeline.draw();
  }

  // What a drag begins, null if it pans.
  begins(event) {
    if (!event.shiftKey && !this.always) return null;
    return this.snapped(event);
  }

  // The begin or end of an event within five pixels, else the place itself.
  snapped({ offsetX, offsetY }) {
    const { timeline } = this, time = timeline.time(offsetX), found = this.explorer.under(offsetX, offsetY);
    if (!found || found.lane.kind === "use") return time;
    const edges = [found.lane.start(found.i), found.lane.end(found.i)];
    return edges.find((edge) => Math.abs(timeline.x(edge) - offsetX) <= 5) ?? time;
  }

  drag(from, event) { this.set([from, this.snapped(event)]); }

  // Over what is selected, else over the middle half of the window; once more lets go.
  toggle() {
    const { selected, view } = this.timeline, quarter = (view.end - view.begin) / 4;
    if (this.edges) this.set(null);
    else if (selected) this.set([selected.lane.start(selected.i), selected.lane.end(selected.i)]);
    else this.set([view.begin + quarter, view.end - quarter]);
  }

  // Shift and an arrow move the end, with Alt the begin.
  key(event) {
    if (!this.edges || !event.shiftKey || !["ArrowLeft", "ArrowRight"].includes(event.key)) return false;
    const { view } = this.timeline, by = ((view.end - view.begin) / 100) * (event.key === "ArrowLeft" ? -1 : 1);
    const [begin, end] = this.edges;
    this.set(event.altKey ? [begin + by, end] : [begin, end + by]);
    return true;
  }

  // How long, and what began and ran in it.
  sentence() {
    const [begin, end] = [...this.edges].sort((a, b) => a - b), { lanes } = this.timeline;
    const count = lanes.filter(({ kind }) => kind === "commands")
      .reduce((sum, lane) => sum + lane.startsBefore(end) - lane.startsBefore(begin - 1), 0);
    const busy = lanes.filter(({ kind }) => kind === "use").map((lane) => say("{device} busy {share}", { device: lane.device, share: format.percent(lane.share(begin, end)) }));
    return [
      say("{duration} from {from} to {to}", { duration: format.duration(end - begin), from: format.instant(begin), to: format.instant(end) }),
      say("{count} commands begin in it", { count: format.count(count) }), ...busy,
    ].join(", ");
  }

  tell() {
    this.line.hidden = !this.edges;
    this.line.textContent = this.edges ? `${say("Measured:")} ${this.sentence()}` : "";
  }

  draw(context) {
    if (!this.edges) return;
    const { timeline } = this, [left, right] = this.edges.map((time) => timeline.x(time)).sort((a, b) => a - b);
    context.fillStyle = `${timeline.inks.focus}22`;
    context.fillRect(left, RULER, right - left, timeline.height - RULER);
    context.fillStyle = timeline.inks.focus;
    for (const x of [left, right]) context.fillRect(Math.round(x) - 0.5, RULER - 8, 1.5, timeline.height);
    const text = format.duration(Math.abs(this.edges[1] - this.edges[0])), wide = timeline.labelWidths.width(text) + 12;
    const middle = Math.min(Math.max((left + right) / 2, wide / 2), timeline.width - wide / 2);
    context.fillRect(middle - wide / 2, 3, wide, 17);
    context.fillStyle = readable(timeline.inks.focus);
    context.textAlign = "center";
    context.fillText(text, middle, 12);
    context.textAlign = "left";
  }
}
