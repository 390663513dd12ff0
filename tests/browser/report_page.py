"""A report page in Chromium: opening it, what it said while it opened, and reading its canvas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from profiler.analysis.analyze import analyze
from profiler.report import write_html
from profiler.run import Run

__all__ = [
    "ReportPage",
    "become",
    "chips",
    "choose",
    "opened",
    "page_of",
    "scope",
    "values",
    "with_figures",
]


@dataclass
class ReportPage:
    """`page` is playwright's; `said` holds console messages and errors, `requests` addresses."""

    page: Any
    said: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def window(self) -> tuple[float, float]:
        """Begin and end of what the timeline shows, ns from the run's start."""
        view = self.page.evaluate("profileReport.timeline.view")
        return view["begin"], view["end"]

    def place(self, kind: str, i: int, track: str = "") -> tuple[float, float]:
        """The middle of the i-th event of a lane, in pixels of the window; scrolls to it."""
        found = self.page.evaluate(
            """([kind, i, track]) => {
              const { timeline } = profileReport;
              const lane = timeline.lanes.find(
                (lane) => lane.kind === kind && (!track || lane.track === track));
              const box = timeline.box({ lane, i });
              const y = timeline.canvas.getBoundingClientRect().top + box.top + box.tall / 2;
              if (y < 80 || y > innerHeight - 20) {
                scrollBy({ top: y - innerHeight / 2, behavior: "instant" });
              }
              const { left, top } = timeline.canvas.getBoundingClientRect();
              return [left + (box.left + box.right) / 2, top + box.top + box.tall / 2];
            }""",
            [kind, i, track],
        )
        return found[0], found[1]

    def colours(self) -> set[str]:
        """Every colour of the timeline's canvas as "#rrggbb"."""
        return set(
            self.page.evaluate(
                """() => {
                  const { canvas } = profileReport.timeline;
                  const context = canvas.getContext("2d");
                  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
                  const found = new Set();
                  for (let i = 0; i < data.length; i += 4) {
                    found.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
                  }
                  return [...found].map((n) => "#" + n.toString(16).padStart(6, "0"));
                }"""
            )
        )

    def cells(self, table: str, column: int) -> list[str]:
        """The texts of one column of a table, as they are shown."""
        cells = self.page.locator(f"{table} tbody tr td:nth-child({column})")
        return [text.replace("\N{NO-BREAK SPACE}", " ") for text in cells.all_inner_texts()]


_USABLE = "() => window.profileUsable"


_NEVER_QUIET = """{
  const later = window.setTimeout;
  window.setTimeout = (act, ms, ...rest) => (ms >= 2000 ? 0 : later(act, ms, ...rest));
}"""


@contextmanager
def opened(
    browser: Any, path: Path, *, figures_wait: bool = False, **options: Any
) -> Iterator[ReportPage]:
    """Open `path` and wait until it is usable: the timeline is drawn earlier, and a test that read
    `profileReport` then failed on a busy machine. `options` are playwright's for a context. If
    `figures_wait`, figures are not drawn because nothing happens for seconds.

    Motion is reduced, so that every movement of the timeline is done at once.
    """
    given = {
        "viewport": {"width": 1400, "height": 1000},
        "reduced_motion": "reduce",
        "locale": "en-US",
        **options,
    }
    context = browser.new_context(**given)
    context.add_init_script(
        "window.clicksSeen = 0; addEventListener('click', () => (window.clicksSeen += 1), true);"
    )
    if figures_wait:
        context.add_init_script(_NEVER_QUIET)
    report = ReportPage(context.new_page())
    report.page.on("console", lambda message: report.said.append(message.text))
    report.page.on("pageerror", lambda error: report.said.append(str(error)))
    context.on("request", lambda request: report.requests.append(request.url))
    report.page.goto(path.as_uri())
    report.page.wait_for_function(_USABLE)
    yield report
    context.close()


def with_figures(report: ReportPage) -> ReportPage:
    """`report` once its plotly figures show its choice, theme, language and width."""
    report.page.locator("[data-figure]").first.scroll_into_view_if_needed()
    report.page.wait_for_function(
        """() => {
          report.wantFigures?.(); // also those that nobody has scrolled to
          return document.documentElement.dataset.figures === "drawn"
            && [...document.querySelectorAll("[data-figure]")].every(
              (place) => !place.clientWidth || place.layout.width === place.clientWidth);
        }"""
    )
    return report


def page_of(run: Run, folder: Path, **changes: Any) -> Path:
    """The page of a run, written to a folder; `changes` are what its analysis has instead."""
    path = folder / "report.html"
    write_html(run, replace(analyze(run), **changes), path)
    return path


def chips(report: ReportPage) -> list[str]:
    """The choice as its chips name it."""
    return [
        text.replace("\N{MULTIPLICATION SIGN}", "").strip()
        for text in report.page.locator(".chip").all_inner_texts()
    ]


def choose(report: ReportPage, **pick: Any) -> None:
    """Choose without a view, for tests of what follows."""
    report.page.evaluate("(pick) => profileReport.choice.pick(pick)", pick)


def scope(report: ReportPage, table: str) -> str:
    """What a table says of the choice."""
    text: str = report.page.locator(f"[data-table={table}] .scope").inner_text()
    return text


def values(report: ReportPage, table: str, *columns: str) -> list[dict[str, Any]]:
    """Rows of a table of the page as {column: value}, of all rows that match the choice."""
    found: list[dict[str, Any]] = report.page.evaluate(
        """([name, columns]) => {
          const table = profileReport.tables[name];
          const rows = [...Array(table.size).keys()].filter((i) => table.kept(i));
          return rows.map((i) => Object.fromEntries(columns.map((c) => [c, table.values[c][i]])));
        }""",
        [table, columns],
    )
    return found


def become(report: ReportPage, pick: Mapping[str, Sequence[Any]]) -> None:
    """Choose exactly this."""
    report.page.evaluate(
        "(pick) => profileReport.choice.become(new Map(Object.entries(pick)))", dict(pick)
    )
