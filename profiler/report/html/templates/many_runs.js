// Start of the pages of many runs: theme, language, tables.

const exporting = Promise.resolve(); // tables can be saved from the beginning

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
