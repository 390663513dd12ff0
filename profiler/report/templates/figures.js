// The plotly figures. Running the library takes a second, so it waits until a figure comes into
// view, the page is about to be printed, or nobody has touched anything for a while.

const QUIET = 1500; // ms without input

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
  await drawFigures(currentTheme());
  report.themed.push(drawFigures);
  new ResizeObserver(() => resizeFigures()).observe(document.querySelector("main"));
  window.figuresReady = performance.now();
  document.documentElement.dataset.figures = "drawn";
}

async function drawFigures(theme) {
  for (const place of document.querySelectorAll("[data-figure]")) {
    const { data, layout } = page.figures[theme][place.dataset.figure];
    const config = { displayModeBar: false, responsive: false };
    await Plotly.react(place, data, fitted(layout, place.clientWidth), config);
  }
}

function resizeFigures() {
  for (const place of document.querySelectorAll("[data-figure]")) {
    if (place.data && place.clientWidth !== place.layout.width) {
      const { layout } = page.figures[currentTheme()][place.dataset.figure];
      Plotly.react(place, place.data, fitted(layout, place.clientWidth));
    }
  }
}

// A layout at the page's width; a narrow one has more room for labels at the ends of bars, and
// fewer ticks.
function fitted(layout, width) {
  const axis = { ...layout.xaxis };
  if (axis.range) axis.range = [0, axis.range[1] * (width < 520 ? 1.3 : 1)];
  if (axis.tickvals) {
    const every = Math.max(1, Math.ceil((axis.tickvals.length * 30) / width));
    axis.ticktext = axis.ticktext.filter((_, i) => i % every === 0);
    axis.tickvals = axis.tickvals.filter((_, i) => i % every === 0);
  }
  return { ...layout, xaxis: axis, width };
}

startFigures();
