// Two timelines below each other, of `page.two`: calls by submodule, and under them what each device
// executed, by role. Aligned by call, the calls of both sides that are the same begin at one place.

import { page } from "./data.js";
import { FirstCanvas } from "./first_canvas.js";
import { format, shortened } from "./format.js";
import { message, say } from "./language.js";
import { ticks } from "./marks.js";
import { rowNames } from "./row_names.js";

const TWO = { label: 132, ruler: 18, calls: 13, row: 17, least: 6, most: 90, gap: 2, between: 9 }; // pixels

export class TwoTimelines extends FirstCanvas {
  constructor(place) {
    super(place);
    this.sides = page.two.sides;
    this.lanes = this.sides.map(({ stretches }) => [...new Set(stretches.device)]);
    this.items = this.sides.flatMap((side, number) => [
      ...side.calls.start.map((_, i) => ({ number, side, i, call: true })),
      ...side.stretches.start.map((_, i) => ({ number, side, i, call: false })),
    ]);
    this.alignment = this.known ? "call" : "begin";
    this.view = { begin: 0, end: this.span };
  }

  // Whether there is more than one call to align.
  get known() { return this.sides.every(({ calls }) => calls.start.length > 0) && this.sides.some(({ calls }) => calls.start.length > 1); }

  get span() { return Math.max(this.alignment === "call" ? page.two.aligned : 0, ...this.sides.map(({ span }) => span), 1); }

  get row() {
    const rows = this.lanes.reduce((sum, lanes) => sum + lanes.length, 0);
    return Math.min(TWO.row, Math.max(TWO.least, (2 * TWO.most) / Math.max(rows, 1)));
  }

  get height() { return this.top(this.sides.length); }

  get left() { return this.width < 640 ? 72 : TWO.label; }

  // The top of a side.
  top(number) {
    const above = this.lanes.slice(0, number);
    return TWO.ruler + above.reduce((sum, lanes) => sum + TWO.calls + lanes.length * this.row + TWO.between, 0);
  }

  x(time) { return this.left + ((time - this.view.begin) / (this.view.end - this.view.begin)) * (this.width - this.left); }

  // The begin of an event, by the alignment.
  begin({ side, i, call }) {
    const { calls, stretches } = side, own = call ? calls.start[i] : stretches.start[i], of = call ? i : stretches.call[i];
    return this.alignment === "call" && of !== undefined ? calls.at[of] + own - calls.start[of] : own;
  }

  duration({ side, i, call }) { return Math.max((call ? side.calls : side.stretches).duration[i], 0); }

  box(item) {
    const begin = this.begin(item), left = Math.max(this.x(begin), this.left), right = Math.min(this.x(begin + this.duration(item)), this.width);
    if (right < this.left || left > this.width) return null;
    const { number, side, i, call } = item, lane = call ? 0 : this.lanes[number].indexOf(side.stretches.device[i]);
    const top = this.top(number) + (call ? 0 : TWO.calls + lane * this.row);
    return { left, top, width: Math.max(right - left, 0.7), height: (call ? TWO.calls : this.row) - TWO.gap };
  }

  text(code) { return code < 0 ? null : page.two.names[code]; }

  picks({ side, i, call }) {
    const { calls, stretches } = side, of = call ? i : stretches.call[i];
    const inCall = of === undefined ? {} : { submodule: this.text(calls.submodule[of]), stage: this.text(calls.stage[of]), step: calls.step[of] < 0 ? null : calls.step[of] };
    return call ? inCall : { ...inCall, device: this.text(stretches.device[i]), role: this.text(stretches.role[i]) };
  }

  matches() { return true; }

  pick() { return {}; }

  sentence(item) {
    const { submodule, stage, step, device, role } = this.picks(item), { side, i, call } = item;
    const what = [device, role, submodule, stage, step === null || step === undefined ? null : say("step {value}", { value: step })];
    const words = { side: this.name(item.number), what: what.filter(Boolean).join(", "), duration: format.duration(this.duration(item)) };
    const other = call ? this.sides[1 - item.number].calls.duration[side.calls.other[i]] : undefined;
    return other === undefined ? say("{side}: {what}, {duration}", words)
      : say("{side}: {what}, {duration}; {other} on the other side", { ...words, other: format.duration(other) });
  }

  hint() { return say("Arrow keys move between calls and sides, + and − zoom, 0 shows all."); }

  name(number) { return number ? say("new") : say("base"); }

  paint(context) {
    this.ground(context);
    for (const item of this.items) {
      const box = this.box(item);
      if (!box) continue;
      const { submodule, role } = this.picks(item), { left, top, width, height } = box;
      const pair = (item.call ? page.palette.submodules[submodule] : page.palette.roles[role]) ?? page.palette.host;
      context.fillStyle = pair[this.theme];
      context.fillRect(left, top, width - (width > 3 ? 0.6 : 0), height);
      if (item.call && width > 26) this.label(context, [submodule ?? "", shortened(submodule ?? "", 12)], left, top, width, height, pair[this.theme]);
    }
  }

  ground(context) {
    const { view } = this, { first, step, text } = ticks(view, Math.max(this.width - this.left, 50));
    context.font = `11px ${page.font}`;
    for (let time = first; time <= view.end; time += step) {
      const x = Math.round(this.x(time)) + 0.5;
      context.fillStyle = this.inks.line;
      context.fillRect(x - 0.5, TWO.ruler - 5, 1, this.height);
      context.fillStyle = this.inks.muted;
      if (this.alignment === "begin" && x + 3 + context.measureText(text(time)).width <= this.width) context.fillText(text(time), x + 3, TWO.ruler / 2);
    }
    context.fillStyle = this.inks.muted;
    if (this.alignment === "call") context.fillText(say("calls that are the same begin together"), this.left + 3, TWO.ruler / 2);
    this.sides.forEach((side, number) => {
      const top = this.top(number);
      context.fillStyle = this.inks.text;
      context.fillText(this.name(number), 0, top + (TWO.calls - TWO.gap) / 2);
      context.fillStyle = this.inks.muted;
      const names = this.row > 10 ? rowNames(this.lanes[number].map((device) => this.text(device) ?? ""), (text) => context.measureText(text).width <= this.left - 8) : [];
      names.forEach((name, lane) => context.fillText(name, 0, top + TWO.calls + lane * this.row + (this.row - TWO.gap) / 2));
    });
  }

  move(key) {
    const now = this.items[this.at], along = { ArrowLeft: -1, ArrowRight: 1 }[key];
    const same = (item) => item.number === now.number && item.call === now.call;
    if (along) return this.at + along in this.items && same(this.items[this.at + along]) ? this.at + along : -1;
    const other = now.call ? now.side.calls.other[now.i] : -1;
    const wanted = this.items.findIndex(({ number, i, call }) => number !== now.number && call && i === (other < 0 ? 0 : other));
    return wanted;
  }

  pressed({ key }) {
    const action = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), "\u2212": () => this.zoom(2), 0: () => this.show(0, this.span) }[key];
    action?.();
    return Boolean(action);
  }

  // Closer by a factor below 1, about the middle or an instant.
  zoom(factor, at = (this.view.begin + this.view.end) / 2) {
    const begin = at - (at - this.view.begin) * factor;
    this.show(begin, begin + (this.view.end - this.view.begin) * factor);
  }

  show(begin, end) {
    const wide = Math.min(Math.max(end - begin, Math.min(this.span, 1000)), this.span), from = Math.min(Math.max(begin, 0), this.span - wide);
    this.view = { begin: from, end: from + wide };
    this.draw();
  }

  align(alignment) {
    this.alignment = alignment;
    this.show(0, this.span);
  }

  // A click on a call shows it, with the other side's below it.
  choose(item) {
    if (item.call) {
      const begin = this.begin(item), other = this.sides[1 - item.number].calls.duration[item.side.calls.other[item.i]] ?? 0;
      this.show(begin, begin + Math.max(this.duration(item), other, 1) * 1.02);
    }
    this.say(item);
  }

  listen() {
    super.listen();
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const at = this.view.begin + ((event.offsetX - this.left) / (this.width - this.left)) * (this.view.end - this.view.begin);
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, at);
    }, { passive: false });
    const buttons = { in: () => this.zoom(0.5), out: () => this.zoom(2), all: () => this.show(0, this.span) };
    for (const [name, action] of Object.entries(buttons)) this.place.querySelector(`[data-two="${name}"]`).addEventListener("click", action);
    const select = this.place.querySelector("#two-align");
    select.value = this.alignment;
    select.disabled = !this.known;
    select.addEventListener("change", () => this.align(select.value));
  }

  legend() {
    const roles = [...new Set(this.sides.flatMap(({ stretches }) => stretches.role))].map((code) => this.text(code));
    const found = Object.entries(page.palette.roles).filter(([name]) => roles.includes(name)).map(([name, pair]) => [pair, name]);
    return roles.includes(null) ? [...found, [page.palette.host, say("no role")]] : found;
  }

  table() {
    const [base, next] = this.sides, rows = base.calls.start.map((_, i) => {
      const other = next.calls.duration[base.calls.other[i]] ?? null, own = base.calls.duration[i];
      return { ...this.picks({ side: base, i, call: true }), base_ns: own, new_ns: other, difference_ns: other === null ? null : other - own };
    });
    next.calls.other.forEach((other, i) => {
      if (other < 0) rows.push({ ...this.picks({ side: next, i, call: true }), base_ns: null, new_ns: next.calls.duration[i], difference_ns: null });
    });
    return { name: message("calls"), columns: page.two.columns, rows };
  }
}
