"""What a choice costs the HTML page: the time that its main thread works.

    python benchmarks/html_choice.py [PAGE] [--rounds 5]

Without a page that of a generated run is written (28 steps, 48,000 commands, two accelerators). Its
figures are drawn; then the reader, at the top of the page or at its operators, chooses the first
submodule of its table, and lets it go. The time is the main thread's as Chromium counts it
(`TaskDuration` of its metrics), until tables and the figures in sight show the choice: what a page
leaves for when the reader goes on is not in it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import checkout  # noqa: F401 - finds the project
from chromium import WAIT, headless_chromium
from playwright.sync_api import Browser, CDPSession, Page

import profiler
from profiler.analysis.analyze import analyze
from profiler.analysis.roles import with_roles
from profiler.report.html.page import write_html
from tests.report.generated import write_generated_bundle

PLACES = {"top": "#timeline", "operators": "#operators"}
SETTLED = "() => document.documentElement.dataset.figures !== 'drawing'"


def worked(session: CDPSession) -> float:
    """Milliseconds that the main thread has worked until now."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return 1e3 * next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")


def cost(page: Page, session: CDPSession, change: str) -> float:
    """What `change`, an expression, makes the page work until it shows that."""
    before = worked(session)
    page.evaluate(f"() => void ({change})")
    page.wait_for_function(SETTLED, timeout=WAIT)
    return worked(session) - before


def measured(browser: Browser, path: Path, place: str) -> tuple[float, float]:
    """Of choosing and of letting go, in a fresh context scrolled to `place`."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce")
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-timeline=drawn]", state="attached", timeout=WAIT)
    page.locator("[data-figure]").first.scroll_into_view_if_needed()
    page.wait_for_selector("html[data-figures=drawn]", state="attached", timeout=WAIT)
    page.locator(place).evaluate("(place) => place.scrollIntoView()")
    page.wait_for_timeout(500)  # until what scrolling asked for is done
    submodule = "profileReport.tables.submodules.values.submodule[0]"
    times = (
        cost(page, session, f"profileReport.choice.pick({{ submodule: {submodule} }})"),
        cost(page, session, "profileReport.choice.clear()"),
    )
    context.close()
    return times


def written(folder: Path) -> Path:
    """The page of the generated run."""
    run = with_roles(profiler.load(write_generated_bundle(folder / "run")))
    path = folder / "report.html"
    write_html(run, analyze(run), path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, headless_chromium() as browser:
        path = (options.page or written(Path(folder))).resolve()
        for name, place in PLACES.items():
            rounds = [measured(browser, path, place) for _ in range(options.rounds)]
            for change, times in zip(("choose", "let go"), zip(*rounds, strict=True), strict=True):
                median = statistics.median(times)
                spread = f"({min(times):.0f} to {max(times):.0f})"
                print(f"{change + ', at the ' + name:<26}{median:6.0f} ms {spread}")


if __name__ == "__main__":
    main()
