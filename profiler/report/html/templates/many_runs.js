// Start of the pages of many runs: theme, language, tables.

import { startContents } from "./contents.js";
import { page } from "./data.js";
import { startSpeech } from "./language.js";
import { DataTable } from "./tables.js";
import { startTheme } from "./theme.js";

function startManyRuns() {
  startTheme();
  startSpeech();
  startContents();
  const tables = {};
  for (const holder of document.querySelectorAll("[data-table]")) {
    const key = holder.dataset.table;
    tables[key] = new DataTable(holder, page.tables_shown[key]);
  }
  window.profileTables = tables;
  window.profileUsable = performance.now();
}

startManyRuns();
