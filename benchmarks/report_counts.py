"""How much a report does, counted: what other work on the machine does not change.

    python benchmarks/report_counts.py RUN

One `profile-sd3 analyze RUN` with its page, in this process under cProfile, imports of the command
line left out: calls of functions, Polars queries that were collected, and modules of the project
that are imported by the end.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import io
import pstats
import sys
import tempfile
from pathlib import Path

import checkout  # noqa: F401 - finds the project

_QUERY = "<method 'collect' of 'builtins.PyLazyFrame' objects>"


def counts(run: Path) -> dict[str, int]:
    """What `analyze` of the run does, by name. Raises SystemExit where it fails."""
    from profiler.cli.main import run as run_command

    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["profile-sd3", "analyze", str(run), "--html", str(Path(folder) / "page.html")]
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                profile.runcall(run_command)
            except SystemExit as ended:
                if ended.code:
                    raise
    calls = {key: value[0] for key, value in pstats.Stats(profile).stats.items()}
    queries = sum(number for (_, _, name), number in calls.items() if name == _QUERY)
    modules = sum(name.partition(".")[0] == "profiler" for name in sys.modules)
    return {
        "calls of functions": sum(calls.values()),
        "Polars queries": queries,
        "modules of the project": modules,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    for name, number in counts(parser.parse_args().run).items():
        print(f"{name}: {number:,}")


if __name__ == "__main__":
    main()
