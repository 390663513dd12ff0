"""Shapes at another size, predicted and real: tiny pipelines of diffusers on the CPU.

    python benchmarks/resized_shapes.py [--before 96x96] [--after 160x160] [CLASS ...]

Each class (tests/sweep/cases.py; without any, those of docs/predict.md) is recorded at both sizes.
Of denoiser and decoder a row says how many commands, resized, have shapes that no command of the
real run has, what share of the recorded time that is, and the FLOPs over those of the real run.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import checkout  # noqa: F401 - finds the project

from profiler.analysis.flops import CallCosts, KindCost
from profiler.prediction.scenario import ImageSize, Resizing, parse_size
from tests.analysis.prediction.told_shapes import told
from tests.sweep.cases import all_cases
from tests.sweep.resizing import costs

CLASSES = (
    "CogView4Pipeline",
    "Flux2KleinPipeline",
    "FluxModularPipeline",
    "KandinskyV22CombinedPipeline",
    "LTXModularPipeline",
    "PixArtSigmaPipeline",
    "QwenImageModularPipeline",
    "SanaPipeline",
    "StableDiffusionXLModularPipeline",
)


def row(found: CallCosts, real: CallCosts, old: ImageSize, new: ImageSize) -> tuple[str, str, str]:
    """Commands of wrong shapes, their share of the time, and FLOPs over the real ones."""
    resizing = Resizing.of(found.kinds, old, new)
    ours = [resizing.kind(kind) for kind in found.kinds]
    wrong = told(ours) - told(real.kinds)
    of_shape: Counter = Counter()
    for kind in ours:
        of_shape[next(iter(told([kind])))] += kind.total_ns
    counts = told(ours)
    lost = sum(of_shape[shape] * count / counts[shape] for shape, count in wrong.items())
    total = sum(kind.total_ns for kind in ours)
    flops = (sum(map(_flops, kinds)) for kinds in (ours, real.kinds))
    ratio = next(flops) / max(next(flops), 1.0)
    return f"{wrong.total():,} of {counts.total():,}", f"{lost / total:.1%}", f"{ratio:.3f}"


def _flops(kind: KindCost) -> float:
    return kind.commands * kind.flops


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("classes", nargs="*", default=CLASSES)
    parser.add_argument("--before", type=parse_size, default=ImageSize(96, 96))
    parser.add_argument("--after", type=parse_size, default=ImageSize(160, 160))
    args = parser.parse_args()
    known = {case.name: case for case in all_cases()}
    warnings.simplefilter("ignore")
    print("| class | submodule | wrong | of the time | FLOPs ÷ real |\n|---|---|---|---|---|")
    for name in args.classes:
        with tempfile.TemporaryDirectory() as folder:
            sizes = (args.before, args.after)
            before, after = (costs(known[name], Path(folder), size) for size in sizes)
        for submodule in sorted(before.keys() & after.keys()):
            cells = row(before[submodule], after[submodule], *sizes)
            print(f"| {name} | {submodule} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
