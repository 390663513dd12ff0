// The timeline: a window of time over lanes, drawn on demand.

const SHORTEST = 50; // ns; the shortest window

class Timeline {
  constructor(tables, theme) {
    this.tables = tables;
    this.text = page.timeline.strings;
    this.lanes = page.timeline.lanes.map((entry) => new Lane(entry, tables[entry.kind]));
    this.body = document.getElementById("timeline-body");
    this.canvas = this.body.querySelector(".lanes");
    this.overview = this.body.querySelector(".overview");
    this.labelColumn = this.body.querySelector(".labels");
    this.collapsed = new Set();
    this.span = Math.max(page.timeline.span, 1);
    this.margin = this.span * 0.004;
    this.view = this.whole();
    this.mode = "submodule";
    this.counters = false;
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
    this.setTheme(this.theme);
    this.draw();
  }

  // Place lanes, their labels and the canvas for the width there is.
  arrange() {
    const rows = this.lanes.reduce((sum, lane) => sum + lane.rows, 0);
    const { bands, height } = laidOut(this.lanes, this.collapsed, {
      compact: rows > 60, counters: this.counters,
    });
    this.bands = bands;
    this.height = height;
    this.placed = bands.flatMap((band) => band.lanes);
    this.labelColumn.replaceChildren(...bands.map((band) => this.bandLabels(band)));
    this.labelColumn.style.height = `${height}px`;
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

  bandLabels(band) {
    const hardware = page.timeline.devices[band.device];
    const heading = band.device && element(
      "button",
      {
        type: "button", class: "device", "aria-expanded": String(!band.collapsed),
        style: { top: `${band.y}px` }, title: [band.device, hardware].filter(Boolean).join(": "),
        onclick: () => this.toggle(band.device),
      },
      element("span", { class: "name" }, band.device),
      hardware ? element("span", { class: "hardware" }, hardware) : null,
    );
    const labels = band.lanes.map(({ lane, y, height }) => {
      const hidden = lane.deepest - lane.rows;
      const note = hidden ? `, ${hidden} deeper rows share the last` : "";
      const about = lane.kind === "modules" ? "stretches of commands whose layers begin alike" : lane.category;
      const title = about ? `${lane.track} (${about})${note}` : lane.track;
      return element(
        "div",
        { class: `lane ${lane.kind}`, style: { top: `${y}px`, height: `${height}px` }, title },
        element("span", {}, hidden ? `${lane.track} +${hidden}` : lane.track),
      );
    });
    return element("div", {}, heading || null, labels);
  }

  toggle(device) {
    if (!this.collapsed.delete(device)) this.collapsed.add(device);
    this.arrange();
    const buttons = [...this.labelColumn.querySelectorAll("button.device")];
    buttons.find((button) => button.firstChild.textContent === device)?.focus();
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
    this.inView = 0;
    for (const placed of this.placed) this.drawLane(context, placed);
    this.drawMarks(context);
    this.drawOverview();
    this.changed();
  }

  drawGround(context) {
    for (const band of this.bands) {
      if (!band.device) continue;
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
      context.fillText(text(time), x + 4, RULER / 2 - 1);
    }
  }

  // A counter as steps above its ground line, its highest value at the right end.
  drawCounter(context, { lane, y, height }) {
    const tall = height - 18, ground = y + height - 4;
    context.fillStyle = this.inks.counter;
    for (let i = Math.max(lane.startsBefore(this.view.begin) - 1, 0); i < lane.count; i++) {
      if (lane.start(i) > this.view.end) break;
      const left = Math.max(this.x(lane.start(i)), 0), right = Math.min(this.x(lane.end(i)), this.width);
      const high = lane.most > 0 ? (Math.max(lane.value(i), 0) / lane.most) * tall : 0;
      context.fillRect(left, ground - high, Math.max(right - left, 0.5), Math.max(high, 1));
    }
    context.fillStyle = this.inks.muted;
    context.textAlign = "right";
    context.fillText(counted(lane, lane.most), this.width - 6, y + 9);
    context.textAlign = "left";
  }

  drawLane(context, placed) {
    const { lane, y, row: pitch } = placed;
    if (lane.kind === "counters") return this.drawCounter(context, placed);
    const scale = this.width / (this.view.end - this.view.begin);
    const [from, to] = lane.window(this.view.begin, this.view.end);
    const bar = pitch - (pitch > 8 ? 2 : 1), top = y + 2;
    const cover = new Cover(Math.ceil(this.width), lane.rows);
    const labels = [];
    let last = "";
    for (let i = from; i < to; i++) {
      const start = lane.start(i), end = lane.end(i);
      if (end < this.view.begin) continue;
      const x0 = (start - this.view.begin) * scale, x1 = (end - this.view.begin) * scale;
      const key = this.keyOf(lane, i);
      if (x1 - x0 < 1.5) {
        cover.add(lane.row[i], x0, x1, key);
        continue;
      }
      const left = Math.max(x0, -4), right = Math.min(x1, this.width + 4);
      const fill = lane.kind === "spans" ? this.inks.band : this.paints.fills[key];
      if (fill !== last) context.fillStyle = last = fill;
      const at = top + lane.row[i] * pitch;
      context.fillRect(left, at, right - left - (right - left > 3 ? 0.8 : 0), bar);
      if (right - left > 22 && pitch > 10) labels.push([i, left, right, at, key]);
    }
    if (lane.kind === "commands") this.inView += to - from;
    cover.draw(context, this.paints.fills, top, bar, pitch);
    for (const [i, left, right, at, key] of labels) {
      const begin = Math.max(left, 0) + 5, room = Math.min(right, this.width) - begin - 4;
      const label = this.labelWidths.fit(this.names(lane, i), room);
      if (!label) continue;
      context.fillStyle = lane.kind === "spans" ? this.inks.muted : this.paints.inks[key];
      context.fillText(label, begin, at + bar / 2 + 0.5);
    }
  }

  keyOf(lane, i) {
    const at = lane.first + i;
    if (lane.kind === "calls") return this.paints.calls[at];
    if (lane.kind === "modules") return this.paints.modules[at];
    if (lane.kind === "spans") return 0;
    if (this.mode !== "submodule") return this.paints.bases[at];
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
    const step = table.step[at];
    if (lane.kind === "spans") return step < 0 ? [this.text[table.name[at]]] : [`step ${step}`, `${step}`];
    const name = this.text[table.submodule[at]], branch = this.text[table.branch[at]];
    if (step >= 0) return [`${name} · step ${step}`, `step ${step}`, `${step}`];
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
      if (mark.lane.kind === "commands") this.drawFlows(context, mark);
    }
  }

  // Where an event stands on the canvas, null where its lane is not shown.
  box({ lane, i }) {
    const placed = this.placed.find((entry) => entry.lane === lane);
    if (!placed) return null;
    const top = placed.y + 2 + (lane.row[i] ?? 0) * placed.row;
    return { left: this.x(lane.start(i)), right: this.x(lane.end(i)), top, tall: placed.row - 1 };
  }

  // The dependencies of a command: {source, target} as events.
  flowsOf({ lane, i }) {
    const { flows } = this.tables, at = lane.first + i, found = [];
    for (let k = 0; k < flows.rows; k++) {
      if (flows.source[k] !== at && flows.target[k] !== at) continue;
      found.push({ source: this.event(flows.source[k]), target: this.event(flows.target[k]) });
    }
    return found;
  }

  event(at) {
    const lane = this.lanes.find(
      (entry) => entry.kind === "commands" && at >= entry.first && at < entry.first + entry.count,
    );
    return { lane, i: at - lane.first };
  }

  // A curve from the end of what was waited for to the begin of what waited.
  drawFlows(context, mark) {
    context.lineWidth = 1.2;
    for (const { source, target } of this.flowsOf(mark)) {
      const from = this.box(source), to = this.box(target);
      if (!from || !to) continue;
      const bend = Math.min(Math.max(Math.abs(to.left - from.right) / 2, 14), 60);
      const y0 = from.top + from.tall / 2, y1 = to.top + to.tall / 2;
      context.beginPath();
      context.moveTo(from.right, y0);
      context.bezierCurveTo(from.right + bend, y0, to.left - bend, y1, to.left, y1);
      context.stroke();
    }
  }

  // The whole run on a strip of its own, painted once for each width and colouring.
  paintWhole() {
    const image = document.createElement("canvas");
    image.width = this.overview.width;
    image.height = this.overview.height;
    const context = image.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = this.inks.surface;
    context.fillRect(0, 0, this.width, 34);
    const whole = this.whole();
    const scale = this.width / (whole.end - whole.begin);
    for (const lane of this.lanes) {
      if (lane.kind !== (this.tables.calls.rows ? "calls" : "commands")) continue;
      const cover = new Cover(Math.ceil(this.width), 1);
      for (let i = 0; i < lane.count; i++) {
        const x0 = (lane.start(i) - whole.begin) * scale, x1 = (lane.end(i) - whole.begin) * scale;
        cover.add(0, x0, Math.max(x1 - 0.6, x0), this.keyOf(lane, i));
      }
      cover.draw(context, this.paints.fills, 9, 16, 16);
    }
    return image;
  }

  drawOverview() {
    const context = this.overview.getContext("2d");
    this.painted ??= this.paintWhole();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.painted, 0, 0);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    const whole = this.whole();
    const scale = this.width / (whole.end - whole.begin);
    const left = (this.view.begin - whole.begin) * scale;
    const right = (this.view.end - whole.begin) * scale;
    context.fillStyle = this.inks.veil;
    context.fillRect(0, 4, left, 26);
    context.fillRect(right, 4, this.width - right, 26);
    context.strokeStyle = this.inks.muted;
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, 4.5, Math.max(right - left - 1, 2), 25);
  }
}
