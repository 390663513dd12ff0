// The plotly figures. Running the library takes a second, so it waits until a figure comes into
// view, the page is about to be printed, or nobody has touched anything for a while.

const QUIET = 1500; // ms without input
const NARROW = 640; // pixels of a figure

function whenWanted() {
  return new Promise((resolve) => {
    let timer = setTimeout(resolve, QUIET);
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(resolve, QUIET);
    };
    for (const kind of ["pointermove", "pointerdown", "wheel", "keydown"]) {
      addEventListener(kind, later, { passive: true, capture: true });
    }
    const seen = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) resolve();
    }, { rootMargin: "150px" });
    for (const place of document.querySelectorAll("[data-figure]")) seen.observe(place);
  });
}

async function startFigures() {
  await started;
  await whenWanted();
  const library = new TextDecoder().decode(await inflated("page-plotly"));
  document.head.append(element("script", {}, library));
  report.themed.push(drawFigures);
  for (const place of document.querySelectorAll("[data-figure]")) {
    await drawFigure(place, currentTheme());
    await new Promise((resolve) => setTimeout(resolve)); // the page stays alive between two
  }
  new ResizeObserver(() => resizeFigures()).observe(document.querySelector("main"));
  window.figuresReady = performance.now();
  document.documentElement.dataset.figures = "drawn";
}

async function drawFigures(theme) {
  for (const place of document.querySelectorAll("[data-figure]")) await drawFigure(place, theme);
}

function drawFigure(place, theme) {
  const { data, layout } = page.figures[theme][place.dataset.figure];
  const config = { displayModeBar: false, responsive: false }, width = place.clientWidth;
  return Plotly.react(place, fittedData(data, width), fitted(data, layout, width), config);
}

function resizeFigures() {
  for (const place of document.querySelectorAll("[data-figure]")) {
    const width = place.clientWidth;
    if (!place.data || width === place.layout.width) continue;
    const { data, layout } = page.figures[currentTheme()][place.dataset.figure];
    Plotly.react(place, fittedData(data, width), fitted(data, layout, width));
  }
}

// A layout at the page's width. A narrow one has more room for labels at the ends of bars and for
// the lines of its legend, fewer ticks, and the shorter names of rows where it has such.
function fitted(data, layout, width) {
  const axis = { ...layout.xaxis }, made = { ...layout, xaxis: axis, width };
  const narrow = width < NARROW, names = narrow && layout.meta?.narrow;
  if (axis.range) axis.range = [0, axis.range[1] * (narrow ? 1.25 : 1)];
  if (names) made.yaxis = { ...layout.yaxis, ticktext: names };
  if (axis.tickvals) {
    const room = width - (layout.meta?.narrow ? (names ? 150 : 320) : 0);
    const every = Math.max(1, Math.ceil((axis.tickvals.length * 30) / room));
    axis.ticktext = axis.ticktext.filter((_, i) => i % every === 0);
    axis.tickvals = axis.tickvals.filter((_, i) => i % every === 0);
  }
  const lines = layout.showlegend ? legendLines(data, width) : 0;
  if (lines > 2) {
    made.height = layout.height + 20 * (lines - 2);
    made.legend = { ...layout.legend, maxheight: 20 * lines + 20 };
  }
  return made;
}

// Entries of a legend are as wide as the widest of them.
function legendLines(data, width) {
  const widest = Math.max(0, ...data.map(({ name }) => (name ?? "").length));
  return Math.ceil(data.length / Math.max(1, Math.floor((0.75 * width) / (7 * widest + 55))));
}

function fittedData(data, width) {
  if (width >= NARROW) return data;
  return data.map((trace) => (trace.colorbar ? { ...trace, showscale: false } : trace));
}

startFigures();
