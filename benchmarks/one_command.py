"""One command from another profiler's file to the whole report, beside reading its JSON alone.

    python benchmarks/one_command.py TRACE [--rounds 7]

Each round starts all of these in fresh processes, in turn: `profile-sd3 analyze TRACE`, which
imports it, prints the report and writes the page; the same with `--no-html`, the text alone; a
Python that only runs `orjson.loads` (where it is installed, else `json.loads`) over the
decompressed file; and `python -c "import polars, pandas, json, gzip; json.load(gzip.open(TRACE))"`,
with which people begin. Of the commands: time, processor time of all threads, peak of resident
memory; ratios are of processor times of one round, which other work on the machine disturbs less
than time. Starts and imports are in all but the time of `loads`.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import checkout  # noqa: F401 - finds the project
from paired import with_interval

_LOADS = """
import gzip, sys, time
try:
    from orjson import loads
except ImportError:
    from json import loads
opened = gzip.open if sys.argv[1].endswith(".gz") else open
data = opened(sys.argv[1], "rb").read()
begin = time.process_time()
loads(data)
print(loads.__module__, time.process_time() - begin)
"""

_USUAL = """
import polars, pandas, json, gzip, sys
opened = gzip.open if sys.argv[1].endswith(".gz") else open
json.load(opened(sys.argv[1]))
"""

_STARTS = """
import os, sys, time
nowhere = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
begin = time.perf_counter()
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[nowhere])
_, status, usage = os.wait4(pid, 0)
wall = time.perf_counter() - begin
code = os.waitstatus_to_exitcode(status)
print(code, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""
"""Starts a command from a small process: Linux counts the starter's memory in the peak."""


@dataclass(frozen=True)
class Ended:
    """A process that ended: seconds of the clock and of processors, peak of resident bytes."""

    wall: float
    processor: float
    peak: int


def ended(command: list[str], folder: Path) -> Ended:
    """Run to the end; raises CalledProcessError where the command fails."""
    starter = [sys.executable, "-I", "-S", "-c", _STARTS, *command]
    done = subprocess.run(starter, cwd=folder, check=False, stdout=subprocess.PIPE, text=True)
    code, wall, processor, peak = done.stdout.split()
    if code != "0":
        raise subprocess.CalledProcessError(int(code), command)
    return Ended(float(wall), float(processor), int(peak) * 1024)


def loaded(trace: Path) -> tuple[str, float]:
    """Which `loads` read the JSON, and its processor seconds."""
    printed = subprocess.check_output([sys.executable, "-c", _LOADS, str(trace)], text=True)
    module, seconds = printed.split()
    return module, float(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    ways: dict[str, list[Ended]] = {"page": [], "text": [], "usual": []}
    loads: list[float] = []
    module = ""
    with tempfile.TemporaryDirectory() as name:
        trace = Path(shutil.copy(arguments.trace, name))
        page = [sys.executable, "-m", "profiler", "analyze", trace.name]
        usual = [sys.executable, "-c", _USUAL, trace.name]
        commands = {"page": page, "text": [*page, "--no-html"], "usual": usual}
        ended(page, Path(name))  # compiles modules, and brings the file into the cache
        for _ in range(arguments.rounds):
            for way, command in commands.items():
                ways[way].append(ended(command, Path(name)))
            module, seconds = loaded(trace)
            loads.append(seconds)
    walls = [one.wall for one in ways["page"]]
    processor = {way: [one.processor for one in runs] for way, runs in ways.items()}
    print(f"best of {arguments.rounds}  {min(walls):.2f} s")
    print(f"time       {with_interval(walls, 2)} s")
    print(f"processor  {with_interval(processor['page'], 2)} s")
    print(f"{module}.loads  {statistics.median(loads):.2f} s of processor time")
    print(f"ratio      {with_interval(ratios(processor['page'], loads), 2)}")
    for way in ("text", "page"):
        ratio = with_interval(ratios(processor[way], processor["usual"]), 2)
        print(f"{way} ÷ import polars, pandas; json.load  {ratio}")
    print(f"peak       {max(one.peak for one in ways['page']) / 1e6:.0f} MB")


def ratios(times: list[float], base: list[float]) -> list[float]:
    """Those of each round."""
    return [one / other for one, other in zip(times, base, strict=True)]


if __name__ == "__main__":
    main()
