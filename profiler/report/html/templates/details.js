// Everything known about an event: the hover card, and below the timeline the operators of a call.

import { page } from "./data.js";
import { element, format, shortened } from "./format.js";
import { message, say } from "./language.js";
import { layersOf, layerTable } from "./layers.js";
import { counted } from "./marks.js";

export class Details {
  constructor(timeline) {
    Object.assign(this, { timeline });
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
      counters: this.ofCounter, use: this.ofUse,
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

  ofUse(lane, at) {
    return [
      lane.device,
      [say("busy share"), format.percent(lane.share(lane.start(at), lane.end(at)))],
      [say("start"), format.instant(Math.max(lane.start(at), 0))],
      [say("duration"), format.duration(lane.end(at) - lane.start(at))],
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
      [say("host range"), calls.host[at] === calls.duration[at] ? "" : format.duration(calls.host[at])],
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
    const flows = this.timeline.flows.of({ lane, i: at - lane.first });
    const earlier = flows.filter(({ target }) => target.lane.first + target.i === at).length;
    const of = (column, show) => (commands[column][at] < 0 ? "" : show(commands[column][at]));
    return [
      this.known(commands.layer[at]),
      [say("op type"), this.known(commands.op_type[at])],
      [say("kernel"), this.known(commands.kernel[at])],
      [say("role"), this.known(commands.role[at])],
      [say("bound"), commands.bound[at] < 0 ? "" : say(page.timeline.bounds[commands.bound[at]])],
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

  // The operators of one call, blocks folded and one by one.
  operators(holder, { lane, i }) {
    const { calls, commands } = this.timeline.tables, call = lane.first + i;
    const [single, together] = [false, true].map((folded) => layersOf(this.timeline, (at) => commands.call[at] === call, folded));
    if (!single.layer.length) {
      holder.append(element("p", { class: "lead" }, calls.traced[call]
        ? say("This page does not have the operators of this call.") : say("No commands were recorded for this call.")));
      return;
    }
    const several = together.layer.length < single.layer.length;
    const names = ["layer", "op_types", "role", "devices", "commands", "total_ns", "share", several && "layers"];
    layerTable(holder, names, {
      name: message("operators of this call"), values: several ? together : single, search: true,
      variants: several && [
        { label: message("operation, blocks aggregated"), values: together },
        { label: message("operator"), values: single },
      ],
    });
  }
}
