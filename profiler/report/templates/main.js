// Start: theme, timeline, tables. Figures follow in figures.js, after the timeline is on screen.

const THEMES = ["auto", "light", "dark"];
const darkness = matchMedia("(prefers-color-scheme: dark)");
const report = { theme: "auto", printing: false, timeline: null, themed: [] };

function currentTheme() {
  if (report.printing) return "light";
  return report.theme === "auto" ? (darkness.matches ? "dark" : "light") : report.theme;
}

function applyTheme() {
  const theme = currentTheme();
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = `Theme: ${report.theme}`;
  for (const follow of report.themed) follow(theme);
}

// Paper is light, and everything is drawn again for its width.
function printed(printing) {
  if (report.printing === printing) return;
  report.printing = printing;
  document.documentElement.classList.toggle("printing", printing);
  applyTheme();
  report.timeline?.arrange();
  report.timeline?.drawNow();
}

function startTheme() {
  document.getElementById("theme").addEventListener("click", () => {
    report.theme = THEMES[(THEMES.indexOf(report.theme) + 1) % THEMES.length];
    applyTheme();
  });
  darkness.addEventListener("change", applyTheme);
  matchMedia("print").addEventListener("change", (event) => printed(event.matches));
  addEventListener("beforeprint", () => printed(true));
  addEventListener("afterprint", () => printed(false));
  applyTheme();
}

// The tables by key.
function startTables(explorer) {
  const tables = {};
  for (const holder of document.querySelectorAll("[data-table]")) {
    const key = holder.dataset.table, table = page.tables_shown[key];
    const action = key === "calls" && {
      title: "Zoom into this call",
      run: (i) => {
        const found = explorer.callNumbered(table.values.call[i]);
        if (!found) return;
        explorer.select(found, true);
        document.getElementById("timeline").scrollIntoView();
      },
    };
    tables[key] = new DataTable(holder, { ...table, action });
  }
  return tables;
}

function startLegend() {
  const legend = document.getElementById("timeline-legend");
  const draw = () => {
    const pairs = Object.entries(page.palette[
      { submodule: "submodules", role: "roles", category: "categories" }[report.timeline.mode]
    ]);
    const present = new Set([
      ...page.timeline.strings, ...page.timeline.lanes.map((lane) => lane.category),
    ]);
    const wanted = pairs.filter(([name]) => present.has(name));
    legend.replaceChildren(...wanted.map(([name, pair]) => element("li", {}, swatch(pair), name)));
  };
  document.getElementById("timeline-colour").addEventListener("change", draw);
  draw();
}

async function start() {
  startTheme();
  startContents();
  const tables = await unpackedTables();
  report.timeline = new Timeline(tables, currentTheme());
  report.timeline.drawNow();
  window.profileReady = performance.now();
  document.documentElement.dataset.timeline = "drawn";
  report.themed.push((theme) => {
    report.timeline.setTheme(theme);
    report.timeline.draw();
  });
  const explorer = new Explorer(report.timeline, new Details(report.timeline));
  startLegend();
  startFindings(explorer, startTables(explorer));
  window.profileReport = { timeline: report.timeline, explorer };
}

const started = start();
started.catch((error) => {
  document.getElementById("timeline-status").textContent =
    `The timeline could not be drawn (${error.message}): open this page in a current browser.`;
  throw error;
});
