"""What memory submodules hold, as far as a run tells: weights, activations, and what they keep."""

from __future__ import annotations

import polars as pl

from profiler.analysis.memory.weights import submodule_weights
from profiler.analysis.result import Analysis
from profiler.run.run import Run

__all__ = ["activations_of", "kept_of", "weights_of"]


def weights_of(run: Run, analysis: Analysis) -> dict[str, int]:
    """Bytes by submodule: what the run says, also where no use of memory was recorded."""
    said = submodule_weights(run.info.submodules)
    known = {name: size for name, size in said.items() if size is not None}
    return {**known, **_known(analysis.memory, "weight_bytes")}


def activations_of(analysis: Analysis) -> dict[str, int]:
    """The most bytes beside its weights that a call of a submodule held."""
    return _known(analysis.memory, "activation_bytes")


def kept_of(analysis: Analysis) -> dict[str, int]:
    """Bytes beside its weights that a submodule held while another ran, at the device's peak: an
    arena (ONNX Runtime's, one a session) keeps what a call needed for the next one."""
    running = analysis.memory_devices.select("device", running="submodule")
    held = analysis.memory.join(running, on="device", how="left")
    others = held.filter(pl.col("submodule").ne_missing(pl.col("running")))
    kept = pl.col("held_bytes") - pl.col("weight_bytes").fill_null(0)
    found = _known(others.with_columns(kept=kept), "kept")
    return {name: size for name, size in found.items() if size > 0}


def _known(memory: pl.DataFrame, column: str) -> dict[str, int]:
    """The most of a column of the memory table by submodule."""
    known = memory.drop_nulls(["submodule", column])
    return dict(known.group_by("submodule").agg(pl.col(column).max()).sort("submodule").iter_rows())
