"""Run capture against pipelines of diffusers, made of tiny random weights, and compare.

    python -m tests.sweep                # all; writes nothing
    python -m tests.sweep sdxl FluxPipeline
    python -m tests.sweep --write        # also tests/sweep/results.json, docs/capture-pipelines.md

Each class runs twice with the same seed, with and without capture: outputs must be the same bit by
bit, and calls, steps and branches those of hooks that know nothing of capture (`truth.py`).
Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from tests.sweep.cases import Case, all_cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="classes or families; all where none is given")
    parser.add_argument("--write", action="store_true", help="write the recorded result")
    parser.add_argument("--trace", action="store_true", help="whole tracebacks")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import diffusers
    import torch
    import transformers

    torch.set_num_threads(1)
    diffusers.logging.set_verbosity(50)
    transformers.logging.set_verbosity_error()
    from tests.sweep.record import write

    names = set(options.names)
    cases = [c for c in all_cases() if not names or names & {c.name, c.family}]
    results = []
    failed = 0
    for case in cases:
        began = time.perf_counter()
        result = _run(case, whole=options.trace)
        seconds = time.perf_counter() - began
        if result is None or result.differences:
            failed += 1
        if result is not None:
            results.append(result)
            _say(result, seconds)
    print(f"{len(cases) - failed} of {len(cases)} as they should be")
    if options.write and len(results) == len(cases):
        write(results)
    return 1 if failed else 0


def _run(case: Case, *, whole: bool):
    from tests.sweep.compare import compared

    with tempfile.TemporaryDirectory() as folder:
        try:
            return compared(case, Path(folder))
        except Exception as error:  # noqa: BLE001 - a crash is an answer as well, until it is mended
            print(f"FAILS  {case.name}: {type(error).__name__}: {str(error)[:300]}")
            if whole:
                traceback.print_exc()
            return None


def _say(result, seconds: float) -> None:
    calls = ", ".join(f"{name} {count}" for name, count in result.calls.items())
    mark = "wrong " if result.differences else "ok    "
    print(f"{mark} {result.name} ({seconds:.1f} s): {calls}; {result.steps} steps", flush=True)
    if result.pieces:
        print(f"         pieces: {', '.join(result.pieces)}")
    for difference in result.differences:
        print(f"         {difference}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
