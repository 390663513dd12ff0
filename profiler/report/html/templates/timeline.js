// The timeline: a window of time over lanes, drawn on demand.

import { page } from "./data.js";
import { Flows } from "./flows.js";
import { element } from "./format.js";
import { HEADING, laidOut, Lane, nameIn, RULER } from "./lanes.js";
import { say } from "./language.js";
import { counted, moduleNames, ticks } from "./marks.js";
import { drawOverview } from "./overview.js";
import { Cover, Labels, Paints, TINTS } from "./paint.js";
import { rowNames } from "./row_names.js";
import { useLanes } from "./use.js";

const SHORTEST = 50; // ns; the shortest window
export const THIN = 1.5; // pixels; what is narrower is drawn with its neighbours

export class Timeline {
  constructor(tables, theme) {
    this.tables = tables;
    this.text = page.timeline.strings;
    this.lanes = page.timeline.lanes.map((entry) => new Lane(entry, tables[entry.kind]));
    this.lanes.push(...useLanes(this));
    this.flows = new Flows(this);
    this.body = document.getElementById("timeline-body");
    this.canvas = this.body.querySelector(".lanes");
    this.overview = this.body.querySelector(".overview");
    this.labelColumn = this.body.querySelector(".labels");
    this.collapsed = new Set(); // bands
    this.pinned = new Set(); // lanes
    this.overlays = []; // what draws over the lanes
    this.span = Math.max(page.timeline.span, 1);
    this.margin = this.span * 0.004;
    this.view = this.whole();
    this.mode = "submodule";
    this.tinted = true;
    this.counters = false;
    this.choosing = false;
    this.hovered = this.selected = null;
    this.changed = () => {};
    this.setTheme(theme);
    this.arrange();
  }

  whole() { return { begin: -this.margin, end: this.span + this.margin }; }

  setTheme(theme) {
    this.theme = theme;
    this.paints = new Paints(this.tables, theme, this.mode);
    this.inks = Object.fromEntries(
      Object.entries(page.palette.page).map(([name, pair]) => [name, pair[theme]]),
    );
    this.painted = null;
  }

  setMode(mode) {
    this.mode = mode;
    this.tinted = mode === "submodule";
    this.setTheme(this.theme);
    this.draw();
  }

  // Draw what does not match pale; `matches` holds a flag for each row of each table, or is null.
  choose(matches) {
    this.choosing = Boolean(matches);
    for (const lane of this.lanes) lane.choose(matches?.[lane.kind] ?? null);
    this.painted = null;
    this.draw();
  }

  // Place lanes, their labels and the canvas for the width there is.
  arrange() {
    const rows = this.lanes.reduce((sum, lane) => sum + lane.rows, 0);
    const { bands, height } = laidOut(this.lanes, this.collapsed, {
      compact: rows > 60, counters: this.counters, pinned: this.pinned,
    });
    this.bands = bands;
    this.height = height;
    this.placed = bands.flatMap((band) => band.lanes);
    this.labelColumn.replaceChildren(...bands.map((band) => this.bandLabels(band)));
    this.labelColumn.style.height = `${height}px`;
    this.cutLabels();
    this.width = Math.max(Math.floor(this.body.clientWidth - this.labelColumn.offsetWidth), 50);
    this.ratio = window.devicePixelRatio || 1;
    this.painted = null;
    for (const [canvas, tall] of [[this.canvas, height], [this.overview, 34]]) {
      canvas.width = Math.round(this.width * this.ratio);
      canvas.height = Math.round(tall * this.ratio);
      canvas.style.width = `${this.width}px`;
      canvas.style.height = `${tall}px`;
    }
    this.draw();
  }

  // Bands by their names, lanes of a band among each other.
  cutLabels() {
    cutToRoom([...this.labelColumn.querySelectorAll(".device .name")]);
    for (const band of this.labelColumn.children) cutToRoom([...band.querySelectorAll(".lane > span")]);
  }

  bandLabels(band) {
    const hardware = page.timeline.devices[band.device];
    const heading = band.title && element(
      "button",
      {
        type: "button", class: "device", "aria-expanded": String(!band.collapsed), "data-band": band.key,
        style: { top: `${band.y}px` }, title: [band.title(), hardware].filter(Boolean).join(": "),
        onclick: () => this.toggle(band.key),
      },
      element("span", { class: "name" }, band.title()),
      hardware ? element("span", { class: "hardware" }, hardware) : null,
    );
    return element("div", {}, heading || null, band.lanes.map((placed) => this.laneLabel(band, placed)));
  }

  laneLabel(band, { lane, y, height }) {
    const hidden = lane.deepest - lane.rows, name = nameIn(band, lane);
    const about = lane.kind === "modules" ? say("stretches of commands whose layers begin alike") : lane.category;
    const title = [
      about ? `${name} (${about})` : name,
      hidden && say("{count} deeper rows share the last", { count: hidden }),
    ].filter(Boolean).join(", ");
    return element(
      "div",
      { class: `lane ${lane.kind}`, style: { top: `${y}px`, height: `${height}px` }, title },
      element("span", {}, hidden ? `${name} +${hidden}` : name), this.pinButton(lane, name),
    );
  }

  pinButton(lane, name) {
    const pinned = this.pinned.has(lane);
    return element("button", {
      type: "button", class: "pin", "aria-pressed": String(pinned),
      title: pinned ? say("Unpin {name}", { name }) : say("Pin {name} to the top", { name }),
      "aria-label": say("Pin {name} to the top", { name }), onclick: () => this.pin(lane),
    }, element("span", { "aria-hidden": "true" }, pinned ? "◆" : "◇"));
  }

  // Keep a lane above all devices, or put it back.
  pin(lane) {
    if (!this.pinned.delete(lane)) this.pinned.add(lane);
    const focused = this.labelColumn.contains(document.activeElement);
    this.arrange();
    if (!focused) return;
    const at = this.placed.findIndex((entry) => entry.lane === lane);
    this.labelColumn.querySelectorAll("button.pin")[at]?.focus();
  }

  toggle(key) {
    if (!this.collapsed.delete(key)) this.collapsed.add(key);
    this.arrange();
    const buttons = [...this.labelColumn.querySelectorAll("button.device")];
    buttons.find((button) => button.dataset.band === key)?.focus();
  }

  x(time) { return ((time - this.view.begin) / (this.view.end - this.view.begin)) * this.width; }

  time(x) { return this.view.begin + (x / this.width) * (this.view.end - this.view.begin); }

  // Show [begin, end], kept within the run and not shorter than SHORTEST.
  show(begin, end) {
    const whole = this.whole();
    const length = Math.max(end - begin, SHORTEST);
    begin = Math.min(Math.max((begin + end - length) / 2, whole.begin), whole.end - length);
    this.view = length < whole.end - whole.begin ? { begin, end: begin + length } : whole;
    this.draw();
  }

  draw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.drawNow();
    });
  }

  drawNow() {
    const context = this.canvas.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = this.inks.surface;
    context.fillRect(0, 0, this.width, this.height);
    context.font = `11.5px ${page.font}`;
    context.textBaseline = "middle";
    this.labelWidths ??= new Labels(context);
    this.drawGround(context);
    this.drawLanes(context);
    this.drawMarks(context);
    drawOverview(this);
    this.changed();
  }

  drawGround(context) {
    for (const band of this.bands) {
      if (!band.title) continue;
      context.fillStyle = this.inks.band;
      context.fillRect(0, band.y, this.width, HEADING - 2);
    }
    const { first, step, text } = ticks(this.view, this.width);
    context.textAlign = "left";
    for (let time = first; time <= this.view.end; time += step) {
      const x = Math.round(this.x(time)) + 0.5;
      context.fillStyle = this.inks.line;
      context.fillRect(x - 0.5, RULER - 6, 1, this.height);
      context.fillStyle = this.inks.muted;
      if (x + 4 + context.measureText(text(time)).width <= this.width) context.fillText(text(time), x + 4, RULER / 2 - 1);
    }
  }

  // A counter as steps above its ground line, its highest value at the right end.
  drawCounter(context, { lane, y, height }) {
    const tall = height - 18, ground = y + height - 4;
    context.fillStyle = this.inks.counter;
    const bar = (left, right, high) => context.fillRect(left, ground - high, Math.max(right - left, 0.5), Math.max(high, 1));
    let from = -1, highest = 0; // of samples that share a pixel the highest is drawn
    for (let i = Math.max(lane.startsBefore(this.view.begin) - 1, 0); i < lane.count; i++) {
      if (lane.start(i) > this.view.end) break;
      const left = Math.max(this.x(lane.start(i)), 0), right = Math.min(this.x(lane.end(i)), this.width);
      const high = lane.most > 0 ? (Math.max(lane.value(i), 0) / lane.most) * tall : 0;
      if (from < 0) from = left;
      highest = Math.max(highest, high);
      if (right - from < 1 && i + 1 < lane.count) continue;
      bar(from, right, highest);
      [from, highest] = [-1, 0];
    }
    if (from >= 0) bar(from, from + 1, highest);
    context.fillStyle = this.inks.muted;
    context.textAlign = "right";
    context.fillText(counted(lane, lane.most), this.width - 6, y + 9);
    context.textAlign = "left";
  }

  // Bars at least THIN pixels wide, by themselves; what is narrower goes into the cover.
  drawBars(context, { lane, y, row: pitch }, coverRow, labels) {
    const { begin, end } = this.view, scale = this.width / (end - begin), { all, chosen } = this.cover;
    const bar = pitch - (pitch > 8 ? 2 : 1), top = y + 2, spans = lane.kind === "spans";
    const { fills, pales } = this.paints, { cover } = this;
    let last = "", row = 0, bars = 0, narrow = 0;
    const one = (i) => {
      const x0 = (lane.start(i) - begin) * scale, x1 = (lane.end(i) - begin) * scale, key = this.keyOf(lane, i);
      const matched = lane.matched(i);
      if (x1 - x0 < THIN) {
        cover.add(all, coverRow + row, x0, x1, x1 - x0, x1 - x0, key);
        if (lane.matches && matched) cover.add(chosen, coverRow + row, x0, x1, x1 - x0, x1 - x0, key);
        narrow++;
        return;
      }
      bars++;
      const left = Math.max(x0, -4), right = Math.min(x1, this.width + 4), at = top + row * pitch;
      const fill = (matched ? fills : pales)[key], wide = right - left - (right - left > 3 ? 0.8 : 0);
      if (fill !== last) context.fillStyle = last = fill;
      context.fillRect(left, at, wide, bar);
      if (spans && wide > 3) { // a range, in which others work: an outline
        context.fillStyle = last = this.inks.band;
        context.fillRect(left + 1, at + 1, wide - 2, bar - 2);
      }
      if (right - left > 22 && pitch > 10) labels.push([i, left, right, at + bar / 2 + 0.5, key]);
    };
    const many = (level, group) => {
      const x0 = (level.begin[group] - begin) * scale, x1 = (level.end[group] - begin) * scale;
      const key = this.keyOf(lane, level.longest[group]);
      narrow += level.count[group];
      cover.add(all, coverRow + row, x0, x1, level.time[group] * scale, level.most[group] * scale, key);
      if (!lane.matches || level.chosen[group] < 0) return;
      const chosenKey = this.keyOf(lane, level.chosen[group]);
      cover.add(
        chosen, coverRow + row, x0, x1, level.chosenTime[group] * scale, level.chosenMost[group] * scale, chosenKey,
      );
    };
    for (; row < lane.rows; row++) lane.pyramids[row].visit(begin, end, 1 / scale, one, many);
    if (lane.kind !== "commands") return;
    this.inView += bars + narrow;
    this.together += narrow;
  }

  // All lanes: bars, then narrower events of all lanes in one image, then names.
  drawLanes(context) {
    const shown = this.placed.filter(({ lane }) => !["counters", "use"].includes(lane.kind));
    const rows = shown.reduce((sum, { lane }) => sum + lane.rows, 0), labels = [];
    if (this.cover?.width !== this.width || this.cover.rows !== rows) this.cover = new Cover(this.width, rows);
    this.cover.clear();
    this.inView = this.together = 0;
    let coverRow = 0;
    for (const placed of shown) {
      const names = [];
      this.drawBars(context, placed, coverRow, names);
      labels.push([placed.lane, names]);
      coverRow += placed.lane.rows;
    }
    this.cover.finish(this.paints.words, this.choosing);
    coverRow = 0;
    for (const { lane, y, row: pitch } of shown) {
      for (let row = 0; row < lane.rows; row++) {
        this.cover.draw(context, coverRow++, y + 2 + row * pitch, pitch - (pitch > 8 ? 2 : 1));
      }
    }
    for (const [lane, names] of labels) this.drawNames(context, lane, names);
    for (const placed of this.placed) {
      if (placed.lane.kind === "counters") this.drawCounter(context, placed);
      if (placed.lane.kind === "use") placed.lane.draw(context, placed);
    }
  }

  drawNames(context, lane, names) {
    for (const [i, left, right, middle, key] of names) {
      const begin = Math.max(left, 0) + 5, room = Math.min(right, this.width) - begin - 4;
      const label = this.labelWidths.fit(this.names(lane, i), room);
      if (!label) continue;
      const quiet = this.choosing && !lane.matched(i), spans = lane.kind === "spans";
      context.fillStyle = spans ? (quiet ? this.inks.muted : this.inks.text) : quiet ? this.paints.quiet[key] : this.paints.inks[key];
      context.fillText(label, begin, middle);
    }
  }

  keyOf(lane, i) {
    const at = lane.first + i;
    if (lane.kind === "calls") return this.paints.calls[at];
    if (lane.kind === "modules") return this.paints.modules[at];
    if (lane.kind === "spans") return this.paints.spans;
    if (!this.tinted) return this.paints.bases[at];
    return this.paints.bases[at] + ((this.tables.commands.layer[at] * 7 + 3) % TINTS.length);
  }

  // What may stand in a bar, the longest first.
  names(lane, i) {
    const at = lane.first + i, table = lane.table;
    if (lane.kind === "commands") {
      const layer = this.text[table.layer[at]], type = this.text[table.op_type[at]];
      const last = layer.match(/[^./]*(?:[./][0-9]+)?$/)[0] || layer;
      return type && type !== layer
        ? [`${layer} · ${type}`, `${last} · ${type}`, last, type] : [layer, last];
    }
    if (lane.kind === "modules") return moduleNames(this.text[table.name[at]]);
    const step = table.step[at], named = say("step {value}", { value: step });
    if (lane.kind === "spans") return step < 0 ? [this.text[table.name[at]]] : [named, `${step}`];
    const name = this.text[table.submodule[at]], branch = this.text[table.branch[at]];
    if (step >= 0) return [`${name} · ${named}`, named, `${step}`];
    return branch ? [`${name} · ${branch}`, name] : [name];
  }

  // Outlines of what is under the pointer and of what is selected, and its dependencies.
  drawMarks(context) {
    context.strokeStyle = this.inks.text;
    for (const mark of [this.selected, this.hovered]) {
      const box = mark && this.box(mark);
      if (!box) continue;
      context.lineWidth = 1.5;
      context.strokeRect(box.left - 0.5, box.top - 0.5, Math.max(box.right - box.left, 2), box.tall);
      if (mark.lane.kind === "commands") this.flows.draw(context, mark);
    }
    for (const overlay of this.overlays) overlay(context);
  }

  // The place of an event on the canvas, null if its lane is not shown.
  box({ lane, i }) {
    const placed = this.placed.find((entry) => entry.lane === lane);
    if (!placed) return null;
    const top = placed.y + 2 + (lane.row[i] ?? 0) * placed.row;
    return { left: this.x(lane.start(i)), right: this.x(lane.end(i)), top, tall: placed.row - 1 };
  }
}

// Cut the texts of these elements, all of one list, to the room that the narrowest has; screen readers still
// have the whole.
function cutToRoom(places) {
  const full = places.filter((place) => place.scrollWidth > place.clientWidth);
  if (!full.length) return;
  const whole = places.map((place) => place.textContent), room = Math.min(...full.map((place) => place.clientWidth));
  const context = new OffscreenCanvas(1, 1).getContext("2d"), { fontWeight, fontSize, fontFamily } = getComputedStyle(places[0]);
  context.font = `${fontWeight} ${fontSize} ${fontFamily}`;
  const made = rowNames(whole, (text) => Math.ceil(context.measureText(text).width) <= room);
  places.forEach((place, i) => {
    if (made[i] === whole[i]) return;
    place.replaceChildren(element("span", { "aria-hidden": "true" }, made[i]), element("span", { class: "hidden" }, whole[i]));
  });
}
