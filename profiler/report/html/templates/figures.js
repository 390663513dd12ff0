// The plotly figures. Running the library takes a second, so it waits until a figure comes into
// view or the page is printed; what it takes is inflated before, which another thread does. What of a
// figure follows the choice is in linked.js.

// Resolves when somebody wants figures: one is in the window or near it, or `report.wantFigures` is called.
function whenWanted() {
  return new Promise((resolve) => {
    const seen = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) report.wantFigures();
    }, { rootMargin: "100px" });
    report.wantFigures = () => {
      seen.disconnect();
      resolve();
    };
    for (const place of document.querySelectorAll("[data-figure]")) seen.observe(place);
  });
}

// html[data-figures] is "drawing" while a figure still shows what was before, else "drawn".
let drawings = 0;

async function drawing(work) {
  const { dataset } = document.documentElement;
  drawings += 1;
  dataset.figures = "drawing";
  try {
    await work();
  } finally {
    drawings -= 1;
    if (!drawings) dataset.figures = "drawn";
  }
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
    for (const place of document.querySelectorAll("[data-figure]")) {
      if (!place.data) drawFigure(place, currentTheme());
    }
    report.wantFigures();
  });
  if (report.printing) report.wantFigures();
  matchMedia("print").addEventListener("change", () => report.wantFigures());
  await wanted;
  run();
  report.themed.push(drawFigures);
  whenSpoken(() => drawFigures(currentTheme()));
  report.followers.push(redrawFigures);
  await drawing(async () => {
    for (const rest = [...document.querySelectorAll("[data-figure]")]; rest.length;) {
      const place = rest.splice(nearest(rest), 1)[0]; // what is looked at comes first
      await drawFigure(place, currentTheme());
      await new Promise((resolve) => setTimeout(resolve)); // the page stays alive between two
    }
    new ResizeObserver(() => resizeFigures()).observe(document.querySelector("main"));
    window.figuresReady = performance.now();
  });
}

function figureOf({ dataset: { figure } }, theme) {
  return linkedChart(figure, spokenFigure(figure, page.figures[theme][figure]), theme);
}

// Which of `places` is in the window, or least far from it.
function nearest(places) {
  const away = places.map((place) => {
    const { top, bottom } = place.getBoundingClientRect();
    return Math.max(top - innerHeight, -bottom, 0);
  });
  return away.indexOf(Math.min(...away));
}

function drawFigures(theme) {
  return drawing(async () => {
    for (const place of document.querySelectorAll("[data-figure]")) await drawFigure(place, theme);
  });
}

// After a change of the choice: what is in view at once, the rest one by one.
function redrawFigures() { return drawing(redrawAll); }

async function redrawAll() {
  const asked = (report.redrawing = {}), places = [...document.querySelectorAll("[data-figure]")];
  const inView = (place) => {
    const { top, bottom } = place.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  };
  for (const place of [...places.filter(inView), ...places.filter((place) => !inView(place))]) {
    await drawFigure(place, currentTheme());
    await new Promise((resolve) => setTimeout(resolve));
    if (report.redrawing !== asked) return;
  }
}

// Below a figure, what it has to do with the choice.
function drawFigureScope(place, scope) {
  if (!place.scopeLine && !scope) return;
  if (!place.scopeLine) place.saves.after((place.scopeLine = element("p", { class: "scope" })));
  const line = place.scopeLine;
  line.textContent = scope;
  line.hidden = !scope;
}

// A figure of which nothing is left by the choice is hidden.
async function drawFigure(place, theme) {
  const { data, layout, scope } = figureOf(place, theme);
  place.saves ??= place.nextElementSibling; // has its height from the start, so that nothing below moves
  drawFigureScope(place, scope);
  place.hidden = place.saves.hidden = !data.length;
  if (place.hidden) return;
  const config = { displayModeBar: false, responsive: false }, width = place.clientWidth;
  place.style.height = `${heightOf({ data, layout }, width)}px`;
  await Plotly.react(place, fittedData(data, width), fitted(data, layout, width), config);
  if (!place.hasAttribute("data-clicks")) {
    startClicks(place);
    place.saves.append(figureButton(place));
  }
  place.toggleAttribute("data-clicks", true);
}

function resizeFigures() {
  for (const place of document.querySelectorAll("[data-figure]")) {
    const width = place.clientWidth;
    if (!place.data || place.hidden || width === place.layout.width) continue;
    const { data, layout } = figureOf(place, currentTheme());
    place.style.height = `${heightOf({ data, layout }, width)}px`;
    Plotly.react(place, fittedData(data, width), fitted(data, layout, width));
  }
}

startFigures();
