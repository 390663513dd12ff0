"""Data sets of runs: adding bundles, comparing, and where it bends.

    python benchmarks/fleet.py add [BUNDLE] [--copies 20]
    python benchmarks/fleet.py workers [BUNDLE] [--copies 120] [--rounds 2]
    python benchmarks/fleet.py questions [--runs 10000] [--rows 100] [--rounds 3]
    python benchmarks/fleet.py compact [--runs 10000] [--rows 100]

`add` takes copies of one bundle, each with other times (without BUNDLE those of a made run of 28
steps), and says how many a minute and core it adds with summaries and without: processor time of
the whole process. `workers` adds copies without summaries with one process and with two workers, in
turn: the ratio of wall times, and from the processor time of the process that leads how many
workers it can keep busy. `questions` writes a simulated data set and gives it to the commands, each
a process: wall time, processor time, peak of memory. `compact` adds simulated runs in batches of
500, and merges them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import checkout  # noqa: F401  (finds the project)
import numpy as np
import polars as pl
from msgspec import structs

from profiler.run.run import Run
from profiler.tools.sources import load
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandBuilder, CommandColumns
from profiler.trace.events import NO_CALL, ROOT_DEVICE, Call, Span, Track

HOUR = 3_600_000_000_000
_QUESTIONS = {
    "history": ("history", "--metric", "denoise.step", "--explain", "0"),
    "gate": ("gate", "--metric", "denoise.step"),
    "compare": ("compare", "--by", "hardware"),
    "page": ("page", "--out", "{folder}/page.html"),
    "query of runs": ("query", "select hardware, count(*) from runs group by all"),
    "query of metrics": ("query", "select metric, avg(value) from metrics group by all"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add")
    add.add_argument("bundle", type=Path, nargs="?")
    add.add_argument("--copies", type=int, default=20)
    workers = commands.add_parser("workers")
    workers.add_argument("bundle", type=Path, nargs="?")
    workers.add_argument("--copies", type=int, default=120)
    workers.add_argument("--rounds", type=int, default=2)
    questions = commands.add_parser("questions")
    questions.add_argument("--rounds", type=int, default=3)
    merging = commands.add_parser("compact")
    for one in (questions, merging):
        one.add_argument("--runs", type=int, default=10_000)
        one.add_argument("--rows", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.command == "add":
            measure_adding(given.bundle, given.copies, Path(folder))
        elif given.command == "workers":
            measure_workers(given.bundle, given.copies, given.rounds, Path(folder))
        elif given.command == "questions":
            measure_questions(given.runs, given.rows, given.rounds, Path(folder))
        else:
            measure_compaction(given.runs, given.rows, Path(folder))
    print(f"load: {os.getloadavg()[1]:.1f} over the last five minutes, {os.cpu_count()} cores")


@dataclass
class Used:
    """What a command took: `own_s` is processor time of its process, `all_s` with those that it
    started."""

    wall_s: float
    own_s: float
    all_s: float
    peak_mib: float


_LED = """
import json, resource, sys
from profiler.cli.main import run
try:
    run()
except SystemExit as stopped:
    assert not stopped.code or stopped.code == 1, stopped.code
own, of = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
used = own.ru_utime + own.ru_stime
print(json.dumps([used, used + of.ru_utime + of.ru_stime, own.ru_maxrss / 1024]), file=sys.stderr)
"""


def command(*arguments: str) -> Used:
    """Run `profile-sd3 ARGUMENTS` in a process of its own."""
    began = time.perf_counter()
    line = [sys.executable, "-c", _LED, *arguments]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    return Used(time.perf_counter() - began, *json.loads(done.stderr.splitlines()[-1]))


def measure_adding(bundle: Path | None, copies: int, folder: Path) -> None:
    """Add copies without a summary, then the same ones to another data set with theirs."""
    traces = made_copies(bundle, copies, folder)
    for label, place in (("without summaries", "one"), ("with summaries", "two")):
        used = command("fleet", "add", str(folder / place), str(traces))
        print(
            f"{label}: {60 * copies / used.all_s:.0f} a minute and core "
            f"({used.all_s / copies:.3f} s of processor time each)"
        )


def measure_workers(bundle: Path | None, copies: int, rounds: int, folder: Path) -> None:
    """Add copies without summaries with one process and with two workers, in turn."""
    traces = made_copies(bundle, copies, folder)
    ways = {"one process": (), "two workers": ("--workers", "2")}
    took: dict[str, list[Used]] = {way: [] for way in ways}
    for number in range(rounds):
        for way, more in ways.items():
            for summary in traces.glob("*/summary.json"):
                summary.unlink()
            place = folder / f"{way}{number}"
            took[way].append(command("fleet", "add", str(place), str(traces), *more))
    idle = [
        command("fleet", "add", str(folder / f"idle{n}"), str(next(traces.iterdir())), *more)
        for n, more in enumerate([("--workers", "2")] * rounds)
    ]
    for way, of in took.items():
        print(
            f"{way}: {median(each.wall_s for each in of):.1f} s, "
            f"{median(each.all_s for each in of):.1f} s of processor time"
        )
    ratios = [one.wall_s / two.wall_s for one, two in zip(*took.values(), strict=True)]
    print(f"speed-up: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    leads = median(each.own_s for each in took["two workers"])
    start = median(each.own_s for each in idle)
    serial = (leads - start) / (copies - 1)
    work = (
        median(each.all_s - each.own_s for each in took["two workers"])
        - median(each.all_s - each.own_s for each in idle)
    ) / (copies - 1)
    print(f"the process that leads: {start:.2f} s to start, then {1e3 * serial:.1f} ms a bundle")
    print(f"workers: {1e3 * work:.0f} ms a bundle, so {work / serial:.0f} can be kept busy")


def made_copies(bundle: Path | None, copies: int, folder: Path) -> Path:
    """Copies of the run at `bundle`, or of a made one of the shape of Stable Diffusion 3."""
    from tests.report.generated import write_generated_bundle

    run = load(bundle or write_generated_bundle(folder / "made", steps=28))
    commands = {call: commands_of(run, call) for call in (*run.calls["call"], NO_CALL)}
    for number in range(copies):
        copied(run, commands, folder / "traces", number)
    print(f"{copies} copies of a run of {len(run.commands):,} commands")
    return folder / "traces"


def copied(run: Run, commands: dict[int, CommandColumns], parent: Path, number: int) -> None:
    """The run as a bundle of its own, begun `number` hours later: with all commands, without flows
    and counters."""
    shift = number * HOUR

    def later(call: int) -> CommandColumns:
        return replace(commands[call], start_ns=commands[call].start_ns + shift)

    with BundleWriter.create(parent, f"run{number:04d}", sync="never") as bundle:
        for row in run.calls.iter_rows(named=True):
            call = Call(
                row["call"], row["submodule"], row["stage"] or "", row["branch"] or "", row["step"],
                row["device"], row["start_ns"] + shift, row["duration_ns"], row["ops_traced"],
                {}, row["pipeline"], row["iteration"],
            )  # fmt: skip
            bundle.write_call(call, later(row["call"]))
        spans = [
            Span(
                row["kind"], row["name"], row["stage"] or "", row["step"], row["start_ns"] + shift,
                row["duration_ns"], row["pipeline"],
            )
            for row in run.spans.iter_rows(named=True)
        ]  # fmt: skip
        bundle.write_host(spans, later(NO_CALL), ROOT_DEVICE)
        bundle.finish(run.info)


def commands_of(run: Run, call: int) -> CommandColumns:
    builder = CommandBuilder()
    for row in run.commands.filter(pl.col("call") == call).iter_rows(named=True):
        track = Track(row["device"], row["track"], row["category"])
        where = {"stage": row["stage"] or "", "step": row["step"]} if call == NO_CALL else {}
        names = {"kernel": row["kernel"] or "", "module": row["module"] or ""}
        builder.add(
            track,
            row["layer"],
            row["op_type"] or "",
            row["start_ns"],
            row["duration_ns"],
            **where,
            **names,
        )
    return builder.build()


def measure_questions(runs: int, rows: int, rounds: int, folder: Path) -> None:
    """Write `runs` runs with `rows` metrics each beside two others, and ask."""
    from fleet_runs import write

    began = time.process_time()
    storage = write(folder / "data", runs, rows)
    print(f"wrote {runs:,} runs in {time.process_time() - began:.1f} s of processor time")
    names = [*storage.names("runs"), *storage.names("metrics")]
    size = sum(storage.size(name) for name in names)
    print(f"{size / 2**20:.0f} MiB in {len(names)} files, {size / runs:.0f} bytes a run")
    for label, (name, *asked) in _QUESTIONS.items():
        arguments = [each.format(folder=folder) for each in asked]
        try:
            took = [command("fleet", name, str(storage.folder), *arguments) for _ in range(rounds)]
        except subprocess.CalledProcessError as error:
            print(f"{label}: {error.stderr.strip().splitlines()[0]}")
            continue
        print(
            f"{label}: {median(each.wall_s for each in took):.2f} s, "
            f"{median(each.all_s for each in took):.2f} s of processor time, "
            f"{max(each.peak_mib for each in took):.0f} MiB at its peak",
            flush=True,
        )


def measure_compaction(runs: int, rows: int, folder: Path) -> None:
    """Add simulated runs in batches of 500, which are then merged."""
    from profiler.fleet.add import compact
    from profiler.fleet.storage import LocalStorage

    storage = LocalStorage(folder / "data")
    began = time.process_time()
    simulate(storage, runs, rows)
    print(f"simulated {runs:,} runs in {time.process_time() - began:.1f} s of processor time")
    began = time.process_time()
    done = compact(storage, grace_s=0)
    used = time.process_time() - began
    print(f"compacted {done.before} files to {done.after}: {used:.1f} s of processor time")


def simulate(storage: object, runs: int, rows: int) -> None:
    """Batches of 500 runs of four kinds of hardware, two resolutions and six months."""
    from profiler.tools.metrics import Measure
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


if __name__ == "__main__":
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    main()
