// Rows of the table of operators unfold: to the layers that they stand for, these to their commands,
// and a command leads to its place in the timeline.

import { page } from "./data.js";
import { element, format } from "./format.js";
import { message, say } from "./language.js";
import { layersOf, layerTable } from "./layers.js";
import { pattern } from "./nodes.js";
import { DataTable } from "./tables.js";
import { report } from "./theme.js";

const MOST_COMMANDS = 20000; // of a layer, the longest, that one table holds

// The rows of commands by submodule and layer, those of the host apart; found when a row first unfolds.
class CommandIndex {
  constructor(timeline) {
    const { commands, calls } = timeline.tables, rows = commands.rows;
    const groupOf = new Int32Array(rows).fill(-1), counts = [];
    const numbers = [new Map(), new Map()], texts = timeline.text.length + 1;
    this.groups = [[], []];
    for (const lane of timeline.lanes) {
      if (lane.kind !== "commands") continue;
      for (let at = lane.first; at < lane.first + lane.count; at++) {
        const host = Number(lane.host.includes(commands.category[at])), known = numbers[host];
        const call = commands.call[at], submodule = call < 0 ? -1 : calls.submodule[call];
        const key = (submodule + 1) * texts + commands.layer[at] + 1;
        let number = known.get(key);
        if (number === undefined) {
          known.set(key, (number = counts.length));
          counts.push(0);
          this.groups[host].push({ number, submodule, layer: commands.layer[at] });
        }
        groupOf[at] = number;
        counts[number] += 1;
      }
    }
    const ends = new Int32Array(counts.length + 1);
    counts.forEach((count, number) => (ends[number + 1] = ends[number] + count));
    this.ends = ends;
    this.order = new Int32Array(ends[counts.length]);
    const next = ends.slice();
    for (let at = 0; at < rows; at++) if (groupOf[at] >= 0) this.order[next[groupOf[at]]++] = at;
  }

  rowsOf({ number }) { return this.order.subarray(this.ends[number], this.ends[number + 1]); }
}

export class Fold {
  constructor(explorer, { host = false } = {}) {
    Object.assign(this, { explorer, timeline: explorer.timeline, host, open: new Set() });
  }

  // The line of row `i` of `table`, with a button that unfolds it, and what is unfolded below it.
  foldable(table, i, line) {
    const row = Object.fromEntries(Object.entries(table.values).map(([name, values]) => [name, values[i]]));
    const key = `${row.submodule ?? ""}\n${row.layer}\n${row.layers ?? 1}`;
    const below = () => {
      const holder = element("div"), columns = String(table.columns.length);
      this.fill(holder, row);
      return element("tr", { class: "unfolded" }, element("td", { colspan: columns }, holder));
    };
    const label = row.layers > 1 ? say("Layers of {name}", { name: row.layer }) : say("Commands of {name}", { name: row.layer });
    const button = element("button", {
      type: "button", class: "unfold", "aria-expanded": String(this.open.has(key)), title: label, "aria-label": label,
      onclick: () => {
        if (this.open.delete(key)) line.nextElementSibling.remove();
        else {
          this.open.add(key);
          line.after(below());
        }
        button.setAttribute("aria-expanded", String(this.open.has(key)));
      },
    });
    line.firstChild.prepend(button);
    return this.open.has(key) ? [line, below()] : [line];
  }

  fill(holder, row) {
    if (row.layers > 1) return this.layers(holder, row);
    const groups = this.groupsOf(row);
    if (!groups.length) return holder.append(element("p", { class: "lead" }, say("None of its commands is on this page.")));
    this.commands(holder, groups[0]);
  }

  // The commands of a layer, as far as they match what is chosen.
  groupsOf({ submodule, layer }) {
    this.timeline.commandIndex ??= new CommandIndex(this.timeline);
    const { text, commandIndex } = this.timeline;
    return commandIndex.groups[Number(this.host)]
      .filter((group) => (group.submodule < 0 ? "" : text[group.submodule]) === (submodule ?? "") && text[group.layer] === layer)
      .map((group) => ({ ...group, rows: this.chosen(commandIndex.rowsOf(group)) }))
      .filter(({ rows }) => rows.length);
  }

  chosen(rows) {
    const matches = report.choice?.matches?.commands;
    return matches ? rows.filter((at) => matches[at]) : rows;
  }

  // The layers that a row stands for, as far as they match what is chosen.
  layers(holder, { submodule, layer }) {
    const { text, tables: { calls, commands } } = this.timeline, matches = report.choice?.matches?.commands;
    const wanted = text.map((name) => pattern(name) === layer), of = text.indexOf(submodule ?? "");
    const values = layersOf(this.timeline, (at, host) => host === this.host && wanted[commands.layer[at]] && (!matches || matches[at])
      && (commands.call[at] < 0 ? !submodule : calls.submodule[commands.call[at]] === of));
    values.submodule = values.layer.map(() => submodule); // by which their commands are looked up
    layerTable(holder, ["layer", "commands", "calls", "total_ns"], {
      name: message("layers"), values, search: values.layer.length > 10, fold: new Fold(this.explorer, this),
    });
  }

  commands(holder, { rows }) {
    const { timeline } = this, { commands } = timeline.tables;
    const kept = rows.length > MOST_COMMANDS
      ? rows.slice().sort((a, b) => commands.duration[b] - commands.duration[a]).slice(0, MOST_COMMANDS) : rows.slice();
    kept.sort((a, b) => commands.start[a] - commands.start[b]);
    if (kept.length < rows.length) {
      const values = { shown: format.count(kept.length), all: format.count(rows.length) };
      holder.append(element("p", { class: "lead" }, say("The {shown} longest of {all} commands.", values)));
    }
    const values = this.valuesOf(Array.from(kept));
    new DataTable(holder, {
      name: message("commands"),
      columns: page.command_columns.filter(({ name }) => values[name].some((value) => value !== null)),
      values, shown: 12, search: kept.length > 12,
      action: {
        title: () => say("Show in the timeline"),
        run: (i) => {
          this.explorer.select(timeline.flows.event(kept[i]), true);
          document.getElementById("timeline").scrollIntoView();
        },
      },
    });
  }

  valuesOf(rows) {
    const { timeline } = this, { commands, calls } = timeline.tables;
    const lanes = rows.map((at) => timeline.flows.event(at).lane);
    const known = (code) => (code < 0 ? null : timeline.text[code]);
    const of = (read) => rows.map(read), column = (name) => of((at) => (commands[name][at] < 0 ? null : commands[name][at]));
    return {
      start_ns: of((at) => commands.start[at]),
      duration_ns: column("duration"),
      call: of((at) => (commands.call[at] < 0 ? null : calls.call[commands.call[at]])),
      step: of((at) => {
        const step = commands.call[at] < 0 ? commands.step[at] : calls.step[commands.call[at]];
        return step < 0 ? null : step;
      }),
      command_index: of((at) => commands.index[at]),
      device: lanes.map((lane) => lane.device),
      track: lanes.map((lane) => lane.track),
      op_type: of((at) => known(commands.op_type[at])),
      bytes_read: column("bytes_read"),
      bytes_written: column("bytes_written"),
    };
  }
}
