// The page's address keeps what is seen: the choice, the section, the timeline's window, its colours.
//
//     #section=roofline&step=7&role=attention&from=812.5ms&to=1020ms&colour=role
//
// What comes from an address is foreign: keys from a closed list, values that this run has, nothing
// else is taken, and nothing of it is shown.

import { DIMENSIONS, NUMBERED } from "./dimensions.js";
import { findingKey, findingOf, showFinding } from "./findings.js";
import { LANGUAGES, speak, whenSpoken } from "./language.js";

const LONGEST_ADDRESS = 6000; // characters
const MOST_CHOSEN = 200; // values
const SETTLED = 250; // ms without movement before the address follows

export class Address {
  constructor(choice, explorer) {
    Object.assign(this, { choice, explorer, timeline: explorer.timeline });
    this.section = this.finding = "";
    this.language = null; // once the reader chose one
    this.written = null;
    this.colour = document.getElementById("timeline-colour");
    const read = () => {
      if (location.hash === this.written) return;
      this.taking = true; // what follows the change of a control writes nothing
      try {
        this.take(location.hash);
      } finally {
        this.taking = false;
      }
    };
    addEventListener("popstate", read);
    addEventListener("hashchange", read);
    for (const link of document.querySelectorAll("a[href^='#']")) {
      link.addEventListener("click", (event) => this.toSection(event, link.hash.slice(1)));
    }
    choice.follow((source) => source !== "address" && this.write(true));
    explorer.followMoves(() => this.later());
    this.colour.addEventListener("change", () => this.write(false));
    whenSpoken((language) => {
      this.language = language;
      this.write(false);
    });
    if (location.hash) read();
  }

  later() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.write(false), SETTLED);
  }

  toSection(event, section) {
    event.preventDefault();
    const place = document.getElementById(section), finding = place?.matches("article.finding");
    this.section = finding ? "" : section;
    this.finding = finding ? findingKey(place) : "";
    this.write(true);
    if (finding) showFinding(place); else place?.scrollIntoView();
  }

  // The address that leads to a finding, in this page as it lies.
  of(article) { return `${location.href.replace(/#.*$/s, "")}#finding=${encoded(findingKey(article))}`; }

  // Write the address; as `entry` the back button returns to the one before.
  write(entry) {
    if (this.taking) return;
    clearTimeout(this.waiting);
    const hash = this.text();
    if (hash === (this.written ?? location.hash)) return;
    this.written = hash;
    const address = hash || location.href.replace(/#.*$/s, "");
    try {
      if (entry) history.pushState(null, "", address); else history.replaceState(null, "", address);
    } catch {
      if (hash) location.replace(hash); // a page in a frame may have no history
    }
    this.written = location.hash;
  }

  text() {
    const { view, span, mode } = this.timeline, whole = this.timeline.whole(), parts = [];
    const add = (key, value) => parts.push(`${key}=${encoded(String(value))}`);
    if (this.section) add("section", this.section);
    if (this.finding) add("finding", this.finding);
    for (const [dimension, values] of this.choice.values) {
      for (const value of values) add(dimension, value);
    }
    if (view.begin !== whole.begin || view.end !== whole.end) {
      add("from", milliseconds(Math.max(view.begin, 0)));
      add("to", milliseconds(Math.min(view.end, span)));
    }
    if (mode !== this.colour.options[0]?.value) add("colour", mode);
    if (this.language) add("lang", this.language);
    return parts.length ? `#${parts.join("&")}` : "";
  }

  // Take an address over, as far as this run has what it names.
  take(hash) {
    const asked = parsed(hash), values = new Map();
    let count = 0;
    for (const [key, text] of asked) {
      if (!DIMENSIONS.includes(key)) continue;
      const value = NUMBERED.has(key) ? (/^\d{1,9}$/.test(text) ? Number(text) : NaN) : text;
      if (!this.choice.exists(key, value) || ++count > MOST_CHOSEN) continue;
      if (!values.get(key)?.includes(value)) values.set(key, [...(values.get(key) ?? []), value]);
    }
    const of = (key) => asked.find(([name]) => name === key)?.[1];
    if (Object.hasOwn(LANGUAGES, of("lang") ?? "")) {
      speak(of("lang"));
      this.language = of("lang");
    }
    const colour = of("colour") ?? this.colour.options[0]?.value;
    if ([...this.colour.options].some(({ value }) => value === colour) && colour !== this.colour.value) {
      this.colour.value = colour;
      this.colour.dispatchEvent(new Event("change"));
    }
    this.choice.become(values, "address");
    this.window(nanoseconds(of("from")), nanoseconds(of("to")));
    this.written = hash;
    const sections = [...document.querySelectorAll("nav a")].map((link) => link.hash.slice(1));
    const section = of("section") ?? "";
    this.section = sections.includes(section) ? section : "";
    if (this.section) document.getElementById(this.section)?.scrollIntoView({ behavior: "instant" });
    const finding = findingOf(of("finding"));
    this.finding = finding ? of("finding") : "";
    if (finding) showFinding(finding);
  }

  window(from, to) {
    const { span } = this.timeline, { begin, end } = this.timeline.whole();
    if (from === null || to === null || from >= to || from > span) return this.timeline.show(begin, end);
    this.timeline.show(from <= 0 ? begin : from, to >= span ? end : to);
  }
}

// [key, value] of each part of an address; a plain name is that of a section.
function parsed(hash) {
  const text = hash.slice(1);
  if (!text || text.length > LONGEST_ADDRESS) return [];
  if (!text.includes("=")) return [["section", text]];
  return text.split("&").flatMap((part) => {
    const at = part.indexOf("=");
    try {
      return at > 0 ? [[part.slice(0, at), decodeURIComponent(part.slice(at + 1))]] : [];
    } catch {
      return []; // a broken escape
    }
  });
}

// Percent-encoded, but for what may stand in a fragment and reads better there.
function encoded(value) {
  return encodeURIComponent(value).replace(/%(2F|3A|2C|40|3B)/gi, (code) => decodeURIComponent(code));
}

// Whole nanoseconds as milliseconds that lose none of them, and back; null for anything else.
function milliseconds(ns) {
  return `${(Math.round(ns) / 1e6).toFixed(6).replace(/\.?0+$/, "")}ms`;
}

function nanoseconds(text) {
  return /^\d{1,12}(\.\d{1,6})?ms$/.test(text ?? "") ? Math.round(parseFloat(text) * 1e6) : null;
}
