// The module tree: rows that unfold, indented by how deep they lie; a row chooses what it stands for.

import { element } from "./format.js";
import { say, whenSpoken } from "./language.js";
import { Nodes, OF_NODE } from "./nodes.js";
import { inPlace } from "./picking.js";
import { DataTable } from "./tables.js";

const OPEN_DEPTH = 2; // nodes above are open at first
const MOST_OPEN = 400; // rows at once before a reader asks for more

export class ModuleTree extends DataTable {
  get nodes() { return this.made ??= new Nodes(this.values); }

  // The column of times by which one of several nodes takes longest.
  get weight() { return this.columns.find(({ kind }) => kind === "ns").name; }

  // The nodes that are open: those around the longest way down to begin with.
  get open() {
    if (this.opened) return this.opened;
    const { depth, children } = this.nodes, times = this.values[this.weight];
    const longest = (i) => children[i].reduce((most, child) => (times[child] > (times[most] ?? -1) ? child : most), -1);
    this.opened = new Set(depth.flatMap((deep, i) => (deep < OPEN_DEPTH && children[i].length ? [i] : [])));
    for (let i = longest(0); i >= 0 && children[i].length && this.opened.size < 12; i = longest(i)) this.opened.add(i);
    return this.opened;
  }

  constructor(holder, table) {
    super(holder, table);
    this.rows.parentElement.setAttribute("role", "treegrid");
    this.all = element("button", { type: "button", class: "quiet", onclick: () => this.unfold(true) });
    this.none = element("button", { type: "button", class: "quiet", onclick: () => this.unfold(false) });
    holder.querySelector(".tools")?.append(this.all, this.none);
    this.rows.addEventListener("focusin", (event) => this.stop(event.target.closest("tr")));
    this.speak();
  }

  speak() {
    super.speak();
    if (this.all) this.all.textContent = say("Expand all");
    if (this.none) this.none.textContent = say("Collapse all");
  }

  // All nodes, also those that are folded, with how deep each lies.
  savedRows() { return this.asked().length ? this.found() : this.nodes.depth.map((_, i) => i); }

  get savedBefore() { return ["depth"]; }

  // Nodes stand for the whole run: a choice marks them and hides none.
  telling() { return undefined; }

  kept() { return true; }

  measure() {
    super.measure();
    this.haystack = this.haystack.map((text, i) => `${text}\n${this.nodes.paths[i].toLowerCase()}`);
  }

  // What is searched for with the nodes around it; else what is open. Nodes of one node by the column
  // that sorts.
  found() {
    this.limit = Math.max(this.limit, MOST_OPEN);
    const asked = this.asked(), { depth, parent, children } = this.nodes, shown = new Set();
    if (asked.length) {
      depth.forEach((_, i) => {
        if (!asked.every((test) => test(i))) return;
        for (let at = i; at >= 0 && !shown.has(at); at = parent[at]) shown.add(at);
      });
    }
    this.searching = asked.length > 0;
    const values = this.values[this.order.column], sign = this.order.down ? -1 : 1, rows = [];
    const apart = (a, b) => {
      const one = values[a] ?? null, other = values[b] ?? null;
      if (one === null || other === null) return (one === null) - (other === null) || a - b;
      return (one < other ? -1 : one > other ? 1 : 0) * sign || a - b;
    };
    const visit = (i) => {
      if (this.searching && !shown.has(i)) return;
      rows.push(i);
      if (!this.searching && !this.open.has(i)) return;
      const inner = values ? children[i].slice().sort(apart) : children[i];
      for (const child of inner) visit(child);
    };
    depth.forEach((deep, i) => !deep && visit(i));
    return rows;
  }

  // What a row chooses, as far as this run has it: of the stage only if its submodule is in several.
  pickOf(i) {
    const pick = Object.fromEntries(Object.entries(this.nodes.picks[i]).filter(([, value]) => value !== undefined));
    const alone = pick.module !== undefined && this.nodes.children[this.nodes.parent[i]]?.length === 1;
    if (alone && pick.operator !== undefined && !this.choice?.exists("operator", pick.operator)) delete pick.operator;
    const last = Object.keys(pick).at(-1);
    if (!last || !this.choice?.exists(last, pick[last])) return null;
    if (pick.submodule !== undefined && this.stagesOf(pick.submodule) < 2) delete pick.stage;
    return Object.fromEntries(Object.entries(pick).filter(([dimension, value]) => this.choice.exists(dimension, value)));
  }

  stagesOf(submodule) {
    this.stages ??= this.nodes.picks.reduce((found, pick, i) => (this.values.kind[i] === "submodule" ? found.set(pick.submodule, (found.get(pick.submodule) ?? 0) + 1) : found), new Map());
    return this.stages.get(submodule) ?? 0;
  }

  isChosen(pick) {
    return OF_NODE.every((name) => (pick[name] === undefined ? !this.choice.of(name).length : this.choice.of(name).length === 1 && this.choice.has(name, pick[name])));
  }

  // Choose what a row stands for instead of what another one did; once more lets it go.
  select(i) {
    const pick = this.pickOf(i);
    if (!pick) return;
    const next = new Map([...this.choice.values].filter(([name]) => !OF_NODE.includes(name)));
    if (!this.isChosen(pick)) for (const [name, value] of Object.entries(pick)) next.set(name, [value]);
    inPlace(this.rows, () => this.choice.become(next));
  }

  toggle(i, open = !this.open.has(i)) {
    if (!this.nodes.children[i].length || this.searching) return;
    if (open) this.open.add(i); else this.open.delete(i);
    this.draw();
  }

  unfold(all) {
    const { depth, children } = this.nodes;
    this.opened = new Set(depth.flatMap((deep, i) => (children[i].length && (all || deep < OPEN_DEPTH) ? [i] : [])));
    this.draw();
  }

  pickable(name, value, content) { return content; }

  row(i) {
    const row = super.row(i), { depth, children } = this.nodes, first = row.cells[0], pick = this.pickOf(i);
    const open = this.searching || this.open.has(i);
    row.dataset.node = String(i);
    row.tabIndex = -1;
    row.setAttribute("aria-level", String(depth[i] + 1));
    if (children[i].length) row.setAttribute("aria-expanded", String(open));
    if (pick) row.setAttribute("aria-selected", String(this.isChosen(pick)));
    const mark = element("span", { class: "unfold", "aria-hidden": "true" }, children[i].length ? (open ? "▾" : "▸") : "");
    const label = element("span", { class: pick ? "node picks" : "node" });
    label.append(...first.childNodes);
    const { kind, label: named } = this.values; // what has no name of its own is called by its kind
    if (named[i] === kind?.[i]) {
      const speak = () => { first.title = label.textContent = say(kind[i]); };
      whenSpoken(speak, label);
      speak();
    }
    first.append(mark, label);
    first.classList.add("nested");
    first.style.setProperty("--depth", String(depth[i]));
    mark.addEventListener("click", () => this.toggle(i));
    label.addEventListener("click", () => (pick ? this.select(i) : this.toggle(i)));
    return row;
  }

  // One row is a stop of Tab: the one that had the focus, else the first.
  letIn() {
    const rows = [...this.rows.rows], found = rows.find(({ dataset }) => dataset.node === this.at) ?? rows[0];
    if (found) found.tabIndex = 0;
    if (this.focused) found?.focus({ preventScroll: true });
  }

  draw() {
    this.focused = this.rows.contains(document.activeElement);
    super.draw();
  }

  stop(row) {
    if (!row) return;
    for (const other of this.rows.querySelectorAll("tr[tabindex='0']")) other.tabIndex = -1;
    row.tabIndex = 0;
    this.at = row.dataset.node;
  }

  walk(event) {
    const row = event.target.closest?.("tr");
    if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
    const rows = [...this.rows.rows], at = rows.indexOf(row), i = Number(row.dataset.node), open = row.getAttribute("aria-expanded");
    const to = (other) => other?.focus();
    const keys = {
      ArrowDown: () => to(rows[at + 1]), ArrowUp: () => to(rows[at - 1]), Home: () => to(rows[0]), End: () => to(rows.at(-1)),
      ArrowRight: () => (open === "false" ? this.toggle(i, true) : open && to(rows[at + 1])),
      ArrowLeft: () => (open === "true" && !this.searching ? this.toggle(i, false) : to(rows.find(({ dataset }) => Number(dataset.node) === this.nodes.parent[i]))),
      Enter: () => this.select(i), " ": () => this.select(i),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  }
}
