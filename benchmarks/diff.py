"""Comparing runs of many commands: processor time of each part, reading the runs left out.

    python benchmarks/diff.py [--commands 10000000] [--rounds 5] [--folder DIR]

The run is that of `benchmarks/load.py`, compared with itself. Figures are medians of the rounds, in
one process; the first round also pays for memory that the later ones reuse.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from load import write_run

from profiler.compare.compare import compare
from profiler.compare.measure import measure
from profiler.tools.sources import load


def measured(bundle: Path, rounds: int) -> tuple[dict[str, list[float]], int, int]:
    """Seconds of processor time of each part by round; commands of the run, metrics found."""
    run = load(bundle)
    seconds: dict[str, list[float]] = {}
    metrics = 0

    def timed(name: str, function: Callable[..., Any], *given: Any) -> Any:
        begin = time.process_time()
        result = function(*given)
        seconds.setdefault(name, []).append(time.process_time() - begin)
        return result

    for _ in range(rounds):
        found = timed("one run", measure, run)
        metrics = len(timed("two runs", compare, [found], [found]).metrics)
        timed("ten runs", compare, [found] * 5, [found] * 5)
    return seconds, len(run.commands), metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bundle, _ = write_run(Path(folder), options.commands)
        seconds, commands, metrics = measured(bundle, options.rounds)
    print(f"{commands:,} commands, {metrics:,} metrics, processor time")
    for name, values in seconds.items():
        print(f"{name:<24}{statistics.median(values):8.3f} s   first {values[0]:.3f} s")


if __name__ == "__main__":
    main()
