"""Every analysis and every report of one run: processor time, wall time and memory of each.

    python benchmarks/analysis.py [--commands 50000] [--run onnxruntime] [--rounds 5] [--folder DIR]
    python benchmarks/analysis.py --commands 10000000 --rounds 3

*onnxruntime* is the run of `benchmarks/load.py` (28 steps), read from call files; *npu* and *gpu*
are those of `made_runs.py`, read from Parquet: every operator split, and launches with kernels.
Parts stand in the order in which `analyze` makes them: each table, and each of the inputs that
several share, behind what it is made from. Each round is a process of its own. Memory is the
largest resident set up to the end of the part above that of before, in MB and bytes a command;
before, the same was done with a small run, so that libraries are in neither. Parts of less than
1 ms are left out. Last comes `profile-sd3 analyze` as a process, whose memory holds the libraries
too; its byte code is there already. The text alone is compared with importing polars and numpy, in
turn: `--commands 15000 --rounds 9` is the run of 28 steps that `profile-sd3 run` records.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import checkout  # noqa: F401  (finds the project)
from paired import with_interval

RUNS = ("onnxruntime", "npu", "gpu")
SMALL = 50_000
_LEAST = 1e-3  # seconds
_LIBRARIES, _TEXT = "process: import polars, numpy", "process: text alone"
_SAMPLE = Path(__file__).parents[1] / "sample_traces" / "tiny_two_devices"
Measured = dict[str, tuple[float, float, float]]  # processor s, wall s, peak in bytes


def prepared(kind: str, commands: int, parent: Path) -> Path:
    """Write a run of about `commands` commands; where it lies."""
    if kind == "onnxruntime":
        from load import write_run

        return write_run(parent, commands)[0]
    from made_runs import gpu_run, npu_run

    from profiler.run.run import write_parquet

    folder = parent / f"{kind}-{commands}"
    write_parquet((npu_run if kind == "npu" else gpu_run)(commands), folder)
    return folder


def measured(place: Path, warm: Path) -> tuple[Measured, int]:
    """Each part on the run at `place`, after all of them on the one at `warm`."""
    found: Measured = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in parts(warm, Path(folder) / "warm"):
            pass
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = peak()
        cpu, wall = time.process_time(), time.perf_counter()
        for name, done in parts(place, Path(folder) / "run"):
            took = time.process_time() - cpu, time.perf_counter() - wall
            found[name], commands = (*took, peak() - before), done
            cpu, wall = time.process_time(), time.perf_counter()
    return found, commands


def parts(place: Path, folder: Path) -> Iterator[tuple[str, int]]:
    """Do one part after the other; its name and the number of commands when it is done."""
    from profiler.analysis.context import Inputs, Selection
    from profiler.analysis.idle import device_works
    from profiler.analysis.question import tables
    from profiler.tools.sources import load

    run = load(place)
    commands = len(run.commands)
    yield "load", commands
    small = Inputs(load(_SAMPLE), Selection(), (), {})
    device_works(small)  # first, as `analyze` does
    for table in tables():
        small.table(table.name)
    inputs = Inputs(run, Selection(), (), {})
    for made in small.made:  # each behind what it is made from
        if isinstance(made, str):
            inputs.table(made)
            yield f"table: {made}", commands
        elif callable(made):
            inputs.made[made] = made(inputs)
            yield f"inputs: {made.__qualname__.strip('_')}", commands
    del inputs
    for name in reports(run, folder):
        yield name, commands


def reports(run: Any, folder: Path) -> Iterator[str]:
    """`analyze` and each report, one after the other."""
    from rich.console import Console

    from profiler.analysis.analyze import analyze
    from profiler.analysis.overview import extent
    from profiler.analysis.result import ReportInput
    from profiler.analysis.roles import with_roles
    from profiler.report.build import build_report
    from profiler.report.files import to_json, write_csv_tables, write_parquet_tables
    from profiler.report.html.page import write_html
    from profiler.report.terminal import print_report

    analysis = analyze(run)
    yield "analyze, all of these"
    folder.mkdir()
    filled = with_roles(run, analysis.kinds, analysis.kind_roles)
    yield "report: roles of commands"
    given = ReportInput(analysis, *extent(run))
    works: dict[str, Callable[[], object]] = {
        "text": lambda: print_report(Console(file=io.StringIO()), build_report(given)),
        "page": lambda: write_html(filled, analysis, folder / "report.html"),
        "JSON": lambda: to_json(analysis),
        "CSV": lambda: write_csv_tables(analysis, folder / "csv"),
        "Parquet": lambda: write_parquet_tables(filled, analysis, folder / "parquet"),
    }
    for name, work in works.items():
        work()
        yield f"report: {name}"


def peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if "VmHWM" in line).split()[1]) * 1024


def analyzed(place: Path, code: Path, *options: str) -> tuple[float, float, float]:
    """`profile-sd3 analyze` as a `whole_process`."""
    return whole_process(code, "-m", "profiler", "analyze", str(place), *options)


def whole_process(code: Path, *arguments: str) -> tuple[float, float, float]:
    """Python with `arguments` as a process whose byte code lies in `code`: processor and wall time,
    peak of memory."""
    command = [sys.executable, *arguments]
    paths = {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONPYCACHEPREFIX": str(code)}
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | paths)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    wall = time.perf_counter() - begin
    return usage.ru_utime + usage.ru_stime, wall, 1024 * usage.ru_maxrss


def one_round(place: Path, warm: Path, code: Path) -> tuple[Measured, int]:
    """All of it once: the parts in a process of their own, then the program itself."""
    command = [sys.executable, __file__, "--measure", str(place), str(warm)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found, commands = json.loads(done.stdout.splitlines()[-1])
    with tempfile.TemporaryDirectory() as folder:
        page = f"--html={folder}/report.html"
        found[_LIBRARIES] = whole_process(code, "-c", "import polars, numpy")
        found[_TEXT] = analyzed(place, code, "--no-html")
        found["process: text and page"] = analyzed(place, code, page)
        files = (f"--json={folder}/a.json", f"--csv={folder}/csv", f"--parquet={folder}/parquet")
        found["process: every report"] = analyzed(place, code, page, *files)
    return found, commands


def show(rounds: list[Measured], commands: int) -> None:
    """A table: medians over the rounds, wall time with the fastest and the slowest."""
    print(f"{commands:,} commands, medians of {len(rounds)} rounds (fastest to slowest)\n")
    print("| part | processor, ms | wall, ms | peak, MB | bytes a command |")
    print("|---|---|---|---|---|")
    for name in rounds[0]:
        cpu, wall, most = zip(*(found[name] for found in rounds), strict=True)
        if max(statistics.median(cpu), statistics.median(wall)) < _LEAST:
            continue
        spread = f"{1e3 * min(wall):,.1f} to {1e3 * max(wall):,.1f}"
        took = f"{1e3 * statistics.median(cpu):,.1f} | {1e3 * statistics.median(wall):,.1f}"
        memory = statistics.median(most)
        print(f"| {name} | {took} ({spread}) | {memory / 1e6:,.0f} | {memory / commands:,.0f} |")
    ratios = [found[_TEXT][0] / found[_LIBRARIES][0] for found in rounds]
    print(f"\ntext alone ÷ import polars, numpy: {with_interval(ratios, 2)} of processor time")


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measured(*map(Path, sys.argv[2:]))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", type=int, default=SMALL)
    parser.add_argument("--run", choices=RUNS, default=RUNS[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write, about 1 GB for 10 M")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        warm = prepared(options.run, SMALL, Path(folder) / "warm")
        place = prepared(options.run, options.commands, Path(folder) / "run")
        code = Path(folder) / "code"
        analyzed(warm, code, f"--json={folder}/warm.json", f"--csv={folder}/csv")
        found = [one_round(place, warm, code) for _ in range(options.rounds)]
    show([once for once, _ in found], found[0][1])


if __name__ == "__main__":
    main()
