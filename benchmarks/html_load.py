"""How fast the HTML page of a 28-step run opens in Chromium, and how large it is.

    python benchmarks/html_load.py [BUNDLE] [--rounds 9] [--steps 28]

Without a bundle the run is generated: two accelerators, about 1,600 commands a step. Each round
opens the file in a fresh context; the time is from the navigation's start to the timeline being
drawn (`window.profileReady`), and to the plotly figures being drawn once they are in view.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import checkout  # noqa: F401 - finds the project
from playwright.sync_api import Browser, sync_playwright

import profiler
from profiler.analysis.analyze import analyze
from profiler.report.html import write_html
from tests.report.generated import write_generated_bundle

ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]


def opened(browser: Browser, path: Path) -> tuple[float, float]:
    """Milliseconds from navigation to the timeline and to the figures."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-timeline=drawn]", state="attached")
    page.locator("[data-figure]").first.scroll_into_view_if_needed()
    page.wait_for_selector("html[data-figures=drawn]", state="attached")
    timeline, figures = page.evaluate("[profileReady, figuresReady]")
    context.close()
    return timeline, figures


def spread(name: str, values: list[float], unit: str) -> str:
    median = statistics.median(values)
    return f"{name:<26}{median:8.0f} {unit} ({min(values):.0f} to {max(values):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=28)
    options = parser.parse_args()
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        sys.exit("no Chromium on this machine: install chromium")
    with tempfile.TemporaryDirectory() as folder:
        bundle = options.bundle or write_generated_bundle(Path(folder), steps=options.steps)
        run = profiler.load(bundle)
        analysis, path, written = analyze(run), Path(folder) / "report.html", []
        for _ in range(options.rounds):
            begin = time.perf_counter()
            write_html(run, analysis, path)
            written.append((time.perf_counter() - begin) * 1e3)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=executable, args=ARGUMENTS)
            loads = [opened(browser, path) for _ in range(options.rounds)]
            version = browser.version
            browser.close()
        print(f"{len(run.calls)} calls, {len(run.commands):,} commands, Chromium {version}")
        print(f"{'file':<26}{path.stat().st_size / 1e6:8.2f} MB")
    print(spread("write_html", written, "ms"))
    print(spread("open: timeline drawn", [timeline for timeline, _ in loads], "ms"))
    print(spread("open: figures drawn", [figures for _, figures in loads], "ms"))


if __name__ == "__main__":
    main()
