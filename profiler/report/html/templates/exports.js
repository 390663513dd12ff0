// What else a reader takes along (tables are in table_files.js): a finding as Markdown, a figure as SVG, a
// canvas as PNG. Nothing is asked of a server: the browser saves what the page made.

import { page } from "./data.js";
import { element } from "./format.js";
import { nameIn } from "./lanes.js";
import { say, whenSpoken } from "./language.js";
import { fileName, markdownCell, saved } from "./table_files.js";
import { currentTheme, report } from "./theme.js";

// A finding as its article says it, with the address that leads to it.
export function findingMarkdown(article) {
  const text = (selector) => markdownCell(article.querySelector(selector)?.textContent.trim() ?? "");
  const saves = text(".saves"), evidence = [...article.querySelectorAll(".evidence > div")]
    .map((pair) => `- ${markdownCell(pair.querySelector("dt").textContent)}: ${markdownCell(pair.querySelector("dd").textContent)}`);
  return [
    `**${text(".headline strong")}** (${[text(".severity"), saves].filter(Boolean).join(", ")})`, "",
    ...evidence, "", text(".recommendation"), "", text(":scope > .help"),
  ].join("\n");
}

// The figure as SVG, as the page shows it.
async function figureSaved(place, draw) {
  if (place.dataset.due) await draw(place);
  const address = await Plotly.toImage(place, { format: "svg" });
  saved(decodeURIComponent(address.slice(address.indexOf(",") + 1)), fileName(place.dataset.figure, "svg"), "image/svg+xml");
}

export function figureButton(place, draw) {
  const button = element("button", { type: "button", class: "quiet save", onclick: () => figureSaved(place, draw) }, "SVG");
  const label = () => button.setAttribute("aria-label", button.title = say("Save this figure as SVG"));
  whenSpoken(label, button);
  label();
  return button;
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

export function startExports() {
  for (const button of document.querySelectorAll("[data-picture]")) {
    const canvas = window.profileFirst[button.dataset.picture];
    button.hidden = button.dataset.picture !== "timeline" && !canvas;
    button.addEventListener("click", () => (canvas
      ? canvasSaved(canvas.place.querySelector("h2").textContent, canvas.canvas, canvas.ratio) : timelineSaved(report.timeline)));
  }
}
