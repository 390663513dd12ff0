"""What looking for compilations costs after each call: microseconds, where nothing was compiled.

python benchmarks/compilations.py
"""

from __future__ import annotations

import argparse
import sys
from timeit import repeat

from profiler.capture.calls import RunClock
from profiler.capture.recorder import Recorder
from profiler.capture.run_info import RunCompilations

_LOOKS = 20_000
_ROUNDS = 7


def _microseconds() -> float:
    """The least of several rounds, a look."""
    compilations = RunCompilations(Recorder(RunClock.start()))
    compilations.open()
    return 1e6 * min(repeat(compilations.look, number=_LOOKS, repeat=_ROUNDS)) / _LOOKS


def main() -> None:
    """Print the cost of a look without dynamo, and with its list of records full."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    sys.stdout.write(f"dynamo not imported: {_microseconds():.2f} us a call\n")
    import torch
    from torch._dynamo import config, utils

    compiled = torch.compile(lambda x, n: x + n, backend="eager", dynamic=False)
    config.recompile_limit = 100
    for size in range(1, 66):
        compiled(torch.ones(size), size)
    records = len(utils.get_compilation_metrics())
    sys.stdout.write(f"{records} records, none new: {_microseconds():.2f} us a call\n")


if __name__ == "__main__":
    main()
