"""Half of a batch: what a batched denoiser call would take for the prompt alone.

Where the submodule also ran for the prompt alone (guidance in some of the steps), that was
measured. Else each operator's work is halved where its tensors are of the batch: what is read of
weights stays. A tensor is of the batch where its first dim is the batch, or the batch times a dim
that others have behind it (tokens, heads: `[2·4096, 1536]` beside `[2, 4096, 1536]`).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

import polars as pl

from profiler.analysis.prediction.call_costs import CallCosts, KindCost, Ratio, Scaled, call_costs
from profiler.analysis.result import Analysis
from profiler.analysis.work.shapes import Tensor
from profiler.table.run import Run

__all__ = ["HalfBatch", "half_batch"]

_DIMS = re.compile(r"\[(\d+)")
_ENOUGH = 3  # calls of either kind that tell what half a batch takes
_CHANGED = Scaled(0.5, 0.5)
_SAME = Scaled(1.0, 1.0)
_UNKNOWN = Scaled(0.5, 0.5, known=False)


@dataclass(frozen=True, slots=True)
class HalfBatch:
    """What half of a batch takes over the whole, and how that is known: `measured` against calls
    for the prompt alone, else from operators; `ratio` is None where neither is there."""

    ratio: Ratio | None
    measured: bool


def half_batch(run: Run, analysis: Analysis, submodule: str, calibration: float) -> HalfBatch:
    """Half of the batched calls of `submodule`; `calibration` is its untraced over traced time."""
    calls = analysis.calls.filter(pl.col("submodule") == submodule)
    steady = calls.filter(~pl.col("first"))
    batched, single = (steady.filter(pl.col("branch") == name) for name in ("batched", "cond"))
    if min(len(batched), len(single)) >= _ENOUGH:
        medians = (float(some["duration_ns"].median() or 0) for some in (single, batched))  # type: ignore[arg-type]
        alone, both = medians
        if both > 0:
            value = min(alone / both, 1.0)
            return HalfBatch(Ratio(value, value, value), measured=True)
    costs = call_costs(analysis, submodule)
    if costs is None:
        return HalfBatch(None, measured=False)
    rows = run.calls.filter(
        (pl.col("submodule").cast(pl.String) == submodule)
        & (pl.col("branch").cast(pl.String) == "batched")
    )
    return HalfBatch(_halved(costs, _batch_size(rows), calibration), measured=False)


def _batch_size(calls: pl.DataFrame) -> int:
    """The first dim that most inputs of the batched calls have, 2 where none is even."""
    counts: Counter[int] = Counter()
    for text in calls["input_shapes"].unique():
        counts.update(int(size) for size in _DIMS.findall(text) if len(size) < 9)
    even = {size: count for size, count in counts.items() if size and size % 2 == 0}
    return max(even, key=lambda size: (even[size], -size), default=2)


def _halved(costs: CallCosts, batch: int, calibration: float) -> Ratio:
    dims = {
        tensor.dims[1]
        for kind in costs.kinds
        for tensor in kind.tensors
        if len(tensor.dims) > 2 and tensor.dims[0] == batch
    }

    def scale(kind: KindCost) -> Scaled:
        if kind.work is None:
            known = kind.tensors
            of_batch = any(_of_batch(t, batch, dims) for t in known)
            return _UNKNOWN if of_batch or not known else _SAME
        if not any(_of_batch(t, batch, dims) for t in kind.tensors):
            return _SAME
        whole = sum(t.nbytes or 0 for t in kind.tensors)
        half = sum((t.nbytes or 0) / (2 if _of_batch(t, batch, dims) else 1) for t in kind.tensors)
        return replace(_CHANGED, nbytes=half / whole) if whole else _CHANGED

    return costs.ratio(scale, calibration, outside=0.5)


def _of_batch(tensor: Tensor, batch: int, dims: set[int]) -> bool:
    if not tensor.dims or not tensor.floating:
        return False
    first = tensor.dims[0]
    if first == batch:
        return True
    return first % batch == 0 and first // batch in dims
