// Links of findings: to an operator in its table, to a call in the timeline; what a finding is about
// can be chosen.

import { page } from "./data.js";
import { DIMENSIONS, NUMBERED } from "./dimensions.js";
import { findingMarkdown } from "./exports.js";
import { element } from "./format.js";
import { say, whenSpoken } from "./language.js";
import { pickButton } from "./picking.js";
import { copiedBy } from "./table_files.js";

export function startFindings(explorer, tables, choice) {
  const timeline = document.getElementById("timeline");
  const ofLayers = Object.entries(tables).find(([key]) => page.tables_shown[key].opens === "layers")?.[1];
  for (const button of document.querySelectorAll(".finding button")) {
    const { findLayer, findSubmodule, findCall } = button.dataset;
    button.addEventListener("click", () => {
      if (findCall === undefined) return findLayer === undefined ? ofLayers?.find(findSubmodule, "submodule") : ofLayers?.find(findLayer);
      const call = explorer.callNumbered(Number(findCall));
      if (!call) return;
      explorer.select(call, true);
      timeline.scrollIntoView();
    });
  }
  const draw = () => {
    for (const finding of document.querySelectorAll(".finding")) {
      drawChooser(finding, choice);
      drawTaking(finding, explorer);
    }
  };
  choice.follow(draw);
  whenSpoken(draw);
  draw();
}

// Links to findings of the page: `#finding=unfused_attention`, and `.2` behind the second of a rule.
export function findingKey(article) {
  const { rule } = article.dataset, all = [...document.querySelectorAll("article.finding")];
  const at = all.filter((other) => other.dataset.rule === rule).indexOf(article);
  return at ? `${rule}.${at + 1}` : rule;
}

// The finding of such a link, undefined if the page has none.
export function findingOf(key) { return [...document.querySelectorAll("article.finding[id]")].find((article) => findingKey(article) === key); }

export function showFinding(article) {
  for (const other of document.querySelectorAll(".finding.linked")) other.classList.remove("linked");
  article.classList.add("linked");
  article.tabIndex = -1;
  article.scrollIntoView({ behavior: "instant", block: "center" });
  article.focus({ preventScroll: true });
}

// Buttons that copy a finding, and the address that leads to it.
function drawTaking(article, explorer) {
  if (!article.id) return;
  article.querySelector(".taking")?.remove();
  const take = (label, text) => element("button", { type: "button", class: "quiet save", onclick: ({ currentTarget }) => copiedBy(currentTarget, text()) }, label);
  (article.querySelector(".where") ?? article).append(element("span", { class: "taking" },
    take(say("Copy link"), () => explorer.address.of(article)),
    take(say("Copy as Markdown"), () => `${findingMarkdown(article)}\n\n<${explorer.address.of(article)}>`)));
}

// A button for everything that a finding is about, at once.
function drawChooser(finding, choice) {
  const pick = pickOf(finding, choice);
  if (!Object.keys(pick).length) return;
  let where = finding.querySelector(".where");
  if (!where) finding.append(where = element("p", { class: "where" }));
  const before = where.querySelector("button.pick"), focused = before && before === document.activeElement;
  const button = pickButton(choice, pick, say("Filter by this"));
  if (before) before.replaceWith(button); else where.append(button);
  if (focused) button.focus();
}

// What a finding names and the run has, as profiler/report/html/findings.py wrote it.
function pickOf({ dataset }, choice) {
  const pick = {};
  for (const dimension of DIMENSIONS) {
    const text = dataset[`about${dimension[0].toUpperCase()}${dimension.slice(1)}`];
    if (text === undefined) continue;
    const value = NUMBERED.has(dimension) ? Number(text) : text;
    if (choice.exists(dimension, value)) pick[dimension] = value;
  }
  return pick;
}
