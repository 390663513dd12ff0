// What a reader takes along: a table as CSV or Markdown, a finding as Markdown, a figure as SVG, a canvas
// as PNG. Nothing is asked of a server: the browser saves what the page made.

// What makes spreadsheets calculate, and what of it is a number, as profiler/report/flat.py has them.
const FORMULA = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/;
const PLAIN_NUMBER = /^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?$/i;

function csvCell(value) {
  if (value === null || value === undefined) return "";
  let text = String(value);
  if (FORMULA.test(text) && !PLAIN_NUMBER.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

// All columns under their names in the documentation, with whole values, of every row that the search and
// the filter keep.
function csvOf(table) {
  const names = [...(table.savedBefore ?? []), ...table.columns.map(({ name }) => name)];
  const lines = table.savedRows().map((i) => names.map((name) => csvCell(table.values[name][i])).join(","));
  return `${[names.map(csvCell).join(","), ...lines].join("\r\n")}\r\n`;
}

// What is text stays text: nothing of it is read as Markdown or HTML.
function markdownCell(text) {
  return String(text).replace(/[\r\n]+/g, " ").replace(/[\\`*_{}[\]<>|#~]/g, "\\$&");
}

// The columns and rows that are seen, as they read.
function markdownOf(table) {
  const columns = table.columns.filter((column) => !table.seen.away(column));
  const heading = ({ name, label }) => [say(label), table.scales[name]?.unit].filter(Boolean).join(" ");
  const shown = (i) => ({ name, kind }) => {
    const value = table.values[name][i];
    return value === null || value === undefined || value === "" ? NOTHING : table.shown(value, kind, name);
  };
  const line = (cells) => `| ${cells.map(markdownCell).join(" | ")} |`;
  return [
    line(columns.map(heading)),
    `| ${columns.map(({ kind }) => (TEXTS.includes(kind) ? "---" : "---:")).join(" | ")} |`,
    ...table.found().slice(0, table.limit).map((i) => line(columns.map(shown(i)))),
  ].join("\n");
}

// A finding as its article says it, with the address that leads to it.
function findingMarkdown(article) {
  const text = (selector) => markdownCell(article.querySelector(selector)?.textContent.trim() ?? "");
  const saves = text(".saves"), evidence = [...article.querySelectorAll(".evidence > div")]
    .map((pair) => `- ${markdownCell(pair.querySelector("dt").textContent)}: ${markdownCell(pair.querySelector("dd").textContent)}`);
  return [
    `**${text(".headline strong")}** (${[text(".severity"), saves].filter(Boolean).join(", ")})`, "",
    ...evidence, "", text(".recommendation"), "", text(":scope > .help"),
  ].join("\n");
}

function saved(content, name, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function fileName(what, ending) { return `${`${page.run}-${what}`.replace(/[^\w.-]+/g, "-")}.${ending}`; }

// `button` says for a moment that its text was copied.
async function copiedBy(button, text) {
  const copied = await copiedText(text), before = button.dataset.label ??= button.textContent;
  button.textContent = copied ? say("Copied") : say("Not copied");
  clearTimeout(button.waiting);
  button.waiting = setTimeout(() => (button.textContent = before), 2000);
}

function tableSaved(table) { saved(csvOf(table), fileName(table.name, "csv"), "text/csv;charset=utf-8"); }

// The figure as it is drawn, as SVG.
async function figureSaved(place) {
  const address = await Plotly.toImage(place, { format: "svg" });
  saved(decodeURIComponent(address.slice(address.indexOf(",") + 1)), fileName(place.dataset.figure, "svg"), "image/svg+xml");
}

function figureButton(place) {
  const button = element("button", { type: "button", class: "quiet save", onclick: () => figureSaved(place) }, "SVG");
  const label = () => button.setAttribute("aria-label", button.title = say("Save this figure as SVG"));
  whenSpoken(label, button);
  label();
  return element("p", { class: "saves-figure" }, button);
}

// A canvas of the first screen with its title above it.
function canvasSaved(title, canvas, ratio) {
  const head = 30, made = element("canvas", { width: canvas.width, height: canvas.height + head * ratio });
  const context = painted(made, ratio);
  context.font = `600 14px ${page.font}`;
  context.fillText(title, 6, head / 2);
  context.drawImage(canvas, 0, head, canvas.width / ratio, canvas.height / ratio);
  made.toBlob((blob) => saved(blob, fileName(title, "png")), "image/png");
}

// The timeline with the names of its lanes, as it is seen.
function timelineSaved(timeline) {
  const { canvas, overview, ratio, labelColumn } = timeline, left = labelColumn.offsetWidth, top = overview.height / ratio;
  const made = element("canvas", { width: canvas.width + left * ratio, height: canvas.height + overview.height });
  const context = painted(made, ratio);
  context.drawImage(overview, left, 0, overview.width / ratio, top);
  context.drawImage(canvas, left, top, canvas.width / ratio, canvas.height / ratio);
  for (const band of timeline.bands) {
    context.font = `600 12px ${page.font}`;
    if (band.title) context.fillText(band.title(), 8, top + band.y + 12, left - 12);
    context.font = `12px ${page.font}`;
    for (const { lane, y, height } of band.lanes) context.fillText(nameIn(band, lane), 20, top + y + height / 2, left - 24);
  }
  made.toBlob((blob) => saved(blob, fileName("timeline", "png")), "image/png");
}

function painted(canvas, ratio) {
  const context = canvas.getContext("2d"), theme = currentTheme();
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = page.palette.surface[theme];
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = page.palette.page.text[theme];
  context.textBaseline = "middle";
  return context;
}

function startExports() {
  for (const button of document.querySelectorAll("[data-picture]")) {
    const canvas = window.profileFirst[button.dataset.picture];
    button.hidden = button.dataset.picture !== "timeline" && !canvas;
    button.addEventListener("click", () => (canvas
      ? canvasSaved(canvas.place.querySelector("h2").textContent, canvas.canvas, canvas.ratio) : timelineSaved(report.timeline)));
  }
}
