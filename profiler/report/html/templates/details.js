// Everything known about an event: the hover card, and below the timeline the operators of a call.

class Details {
  constructor(timeline) {
    this.timeline = timeline;
    this.place = document.getElementById("timeline-details");
    this.offer = () => null; // what a shown event adds to its card
  }

  clear() {
    this.place.hidden = true;
    this.place.replaceChildren();
  }

  show(found) {
    this.place.hidden = false;
    const closing = element("button", { type: "button", class: "quiet", onclick: () => {
      this.clear();
      this.timeline.selected = null;
      this.timeline.draw();
    } }, say("Close"));
    const parts = [element("div", { class: "card" }, closing, this.card(found, false), this.offer(found) ?? [])];
    if (found.lane.kind === "calls") {
      const holder = element("div", { class: "operators" });
      parts.push(holder);
      this.place.replaceChildren(...parts);
      this.operators(holder, found);
    } else this.place.replaceChildren(...parts);
  }

  card({ lane, i }, brief) {
    const at = lane.first + i;
    const fields = {
      calls: this.ofCall, commands: this.ofCommand, spans: this.ofSpan, modules: this.ofModule,
      counters: this.ofCounter,
    }[lane.kind]
      .call(this, lane, at);
    const title = fields.shift();
    const rows = fields.filter(([, value]) => value !== "" && value !== undefined);
    return [
      element("p", { class: "title", title }, brief ? shortened(title, 160) : title),
      element("dl", {}, rows.map(([name, value]) =>
        element("div", { class: value.length > 24 && "wide" }, element("dt", {}, name),
          element("dd", {}, brief ? shortened(value, 200) : value)))),
    ];
  }

  known(code) { return code < 0 ? "" : this.timeline.text[code]; }

  ofSpan(lane, at) {
    const { spans } = this.timeline.tables;
    return [
      this.known(spans.name[at]),
      [say("stage"), this.known(spans.stage[at])],
      [say("start"), format.instant(spans.start[at])],
      [say("duration"), format.duration(spans.duration[at])],
    ];
  }

  ofCounter(lane, at) {
    return [
      lane.track,
      [say("value"), counted(lane, lane.value(at - lane.first))],
      [say("since"), format.instant(lane.start(at - lane.first))],
      [say("highest"), counted(lane, lane.most)],
      [say("device"), lane.device],
    ];
  }

  ofModule(lane, at) {
    const { modules, calls } = this.timeline.tables;
    const call = modules.call[at];
    return [
      this.known(modules.name[at]),
      [say("duration"), format.duration(modules.duration[at])],
      [say("start"), format.instant(modules.start[at])],
      [say("submodule"), this.known(calls.submodule[call])],
      [say("call"), String(calls.call[call])],
      [say("device"), lane.device],
    ];
  }

  ofCall(lane, at) {
    const { calls } = this.timeline.tables;
    return [
      this.known(calls.submodule[at]),
      [say("call"), String(calls.call[at])],
      [say("duration"), format.duration(calls.duration[at])],
      [say("start"), format.instant(calls.start[at])],
      [say("stage"), this.known(calls.stage[at])],
      [say("step"), calls.step[at] < 0 ? "" : String(calls.step[at])],
      [say("branch"), this.known(calls.branch[at])],
      [say("device"), lane.device],
      [say("commands"), calls.traced[at] ? "" : say("not traced")],
      [say("inputs"), this.known(calls.input_shapes[at])],
    ];
  }

  ofCommand(lane, at) {
    const { commands, calls } = this.timeline.tables;
    const call = commands.call[at];
    const flows = this.timeline.flowsOf({ lane, i: at - lane.first });
    const earlier = flows.filter(({ target }) => target.lane.first + target.i === at).length;
    const of = (column, show) => (commands[column][at] < 0 ? "" : show(commands[column][at]));
    return [
      this.known(commands.layer[at]),
      [say("op type"), this.known(commands.op_type[at])],
      [say("role"), this.known(commands.role[at])],
      [say("command index"), String(commands.index[at])],
      [say("duration"), commands.duration[at] < 0 ? say("never closed") : format.duration(commands.duration[at])],
      [say("start"), format.instant(commands.start[at])],
      [say("submodule"), call < 0 ? say("no call") : this.known(calls.submodule[call])],
      [say("call"), call < 0 ? "" : String(calls.call[call])],
      [say("stage"), this.known(commands.stage[at])],
      [say("step"), of("step", String)],
      [say("branch"), call < 0 ? "" : this.known(calls.branch[call])],
      [say("device"), lane.device],
      [say("track"), lane.track],
      [say("category"), page.timeline.categories[commands.category[at]]],
      [say("read"), of("bytes_read", format.size)],
      [say("written"), of("bytes_written", format.size)],
      [say("FLOPs"), of("flops", format.flops)],
      [say("waits for"), earlier ? say("{number} commands", { number: format.count(earlier) }) : ""],
      [say("needed by"), flows.length > earlier ? say("{number} commands", { number: format.count(flows.length - earlier) }) : ""],
      [say("shapes"), this.known(commands.shapes[at])],
    ];
  }

  // Fold the commands of one call that share a layer, as the operator table does for all calls.
  operators(holder, found) {
    const { commands } = this.timeline.tables;
    const call = found.lane.first + found.i, events = [];
    for (const lane of this.timeline.lanes) {
      if (lane.kind !== "commands") continue;
      for (let at = lane.first; at < lane.first + lane.count; at++) {
        if (commands.call[at] !== call) continue;
        events.push({ start: commands.start[at], duration: Math.max(commands.duration[at], 0), at, lane });
      }
    }
    if (!events.length) {
      holder.append(element("p", { class: "lead" }, say("No commands were recorded for this call.")));
      return;
    }
    const single = this.rows(events, (layer) => layer), folded = this.rows(events, pattern);
    const several = folded.layer.length < single.layer.length;
    new DataTable(holder, {
      name: message("operators of this call"),
      columns: page.call_columns.filter(({ name }) => single[name].some((value) => value !== "")),
      values: several ? folded : single,
      sort: "busy_sum_ns", shown: 10, search: true,
      variants: several && [
        { label: message("operation, blocks folded"), values: folded },
        { label: message("operator"), values: single },
      ],
    });
  }

  // Columns of the table: a row for each name that `named` makes of layers, host work apart.
  rows(events, named) {
    const { layer, category } = this.timeline.tables.commands, groups = new Map();
    for (const event of events) {
      const host = category[event.at] === HOST_WORK;
      const key = `${host}\n${named(this.known(layer[event.at]))}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(event);
    }
    const rows = [...groups.values()].map((group) => this.fold(group, named));
    const total = rows.reduce((sum, row) => sum + row.busy_sum_ns, 0);
    for (const row of rows) row.share = total ? row.busy_sum_ns / total : null;
    return Object.fromEntries(page.call_columns.map(({ name }) => [name, rows.map((row) => row[name])]));
  }

  // The different texts of a column, those with the most time first.
  longestFirst(events, column) {
    const codes = this.timeline.tables.commands[column], times = new Map();
    for (const { at, duration } of events) {
      times.set(codes[at], (times.get(codes[at]) ?? 0) + duration);
    }
    const ordered = [...times].sort((a, b) => b[1] - a[1]);
    return ordered.map(([code]) => this.known(code)).filter((text) => text !== "");
  }

  fold(events, named) {
    events.sort((a, b) => a.start - b.start);
    let union = 0, reach = -Infinity, busy = 0;
    for (const { start, duration } of events) {
      union += Math.max(start + duration - Math.max(start, reach), 0);
      reach = Math.max(reach, start + duration);
      busy += duration;
    }
    const layers = this.longestFirst(events, "layer");
    return {
      layer: layers.length > 1 ? named(layers[0]) : layers[0],
      layers: layers.length,
      op_types: this.longestFirst(events, "op_type").join(", "),
      role: this.longestFirst(events, "role").join(", "),
      tracks: [...new Set(events.map(({ lane }) => lane.track))].join(", "),
      commands: events.length,
      wall_union_ns: union,
      busy_sum_ns: busy,
    };
  }
}

// The layer of a repeated block without its number, as profiler/report/patterns.py folds it.
function pattern(layer) {
  return layer.replace(/(^|[^0-9A-Za-z])[0-9]+(?=$|[^0-9A-Za-z])/g, "$1*");
}
