// What a reader takes along of a table: CSV or Markdown. Nothing is asked of a server: the browser saves
// what the page made.

import { page } from "./data.js";
import { element, NOTHING, TEXTS } from "./format.js";
import { say } from "./language.js";

// What makes spreadsheets calculate, and what of it is a number, as profiler/report/files.py has them.
const FORMULA = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/;
const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]+/gu;
const PLAIN_NUMBER = /^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?$/i;

function csvCell(value) {
  if (value === null || value === undefined) return "";
  let text = String(value);
  if (FORMULA.test(text) && !PLAIN_NUMBER.test(text)) text = `'${text}`;
  text = text.replace(HIDDEN, "\ufffd");
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

// All columns under their names in the documentation, with whole values, of every row that the search and
// the filter keep.
function csvOf(table) {
  const names = [...(table.savedBefore ?? []), ...table.columns.map(({ name }) => name)];
  const lines = table.savedRows().map((i) => names.map((name) => csvCell(table.saved(name, i))).join(","));
  return `${[names.map(csvCell).join(","), ...lines].join("\r\n")}\r\n`;
}

// What is text stays text: nothing of it is read as Markdown or HTML.
export function markdownCell(text) {
  return String(text).replace(/[\r\n]+/g, " ").replace(/[\\`*_{}[\]<>|#~]/g, "\\$&");
}

// The columns and rows that are seen, as they read.
export function markdownOf(table) {
  const columns = table.columns.filter((column) => !table.seen.away(column));
  const heading = ({ name, label }) => [say(label), table.scales[name]?.unit].filter(Boolean).join(" ");
  const shown = (i) => ({ name, kind }) => {
    const value = table.saved(name, i);
    return value === null || value === undefined || value === "" ? NOTHING : table.shown(value, kind, name);
  };
  const line = (cells) => `| ${cells.map(markdownCell).join(" | ")} |`;
  return [
    line(columns.map(heading)),
    `| ${columns.map(({ kind }) => (TEXTS.includes(kind) ? "---" : "---:")).join(" | ")} |`,
    ...table.found().slice(0, table.limit).map((i) => line(columns.map(shown(i)))),
  ].join("\n");
}

export function saved(content, name, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

export function fileName(what, ending) { return `${`${page.run}-${what}`.replace(/[^\w.-]+/g, "-")}.${ending}`; }

// `button` says for a moment that its text was copied.
export async function copiedBy(button, text) {
  const copied = await copiedText(text), before = button.dataset.label ??= button.textContent;
  button.textContent = copied ? say("Copied") : say("Not copied");
  clearTimeout(button.waiting);
  button.waiting = setTimeout(() => (button.textContent = before), 2000);
}

export function tableSaved(table) { saved(csvOf(table), fileName(table.name, "csv"), "text/csv;charset=utf-8"); }

export async function copiedText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element("textarea", { readonly: true, class: "hidden" }, text);
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}
