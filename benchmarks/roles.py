"""Kinds and roles of many commands: processor time of each part.

    python benchmarks/roles.py [--commands 10000000] [--rounds 5] [--folder DIR]

The run is that of `benchmarks/load.py`. Figures are medians of the rounds, in one process; the
first round also pays for memory that the later ones reuse.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from load import write_run

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.kinds import kinds_of
from profiler.analysis.roles.of_kinds import roles_of
from profiler.analysis.roles.tables import block_table, role_table, with_roles
from profiler.table.load import load

CALIBRATION = pl.DataFrame(schema={"submodule": pl.String, "calibration": pl.Float64})


def measured(bundle: Path, rounds: int) -> tuple[dict[str, list[float]], int, int]:
    """Seconds of processor time of each part by round; commands and kinds of the run."""
    run = load(bundle)
    arrays = CommandArrays.of(run.commands, run.calls)
    seconds: dict[str, list[float]] = {}

    def timed(name: str, function: Callable[..., Any], *given: Any) -> Any:
        begin = time.process_time()
        result = function(*given)
        seconds.setdefault(name, []).append(time.process_time() - begin)
        return result

    for _ in range(rounds):
        kinds = timed("kinds", kinds_of, run.calls, run.commands, arrays.call)
        known = (run.info.submodules, kinds, arrays.call, run.commands["role"])
        roles = timed("roles", roles_of, *known)
        timed("table of roles", role_table, kinds, roles, CALIBRATION)
        timed("table of blocks", block_table, kinds, roles)
        timed("roles of all commands", with_roles, run, kinds, roles)
    return seconds, len(run.commands), len(kinds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bundle, _ = write_run(Path(folder), options.commands)
        seconds, commands, kinds = measured(bundle, options.rounds)
    print(f"{commands:,} commands of {kinds:,} kinds, processor time")
    for name, values in seconds.items():
        print(f"{name:<24}{statistics.median(values):8.3f} s   first {values[0]:.3f} s")


if __name__ == "__main__":
    main()
