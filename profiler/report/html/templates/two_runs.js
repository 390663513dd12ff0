// Start of the page of two runs: theme, language, timelines, tables.

import { startContents } from "./contents.js";
import { page } from "./data.js";
import { startSpeech } from "./language.js";
import { DataTable } from "./tables.js";
import { startTheme } from "./theme.js";
import { ModuleTree } from "./tree.js";
import { TwoTimelines } from "./two_timelines.js";

function startTwoRuns() {
  startTheme();
  startSpeech();
  startContents();
  const place = document.getElementById("two-timelines");
  if (page.two) {
    const timelines = new TwoTimelines(place);
    timelines.start();
    window.profileTwo = timelines;
  } else place.hidden = true;
  performance.mark("first-screen");
  const tables = {};
  for (const holder of document.querySelectorAll("[data-table]")) {
    const key = holder.dataset.table, table = page.tables_shown[key];
    tables[key] = new (table.nested ? ModuleTree : DataTable)(holder, table);
  }
  window.profileTables = tables;
  window.profileUsable = performance.now();
}

startTwoRuns();
