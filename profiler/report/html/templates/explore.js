// Moving in the timeline: wheel, drag, keys, controls; what is under the pointer.

import { uselessColourings } from "./colourings.js";
import { page } from "./data.js";
import { element, format } from "./format.js";
import { say, whenSpoken } from "./language.js";
import { report } from "./theme.js";
import { THIN } from "./timeline.js";

const MOST_OPTIONS = 2000; // calls that a list of choices still serves

export class Explorer {
  constructor(timeline, details) {
    this.timeline = timeline;
    this.details = details;
    this.tip = document.getElementById("tip");
    this.status = document.getElementById("timeline-status");
    this.picker = document.getElementById("timeline-call");
    this.movers = [];
    timeline.changed = () => this.report();
    this.calls = this.callsInOrder();
    this.fillPicker();
    whenSpoken(() => {
      this.fillPicker();
      this.report();
    });
    this.listen();
    this.report();
  }

  // {lane, i} of every call by start.
  callsInOrder() {
    const found = this.timeline.lanes
      .filter((lane) => lane.kind === "calls")
      .flatMap((lane) => Array.from({ length: lane.count }, (_, i) => ({ lane, i })));
    return found.sort((a, b) => a.lane.start(a.i) - b.lane.start(b.i));
  }

  // `mover` runs after each drawing, when the window may be another.
  followMoves(mover) { this.movers.push(mover); }

  // The call with a number of the run, undefined if the page does not have it.
  callNumbered(number) {
    const { calls } = this.timeline.tables;
    return this.calls.find(({ lane, i }) => calls.call[lane.first + i] === number);
  }

  fillPicker() {
    const { calls } = this.timeline.tables;
    const options = this.calls.slice(0, MOST_OPTIONS).map(({ lane, i }, at) => {
      const name = this.timeline.names(lane, i)[0];
      return element("option", { value: String(at) }, `${calls.call[lane.first + i]}  ${name}`);
    });
    const count = this.calls.length;
    const hint = count ? say("Zoom into a call ({count})", { count: format.count(count) }) : say("No calls in this trace");
    const more = count - options.length;
    this.picker.replaceChildren(element("option", { value: "" }, hint), ...options);
    if (more > 0) {
      const rest = say("{count} more: use the table of calls", { count: format.count(more) });
      this.picker.append(element("option", { disabled: true }, rest));
    }
    this.picker.disabled = !count;
  }

  listen() {
    const { canvas, overview, body } = this.timeline;
    const actions = {
      all: () => this.reset(),
      in: () => this.zoom(0.5),
      out: () => this.zoom(2),
      next: () => this.toCall(1),
      previous: () => this.toCall(-1),
    };
    for (const button of document.querySelectorAll("[data-do]")) {
      button.addEventListener("click", actions[button.dataset.do]);
      button.disabled = !this.calls.length && ["next", "previous"].includes(button.dataset.do);
    }
    this.picker.addEventListener("change", () => {
      if (this.picker.value !== "") this.select(this.calls[Number(this.picker.value)], true);
    });
    const colour = document.getElementById("timeline-colour");
    const useless = uselessColourings(this.timeline.tables);
    for (const option of [...colour.options]) if (useless[option.value]) option.remove();
    this.timeline.setMode(colour.value);
    colour.addEventListener("change", () => this.timeline.setMode(colour.value));
    const counters = document.getElementById("timeline-counters");
    counters.parentElement.hidden = !this.timeline.lanes.some((lane) => lane.kind === "counters" && lane.category !== "bytes");
    counters.addEventListener("change", () => {
      this.timeline.counters = counters.checked;
      this.timeline.arrange();
    });
    document.addEventListener("wheel", (event) => this.noteWheel(event), { passive: true, capture: true });
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => (this.drag = null));
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("dblclick", () => this.reset());
    canvas.addEventListener("keydown", (event) => this.key(event));
    overview.addEventListener("pointerdown", (event) => this.brush(event));
    new ResizeObserver(() => this.resized()).observe(body);
  }

  resized() {
    const { body, labelColumn, width } = this.timeline;
    if (Math.abs(body.clientWidth - labelColumn.offsetWidth - width) > 1) this.timeline.arrange();
  }

  zoom(factor, time) {
    const { begin, end } = this.target ?? this.timeline.view;
    const at = time ?? (begin + end) / 2;
    this.go(at - (at - begin) * factor, at + (end - at) * factor);
  }

  pan(part) {
    const { begin, end } = this.timeline.view;
    const whole = this.timeline.whole();
    let by = (end - begin) * part;
    by = Math.min(Math.max(by, whole.begin - begin), whole.end - end);
    this.timeline.show(begin + by, end + by);
  }

  reset() {
    this.clear();
    const { begin, end } = this.timeline.whole();
    this.go(begin, end);
  }

  clear() {
    this.timeline.selected = null;
    this.picker.value = "";
    this.details.clear();
  }

  // Glide to a window, at once if the viewer asked for less motion.
  go(begin, end) {
    cancelAnimationFrame(this.glide);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.timeline.show(begin, end);
    const from = { ...this.timeline.view }, started = performance.now();
    this.target = { begin, end };
    const step = (now) => {
      const part = Math.min(Math.max((now - started) / 180, 0), 1), eased = 1 - (1 - part) ** 3;
      this.timeline.show(
        from.begin + (begin - from.begin) * eased, from.end + (end - from.end) * eased,
      );
      if (part < 1) this.glide = requestAnimationFrame(step); else this.target = null;
    };
    this.glide = requestAnimationFrame(step);
  }

  toCall(direction) {
    const { selected, view } = this.timeline;
    const at = this.calls.findIndex((call) => selected?.lane === call.lane && selected.i === call.i);
    const middle = (view.begin + view.end) / 2;
    const near = this.calls.findIndex((call) => call.lane.end(call.i) > middle);
    const next = at >= 0 ? at + direction : direction > 0 && view.begin <= 0 ? 0 : near;
    if (this.calls.length) this.select(this.calls[Math.min(Math.max(next, 0), this.calls.length - 1)], true);
  }

  // Select an event; a call is zoomed into.
  select(found, zoomed) {
    this.timeline.selected = found;
    this.details.show(found);
    const at = this.calls.findIndex((call) => call.lane === found.lane && call.i === found.i);
    this.picker.value = at < 0 || at >= MOST_OPTIONS ? "" : String(at);
    const begin = found.lane.start(found.i), end = found.lane.end(found.i);
    const edge = (end - begin) * 0.03 + 1;
    if (zoomed) this.go(begin - edge, end + edge); else this.timeline.draw();
  }

  // A wheel gesture that began elsewhere scrolls on over the timeline; so does zooming out of the
  // whole run, and any plain wheel if the timeline is taller than the window.
  noteWheel(event) {
    const inside = event.target === this.timeline.canvas;
    const continued = event.timeStamp - (this.lastWheel ?? -1e9) < 250;
    if (!continued) this.wheelInside = inside;
    this.lastWheel = event.timeStamp;
  }

  wheel(event) {
    const { view, height } = this.timeline, whole = this.timeline.whole();
    const all = view.end - view.begin >= (whole.end - whole.begin) * 0.999;
    const deliberate = event.ctrlKey || event.metaKey;
    const pixels = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? 400 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      return this.pan(((event.deltaX || event.deltaY) * pixels) / this.timeline.width);
    }
    if (!deliberate && (!this.wheelInside || height > innerHeight)) return;
    if (!deliberate && all && event.deltaY > 0) return;
    event.preventDefault();
    const factor = Math.exp(Math.max(Math.min(event.deltaY * pixels, 240), -240) * 0.0022);
    const time = this.timeline.time(event.offsetX), { begin, end } = view;
    cancelAnimationFrame(this.glide);
    this.target = null;
    this.timeline.show(time - (time - begin) * factor, time + (end - time) * factor);
  }

  press(event) {
    if (event.button !== 0) return;
    cancelAnimationFrame(this.glide);
    this.target = null;
    this.timeline.canvas.setPointerCapture(event.pointerId);
    const measured = this.measure?.begins(event) ?? null;
    this.drag = { measured, x: event.offsetX, moved: false, ...this.timeline.view };
  }

  move(event) {
    const drag = this.drag;
    if (!drag) return this.hover(event);
    const by = event.offsetX - drag.x;
    if (!drag.moved && Math.abs(by) < 4) return;
    drag.moved = true;
    this.hover(null);
    if (drag.measured !== null) return this.measure.drag(drag.measured, event);
    this.timeline.canvas.classList.add("dragging");
    this.timeline.view = { begin: drag.begin, end: drag.end };
    this.pan(-by / this.timeline.width);
  }

  release(event) {
    const drag = this.drag;
    this.drag = null;
    this.timeline.canvas.classList.remove("dragging");
    if (!drag || drag.moved) return;
    const found = this.under(event.offsetX, event.offsetY);
    if (found && found.lane.kind !== "use") this.select(found, !["commands", "counters"].includes(found.lane.kind));
    else this.clear();
    this.timeline.draw();
  }

  // Drag in the overview to choose a window, click to move the window there.
  brush(event) {
    const { overview, width } = this.timeline, whole = this.timeline.whole();
    const timeAt = (x) => whole.begin + (x / width) * (whole.end - whole.begin);
    const from = event.offsetX;
    overview.setPointerCapture(event.pointerId);
    const moved = (now) => {
      if (Math.abs(now.offsetX - from) < 4) return;
      const [a, b] = [timeAt(from), timeAt(now.offsetX)].sort((one, other) => one - other);
      this.timeline.show(a, b);
    };
    const released = (now) => {
      overview.removeEventListener("pointermove", moved);
      if (Math.abs(now.offsetX - from) >= 4) return;
      const half = (this.timeline.view.end - this.timeline.view.begin) / 2;
      this.go(timeAt(from) - half, timeAt(from) + half);
    };
    overview.addEventListener("pointermove", moved);
    overview.addEventListener("pointerup", released, { once: true });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey) return;
    if (this.measure.key(event)) return event.preventDefault();
    if (event.altKey) return;
    const actions = {
      ArrowLeft: () => this.pan(-0.15), a: () => this.pan(-0.15),
      ArrowRight: () => this.pan(0.15), d: () => this.pan(0.15),
      ArrowUp: () => this.zoom(0.6), w: () => this.zoom(0.6), "+": () => this.zoom(0.6), "=": () => this.zoom(0.6),
      ArrowDown: () => this.zoom(1.7), s: () => this.zoom(1.7), "-": () => this.zoom(1.7),
      "0": () => this.reset(), Home: () => this.reset(),
      "]": () => this.toCall(1), "[": () => this.toCall(-1),
      m: () => this.measure.toggle(), p: () => this.pinSelected(),
      n: () => this.finder.step(1), N: () => this.finder.step(-1),
      l: () => this.finder.longer(1), L: () => this.finder.longer(-1),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  // Pin the lane of what is selected, or of what is under the pointer.
  pinSelected() {
    const lane = (this.timeline.selected ?? this.timeline.hovered)?.lane;
    if (lane) this.timeline.pin(lane);
  }

  // Select an event and bring it into the window, as close as it needs to be seen.
  visit(found) {
    const { view, width, canvas } = this.timeline, length = view.end - view.begin;
    const start = found.lane.start(found.i), end = found.lane.end(found.i), duration = Math.max(end - start, 1);
    this.select(found, false);
    const seen = (duration / length) * width >= 3 && duration <= length;
    const wanted = seen ? length : duration * 12;
    if (!seen || start < view.begin || end > view.end) {
      const middle = (start + end) / 2;
      this.go(middle - wanted / 2, middle + wanted / 2);
    }
    const { top, bottom } = canvas.getBoundingClientRect();
    if (bottom < 0 || top > innerHeight) document.getElementById("timeline").scrollIntoView();
  }

  // How many commands of a row stand in the pixel of an event that has none for itself, else 0.
  companions({ lane, i }) {
    const { view, width } = this.timeline, pixel = (view.end - view.begin) / width;
    if (lane.kind !== "commands" || lane.end(i) - lane.start(i) >= THIN * pixel) return 0;
    let count = -1;
    const begin = lane.start(i) - pixel / 2;
    lane.pyramids[lane.row[i]].visit(begin, begin + pixel, 0, () => (count += 1));
    return Math.max(count, 0);
  }

  // The card of what is under the pointer.
  tipOf(found) {
    const parts = this.details.card(found, true), count = this.companions(found);
    if (count) parts.push(element("p", { class: "together" }, say(
      "The longest here: drawn together with {count} others. Zoom in to separate them.", { count: format.count(count) },
    )));
    return parts;
  }

  // The event at a place of the canvas: the longest within two pixels.
  under(x, y) {
    const { timeline } = this;
    const placed = timeline.placed.find((entry) => y >= entry.y && y < entry.y + entry.height);
    if (!placed) return null;
    const { lane } = placed;
    if (lane.kind === "use") return { lane, i: Math.floor(x) };
    if (lane.kind === "counters") {
      const i = lane.startsBefore(timeline.time(x)) - 1;
      return i < 0 ? null : { lane, i };
    }
    const row = Math.min(Math.max(Math.floor((y - placed.y - 1) / placed.row), 0), lane.rows - 1);
    const slack = (2 * (timeline.view.end - timeline.view.begin)) / timeline.width;
    const time = timeline.time(x);
    let best = null, bestDistance = Infinity, longest = -1;
    lane.pyramids[row].visit(time - slack, time + slack, 0, (i) => {
      const start = lane.start(i), end = lane.end(i);
      const distance = Math.max(start - time, time - end, 0);
      if (distance < bestDistance || (distance === bestDistance && end - start > longest)) {
        [best, bestDistance, longest] = [{ lane, i }, distance, end - start];
      }
    });
    return best;
  }

  hover(event) {
    const found = event && this.under(event.offsetX, event.offsetY);
    const before = this.timeline.hovered;
    if (before?.lane !== found?.lane || before?.i !== found?.i) {
      this.timeline.hovered = found;
      this.timeline.draw();
      if (found) this.tip.replaceChildren(...this.tipOf(found));
    }
    this.timeline.canvas.classList.toggle("over", Boolean(found));
    this.tip.hidden = !found;
    if (!found) return;
    const { width, height } = this.tip.getBoundingClientRect();
    const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
    const top = Math.min(event.clientY + 16, innerHeight - height - 8);
    this.tip.style.left = `${Math.max(left, 8)}px`;
    this.tip.style.top = `${Math.max(top, 8)}px`;
  }

  report() {
    const { view, inView, together, tables, span } = this.timeline;
    const begin = Math.max(view.begin, 0), end = Math.min(view.end, span);
    const total = page.timeline.commands, here = tables.commands.rows;
    const sentences = [say("{from} to {to} ({length}), {count} commands in view.", {
      from: format.instant(begin), to: format.instant(end), length: format.duration(end - begin),
      count: format.count(inView ?? 0),
    })];
    if (together) sentences.push(say(
      "{count} of them are thinner than {pixels} pixels: drawn together, as strongly as they cover their pixels.",
      { count: format.count(together), pixels: THIN },
    ));
    if (here < total) sentences.push(say(
      "This page holds the {here} longest of {total} commands.",
      { here: format.count(here), total: format.count(total) },
    ));
    clearTimeout(this.said);
    this.said = setTimeout(() => (this.status.textContent = sentences.join(" ")), 60);
    for (const mover of this.movers) mover();
  }
}
