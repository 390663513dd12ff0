// The icicle on the first screen: run, stages, submodules, blocks, operators below each other, each as
// wide as its time, with what devices waited for. Drawn from `page.icicle`, the largest nodes of the
// analysis's module tree. Roles and leaves have the colour of a role; what is around them is grey.

import { page } from "./data.js";
import { FirstCanvas } from "./first_canvas.js";
import { format, shortened, SPACE } from "./format.js";
import { message, say } from "./language.js";
import { Nodes } from "./nodes.js";
import { report } from "./theme.js";

const ICICLE = { row: 22, rows: 7, gap: 1 }; // pixels, rows that are seen at once
const NO_WORK = { waiting: "hatched", no_operator: "lined", lost: "dotted", untraced: "dotted" }; // looks of kinds of nodes
const PEAKS = [0.1, 0.25, 0.5, 0.75]; // of peak, at which colours change

export class Icicle extends FirstCanvas {
  constructor(place) {
    super(place);
    const { values, parent } = page.icicle;
    this.values = values;
    this.parent = parent;
    this.nodes = new Nodes({ ...page.icicle, kind: page.icicle.codes.kind, name: page.icicle.own, label: values.name });
    this.children = parent.map(() => []);
    parent.forEach((above, node) => above >= 0 && this.children[above].push(node));
    this.waited = this.times("waiting");
    this.outside = this.times("no_operator"); // whether a device worked then is not known
    this.root = this.zoomed = Math.max(parent.indexOf(-1), 0);
    this.mode = "role";
    this.lay(this.root, 0, 0);
    this.show(this.root);
    this.colour = place.querySelector("select");
    this.back = place.querySelector("[data-icicle=back]");
  }

  get height() { return ICICLE.row * Math.min(ICICLE.rows, Math.max(...this.depth) + 1); }

  is(node, ...kinds) { return kinds.includes(page.icicle.codes.kind[node]); }

  // The time of what is of that kind in each node.
  times(kind) {
    const found = new Float64Array(this.parent.length);
    for (let node = this.parent.length - 1; node >= 0; node--) {
      if (this.is(node, kind)) found[node] = this.values.elapsed_ns[node];
      if (this.parent[node] >= 0) found[this.parent[node]] += found[node];
    }
    return found;
  }

  // The begin of each node, ns from the root's left edge, and how deep it lies. Stages follow each
  // other as they ran; what is in a submodule has the largest first, and waiting last.
  lay(root) {
    const { elapsed_ns: elapsed } = this.values, kinds = page.icicle.codes.kind;
    this.begin = new Float64Array(elapsed.length);
    this.depth = new Int32Array(elapsed.length);
    const rest = [root];
    while (rest.length) {
      const node = rest.pop(), below = this.children[node];
      if (!below.some((child) => kinds[child] === "stage")) below.sort((a, b) => this.idle(a) - this.idle(b) || elapsed[b] - elapsed[a] || a - b);
      let at = this.begin[node];
      for (const child of below) {
        this.begin[child] = at;
        this.depth[child] = this.depth[node] + 1;
        at += elapsed[child];
        rest.push(child);
      }
    }
  }

  idle(node) { return this.is(node, "waiting", "no_call", "no_operator", "lost"); }

  // Draw `node` over the whole width from now on, and what is in it.
  show(node) {
    this.zoomed = node;
    this.items = [];
    const rest = [node];
    while (rest.length) {
      const next = rest.pop();
      if (this.depth[next] - this.depth[node] >= ICICLE.rows) continue;
      this.items.push({ node: next });
      rest.push(...this.children[next].toReversed());
    }
    this.at = 0;
  }

  box({ node }) {
    const { elapsed_ns: elapsed } = this.values, scale = this.width / elapsed[this.zoomed];
    return {
      left: (this.begin[node] - this.begin[this.zoomed]) * scale,
      top: (this.depth[node] - this.depth[this.zoomed]) * ICICLE.row,
      width: elapsed[node] * scale, height: ICICLE.row - ICICLE.gap,
    };
  }

  // Names of the trace are as they are; what has none is called by a word.
  name(node) {
    const name = this.values.name[node] ?? "";
    const ours = { run: name === "run", untraced: true, waiting: true, no_call: true, no_operator: true, lost: true };
    return ours[page.icicle.codes.kind[node]] ? say(name) : name;
  }

  // What a node is of, as far as the choice can tell.
  picks({ node }) { return this.nodes.picks[node]; }

  // That, or as much of it as the run has.
  pick({ node }) {
    const pick = Object.entries(this.picks({ node })).filter(([, value]) => value !== undefined);
    return Object.fromEntries(pick.filter(([dimension, value]) => !report.choice || report.choice.exists(dimension, value)));
  }

  sentence({ node }) {
    const { role, executions } = this.values, notes = [];
    const names = [];
    for (let at = node; at >= 0; at = this.parent[at]) names.unshift(this.name(at));
    if (executions[node] !== null) notes.push(say("executions: {count}", { count: format.count(executions[node]) }));
    if (role[node]) notes.push(say("role {value}", { value: role[node] }));
    notes.push(this.peak(node), this.bound(node), this.mix(node));
    if (this.is(node, "waiting")) notes.push(say("a click leads to the gaps"));
    return [`${names.join(" › ")}: ${this.time(node)}`, format.percent(this.share(node)), ...notes.filter(Boolean)].join(", ");
  }

  peak(node) {
    const part = this.values.flops_of_peak[node];
    return part === null ? "" : say("{share} of peak", { share: format.percent(part) });
  }

  bound(node) {
    const word = this.values.bound[node];
    return word ? say(word) : "";
  }

  // Of what the time of a node with others in it consists, as shares of the run, or as times if those
  // of devices are added up: a parent is what its children are.
  mix(node) {
    const whole = this.values.elapsed_ns[this.root], outside = this.outside[node] / whole, waits = this.waited[node] / whole;
    const { together, several, waits_lack } = page.icicle; // of several devices, or not all: no share of the run
    const around = this.is(node, "run", "stage"), unknown = (together || waits_lack) && around;
    if (!this.children[node].length || !(waits || outside) || unknown) return "";
    const part = (share) => (together ? format.duration(share * whole) : format.percent(share));
    const shares = { busy: part(this.share(node) - waits - outside), waits: part(waits), outside: part(outside) };
    if (!waits) return say("{busy} in operators, {outside} outside of them", shares);
    const mix = outside ? say("{busy} busy, {waits} waiting, {outside} outside of operators", shares) : say("{busy} busy, {waits} waiting", shares);
    return several && around ? say("{mix} (any device)", { mix }) : mix;
  }

  // Of the end-to-end time: of as many as there are devices, if these are added up.
  share(node) { return this.values.elapsed_ns[node] / this.values.elapsed_ns[this.root]; }

  // How long a node took; of the run also what this is the sum of.
  time(node) {
    const time = format.duration(this.values.elapsed_ns[node]), { together } = page.icicle;
    if (!together || node !== this.root) return time;
    return say("{sum} over {count} devices; the run takes {time}", { sum: time, count: format.count(together.devices), time: format.duration(together.passed) });
  }

  pair(node) {
    const { palette, icicle: { codes } } = page, plain = palette.page.parent;
    if (this.children[node].length && !(this.mode === "role" && this.is(node, "role"))) return plain;
    if (this.is(node, "no_call")) return palette.page.busy;
    if (this.mode === "bound") return palette.bounds[codes.bound[node]] ?? plain;
    if (this.mode === "peak") {
      const part = this.values.flops_of_peak[node];
      return part === null ? plain : palette.peaks[PEAKS.filter((limit) => part >= limit).length];
    }
    return palette.roles[this.values.role[node]] ?? plain;
  }

  // How time is drawn that no operator took, "" for what has a colour.
  look(node) { return NO_WORK[page.icicle.codes.kind[node]] ?? ""; }

  // The name with what the colour says, as far as there is room.
  texts(node) {
    const name = this.name(node), short = shortened(name, 24);
    const time = this.time(node), share = format.percent(this.share(node));
    if (this.is(node, "waiting")) return [`${name} · ${time} · ${share}`, `${name} · ${time}`, name, short, shortened(name, 10)];
    const mix = this.mix(node), more = { role: this.values.role[node] ?? "", peak: this.peak(node), bound: this.bound(node) }[this.mode];
    if (mix) return [...(node === this.root || page.icicle.together ? [] : [`${name} · ${time} · ${share}: ${mix}`]), `${name} · ${time}: ${mix}`, `${name} · ${time}`, name, short, shortened(name, 10)];
    return [more && more !== name && more !== "other" && `${name} · ${more} · ${time}`, `${name} · ${time}`, name, short, shortened(name, 10)];
  }

  paint(context) {
    for (const item of this.items) {
      const { left, top, width, height } = this.box(item);
      if (width < 0.3) continue; // the table has it
      const drawn = Math.max(width - (width > 3 ? 1 : 0), 0.3), look = this.look(item.node);
      if (look) {
        this.hatch(context, left, top, drawn, height, width > 26 ? this.texts(item.node) : [], item, look);
        continue;
      }
      const fill = this.fill(this.pair(item.node)[this.theme], item);
      context.fillStyle = fill;
      context.fillRect(left, top, drawn, height);
      if (this.children[item.node].length && this.depth[item.node] - this.depth[this.zoomed] === ICICLE.rows - 1) {
        this.leaves(context, item.node, top, height);
      } else if (width > 26) this.label(context, this.texts(item.node), left, top, width, height, fill);
    }
    if (this.back) this.back.disabled = this.zoomed === this.root;
  }

  // What is in a node of the last row, which has no room below it.
  leaves(context, node, top, height) {
    const rest = [node], scale = this.width / this.values.elapsed_ns[this.zoomed];
    while (rest.length) {
      const next = rest.pop(), left = (this.begin[next] - this.begin[this.zoomed]) * scale, width = this.values.elapsed_ns[next] * scale;
      if (width < 0.3) continue;
      if (this.children[next].length) rest.push(...this.children[next]);
      else if (this.look(next)) this.hatch(context, left, top, width, height, [], { node: next }, this.look(next));
      else {
        context.fillStyle = this.fill(this.pair(next)[this.theme], { node: next });
        context.fillRect(left, top, width, height);
      }
    }
  }

  legend() {
    const { parent, wait, frame, busy } = page.palette.page, kinds = new Set(this.drawn().map((node) => page.icicle.codes.kind[node]));
    if (kinds.has("lost")) kinds.add("untraced");
    const plain = [
      ["no_operator", frame, say("outside of operators")], ["no_call", busy, say("work outside of calls")],
      ["untraced", frame, say("not recorded")], ["waiting", wait, say("waiting")],
    ].filter(([kind]) => kinds.has(kind)).map(([kind, pair, name]) => [pair, name, NO_WORK[kind]]);
    return [...this.entries(), ...plain, [parent, say("divided below")]];
  }

  // All nodes in the one over the whole width: the last row shows leaves of what has no room below it.
  drawn() {
    const found = [], rest = [this.zoomed];
    while (rest.length) {
      found.push(rest.at(-1));
      rest.push(...this.children[rest.pop()]);
    }
    return found;
  }

  entries() {
    const { palette } = page, nodes = this.drawn();
    if (this.mode === "peak") {
      const limits = [0, ...PEAKS, 1];
      return palette.peaks.map((pair, i) => [pair, `${Math.round(limits[i] * 100)}–${Math.round(limits[i + 1] * 100)}${SPACE}%`]);
    }
    const bound = this.mode === "bound", [colours, used] = bound
      ? [palette.bounds, new Map(nodes.map((node) => [page.icicle.codes.bound[node], this.bound(node)]))]
      : [palette.roles, new Map(nodes.map((node) => [this.values.role[node], this.values.role[node]]))];
    return Object.entries(colours).filter(([name]) => used.has(name)).map(([name, pair]) => [pair, used.get(name)]);
  }

  // Waiting leads to the gaps that it is made of, in what is filtered by.
  choose(item, more = false) {
    super.choose(item, more);
    if (!this.is(item.node, "waiting")) return;
    const gaps = document.querySelector('[data-table="gaps"]')?.closest(".part") ?? document.getElementById("idle");
    // What is filtered by makes tables above shorter: scroll once they are drawn.
    requestAnimationFrame(() => requestAnimationFrame(() => gaps?.scrollIntoView({ behavior: "instant" })));
  }

  hint() { return say("Arrow keys move, Enter zooms in, Escape back; a click or Space filters by it."); }

  listen() {
    super.listen();
    this.canvas.addEventListener("dblclick", (event) => this.zoom(this.under(event)?.node));
    this.back.addEventListener("click", () => this.out());
    this.colour.addEventListener("change", () => {
      this.mode = this.colour.value;
      this.draw();
    });
  }

  zoom(node) {
    if (node === undefined || !this.children[node].length || node === this.zoomed) return;
    this.hovered = null;
    this.show(node);
    this.say(this.items[0]);
    this.draw();
  }

  out() {
    const from = this.zoomed, above = this.parent[from];
    if (above < 0) return false;
    this.zoom(above);
    this.at = this.items.findIndex(({ node }) => node === from);
    this.draw();
    return true;
  }

  pressed(event) {
    if (event.key === "Enter") this.zoom(this.items[this.at].node);
    else if (event.key !== "Escape" || !this.out()) return false;
    event.preventDefault();
    return true;
  }

  // Up to what a node is in, down to the first in it, along the row.
  move(key) {
    const { node } = this.items[this.at], number = (wanted) => this.items.findIndex((item) => item.node === wanted);
    if (key === "ArrowUp") return node === this.zoomed ? this.at : number(this.parent[node]);
    if (key === "ArrowDown") return this.children[node].length ? number(this.children[node][0]) : this.at;
    const row = this.items.filter((item) => this.depth[item.node] === this.depth[node]).sort((a, b) => this.begin[a.node] - this.begin[b.node]);
    const next = row[row.findIndex((item) => item.node === node) + (key === "ArrowLeft" ? -1 : 1)];
    return next ? this.items.indexOf(next) : this.at;
  }

  table() {
    const { values } = this, names = Object.keys(values);
    const rows = this.parent.map((_, node) => ({
      ...Object.fromEntries(names.map((name) => [name, values[name][node]])),
      name: (SPACE + SPACE).repeat(this.depth[node]) + this.name(node),
    }));
    return { name: message("module tree"), columns: page.icicle.columns, rows };
  }
}
