// The bar that shows the choice: chips to remove, what matches, ways on; a search to choose by name.

import { DIMENSIONS, NAMED } from "./dimensions.js";
import { element, format, shortened } from "./format.js";
import { say, whenSpoken } from "./language.js";
import { pattern } from "./nodes.js";
import { pickButton } from "./picking.js";
import { copiedText } from "./table_files.js";
import { colourOf, swatch } from "./tables.js";

const SUGGESTED = 40; // names that the search offers at once

export class ChosenBar {
  constructor(choice, explorer) {
    Object.assign(this, { choice, explorer });
    this.chips = element("ul", { class: "chips" });
    this.counts = element("p", { class: "counts" });
    this.spoken = element("p", { class: "hidden", role: "status", "aria-live": "polite" });
    this.names = element("datalist", { id: "choice-names" });
    this.search = element("input", {
      type: "search", id: "choice-search", list: "choice-names", spellcheck: "false", autocomplete: "off",
      oninput: (event) => this.typed(event), onkeydown: (event) => this.pressed(event),
    });
    this.buttons = element("div", { class: "ways" });
    this.bar = element(
      "aside", { class: "chosen" }, this.search, this.names, this.chips, this.counts, this.buttons, this.spoken,
    );
    document.querySelector("main > .summary").after(this.bar);
    this.header = document.querySelector("header.top");
    const sizes = new ResizeObserver(() => this.fit());
    for (const one of [this.header, this.bar]) sizes.observe(one);
    choice.follow(() => this.draw());
    whenSpoken(() => {
      this.quiet = undefined; // nobody chose anything
      this.spoken.textContent = "";
      this.draw();
    });
    this.draw();
  }

  draw() {
    const { choice } = this;
    this.bar.classList.toggle("active", choice.active);
    document.documentElement.toggleAttribute("data-chosen", choice.active);
    this.bar.setAttribute("aria-label", say("Filter"));
    this.search.setAttribute("aria-label", say("Filter by a stage, submodule, step, device, role or operator"));
    this.search.placeholder = say("Filter: step 7, attention …");
    this.search.title = say("Key: /");
    const focused = this.chips.contains(document.activeElement);
    this.chips.replaceChildren(...this.drawnChips());
    if (focused) (this.chips.querySelector("button") ?? this.search).focus();
    this.counts.textContent = choice.active ? this.sentence()
      : say("A click on a bar, a cell, a name in a legend or an event's card filters the whole page by it. ? lists the keys.");
    this.buttons.replaceChildren(...(choice.active ? this.ways() : []));
    this.options = null;
    this.fit();
    this.speak(choice.active ? say("Filtered by {choice}. {counts}", { choice: choice.sentence(), counts: this.sentence() }) : say("No filter: the whole run."));
  }

  // The bar sticks below the page's header, if that is above it; places that are jumped to
  // stand below both.
  fit() {
    const above = getComputedStyle(this.header).position === "fixed" ? 0 : this.header.offsetHeight;
    const { style } = document.documentElement;
    style.setProperty("--under-header", `${above}px`);
    style.setProperty("--under-choice", `${above + this.bar.offsetHeight}px`);
  }

  // The first thing said would only be noise.
  speak(text) {
    if (this.quiet === undefined) this.quiet = false;
    else this.spoken.textContent = text;
  }

  drawnChips() {
    return [...this.choice.values].flatMap(([dimension, values]) => values.map((value) => {
      const name = NAMED[dimension](String(value));
      const colour = colourOf(dimension, value);
      const remove = element(
        "button", {
          type: "button", class: "chip", title: name, "aria-label": say("Remove {choice}", { choice: name }),
          onclick: () => this.choice.drop(dimension, value),
        },
        colour ? swatch(colour) : null, element("span", {}, NAMED[dimension](shortened(String(value), 48))),
        element("span", { class: "cross", "aria-hidden": "true" }, "×"),
      );
      return element("li", {}, remove);
    }));
  }

  // The figures of the selection: "3 calls. 1,024 of 47,504 commands, 34.5 ms of device time (2.1 %),
  // 1.2 GB, 3.4 TFLOP", and what that leaves out.
  sentence() {
    const { sums, totals, counts } = this.choice, untraced = this.choice.untraced();
    const calls = counts.calls === 1 ? say("1 call") : say("{count} calls", { count: format.count(counts.calls) });
    if (!sums) return [calls, this.choice.coarse(), untraced].filter(Boolean).join(". ");
    const values = { count: format.count(sums.commands), all: format.count(totals.commands), time: format.duration(sums.total_ns) };
    const share = totals.total_ns && format.percent(sums.total_ns / totals.total_ns);
    const counted = share ? say("{count} of {all} commands, {time} of device time ({share})", { ...values, share })
      : say("{count} of {all} commands", values);
    const work = [sums.bytes && format.size(sums.bytes), sums.flops && format.flops(sums.flops)].filter(Boolean);
    return [calls, [counted, ...work].join(", "), untraced].filter(Boolean).join(". ");
  }

  ways() {
    const button = (text, title, run) => element("button", { type: "button", title, onclick: run }, text);
    const step = (text, title, label, direction) => element(
      "button", {
        type: "button", title, "aria-label": label, "data-way": direction > 0 ? "next" : "previous",
        onclick: () => this.toMatch(direction),
      }, text,
    );
    return [
      step("‹", say("Previous match  F"), say("Previous match"), -1),
      step("›", say("Next match  f"), say("Next match"), 1),
      button(say("Clear"), say("Clear the filter  Esc"), () => this.choice.clear()),
      button(say("Copy link"), say("The address of this view"), () => this.copy()),
    ];
  }

  toMatch(direction) {
    if (!this.choice.active) return this.speak(say("No filter is set."));
    const found = this.choice.neighbour(this.explorer.timeline.selected, direction);
    if (!found) return this.speak(say("No match."));
    this.explorer.visit(found);
    const values = { number: format.count(found.number), all: format.count(found.total) };
    this.counts.textContent = `${say("Match {number} of {all}", values)} · ${this.sentence()}`;
    this.speak(say("Match {number} of {all}", values));
  }

  async copy() {
    this.explorer.address?.write(false);
    const copied = await copiedText(location.href);
    this.speak(copied ? say("Link copied.") : say("The link is in the address bar."));
    const button = this.buttons.lastElementChild;
    button.textContent = copied ? say("Copied") : say("See the address bar");
    clearTimeout(this.said);
    this.said = setTimeout(() => (button.textContent = say("Copy link")), 2000);
  }

  // Everything that can be chosen by name: {text, dimension, value}.
  choosable() {
    const folded = (value) => (String(value).includes("*") ? 0 : 1); // blocks folded before single ones
    return (this.options ??= DIMENSIONS.filter((name) => name !== "call").flatMap((dimension) =>
      [...this.choice.known[dimension]].sort((a, b) => folded(a) - folded(b)).map((value) => {
        const text = NAMED[dimension](String(value));
        return { text, low: text.toLowerCase(), dimension, value };
      })));
  }

  // Options with every word of a text, those first that are it.
  found(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean), whole = words.join(" ");
    const found = this.choosable().filter(({ low }) => words.every((word) => low.includes(word)));
    const exact = (option) => Number(option.low === whole || String(option.value).toLowerCase() === whole);
    return found.sort((a, b) => exact(b) - exact(a));
  }

  typed(event) {
    const text = this.search.value;
    this.search.setCustomValidity("");
    if (event.inputType === undefined || event.inputType === "insertReplacementText") {
      const option = this.choosable().find((one) => one.text === text); // taken from the list
      if (option) return this.take(option);
    }
    const options = text ? this.found(text).slice(0, SUGGESTED) : [];
    this.names.replaceChildren(...options.map((one) => element("option", { value: one.text })));
  }

  pressed(event) {
    if (event.key === "Escape") {
      event.stopPropagation();
      if (!this.search.value) this.search.blur();
      this.search.value = "";
      return;
    }
    if (event.key !== "Enter" || !this.search.value.trim()) return;
    event.preventDefault();
    const [option] = this.found(this.search.value);
    if (option) return this.take(option, event.shiftKey);
    this.search.setCustomValidity(say("Nothing in this run has that name."));
    this.search.reportValidity();
  }

  take({ dimension, value }, more = false) {
    this.search.value = "";
    this.names.replaceChildren();
    if (!this.choice.has(dimension, value)) this.choice.pick({ [dimension]: value }, more);
    this.buttons.querySelector("[data-way=next]")?.focus(); // so that Enter, f and F go on
  }
}

// Buttons below an event's card: to choose what it is of.
export function choiceButtons(choice, timeline, { lane, i }) {
  const { calls, commands, modules } = timeline.tables, at = lane.first + i, text = (code) => timeline.text[code];
  const call = { calls: at, commands: commands.call[at], modules: modules.call?.[at] }[lane.kind] ?? -1;
  const found = {};
  if (lane.kind === "commands") {
    found.operator = text(commands.layer[at]);
    if (pattern(found.operator) !== found.operator) found.operators = pattern(found.operator);
    found.role = text(commands.role[at]);
    found.stage = text(commands.stage[at]);
    found.step = commands.step[at];
  }
  if (call >= 0) {
    Object.assign(found, {
      call: calls.call[call], submodule: text(calls.submodule[call]), stage: text(calls.stage[call]),
      branch: text(calls.branch[call]), step: calls.step[call],
    });
  }
  if (lane.kind === "spans") {
    found.stage = text(timeline.tables.spans.stage[at]);
    found.step = timeline.tables.spans.step[at];
  }
  found.device = lane.device;
  const buttons = ["operator", "operators", "role", "step", "submodule", "stage", "branch", "device", "call"]
    .map((name) => [name === "operators" ? "operator" : name, found[name]])
    .filter(([dimension, value]) => value !== undefined && value !== "" && choice.exists(dimension, value))
    .map(([dimension, value]) => pickButton(choice, { [dimension]: value }, NAMED[dimension](shortened(String(value), 60))));
  if (!buttons.length) return null;
  return element("div", { class: "only" }, element("span", {}, say("Only this:")), buttons);
}
