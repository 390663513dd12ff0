// Start of what the page unpacks: timeline, tables. Figures follow in figures.js, when they are looked at.

import { Address } from "./address.js";
import { Cells } from "./cells.js";
import { colourEntries, restEntries } from "./colourings.js";
import { inflated, packedTables, page } from "./data.js";
import { Details } from "./details.js";
import { DIMENSIONS } from "./dimensions.js";
import { Explorer } from "./explore.js";
import { startExports } from "./exports.js";
import { Finder } from "./finder.js";
import { startFindings } from "./findings.js";
import { flowButtons } from "./flows.js";
import { Fold } from "./fold.js";
import { element } from "./format.js";
import { startKeys } from "./keys.js";
import { say, whenSpoken } from "./language.js";
import { Measure } from "./measure.js";
import { couldNotOpen } from "./opening.js";
import { startPerfetto } from "./perfetto.js";
import { pickButton } from "./picking.js";
import { Choice } from "./selection.js";
import { choiceButtons, ChosenBar } from "./selection_bar.js";
import { DataTable, swatch } from "./tables.js";
import { currentTheme, report } from "./theme.js";
import { Timeline } from "./timeline.js";
import { startTimelineTable } from "./timeline_table.js";
import { ModuleTree } from "./tree.js";

// The tables by key.
function startTables(explorer, choice) {
  const { tables } = report;
  for (const holder of document.querySelectorAll("[data-table]")) {
    const key = holder.dataset.table, table = page.tables_shown[key];
    const action = table.opens === "call" && {
      title: () => say("Zoom into this call"),
      run: (i) => {
        const found = explorer.callNumbered(table.values.call[i]);
        if (!found) return;
        explorer.select(found, true);
        document.getElementById("timeline").scrollIntoView();
      },
    };
    const host = table.opens === "host_layers";
    const fold = (host || table.opens === "layers") && new Fold(explorer, { host });
    tables[key] = new (table.nested ? ModuleTree : DataTable)(holder, { ...table, action, fold, choice });
  }
  choice.follow(() => report.followers.forEach((follow) => follow())); // figures, once the tables are drawn
  return tables;
}

// Entries of the legend choose what they stand for, if that can be chosen.
function startLegend(choice) {
  const legend = document.getElementById("timeline-legend");
  const draw = () => {
    const { mode, tables } = report.timeline;
    const categories = new Set(page.timeline.lanes.flatMap((lane) => lane.category.split(", ")));
    const seen = ([, name, value]) => (mode === "category" ? categories.has(name) : value === undefined || choice.exists(mode, value));
    const focused = [...legend.children].findIndex((entry) => entry.contains(document.activeElement));
    const waits = categories.has("sync") && mode !== "category" ? [[page.palette.page.wait, say("waiting"), undefined, "hatched"]] : [];
    legend.replaceChildren(...[...colourEntries(mode, tables).filter(seen), ...restEntries(mode, tables), ...waits].map(([pair, name, value, look = mode === "category" && value === "sync" ? "hatched" : ""]) => element("li", {},
      DIMENSIONS.includes(mode) && choice.exists(mode, value)
        ? pickButton(choice, { [mode]: value }, swatch(pair), name) : [swatch(pair, look), name])));
    if (focused >= 0) legend.children[focused]?.querySelector("button")?.focus();
  };
  document.getElementById("timeline-colour").addEventListener("change", draw);
  choice.follow(draw);
  whenSpoken(draw);
  draw();
}

async function start() {
  const packed = await packedTables();
  const tables = Object.fromEntries(page.timeline.tables.map((name) => [name, packed(name)]));
  report.timeline = new Timeline(tables, currentTheme());
  report.timeline.drawNow();
  performance.mark("timeline");
  window.profileReady = performance.now();
  document.documentElement.dataset.timeline = "drawn";
  whenSpoken(() => report.timeline.arrange());
  report.themed.push((theme) => {
    report.timeline.setTheme(theme);
    report.timeline.draw();
  });
  const cells = new Cells(page.cells, new Uint8Array(await inflated("page-cells")), report.timeline.text);
  const explorer = new Explorer(report.timeline, new Details(report.timeline));
  const choice = report.choice = new Choice(report.timeline, cells);
  const bar = new ChosenBar(choice, explorer);
  explorer.details.offer = (found) => [flowButtons(explorer, found), choiceButtons(choice, report.timeline, found)].filter(Boolean);
  explorer.measure = new Measure(explorer);
  explorer.finder = new Finder(explorer, choice);
  startLegend(choice);
  const shown = startTables(explorer, choice);
  startPerfetto();
  startExports();
  startTimelineTable(report.timeline, explorer);
  startFindings(explorer, shown, choice);
  startKeys(bar, explorer);
  explorer.address = new Address(choice, explorer);
  window.profileReport = { timeline: report.timeline, explorer, choice, tables: shown };
  report.choosable();
  window.profileUsable = performance.now();
}

export const started = start();
started.catch(couldNotOpen);
