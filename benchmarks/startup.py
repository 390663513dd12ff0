"""What importing, asking for help and the start-up file cost beside a Python that does nothing.

    python benchmarks/startup.py [--pairs 300]

Commands: medians and spread of whole processes, run in turn. Start-up file: rounds of
`python -c pass` with and without `profile_sd3.pth`, in an order that changes from round to round;
the median difference and the interval that holds the median with 95 %, of the time that passes and
of the processor's time alone, which other work on the machine disturbs less. Beside it stand a file
that is empty and one that says `import os`: less than these no file that executes anything takes.
`site` reads the file once, in a virtual environment of CPython up to 3.14 twice; what its first and
second reading take is measured in fresh processes as well, without the rest of their start.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

from checkout import ROOT  # finds the project, here and in the commands

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import profiler": [sys.executable, "-c", "import profiler"],
    "profile-sd3 --help": [sys.executable, "-m", "profiler", "--help"],
}
ROUNDS = 15
STARTUP = ROOT / "startup"
PTH = "profile_sd3.pth"
FLOORS = {"an empty file": "", "a file with `import os`": "import os\n"}
OURS = ("profile-sd3, unset", "profile-sd3, RBLN_PROFILER=1")


@dataclass(frozen=True)
class Place:
    """A Python, the variables that it is started with, and a folder of packages that it finds."""

    python: str
    variables: dict[str, str]
    packages: Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=300)
    pairs = parser.parse_args().pairs
    time_commands()
    with tempfile.TemporaryDirectory() as folder:
        time_startup_file(Path(folder), pairs)
        time_reading(Path(folder), pairs)


def time_commands() -> None:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            begin = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times[name].append(time.perf_counter() - begin)
    base = statistics.median(times["python -c pass"])
    print(f"{'command':22} {'median':>9} {'fastest':>9} {'slowest':>9} {'above python':>13}")
    for name, values in times.items():
        median = statistics.median(values)
        row = (median, min(values), max(values), median - base)
        print(f"{name:22} " + " ".join(f"{value * 1e3:7.0f} ms" for value in row[:3]), end="")
        print(f" {row[3] * 1e3:10.0f} ms")


def time_startup_file(folder: Path, pairs: int) -> None:
    print(f"\n{pairs} rounds, ms more than without a file", end="")
    print(f" {'time':>7} {'95 %':>18} {'processor':>10} {'95 %':>18}")
    for layout, make in (("user site", user_site), ("virtual environment", environment)):
        places = {}
        for number, name in enumerate(("without", *FLOORS, *OURS)):
            place = places[name] = make(folder / layout.replace(" ", "") / str(number))
            if name in FLOORS:
                (place.packages / PTH).write_text(FLOORS[name])
            if name in OURS:
                for file in STARTUP.glob("*profile_sd3*"):
                    (place.packages / file.name).write_bytes(file.read_bytes())
        places[OURS[1]].variables["RBLN_PROFILER"] = "1"
        taken = rounds(places, pairs)
        print(layout)
        for name in (*FLOORS, *OURS):
            print(f"  {name:29}", end="")
            for clock in (0, 1):
                pairs_of = zip(taken[name], taken["without"], strict=True)
                values = [ours[clock] - plain[clock] for ours, plain in pairs_of]
                low, high = interval(values)
                median = statistics.median(values)
                print(f"{median * 1e3:11.3f} {low * 1e3:8.3f} to {high * 1e3:6.3f}", end="")
            print()


READING = """
import site, sys, time
known, now, folder = set(sys.path), time.perf_counter, sys.argv[1]
begin = now(); site.addpackage(folder, sys.argv[2], known)
middle = now(); site.addpackage(folder, sys.argv[2], known)
print(middle - begin, now() - middle)
"""


def time_reading(folder: Path, processes: int) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RBLN_")}
    texts = {**FLOORS, "profile-sd3, unset": (STARTUP / PTH).read_text()}
    print(f"\n{'the file alone, ms':31} {'first reading':>13} {'second':>8}")
    for number, (name, text) in enumerate(texts.items()):
        (folder / f"{number}.pth").write_text(text)
        command = [sys.executable, "-c", READING, str(folder), f"{number}.pth"]
        rows = [
            list(map(float, subprocess.check_output(command, env=clean, text=True).split()))
            for _ in range(processes)
        ]
        first, second = (statistics.median(values) * 1e3 for values in zip(*rows, strict=True))
        print(f"  {name:29} {first:13.3f} {second:8.3f}")


def environment(folder: Path) -> Place:
    """A virtual environment that finds the project, and nothing else but what Python brings."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    place = Place(str(folder / "bin" / "python"), {}, next(folder.glob("lib/*/site-packages")))
    (place.packages / "found.pth").write_text(f"{ROOT}\n")
    return place


def user_site(folder: Path) -> Place:
    """The Python that virtual environments are made of, with a user's own folder of packages."""
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    packages.mkdir(parents=True)
    (packages / "found.pth").write_text(f"{ROOT}\n")
    python = getattr(sys, "_base_executable", sys.executable)
    return Place(python, {"PYTHONUSERBASE": str(folder)}, packages)


def rounds(places: dict[str, Place], count: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each place by name, once a round: what passes, and the processor's."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in places}
    for _ in range(count):
        for name in random.sample(list(places), len(places)):
            taken[name].append(seconds(places[name]))
    return taken


def seconds(place: Place) -> tuple[float, float]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RBLN_", "PYTHON"))}
    begin = time.perf_counter()
    process = os.posix_spawn(place.python, [place.python, "-c", "pass"], clean | place.variables)
    _, status, usage = os.wait4(process, 0)
    passed = time.perf_counter() - begin
    assert status == 0
    return passed, usage.ru_utime + usage.ru_stime


def interval(values: list[float]) -> tuple[float, float]:
    """Where the median lies with 95 %, from the order of the values alone."""
    ordered = sorted(values)
    middle, reach = (len(values) - 1) / 2, 0.98 * len(values) ** 0.5
    last = len(values) - 1
    return ordered[max(round(middle - reach), 0)], ordered[min(round(middle + reach), last)]


if __name__ == "__main__":
    main()
