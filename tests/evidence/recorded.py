"""What was recorded on an H200, and what is asked of it: for the tests and `gpu_compare.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profiler.analysis import Analysis
from profiler.errors import InputError
from profiler.prediction import ImageSize, Scenario
from profiler.prediction.predict import Prediction, predict
from profiler.run import Run

FOLDER = Path(__file__).parent / "h200"
TIMED = {  # by trace: the model and the stage whose events were in the very run that was traced
    "sd35-eager": ("sd35", "trace_marked"),
    "sd35-graphs": ("sd35", "trace_graphs"),
    "sd35-streams": ("sd35", "trace_streams"),
    "flux-eager": ("flux", "trace_marked"),
    "flux-compiled": ("flux-compiled", "trace_compiled"),
    "wan-eager": ("wan", "trace_marked"),
}
PREDICTED: dict[str, dict[str, dict[str, Any]]] = {  # by trace and stage: what is asked
    "sd35-eager": {
        "steps_8": {"steps": 8},
        "steps_2": {"steps": 2},
        "guidance_off": {"guidance": False},
        "graphs": {"cuda_graph": True},
        "graphs_guidance_off": {"cuda_graph": True, "guidance": False},
        "graphs_steps_8": {"cuda_graph": True, "steps": 8},
        "batch_2": {"batch": 2},
    },
    "flux-eager": {
        "batch_2": {"batch": 2},
        "steps_8": {"steps": 8},
        "graphs": {"cuda_graph": True},
        "graphs_steps_8": {"cuda_graph": True, "steps": 8},
    },
    "wan-eager": {"steps_8": {"steps": 8}, "guidance_off": {"guidance": False}},
}

SIZES = {  # by trace and stage: images of another size, while the host had another pace
    (name, stage): size
    for name in ("sd35-eager", "flux-eager")
    for stage, size in (("size_512", ImageSize(512, 512)), ("size_768", ImageSize(768, 768)))
}
_ROUNDS = 11  # of bisection, to half a thousandth of the run


def by_events(stage: Mapping[str, Any]) -> dict[str, float]:
    """ms of each submodule in the middle repetition of a stage of `truth.json`."""
    found: dict[str, float] = {}
    for submodule, begin, end in stage["calls"]:
        found[submodule] = found.get(submodule, 0.0) + end - begin
    return found


def predicted_size(run: Run, analysis: Analysis, size: ImageSize, encoders_ms: float) -> Prediction:
    """Images of that size by a host that is so fast that text encoders, which do not know the size
    and for which the device always waits, take as long as they did."""
    low, high = 0.0, predict(run, analysis, Scenario(size=size)).measured.ns
    found = None
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        try:
            found = predict(run, analysis, Scenario(size=size, untraced_ns=round(middle)))
        except InputError:  # no host is that fast
            low = middle
            continue
        if of_encoders(found) > encoders_ms:
            high = middle
        else:
            low = middle
    assert found is not None
    return found


def of_encoders(prediction: Prediction) -> float:
    """ms that text encoders take."""
    parts = prediction.submodules
    return sum(part.after_ns for part in parts if part.name.startswith("text")) / 1e6
