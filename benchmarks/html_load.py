"""How fast the HTML page opens and moves in Chromium, and how large it is.

    python benchmarks/html_load.py [BUNDLE] [--rounds 5] [--steps 28 631]

Without a bundle runs of so many steps are generated: two accelerators, about 1,600 commands a step,
so that 28 steps have 48,000 commands and 631 steps a million. Each round opens the file in a fresh
context; the time is from the navigation's start to the first screen being drawn (the mark
`first-screen`: sentence, devices over time, icicle, findings, shapes) and being painted (the mark
`first-screen-painted`), to the timeline being drawn (`window.profileReady`), to its controls being
alive (`profileUsable`), and to the plotly figures being drawn once they are in view. Then the
timeline is dragged and zoomed by input events, without a choice and with attention chosen, and the
time between animation frames is taken (`html_frames`). Without a GPU Chromium draws on the CPU:
frames are the slower for it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import checkout  # noqa: F401 - finds the project
from chromium import WAIT, headless_chromium
from html_frames import choose, moved
from playwright.sync_api import Browser, Page

import profiler
from profiler.analysis.analyze import analyze
from profiler.report.html.page import write_html
from tests.report.generated import write_generated_bundle

STEPS = (28, 631)


@contextmanager
def shown(browser: Browser, path: Path) -> Iterator[Page]:
    """The page of `path` in a fresh context, with its timeline drawn; motion is reduced."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce")
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-timeline=drawn]", state="attached", timeout=WAIT)
    yield page
    context.close()


NAMES = (
    "first screen drawn",
    "first screen painted",
    "timeline drawn",
    "controls alive",
    "figures drawn",
)
TIMES = """[...["first-screen", "first-screen-painted"].map((name) =>
  performance.getEntriesByName(name)[0].startTime), profileReady, profileUsable, figuresReady]"""


def opened(browser: Browser, path: Path) -> tuple[float, ...]:
    """Milliseconds from navigation to each of `NAMES`."""
    with shown(browser, path) as page:
        page.locator("[data-figure]").first.scroll_into_view_if_needed()
        page.wait_for_selector("html[data-figures=drawn]", state="attached", timeout=WAIT)
        return tuple(page.evaluate(TIMES))


def spread(name: str, values: list[float], unit: str) -> str:
    median = statistics.median(values)
    return f"{name:<28}{median:8.0f} {unit} ({min(values):.0f} to {max(values):.0f})"


def measured(browser: Browser, bundle: Path, path: Path, rounds: int) -> None:
    """Write the page of one bundle, open it, move in it, and print what was found."""
    run = profiler.load(bundle)
    analysis, written = analyze(run), []
    for _ in range(min(rounds, 3)):
        begin = time.perf_counter()
        write_html(run, analysis, path)
        written.append((time.perf_counter() - begin) * 1e3)
    loads = [opened(browser, path) for _ in range(rounds)]
    print(f"\n{len(run.calls)} calls, {len(run.commands):,} commands")
    print(f"{'file':<28}{path.stat().st_size / 1e6:8.2f} MB")
    print(spread("write_html", written, "ms"))
    for number, name in enumerate(NAMES):
        print(spread(f"open: {name}", [load[number] for load in loads], "ms"))
    for name, chosen in (("nothing", ""), ("attention", "role=attention")):
        with shown(browser, path) as page:
            if chosen:
                choose(page, chosen)
            print(f"{f'move, {name} chosen':<28}{moved(page)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, headless_chromium() as browser:
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"Chromium {browser.version}, {os.cpu_count()} cores, load average {load}")
        for steps in options.steps if options.bundle is None else (0,):
            place = Path(folder) / str(steps)
            bundle = options.bundle or write_generated_bundle(place, steps=steps)
            measured(browser, bundle, Path(folder) / "report.html", options.rounds)


if __name__ == "__main__":
    main()
