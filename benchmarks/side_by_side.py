"""What profilers of one pipeline cost, side by side: time, bytes, events, what their files tell.

    python benchmarks/side_by_side.py [--rounds 7] [--steps 28] [--parts onnxruntime,torch]
        [--hidden 256 --layers 12]

Two pipelines: the embedded tiny SD3 on ONNX Runtime and a tiny SD3 of diffusers on torch, on the
CPU. Each round runs every way once, in an order of its own. Ratios are of runs of one round;
each stands with its median and the 95 % bootstrap interval of that. A call's time goes from its
begin, the tool's own start included, until the pipeline has its image; stopping, converting and
writing come after it. The processor's time is that of all threads of the process: what else the
machine does disturbs it less. Attaching, and opening ONNX Runtime's sessions, is in neither.

Whole runs do not resolve 1 %, so two finer figures follow for ONNX Runtime: one transformer call
with our operators against one under ONNX Runtime's profiler, in pairs; our own work (own_work.py).

`--hidden` and `--layers` make the transformers larger (ONNX Runtime's is exported anew: a minute,
and it needs the torch extra). What is not installed (torch, diffusers, VizTracer) is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import checkout  # noqa: F401 - finds the project
import paired
from own_work import print_own_work
from paired import Measured, Mode, with_interval
from side_by_side_onnxruntime import ITS_OWN, OnnxRuntimeRuns

PARTS = ("onnxruntime", "torch")
_EXPORT = """
import sys
from pathlib import Path
from profiler.pipelines.tiny import build as architecture, build

hidden, layers = map(int, sys.argv[2:])
architecture.HEAD_WIDTH = hidden // architecture.TRANSFORMER_HEADS or architecture.HEAD_WIDTH
architecture.TRANSFORMER_BLOCKS = layers or architecture.TRANSFORMER_BLOCKS
build.build_model(Path(sys.argv[1]))
"""


def compare(title: str, modes: list[Mode], rounds: int, base: str) -> dict[str, list[Measured]]:
    """Run and print one pipeline's table, and how we stand to the profiler that we rely on."""
    found = paired.in_turn(modes, rounds)
    print(f"\n{title}, {rounds} rounds\n")
    paired.print_table(modes, found)
    print()
    for ours, other in (("calls", "plain"), ("operators", base)):
        wall, processor = (
            with_interval(paired.ratios(found, ours, other, clock))
            for clock in ("wall", "processor")
        )
        print(f"{ours} ÷ {other}: time {wall}, processor {processor}")
    return found


def compare_onnxruntime(runs: OnnxRuntimeRuns, rounds: int) -> None:
    """ONNX Runtime's table, and our own work in a call as a share of it: whole runs say less."""
    title = f"SD3 on ONNX Runtime, {runs.steps} steps"
    found = compare(title, runs.modes(), rounds, ITS_OWN)
    pairs = {clock: with_interval(v) for clock, v in runs.operator_pairs(20 * rounds).items()}
    print(
        f"one transformer call, operators ÷ {ITS_OWN}, {20 * rounds} pairs: "
        f"time {pairs['wall']}, processor {pairs['processor']}"
    )
    for ops, base in (("none", "plain"), ("all", ITS_OWN)):
        seconds = statistics.median(run.call.wall for run in found[base])
        print_own_work(runs.model, ops, runs.steps, 7 * rounds, (base, seconds))


def larger_model(folder: Path, hidden: int, layers: int) -> Path:
    """The embedded model with a larger transformer; its other parts stay. A process of its own
    exports it: torch is not to be loaded where ONNX Runtime is measured."""
    model = folder / "larger-sd3"
    command = [sys.executable, "-c", _EXPORT, str(model), str(hidden), str(layers)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stderr}the larger model was not exported: it needs the torch extra")
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--parts", default=",".join(PARTS), help="some of onnxruntime,torch")
    parser.add_argument("--hidden", type=int, default=0, help="width, a multiple of 16")
    parser.add_argument("--layers", type=int, default=0, help="blocks of the transformer")
    options = parser.parse_args()
    hidden, layers = options.hidden, options.layers
    parts = options.parts.split(",")
    if not set(parts) <= set(PARTS) or hidden % 16:
        parser.error(f"--parts takes {' and '.join(PARTS)}, --hidden a multiple of 16")
    if min(options.rounds, options.steps) < 1:
        parser.error("--rounds and --steps take 1 or more")
    if "onnxruntime" in parts:
        with tempfile.TemporaryDirectory() as folder:
            model = larger_model(Path(folder), hidden, layers) if hidden or layers else None
            compare_onnxruntime(OnnxRuntimeRuns(options.steps, model), options.rounds)
    if "torch" not in parts:
        return
    if not all(map(importlib.util.find_spec, ("torch", "diffusers"))):
        print("\nWithout torch and diffusers: no torch part.")
        return
    from side_by_side_torch import BASE, TorchRuns

    torch_runs = TorchRuns(options.steps, hidden or 32, layers or 4)
    title = f"diffusers' SD3 on torch, {options.steps} steps"
    compare(title, torch_runs.modes(), options.rounds, BASE)


if __name__ == "__main__":
    main()
