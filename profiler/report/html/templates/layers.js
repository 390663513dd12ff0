// Layers as rows, from the commands of the timeline: those of a call, and those that a row of operators
// stands for.

import { page } from "./data.js";
import { pattern } from "./nodes.js";
import { DataTable } from "./tables.js";

// {column: values} of the layers of commands that are `wanted(at, host)`, largest first, those of the host
// apart; with `together` layers of repeated blocks are one row.
export function layersOf(timeline, wanted, together = false) {
  const { commands } = timeline.tables, { text } = timeline, groups = new Map();
  const names = text.map((name) => (together ? pattern(name) : name));
  for (const lane of timeline.lanes.filter(({ kind }) => kind === "commands")) {
    for (let at = lane.first; at < lane.first + lane.count; at++) {
      const host = lane.host.includes(commands.category[at]), time = Math.max(commands.duration[at], 0);
      if (!wanted(at, host)) continue;
      const key = `${host} ${names[commands.layer[at]]}`;
      if (!groups.has(key)) groups.set(key, { layers: new Map(), op_types: new Map(), role: new Map(), devices: new Map(), calls: new Map(), commands: 0, total_ns: 0 });
      const group = groups.get(key), add = (name, value) => group[name].set(value, (group[name].get(value) ?? 0) + time);
      add("layers", commands.layer[at]);
      add("calls", commands.call[at]);
      if (lane.device) add("devices", lane.device);
      if (commands.op_type[at] >= 0) add("op_types", text[commands.op_type[at]]);
      if (commands.role[at] >= 0) add("role", text[commands.role[at]]);
      group.commands += 1;
      group.total_ns += time;
    }
  }
  const rows = [...groups.values()].sort((a, b) => b.total_ns - a.total_ns);
  const whole = rows.reduce((sum, { total_ns }) => sum + total_ns, 0);
  const ranked = (times) => [...times].sort(([a, one], [b, other]) => other - one || (a < b ? -1 : 1)).map(([name]) => name).join(", ");
  const ofRow = ({ layers, ...row }) => {
    const [first] = layers.keys();
    return {
      ...row, layer: layers.size > 1 ? names[first] : text[first], layers: layers.size, calls: row.calls.size,
      op_types: ranked(row.op_types), role: ranked(row.role), devices: [...row.devices.keys()].sort().join(", "),
      share: whole ? row.total_ns / whole : null,
    };
  };
  const made = rows.map(ofRow);
  return Object.fromEntries(page.layer_columns.map(({ name }) => [name, made.map((row) => row[name])]));
}

// A table of layers with the columns of these names that say something.
export function layerTable(holder, names, { values, ...options }) {
  const says = ({ name }) => values[name].some((value) => value !== null && value !== "");
  const columns = page.layer_columns.filter((column) => names.includes(column.name) && says(column));
  return new DataTable(holder, { columns, values, sort: "total_ns", shown: 10, ...options });
}
