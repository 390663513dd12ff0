"""Data sets of runs: adding bundles, comparing, and where it bends.

    python benchmarks/fleet.py add BUNDLE [--copies 20] [--workers 2]
    python benchmarks/fleet.py questions [--runs 10000] [--rows 100]

`add` takes copies of one bundle, each with other times, and says how many a minute and core it adds
with summaries and without: processor time of the whole process. `questions` makes a simulated data
set and asks it, each question in a process of its own: wall time, processor time, peak of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import checkout  # noqa: F401  (finds the project)
import numpy as np
from msgspec import structs

HOUR = 3_600_000_000_000
_ASK = """
import json, resource, sys, time
began, cpu = time.perf_counter(), time.process_time()
from profiler.fleet.dataset import Dataset
{code}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([time.perf_counter() - began, time.process_time() - cpu, peak]))
"""
_QUESTIONS = {
    "history": "Dataset(sys.argv[1]).history('denoise.step')",
    "compare": "from profiler.fleet.compare import compare\n"
    "compare(Dataset(sys.argv[1]), 'hardware', ['denoise.step', 'elapsed'])",
    "query": "from profiler.fleet.database import open_database\n"
    "sql = 'select hardware, count(*) from runs group by all'\n"
    "list(open_database(Dataset(sys.argv[1]), sql).ask(sql).batches())",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add")
    add.add_argument("bundle", type=Path)
    add.add_argument("--copies", type=int, default=20)
    add.add_argument("--workers", type=int, default=0)
    questions = commands.add_parser("questions")
    questions.add_argument("--runs", type=int, default=10_000)
    questions.add_argument("--rows", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.command == "add":
            measure_adding(given.bundle, given.copies, given.workers, Path(folder))
        else:
            measure_questions(given.runs, given.rows, Path(folder))


def measure_adding(bundle: Path, copies: int, workers: int, folder: Path) -> None:
    """Add copies without a summary, then the same ones to another data set with theirs."""
    for number in range(copies):
        copied(bundle, folder / "traces" / f"run{number:04d}", number)
    for label, place in (("without summaries", "one"), ("with summaries", "two")):
        began, before = time.perf_counter(), cpu_seconds()
        command = [sys.executable, "-m", "profiler", "fleet", "add", str(folder / place)]
        more = ["--workers", str(workers)] if workers else []
        subprocess.run([*command, str(folder / "traces"), *more], check=True)
        used, wall = cpu_seconds() - before, time.perf_counter() - began
        print(
            f"{label}: {60 * copies / used:.0f} a minute and core ({used / copies:.3f} s of "
            f"processor time each), {60 * copies / wall:.0f} a minute of wall time"
        )


def copied(bundle: Path, place: Path, number: int) -> None:
    """A copy whose calls, as the manifest has them, began an hour later each: another run."""
    shutil.copytree(bundle, place, ignore=shutil.ignore_patterns("report*", "summary.json"))
    path = place / "manifest.json"
    document = json.loads(path.read_text())
    for call in document["calls"]:
        call["start_ns"] += number * HOUR
    path.write_text(json.dumps(document))


def measure_questions(runs: int, rows: int, folder: Path) -> None:
    """Simulate `runs` runs with `rows` metrics each, and ask."""
    from profiler.fleet.compaction import compact
    from profiler.fleet.storage import LocalStorage

    storage = LocalStorage(folder / "data")
    began = time.process_time()
    simulate(storage, runs, rows)
    print(f"simulated {runs:,} runs in {time.process_time() - began:.1f} s of processor time")
    began = time.process_time()
    done = compact(storage, grace_s=0)
    print(f"compacted {done.before} files to {done.after}: {time.process_time() - began:.1f} s")
    size = sum(storage.size(name) for name in (*storage.names("runs"), *storage.names("metrics")))
    print(f"{size / 2**20:.0f} MiB with what was replaced, {size / 2 / runs:.0f} bytes a run")
    for name, code in _QUESTIONS.items():
        ask = [sys.executable, "-c", _ASK.format(code=code), str(storage.folder)]
        took = [json.loads(subprocess.check_output(ask)) for _ in range(3)]
        wall, used, peak = np.median(np.array(took), axis=0)
        print(f"{name}: {wall:.2f} s, {used:.2f} s of processor time, {peak:.0f} MiB at its peak")


def simulate(storage: object, runs: int, rows: int) -> None:
    """Batches of 500 runs of four kinds of hardware, two resolutions and six months."""
    from profiler.fleet.measures import Measure
    from tests.fleet.simulated import EPOCH, addition, filled

    values = np.random.default_rng(0).normal(5e6, 1e5, (runs, rows))
    for first in range(0, runs, 500):
        some = []
        for number in range(first, min(first + 500, runs)):
            one = addition(
                number,
                hardware=f"1 × card {number % 4}",
                resolution=("1024×1024", "512×512")[number // 4 % 2],
                time_ns=EPOCH + number * 6 * 30 * 24 * HOUR // runs,
            )
            more = (
                Measure(
                    None,
                    "transformer",
                    None,
                    None,
                    f"mm {row}",
                    None,
                    "time",
                    value,
                    None,
                    None,
                    "ns",
                )
                for row, value in enumerate(values[number].tolist())
            )
            summary = structs.replace(one.summary, metrics=(*one.summary.metrics, *more))
            some.append(replace(one, summary=summary))
        filled(storage, some)


def cpu_seconds() -> float:
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    main()
