"""How a process that is profiled for long grows: the tiny SD3, called again and again.

    python benchmarks/long_runs.py [--steps 1000] [--call 20] [--ops all] [--runtime torch]
    python benchmarks/long_runs.py --ops none      # calls alone
    python benchmarks/long_runs.py --untraced      # what the pipeline itself grows by
    python benchmarks/long_runs.py --steps 5000 --call 5000    # one pipeline call

For each runtime a process of its own. Drawn is its resident memory (Linux) after every hundred
steps, in MiB, at the end of a step; the sum is what it has grown by since the first hundred. torch
runs on one thread.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import checkout  # noqa: F401 - finds the project
from capture_truth import PIPELINES

import profiler

MIB = 1 << 20
EVERY = 100  # steps, from one figure to the next
_BAR = 25 * MIB  # a sign of the bars


def resident_bytes() -> int:
    """What this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(runtime: str, options: argparse.Namespace) -> None:
    """Print steps so far and resident bytes, after every hundred steps."""
    steps = 0

    def stepped(*_: Any) -> dict[str, Any]:
        nonlocal steps
        steps += 1
        if steps > 0 and steps % EVERY == 0:
            print(steps, resident_bytes(), flush=True)
        return {}

    more: dict[str, Any] = {"callback_on_step_end": stepped}
    if options.pixels:
        more |= {"height": options.pixels, "width": options.pixels}
    pipeline, call = PIPELINES[runtime](options.call, **more)
    if options.call < options.steps:  # a first call, which pays for what is loaded once
        steps = -options.call
        call()
    settings = {"ops": options.ops, "event_cap": options.event_cap}
    settings |= {"memory": True} if options.memory else {}
    with tempfile.TemporaryDirectory() as folder:
        traced: Any = profiler.profile(pipeline, out=folder, **settings)
        with nullcontext() if options.untraced else traced:
            while steps < options.steps:
                call()
            begin = time.perf_counter()
        print(f"closing took {time.perf_counter() - begin:.1f} s", file=sys.stderr)


def draw(runtime: str, options: argparse.Namespace) -> int:
    """Print the curve of a process of its own; returns by how many bytes it grew."""
    command = [sys.executable, __file__, "--child", "--runtime", runtime, "--ops", options.ops]
    command += ["--steps", str(options.steps), "--call", str(options.call)]
    command += ["--pixels", str(options.pixels)]
    command += [f"--{name}" for name in ("untraced", "memory") if getattr(options, name)]
    command += [] if options.event_cap is None else ["--event-cap", str(options.event_cap)]
    print(f"{runtime}, ops {options.ops}: resident MiB by steps")
    found: list[int] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            steps, held = map(int, line.split())
            found.append(held)
            print(f"{steps:8,}{held / MIB:8.0f}  {'#' * (held // _BAR)}", flush=True)
    grown = max(found) - found[0]
    print(f"  at most {grown / MIB:.0f} MiB more than the first figure")
    return grown


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--call", type=int, default=20, help="steps of a pipeline call")
    parser.add_argument("--pixels", type=int, default=0, help="of a side; 0: the pipeline's")
    parser.add_argument("--ops", default="all")
    parser.add_argument("--runtime", choices=PIPELINES)
    parser.add_argument("--event-cap", type=int, help="events of a session (ONNX Runtime)")
    parser.add_argument("--untraced", action="store_true")
    parser.add_argument("--memory", action="store_true", help="allocations of torch, too")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measure(options.runtime, options)
        return
    for runtime in [options.runtime] if options.runtime else PIPELINES:
        draw(runtime, options)


if __name__ == "__main__":
    main()
