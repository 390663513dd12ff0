// The devices on the first screen, under the steps: a thin row of calls for each, and below it which
// part of the time the device was busy. Drawn from `page.strip`, a few rectangles and one curve a
// device, before the timeline's columns are unpacked.

import { page } from "./data.js";
import { FirstCanvas } from "./first_canvas.js";
import { format, shortened } from "./format.js";
import { message, say } from "./language.js";
import { ticks } from "./marks.js";
import { rowNames } from "./row_names.js";

const STRIP = { label: 132, short: 96, ruler: 18, steps: 15, row: 38, least: 9, most: 190, gap: 4 }; // pixels
const LONGER = 1.01; // axis to end-to-end time
const OF_CALLS = 0.42; // of a device's row, if its busy share is known

export class DevicesStrip extends FirstCanvas {
  constructor(place) {
    super(place);
    this.devices = page.strip.devices;
    this.items = this.devices.flatMap((device, row) =>
      device.start.map((_, i) => ({ row, i, device })));
    this.at = 0;
  }

  get begin() { return page.strip.begin; }

  get end() { return Math.max(page.strip.span, this.begin + 1); }

  // The place of a device's calls and, if it is known, how busy it was: top and height.
  callsOf(row) {
    const room = this.row - STRIP.gap, known = this.devices[row].busy || this.devices[row].inside;
    return { top: this.top + row * this.row, height: known ? Math.round(room * OF_CALLS) : room };
  }

  busyOf(row) {
    const calls = this.callsOf(row), top = calls.top + calls.height + 1;
    const { busy, inside } = this.devices[row];
    return busy || inside ? { top, height: this.top + (row + 1) * this.row - STRIP.gap - top } : null;
  }

  get row() { return Math.min(STRIP.row, Math.max(STRIP.least, STRIP.most / Math.max(this.devices.length, 1))); }

  get top() { return STRIP.ruler + (page.strip.steps.start.length ? STRIP.steps : 0); }

  get height() { return this.top + this.row * this.devices.length + 2; }

  get left() { return this.width < 640 ? (this.longer ? STRIP.short : 72) : STRIP.label; }

  x(time) { return this.left + ((time - this.begin) / (this.end - this.begin)) * (this.width - this.left); }

  text(code) { return code < 0 ? null : page.strip.strings[code]; }

  box({ row, i, device, part }) {
    if (part !== undefined) return this.partBox(row, part);
    const { top, height } = this.callsOf(row), left = this.x(device.start[i]), right = this.x(device.start[i] + Math.max(device.duration[i], 0));
    return { left, top, width: Math.max(right - left, 0.7), height };
  }

  // An interval of a device's busy share.
  partBox(row, part) {
    const { start, step } = this.devices[row].busy, left = this.x(start + part * step);
    return { left, ...this.busyOf(row), width: this.x(start + (part + 1) * step) - left };
  }

  under(event) {
    const found = super.under(event);
    if (found) return found;
    const time = this.begin + ((event.offsetX - this.left) / (this.width - this.left)) * (this.end - this.begin);
    for (const [row, device] of this.devices.entries()) {
      const place = this.busyOf(row);
      if (!place || !device.busy || event.offsetY < place.top || event.offsetY > place.top + place.height) continue;
      const part = Math.floor((time - device.busy.start) / device.busy.step);
      return part in device.busy.busy ? this.part(row, part) : null;
    }
    return null;
  }

  part(row, part) {
    this.parts ??= new Map();
    const key = `${row} ${part}`;
    if (!this.parts.has(key)) this.parts.set(key, { row, part, device: this.devices[row] });
    return this.parts.get(key);
  }

  // What a rectangle is of, as the choice names it.
  pick({ i, device, part }) {
    if (part !== undefined) return { device: device.device };
    const found = { submodule: this.text(device.submodule[i]), stage: this.text(device.stage[i]), step: device.step[i] };
    if (found.submodule === null) return { device: device.device };
    if (found.step < 0) delete found.step;
    if (found.stage === null || found.step !== undefined) delete found.stage;
    return found;
  }

  picks({ i, device, part }) {
    if (part !== undefined) return { device: device.device };
    const step = device.step[i];
    return { device: device.device, submodule: this.text(device.submodule[i]), stage: this.text(device.stage[i]), step: step < 0 ? null : step };
  }

  sentence(item) {
    if (item.part !== undefined) return this.ofPart(item);
    const { i, device } = item, { submodule, stage, step } = this.picks(item);
    const what = [submodule ?? say("work outside of calls"), stage, step === null ? null : say("step {value}", { value: step })];
    const words = say("{device}: {what}, {duration} from {start}", {
      device: device.device, what: what.filter(Boolean).join(", "),
      duration: format.duration(device.duration[i]), start: format.instant(device.start[i]),
    });
    return device.inside ? `${words}, ${say("{share} in operators", { share: format.percent(device.inside[i]) })}` : words;
  }

  ofPart({ device: { device, busy }, part }) {
    const start = busy.start + part * busy.step;
    const words = { device, share: format.percent(busy.busy[part] / 1000), start: format.instant(start), end: format.instant(start + busy.step) };
    if (!busy.lost[part]) return say("{device}: busy {share}, from {start} to {end}", words);
    return say("{device}: busy {share}, {lost} not recorded, from {start} to {end}", { ...words, lost: format.percent(busy.lost[part] / 1000) });
  }

  paint(context) {
    this.ground(context);
    this.devices.forEach((device, row) => device.busy && this.curve(context, row));
    for (const item of this.items) {
      const { left, top, width, height } = this.box(item), { submodule } = this.picks(item);
      const pair = page.palette.submodules[submodule], drawn = width - (width > 3 ? 0.8 : 0), named = width > 20 && height > 10;
      if (!pair) this.frame(context, left, top, drawn, height, named ? [say("work outside of calls"), say("no call")] : [], item);
      else {
        const fill = context.fillStyle = this.fill(pair[this.theme], item);
        context.fillRect(left, top, drawn, height);
        if (named) this.label(context, [submodule, shortened(submodule, 12)], left, top, width, height, fill);
      }
      if (item.device.inside) this.share(context, item, left, width);
    }
  }

  // How much of a call operators take, and what is around them: when they ran is not known.
  share(context, item, left, width) {
    const { top, height } = this.busyOf(item.row), inside = width * item.device.inside[item.i];
    this.hatch(context, left, top, width - (width > 3 ? 0.8 : 0), height, [], item, "lined");
    context.fillStyle = this.fill(this.inks.busy, item);
    context.fillRect(left, top, inside, height);
  }

  // How busy a device was in each interval, from below; from above, what was not recorded.
  curve(context, row) {
    const { busy: { busy, lost, start, step } } = this.devices[row], { top, height } = this.busyOf(row);
    const item = { row, part: 0, device: this.devices[row] }, left = this.x(start), right = this.x(start + step * busy.length);
    this.hatch(context, left, top, right - left, height, [], item);
    const bars = (shares, fill, from) => {
      context.fillStyle = fill;
      context.beginPath();
      context.moveTo(left, from);
      shares.forEach((share, part) => {
        const y = from + (from > top ? -1 : 1) * (share / 1000) * height;
        context.lineTo(this.x(start + part * step), y);
        context.lineTo(this.x(start + (part + 1) * step), y);
      });
      context.lineTo(right, from);
      context.fill();
    };
    bars(busy, this.fill(this.inks.busy, item), top + height);
    if (lost.some((share) => share > 0)) bars(lost, this.pattern("dotted", item), top);
  }

  // Names of devices, instants and steps.
  ground(context) {
    const { first, step, text } = ticks({ begin: this.begin, end: this.end }, Math.max(this.width - this.left, 50));
    context.font = `11px ${page.font}`;
    for (let time = first; time <= this.end; time += step) {
      const x = Math.round(this.x(time)) + 0.5;
      context.fillStyle = this.inks.line;
      context.fillRect(x - 0.5, STRIP.ruler - 5, 1, this.height);
      context.fillStyle = this.inks.muted;
      if (x + 3 + context.measureText(text(time)).width <= this.width) context.fillText(text(time), x + 3, STRIP.ruler / 2);
    }
    const devices = rowNames(this.devices.map(({ device }) => device), (text) => context.measureText(text).width <= this.left - 8);
    const names = this.devices.flatMap(({ busy }, row) => {
      const { top, height } = this.callsOf(row), place = this.busyOf(row);
      if (!place || place.height < 10) return [[devices[row], this.top + (row + 0.5) * this.row - STRIP.gap / 2]];
      return [[devices[row], top + height / 2], [this.shares(row), place.top + place.height / 2]];
    });
    if (this.top > STRIP.ruler) names.unshift([say("Steps"), STRIP.ruler + STRIP.steps / 2 - 1]);
    for (const [texts, y] of this.row > 10 ? names : []) {
      context.fillStyle = this.inks.muted;
      context.fillText(this.fitted(context, [texts].flat(), this.left - 8), 0, y);
    }
    if (this.top > STRIP.ruler) this.drawSteps(context);
  }

  // How busy a device was, the longest text first: with what it is a share of if the axis has more, such as time
  // that was not recorded on any device.
  shares(row) {
    const { busy } = this.devices[row], share = format.percent(busy ? busy.share : this.inside(row));
    if (!busy) return [say("{share} in operators", { share }), share];
    if (!this.longer) return [say("busy {share}", { share }), share];
    const time = format.duration(busy.of_ns);
    return [say("busy {share} of {time}", { share, time }), say("{share} of {whole}", { share, whole: time })];
  }

  // Whether the axis is so much longer than what busy shares are of that they would not be those that are drawn.
  get longer() { return this.devices.some(({ busy }) => busy && this.end - this.begin > LONGER * busy.of_ns); }

  drawSteps(context) {
    const { start, duration, step } = page.strip.steps;
    let last = -Infinity;
    start.forEach((begin, i) => {
      const left = this.x(begin), width = this.x(begin + duration[i]) - left, number = String(step[i]);
      this.frame(context, left, STRIP.ruler, Math.max(width - 1, 0.5), STRIP.steps - 3);
      if (left < last || context.measureText(number).width > width - 6) return;
      last = left + width;
      context.fillStyle = this.inks.text;
      context.fillText(number, left + 4, STRIP.ruler + STRIP.steps / 2 - 1);
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

  // The share of a device's time in calls that its operators take.
  inside(row) {
    const { inside, duration } = this.devices[row];
    const sum = (shares) => duration.reduce((all, time, i) => all + time * shares(i), 0);
    return sum((i) => inside[i]) / sum(() => 1);
  }

  // Calls are distinguished by their names.
  legend() {
    const { palette } = page, curves = this.devices.map((device) => device.busy).filter(Boolean);
    const found = curves.length ? [[palette.page.busy, say("busy (any stream)")], [palette.page.wait, say("waiting"), "hatched"]] : [];
    if (curves.some((curve) => curve.lost.some((share) => share > 0))) found.push([palette.page.frame, say("not recorded"), "dotted"]);
    if (this.items.some((item) => this.picks(item).submodule === null)) found.push([palette.page.frame, say("no call"), "framed"]);
    if (this.devices.some((device) => device.inside)) {
      found.push([palette.page.busy, say("in operators (start times not recorded)")], [palette.page.frame, say("outside of operators"), "lined"]);
    }
    const { before, carried } = page.strip;
    if (carried) found.push([null, say("{time} of it launched before the recording, not counted", { time: format.duration(carried) })]);
    if (before) found.push([null, say("before: {name}, {time}", { name: before.name, time: format.duration(before.duration) })]);
    return found;
  }

  table() {
    const rows = this.items.map((item) => ({ ...this.picks(item), start_ns: item.device.start[item.i], duration_ns: item.device.duration[item.i] }));
    return { name: message("devices over time"), columns: page.strip.columns, rows };
  }
}
