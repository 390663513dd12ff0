// Start of the page of two runs: theme, language, timelines, tables.

const choosing = new Promise(() => {}), exporting = Promise.resolve(); // nothing filters this page

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
