"""From call files to all reports: 100 k, 1 M and 10 M commands, time and memory.

    python benchmarks/load.py [--commands 100000 1000000 10000000] [--rounds 3] [--folder DIR]

A run of 35 calls (6 encoders, 28 steps, VAE) is written from the two real steps in
`sample_traces/tiny_two_devices`, repeated until it has the commands. Each measurement is a process
of its own, and all of a round run in turn; figures are medians. Memory is the largest resident set
above the one of the process after it did the same with the sample, so without libraries. Beside
them pandas and Polars read the same commands from Parquet, which is a copy of the loaded run.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 - finds the project
import numpy as np

from profiler.trace.bundle import BundleWriter, call_files
from profiler.trace.columns import (
    CommandBuilder,
    CommandColumns,
    TraceColumns,
    read_trace,
)
from profiler.trace.events import NO_STEP, ROOT_DEVICE, Call, Span, Track
from profiler.trace.manifest import RunInfo

SAMPLE = Path(__file__).parents[1] / "sample_traces" / "tiny_two_devices"
ENCODERS, STEPS = 6, 28
CALLS = [*range(ENCODERS), *(ENCODERS + step % 2 for step in range(STEPS)), ENCODERS + 2]
PEERS = ("pandas", "polars")
WAYS = ("load", "merged", "reports", "process", *PEERS)


def repeated(trace: TraceColumns, call: Call, copies: int) -> CommandColumns:
    """The commands of the one call of `trace`, `copies` times one after another within `call`."""
    slices, rows = trace.slices, len(trace.slices)
    category = dict(zip(slices.track.tolist(), slices.category.tolist(), strict=True))
    tracks = {
        row: Track(call.device, trace.tracks[row].name, trace.strings[category[row]])
        for row in sorted(category)
    }
    number = np.zeros(len(trace.tracks), dtype=np.int32)
    number[list(tracks)] = np.arange(len(tracks))
    copy = np.repeat(np.arange(copies), rows)
    in_layer = np.bincount(slices.layer)[slices.layer]

    def tiled(column: Any) -> Any:
        return np.tile(column, copies)

    length = call.duration_ns // copies
    return CommandColumns(
        tracks=tuple(tracks.values()),
        strings=trace.strings,
        track=tiled(number[slices.track]),
        command_index=(tiled(slices.command_index) + copy * tiled(in_layer)).astype(np.int32),
        start_ns=tiled(slices.start_ns - trace.calls[0].start_ns) + call.start_ns + copy * length,
        flows=np.zeros((0, 2), dtype=np.int64),
        **{
            name: tiled(getattr(slices, name))
            for name in (
                "layer",
                "module",
                "op_type",
                "role",
                "shapes",
                "stage",
                "step",
                "duration_ns",
                "bytes_read",
                "bytes_written",
                "flops",
            )
        },
    )


def write_run(parent: Path, commands: int) -> tuple[Path, int]:
    """Write a run with about `commands` commands; its folder and their number."""
    traces = [read_trace(path) for path in call_files(SAMPLE)]
    copies = max(1, round(commands / sum(len(traces[number].slices) for number in CALLS)))
    now = begin = 1_795_253_400_123_456_789
    steps = [NO_STEP] * ENCODERS + [*range(STEPS)] + [NO_STEP]
    stages: dict[str, list[int]] = {}
    spans, total = [], 0
    with BundleWriter.create(parent, f"commands-{commands}") as bundle:
        for index, (number, step) in enumerate(zip(CALLS, steps, strict=True)):
            trace = traces[number]
            own = trace.calls[0]
            length = int((trace.slices.start_ns + trace.slices.duration_ns).max() - own.start_ns)
            length = max(length, own.duration_ns) * copies
            call = replace(own, index=index, step=step, start_ns=now, duration_ns=length)
            bundle.write_call(call, repeated(trace, call, copies))
            total += len(trace.slices) * copies
            stages.setdefault(call.stage, [now, now])[1] = now + length
            if step != NO_STEP:
                spans.append(Span("step", f"step {step}", "denoise", step, now, length))
            now += length
        for stage, (first, last) in stages.items():
            spans.append(Span("stage", stage, stage, NO_STEP, first, last - first))
        spans.append(Span("pipeline", "pipeline", "", NO_STEP, begin, now - begin))
        bundle.write_host(spans, CommandBuilder().build(), ROOT_DEVICE)
        return bundle.finish(RunInfo(producer="capture", model="tiny, repeated")), total


def write_parquet(bundle: Path, folder: Path) -> None:
    """The frames of a run as the peers read them."""
    from profiler.run.run import write_parquet as write
    from profiler.tools.sources import load

    write(load(bundle), folder)


def measured(way: str, bundle: Path, parquet: Path) -> dict[str, float]:
    """Seconds of each part of one way, and the peak of memory in bytes above that of before."""
    times: dict[str, float] = {}

    def timed(name: str, function: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = function()
        times[name] = time.perf_counter() - begin
        return result

    with tempfile.TemporaryDirectory() as folder:
        if way == "process":
            _whole_process(bundle, Path(folder), timed)
            return times
        _own(SAMPLE, Path(folder) / "first", lambda _, function: function(), way)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _memory("VmHWM")
        if way in PEERS:
            _peer(way, parquet, timed)
        else:
            source = bundle / "merged.pb" if way == "merged" else bundle
            _own(source, Path(folder) / "second", timed, way)
        return {**times, "peak": _memory("VmHWM") - before, "process": _memory("VmHWM")}


def _memory(what: str) -> float:
    """A figure of /proc/self/status, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if what in line)
    return float(line.split()[1]) * 1024


def _own(bundle: Path, folder: Path, timed: Callable[..., Any], way: str) -> None:
    from rich.console import Console

    from profiler.analysis.analyze import analyze
    from profiler.analysis.overview import extent
    from profiler.analysis.result import ReportInput
    from profiler.report.build import build_report
    from profiler.report.files import to_json, write_csv_tables, write_parquet_tables
    from profiler.report.html.page import write_html
    from profiler.report.terminal import print_report
    from profiler.tools.sources import load

    run = timed("load", lambda: load(bundle))
    if way != "reports":
        return
    folder.mkdir()
    analysis = timed("analyze", lambda: analyze(run))
    console = Console(file=io.StringIO(), width=120)
    given = ReportInput(analysis, *extent(run))
    timed("text", lambda: print_report(console, build_report(given)))
    timed("html", lambda: write_html(run, analysis, folder / "report.html"))
    timed("json", lambda: to_json(analysis))
    timed("csv", lambda: write_csv_tables(analysis, folder / "csv"))
    timed("parquet", lambda: write_parquet_tables(run, analysis, folder / "parquet"))


def _whole_process(bundle: Path, folder: Path, timed: Callable[..., Any]) -> None:
    """`profile-sd3 analyze` with every report."""
    outputs = {"json": "report.json", "csv": "csv", "parquet": "parquet", "html": "report.html"}
    options = [f"--{name}={folder / file}" for name, file in outputs.items()]
    command = [sys.executable, "-m", "profiler", "analyze", str(bundle), *options]
    timed("process", lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def _peer(way: str, parquet: Path, timed: Callable[..., Any]) -> None:
    import pandas as pd
    import polars as pl

    read = pd.read_parquet if way == "pandas" else pl.read_parquet
    read(parquet / "calls.parquet")
    timed("read", lambda: read(parquet / "commands.parquet"))


def process_of(way: str, bundle: Path, parquet: Path) -> dict[str, float]:
    arguments = [sys.executable, __file__, "--measure", way, str(bundle), str(parquet)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(found[name] for found in rounds) for name in rounds[0]}


def compared(parent: Path, commands: int, rounds: int) -> dict[str, dict[str, float]]:
    """Measure all ways with `commands` commands, in turn; medians by way."""
    bundle, total = write_run(parent, commands)
    parquet = parent / f"parquet-{commands}"
    write_parquet(bundle, parquet)
    found = [{way: process_of(way, bundle, parquet) for way in WAYS} for _ in range(rounds)]
    result = {way: medians([once[way] for once in found]) for way in WAYS}
    size = sum(path.stat().st_size for path in call_files(bundle))
    result["run"] = {"commands": float(total), "bytes": float(size)}
    return result


def show(result: dict[str, dict[str, float]]) -> None:
    commands, parts = result["run"]["commands"], dict(result["reports"])
    peak, process = parts.pop("peak"), parts.pop("process")
    print(f"\n{commands:,.0f} commands in 35 call files, {result['run']['bytes'] / 1e6:.1f} MB")
    merged = result["merged"]["load"]
    print(f"  load of merged.pb {merged:.2f} s, {commands / merged / 1e6:.2f} M commands/s")
    for name, seconds in parts.items():
        print(f"  {name:<12}{seconds:8.2f} s {1e9 * seconds / commands:10.0f} ns a command")
    print(f"  {'together':<12}{sum(parts.values()):8.2f} s")
    print(
        f"  profile-sd3 analyze, all reports, whole process: {result['process']['process']:.2f} s"
    )
    for way, taken in (("load", result["load"]["peak"]), ("all", peak)):
        print(f"  peak memory, {way:<6}{taken / commands:8.1f} bytes a command")
    print(f"  whole process{process / 1e6:12,.0f} MB")
    for way in PEERS:
        ratio = result["load"]["load"] / result[way]["read"]
        print(f"  {way} reads them from Parquet in {result[way]['read']:.2f} s, ", end="")
        print(f"{result[way]['peak'] / commands:.1f} bytes a command: load takes {ratio:.1f} times")


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        way, bundle, parquet = sys.argv[2:]
        print(json.dumps(measured(way, Path(bundle), Path(parquet))))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--commands", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write, about 2 GB for 10 M")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as parent:
        for commands in options.commands:
            show(compared(Path(parent), commands, options.rounds))


if __name__ == "__main__":
    main()
