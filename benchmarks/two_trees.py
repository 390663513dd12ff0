"""Commands of two trees of this project in turn: what a goal in seconds means here.

    python benchmarks/two_trees.py BASE [--rounds 9] [--run npu] [--commands 50000] [--trace FILE]

A goal in seconds was set on a machine on which the tree of that day took so and so long. Another
machine tells by the ratio of both trees whether the goal is met. BASE is a checkout with an
environment `.venv` in which it is installed; the new tree is this one, with this Python. Install
both in the same way: an editable installation adds a list of all modules to each start.

Measured are `analyze` of a run, a Python that does nothing with the start-up hook switched on,
`import profiler` and `--help`; the short ones ten times a round. Each tree analyses a run of 28
steps that its own `benchmarks/load.py` writes, or with `--run` one that this tree's `made_runs.py`
writes, or with `--trace` another profiler's file; a tree that cannot analyse that imports it first,
and both commands count. Byte code is there before. Time, processor time of all threads, and peak
of resident memory; ratios are of processes of one round, with the interval that holds their median
with 95 %.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import checkout
from one_command import Ended, ended
from paired import with_interval

_WRITES = """
import sys
sys.path.insert(0, "benchmarks")
import checkout  # noqa: F401  (finds the project)
from pathlib import Path
from analysis import prepared
print(prepared(sys.argv[3], int(sys.argv[2]), Path(sys.argv[1])))
"""
Ways = dict[str, Callable[[], Ended]]
_SHORT = {
    "hook": ["env", "RBLN_PROFILER=1", "{python}", "-c", "pass"],
    "import": ["{python}", "-c", "import profiler"],
    "--help": ["{python}", "-m", "profiler", "--help"],
}
_TIMES = 10  # that a short command runs in a round


def written(tree: Path, python: Path, folder: Path, commands: int, run: str) -> Path:
    """The run that a tree's benchmarks write."""
    folder.mkdir()
    command = [str(python), "-c", _WRITES, str(folder), str(commands), run]
    return Path(subprocess.check_output(command, text=True, cwd=tree).splitlines()[-1])


def analyzed(python: Path, path: Path, folder: Path) -> Ended:
    """Analysing what lies at `path`, from a folder of its own."""
    return ended([str(python), "-m", "profiler", "analyze", str(path)], folder)


def imported(python: Path, trace: Path, folder: Path) -> Ended:
    """Importing a trace and analysing the run, as trees before format 2 needed it."""
    made = folder / "imported"
    shutil.rmtree(made, ignore_errors=True)
    first = ended([str(python), "-m", "profiler", "import", str(trace), "--out", str(made)], folder)
    return together([first, analyzed(python, next(made.iterdir()), folder)])


def together(all_of: Sequence[Ended]) -> Ended:
    """Processes that ran one after another, as one: sums of times, the highest peak."""
    wall, processor = (
        sum(getattr(one, clock) for one in all_of) for clock in ("wall", "processor")
    )
    return Ended(wall, processor, max(one.peak for one in all_of))


def short(python: Path, command: Sequence[str], folder: Path) -> Ended:
    """A short command, run as many times as make one measurement."""
    words = [word.format(python=python) for word in command]
    return together([ended(words, folder) for _ in range(_TIMES)])


def reads_foreign(python: Path, trace: Path, folder: Path) -> bool:
    """Whether a tree analyses another profiler's file."""
    try:
        analyzed(python, trace, folder)
    except subprocess.CalledProcessError:
        return False
    return True


def ways(tree: Path, python: Path, folder: Path, given: argparse.Namespace) -> Ways:
    """What is measured of a tree, by name."""
    if given.trace is None:
        writer = (tree, python)
        if given.run != "onnxruntime":
            writer = (checkout.ROOT, Path(sys.executable))
        path = written(*writer, folder, given.commands, given.run)
        way = analyzed
    else:
        path = Path(shutil.copy(given.trace, folder.parent))
        way = analyzed if reads_foreign(python, path, folder.parent) else imported
    found = {"analyze": partial(way, python, path, folder.parent)}
    return found | {
        name: partial(short, python, words, folder.parent) for name, words in _SHORT.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--run", choices=("onnxruntime", "npu", "gpu"), default="onnxruntime")
    parser.add_argument("--commands", type=int, default=50_000)
    parser.add_argument("--trace", type=Path)
    given = parser.parse_args()
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)  # each Python finds the tree that is installed in it
    base = given.base.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trees = {
            "base": ways(base, base / ".venv" / "bin" / "python", folder / "base", given),
            "new": ways(checkout.ROOT, Path(sys.executable), folder / "new", given),
        }
        for way in trees["base"]:
            compare(way, {tree: of[way] for tree, of in trees.items()}, given.rounds)


def compare(name: str, trees: Mapping[str, Callable[[], Ended]], rounds: int) -> None:
    """Measure both trees in turn, and print their medians and ratios."""
    found: dict[str, list[Ended]] = {tree: [] for tree in trees}
    for measure in trees.values():
        measure()  # compiles modules, and brings the files into the cache
    for number in range(rounds):
        for tree in sorted(trees, reverse=number % 2 == 1):
            found[tree].append(trees[tree]())
    for clock, unit, scale in (("wall", "s", 1.0), ("processor", "s", 1.0), ("peak", "MB", 1e-6)):
        of = {tree: [getattr(one, clock) for one in runs] for tree, runs in found.items()}
        medians = (f"{tree} {statistics.median(of[tree]) * scale:.3f} {unit}" for tree in trees)
        ratio = [new / old for new, old in zip(of["new"], of["base"], strict=True)]
        print(f"{name:8} {clock:10} {', '.join(medians)}, ratio {with_interval(ratio)}", flush=True)


if __name__ == "__main__":
    main()
