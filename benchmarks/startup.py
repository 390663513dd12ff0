"""What importing, asking for help and the start-up file cost beside a Python that does nothing.

    python benchmarks/startup.py [--pairs 300]

Commands: medians and spread of whole processes, run in turn. Start-up file: pairs of
`python -c pass` with and without `profile_sd3.pth`, in an order that changes from pair to pair; the
median difference and the interval that holds the median with 95 %, of the time that passes and of
the processor's time alone, which other work on the machine disturbs less. `site` reads the file
once, in a virtual environment of CPython up to 3.14 twice; what its first and second reading take
is measured in fresh processes as well, without the rest of their start.
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

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import profiler": [sys.executable, "-c", "import profiler"],
    "profile-sd3 --help": [sys.executable, "-m", "profiler", "--help"],
}
ROUNDS = 15
ROOT = Path(__file__).resolve().parent.parent
STARTUP = ROOT / "startup"
SWITCHES: dict[str, dict[str, str]] = {"unset": {}, "RBLN_PROFILER=1": {"RBLN_PROFILER": "1"}}


@dataclass(frozen=True)
class Place:
    """A Python and the variables that give it one folder of packages more."""

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
    time_reading(pairs)


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
    print(f"\n{pairs} pairs, ms more     {'time':>8} {'95 %':>18} {'processor':>12} {'95 %':>18}")
    for layout, make in (("user site", user_site), ("virtual environment", environment)):
        without, with_file = (make(folder / layout.replace(" ", "") / name) for name in "ab")
        for file in STARTUP.glob("*profile_sd3*"):
            (with_file.packages / file.name).write_bytes(file.read_bytes())
        for name, switch in SWITCHES.items():
            differences = paired(without, with_file, switch, pairs)
            print(f"{layout}, {name}")
            print(" " * 21, end="")
            for values in zip(*differences, strict=True):
                low, high = interval(list(values))
                median = statistics.median(values)
                print(f"{median * 1e3:11.3f} {low * 1e3:8.3f} to {high * 1e3:6.3f}", end="")
            print()


READING = """
import site, sys, time
known, now, folder = set(sys.path), time.perf_counter, sys.argv[1]
begin = now(); site.addpackage(folder, "profile_sd3.pth", known)
middle = now(); site.addpackage(folder, "profile_sd3.pth", known)
print(middle - begin, now() - middle)
"""


def time_reading(processes: int) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RBLN_")}
    command = [sys.executable, "-c", READING, str(STARTUP)]
    rows = [
        list(map(float, subprocess.check_output(command, env=clean, text=True).split()))
        for _ in range(processes)
    ]
    first, second = (statistics.median(values) * 1e3 for values in zip(*rows, strict=True))
    print(f"the file alone, unset: first reading {first:.3f} ms, second {second:.3f} ms")


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


def paired(
    without: Place, with_file: Place, switch: dict[str, str], pairs: int
) -> list[tuple[float, float]]:
    """Differences of the time that passes and of the processor's time, in seconds."""
    differences = []
    for _ in range(pairs):
        taken = {}
        for place in random.sample([without, with_file], 2):
            taken[place.packages] = seconds(place, switch)
        ours, plain = taken[with_file.packages], taken[without.packages]
        differences.append((ours[0] - plain[0], ours[1] - plain[1]))
    return differences


def seconds(place: Place, switch: dict[str, str]) -> tuple[float, float]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RBLN_", "PYTHON"))}
    variables = clean | place.variables | switch
    begin = time.perf_counter()
    process = os.posix_spawn(place.python, [place.python, "-c", "pass"], variables)
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
