// The devices on the first screen: what ran where and when, by submodule, under the steps. Drawn from
// `page.strip`, a few rectangles a device, before the timeline's columns are unpacked.

import { page } from "./data.js";
import { FirstCanvas } from "./first_canvas.js";
import { format, shortened } from "./format.js";
import { message, say } from "./language.js";
import { ticks } from "./marks.js";

const STRIP = { label: 132, ruler: 18, steps: 15, row: 24, least: 7, most: 160, gap: 3 }; // pixels

export class DevicesStrip extends FirstCanvas {
  constructor(place) {
    super(place);
    this.devices = page.strip.devices;
    this.items = this.devices.flatMap((device, row) =>
      device.start.map((_, i) => ({ row, i, device })));
    this.at = 0;
  }

  get span() { return Math.max(page.strip.span, 1); }

  get row() { return Math.min(STRIP.row, Math.max(STRIP.least, STRIP.most / Math.max(this.devices.length, 1))); }

  get top() { return STRIP.ruler + (page.strip.steps.start.length ? STRIP.steps : 0); }

  get height() { return this.top + this.row * this.devices.length + 2; }

  get left() { return this.width < 640 ? 72 : STRIP.label; }

  x(time) { return this.left + (time / this.span) * (this.width - this.left); }

  text(code) { return code < 0 ? null : page.strip.strings[code]; }

  box({ row, i, device }) {
    const left = this.x(device.start[i]), right = this.x(device.start[i] + Math.max(device.duration[i], 0));
    return { left, top: this.top + row * this.row, width: Math.max(right - left, 0.7), height: this.row - STRIP.gap };
  }

  // What a rectangle is of, as the choice names it.
  pick({ i, device }) {
    const found = { submodule: this.text(device.submodule[i]), stage: this.text(device.stage[i]), step: device.step[i] };
    if (found.submodule === null) return { device: device.device };
    if (found.step < 0) delete found.step;
    if (found.stage === null || found.step !== undefined) delete found.stage;
    return found;
  }

  told({ i, device }) {
    const step = device.step[i];
    return { device: device.device, submodule: this.text(device.submodule[i]), stage: this.text(device.stage[i]), step: step < 0 ? null : step };
  }

  sentence(item) {
    const { i, device } = item, { submodule, stage, step } = this.told(item);
    const what = [submodule ?? say("no call"), stage, step === null ? null : say("step {value}", { value: step })];
    return say("{device}: {what}, {duration} from {start}", {
      device: device.device, what: what.filter(Boolean).join(", "),
      duration: format.duration(device.duration[i]), start: format.instant(device.start[i]),
    });
  }

  paint(context) {
    this.ground(context);
    for (const item of this.items) {
      const { left, top, width, height } = this.box(item), { submodule } = this.told(item);
      const pair = page.palette.submodules[submodule] ?? page.palette.host, fill = this.fill(pair[this.theme], item);
      context.fillStyle = fill;
      context.fillRect(left, top, width - (width > 3 ? 0.8 : 0), height);
      if (width > 26 && height > 10) this.label(context, [submodule ?? say("no call"), shortened(submodule ?? "", 12)], left, top, width, height, fill);
    }
  }

  // Names of devices, instants and steps.
  ground(context) {
    const { first, step, text } = ticks({ begin: 0, end: this.span }, Math.max(this.width - this.left, 50));
    context.font = `11px ${page.font}`;
    for (let time = first; time <= this.span; time += step) {
      const x = Math.round(this.x(time)) + 0.5;
      context.fillStyle = this.inks.line;
      context.fillRect(x - 0.5, STRIP.ruler - 5, 1, this.height);
      context.fillStyle = this.inks.muted;
      if (x + 3 + context.measureText(text(time)).width <= this.width) context.fillText(text(time), x + 3, STRIP.ruler / 2);
    }
    const names = this.devices.map(({ device }, row) => [device, this.top + row * this.row + (this.row - STRIP.gap) / 2]);
    if (this.top > STRIP.ruler) names.unshift([say("Steps"), STRIP.ruler + STRIP.steps / 2 - 1]);
    for (const [name, y] of this.row > 10 ? names : []) {
      context.fillStyle = this.inks.muted;
      context.fillText(this.fitted(context, [name, shortened(name, 20), shortened(name, 10)], this.left - 8), 0, y);
    }
    if (this.top > STRIP.ruler) this.drawSteps(context);
  }

  drawSteps(context) {
    const { start, duration, step } = page.strip.steps;
    let last = -Infinity;
    start.forEach((begin, i) => {
      const left = this.x(begin), width = this.x(begin + duration[i]) - left, number = String(step[i]);
      context.fillStyle = i % 2 ? this.inks.line : this.inks.band;
      context.fillRect(left, STRIP.ruler, Math.max(width, 0.5), STRIP.steps - 3);
      if (left < last || context.measureText(number).width > width - 4) return;
      last = left + width;
      context.fillStyle = this.inks.muted;
      context.fillText(number, left + 2, STRIP.ruler + STRIP.steps / 2 - 1);
    });
  }

  // By keys along a device, and to what ran at that time on another.
  move(key) {
    const now = this.items[this.at], along = { ArrowLeft: -1, ArrowRight: 1 }[key], across = { ArrowUp: -1, ArrowDown: 1 }[key];
    if (along) return this.at + along;
    const time = now.device.start[now.i];
    const others = this.items.map((item, number) => ({ item, number })).filter(({ item }) => item.row === now.row + across);
    return others.reduce((best, { item, number }) =>
      (best < 0 || Math.abs(item.device.start[item.i] - time) < Math.abs(this.items[best].device.start[this.items[best].i] - time) ? number : best), -1);
  }

  legend() {
    const used = [...new Set(this.items.map((item) => this.told(item).submodule))];
    return used.sort((a, b) => (a === null) - (b === null)) // what is of no call stands last
      .map((name) => [page.palette.submodules[name] ?? page.palette.host, name ?? say("no call")]);
  }

  table() {
    const rows = this.items.map((item) => ({ ...this.told(item), start_ns: item.device.start[item.i], duration_ns: item.device.duration[item.i] }));
    return { name: message("devices over time"), columns: page.strip.columns, rows };
  }
}
