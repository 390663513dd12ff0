"""How long importing and asking for help take, beside a Python that does nothing.

    python benchmarks/startup.py

Prints medians and spread of whole processes, run in turn.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import profiler": [sys.executable, "-c", "import profiler"],
    "profile-sd3 --help": [sys.executable, "-m", "profiler", "--help"],
}
ROUNDS = 15


def main() -> None:
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


if __name__ == "__main__":
    main()
