"""`profile-sd3 analyze` of two trees of this project in turn: what a goal in seconds means here.

    python benchmarks/two_trees.py BASE [--rounds 7] [--commands 50000] [--trace FILE]

A goal in seconds was set on a machine on which the tree of that day took so and so long. Another
machine tells by the ratio of both trees whether the goal is met. BASE is a checkout with an
environment `.venv` in which it is installed; the new tree is this one, with this Python.

Each tree analyses a run that its own `benchmarks/load.py` writes, 28 steps, or, with `--trace`,
another profiler's file; a tree that cannot analyse that imports it first, and both commands count.
Time and processor time of all threads; ratios are of processes of one round.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import checkout
from one_command import Ended, ended
from paired import with_interval

_WRITES = """
import sys
sys.path.insert(0, "benchmarks")
import checkout
from pathlib import Path
from load import write_run
print(write_run(Path(sys.argv[1]), int(sys.argv[2]))[0])
"""


def written(tree: Path, python: Path, folder: Path, commands: int) -> Path:
    """The run that a tree's own benchmark writes."""
    folder.mkdir()
    command = [str(python), "-c", _WRITES, str(folder), str(commands)]
    return Path(subprocess.check_output(command, text=True, cwd=tree).splitlines()[-1])


def analyzed(python: Path, path: Path, folder: Path) -> Ended:
    """Analysing what lies at `path`, from a folder of its own."""
    return ended([str(python), "-m", "profiler", "analyze", str(path)], folder)


def imported(python: Path, trace: Path, folder: Path) -> Ended:
    """Importing a trace and analysing the run, as trees before format 2 needed it."""
    made = folder / "imported"
    shutil.rmtree(made, ignore_errors=True)
    first = ended([str(python), "-m", "profiler", "import", str(trace), "--out", str(made)], folder)
    second = analyzed(python, next(made.iterdir()), folder)
    both = (first.wall + second.wall, first.processor + second.processor)
    return Ended(*both, max(first.peak, second.peak))


def reads_foreign(python: Path, trace: Path, folder: Path) -> bool:
    """Whether a tree analyses another profiler's file."""
    try:
        analyzed(python, trace, folder)
    except subprocess.CalledProcessError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--commands", type=int, default=50_000)
    parser.add_argument("--trace", type=Path)
    arguments = parser.parse_args()
    del os.environ["PYTHONPATH"]  # each Python finds the tree that is installed in it
    base = arguments.base.resolve()
    pythons = {"base": base / ".venv" / "bin" / "python", "new": Path(sys.executable)}
    trees = {"base": base, "new": checkout.ROOT}
    found: dict[str, list[Ended]] = {name: [] for name in trees}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ways = {}
        for tree, python in pythons.items():
            if arguments.trace is None:
                path, way = (
                    written(trees[tree], python, folder / tree, arguments.commands),
                    analyzed,
                )
            else:
                path = Path(shutil.copy(arguments.trace, folder))
                way = analyzed if reads_foreign(python, path, folder) else imported
            way(python, path, folder)  # compiles modules, and brings the files into the cache
            ways[tree] = (way, path)
        for _ in range(arguments.rounds):
            for tree, (way, path) in ways.items():
                found[tree].append(way(pythons[tree], path, folder))
    for clock in ("wall", "processor"):
        of = {tree: [getattr(one, clock) for one in runs] for tree, runs in found.items()}
        told = ", ".join(f"{tree} {statistics.median(times):.2f} s" for tree, times in of.items())
        ratio = [new / old for new, old in zip(of["new"], of["base"], strict=True)]
        print(f"{clock:10} {told}, ratio {with_interval(ratio, 2)}")


if __name__ == "__main__":
    main()
