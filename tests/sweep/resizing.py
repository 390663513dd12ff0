"""Denoisers and decoders of tiny pipelines at another size, resized and recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import profiler
from profiler.analysis import call_costs
from profiler.analysis.analyze import analyze
from profiler.analysis.flops import CallCosts
from profiler.prediction import ImageSize
from tests.sweep import cases

__all__ = ["DECODERS", "DENOISERS", "costs"]

DENOISERS = ("transformer", "unet")
DECODERS = ("vae", "movq")


def costs(case: cases.Case, folder: Path, size: ImageSize) -> dict[str, CallCosts]:
    """Of denoiser and decoder, recorded with images of that size."""
    sides = {"height": size.height, "width": size.width}
    given = {side: pixels for side, pixels in sides.items() if side in case.args}
    case = replace(case, args={**case.args, **given}, offered={**case.offered, **sides})
    pipeline = case.pipeline()
    with profiler.profile(pipeline, ops="all", out=folder / str(size)) as recording:
        case.call(pipeline)
    run = profiler.load(recording.path)
    analysis = analyze(run)
    tables = (analysis.calls, analysis.kinds.table, analysis.device_profiles)
    called = {*run.calls["submodule"].cast(str)} & {*DENOISERS, *DECODERS}
    return {name: found for name in called if (found := call_costs(*tables, name)) is not None}
