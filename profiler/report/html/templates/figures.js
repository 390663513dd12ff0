// The plotly figures. Running the library takes a second, so it waits until a figure comes into
// view, the page is printed, or nobody has done anything for a while: a capture of the full page does not
// scroll. What it takes is inflated before, which another thread does. What of a figure follows the
// choice is in linked.js.
//
// Drawing one takes up to a tenth of a second. After a change of the choice, the theme, the language or
// the width those in the window or near it are drawn, and the others when they come near: until then a
// place has `data-due` and its new height.

import { inflated, page } from "./data.js";
import { figureButton } from "./exports.js";
import { fitted, fittedData, heightOf } from "./fitting.js";
import { element } from "./format.js";
import { speech, spokenFigure, whenSpoken } from "./language.js";
import { linkedChart, startClicks } from "./linked.js";
import { started } from "./main.js";
import { figurePlaces } from "./rooms.js";
import { currentTheme, report } from "./theme.js";

const NEAR = 0.5; // of the window's height above and below it
const QUIET = 2500; // ms without a key or a pointer, after which figures are drawn anyway

// Resolves when figures are wanted: one is in the window or near it, the reader is quiet, or
// `report.wantFigures` is called.
function whenWanted() {
  return new Promise((resolve) => {
    const seen = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) report.wantFigures();
    }, { rootMargin: "100px" });
    let quiet;
    const wait = () => {
      clearTimeout(quiet);
      quiet = setTimeout(() => report.wantFigures(), QUIET);
    };
    const doings = ["pointermove", "pointerdown", "keydown", "wheel"];
    report.wantFigures = () => {
      seen.disconnect();
      clearTimeout(quiet);
      for (const doing of doings) removeEventListener(doing, wait);
      resolve();
    };
    for (const doing of doings) addEventListener(doing, wait, { passive: true });
    for (const place of figurePlaces()) seen.observe(place);
    wait();
  });
}

// Inflates the figures and the library; returns what runs it, once.
async function figureLibrary() {
  const [charts, library] = await Promise.all(["page-figures", "page-plotly"].map(inflated));
  return () => {
    if (window.Plotly) return;
    const text = new TextDecoder();
    Object.assign(page, JSON.parse(text.decode(charts)));
    performance.mark("plotly");
    document.head.append(element("script", {}, text.decode(library)));
  };
}

async function startFigures() {
  await started;
  const wanted = whenWanted(), run = await (window.figuresInflated = figureLibrary());
  // Paper does not wait: what a reader has not scrolled to is drawn at once.
  addEventListener("beforeprint", () => {
    run();
    arrangeFigures();
    for (const place of figurePlaces()) if (place.dataset.due) drawFigure(place);
    report.wantFigures();
  });
  if (report.printing) report.wantFigures();
  matchMedia("print").addEventListener("change", () => report.wantFigures());
  await wanted;
  run();
  report.themed.push(followFigures);
  whenSpoken(followFigures);
  report.followers.push(followFigures);
  report.wantFigures = () => drawDue(true);
  arrangeFigures();
  await drawDue(true); // at first all, so that who scrolls on finds them
  window.figuresReady = performance.now();
  new ResizeObserver(resizeFigures).observe(document.querySelector("main"));
  const coming = new IntersectionObserver(() => drawDue(), { rootMargin: `${100 * NEAR}% 0px` });
  for (const place of figurePlaces()) coming.observe(place);
}

function followFigures() {
  arrangeFigures();
  return drawDue();
}

// Also what is no longer folded away has a width now.
function resizeFigures() {
  arrangeFigures(figurePlaces().filter(({ clientWidth, shown, dataset }) => clientWidth && (dataset.due || clientWidth !== shown?.width)));
  return drawDue();
}

const charts = new Map(); // in a language and a theme, by both and the figure

function figureOf({ dataset: { figure } }) {
  const theme = currentTheme(), key = [speech.language, theme, figure].join(" ");
  if (!charts.has(key)) charts.set(key, spokenFigure(figure, page.figures[theme][figure]));
  return linkedChart(figure, charts.get(key), theme);
}

// What figures take of the page follows at once, so that nothing moves when they are drawn: what they have
// to do with the choice, their height, and whether they are there: one of which the choice leaves nothing is hidden.
function arrangeFigures(places = figurePlaces()) {
  const found = places.map((place) => ({ place, chart: figureOf(place) }));
  for (const { place, chart: { data, scope } } of found) {
    place.saves ??= place.nextElementSibling; // has its height from the start
    drawFigureScope(place, scope);
    place.hidden = place.saves.hidden = !data.length;
  }
  for (const one of found) one.width = one.place.clientWidth; // the page is laid out once for all of them
  for (const { place, chart, width } of found) if (width) place.style.height = `${heightOf(chart, width)}px`;
  for (const one of found) one.away = distance(one.place);
  for (const { place, chart, width, away } of found) {
    if (!place.hidden && !shows(place, chart, width)) place.dataset.due = isNear(away) ? "near" : "far";
    else delete place.dataset.due;
  }
}

function shows({ shown }, { data, layout }, width) {
  return shown?.data === data && shown.layout === layout && shown.width === width;
}

// Below a figure, what it has to do with the choice.
function drawFigureScope(place, scope) {
  if (!place.scopeLine && !scope) return;
  if (!place.scopeLine) place.saves.after((place.scopeLine = element("p", { class: "scope" })));
  const line = place.scopeLine;
  line.textContent = scope;
  line.hidden = !scope;
}

// How far a place is from the window.
function distance(place) {
  const { top, bottom } = place.getBoundingClientRect();
  return Math.max(top - innerHeight, -bottom, 0);
}

function isNear(away) { return away <= NEAR * innerHeight; }

// Places whose figures are due; of what is folded away none is.
function duePlaces() { return figurePlaces().filter((place) => place.dataset.due && place.clientWidth); }

const drawing = { running: false, all: false };

// Draws what is due in the window or near it, or `all` that is, what is looked at first. html[data-figures]
// is "drawing" until then; after it "waiting" while a figure far from the window shows what was before, else "drawn".
async function drawDue(all = false) {
  drawing.all ||= all;
  if (drawing.running) return;
  drawing.running = true;
  const { dataset } = document.documentElement;
  try {
    for (let place; (place = nextFigure());) {
      dataset.figures = "drawing";
      await drawFigure(place);
      await new Promise((resolve) => setTimeout(resolve)); // the page stays alive between two
    }
  } finally {
    drawing.running = drawing.all = false;
    dataset.figures = duePlaces().length ? "waiting" : "drawn";
  }
}

function nextFigure() {
  const everything = drawing.all || report.printing;
  const wanted = duePlaces().map((place) => [place, distance(place)]).filter(([, away]) => everything || isNear(away));
  return wanted.sort(([, a], [, b]) => a - b)[0]?.[0];
}

async function drawFigure(place) {
  const { data, layout } = figureOf(place), width = place.clientWidth;
  place.shown = { data, layout, width };
  delete place.dataset.due;
  const config = { displayModeBar: false, responsive: false };
  await Plotly.react(place, fittedData(data, width), fitted(data, layout, width), config);
  if (place.hasAttribute("data-clicks")) return;
  place.toggleAttribute("data-clicks", true);
  startClicks(place);
  place.saves.append(figureButton(place, drawFigure));
}

startFigures();
