"""What calls take with another batch: half of it, as a batched denoiser call has for the prompt
alone, or several times as much.

Where the submodule also ran for the prompt alone (guidance in some of the steps), that was
measured. Else each operator's work is halved where its tensors are of the batch: what is read of
weights stays. A tensor is of the batch where its first dim is the batch, or the batch times a dim
that others have behind it (tokens, heads: `[2·4096, 1536]` beside `[2, 4096, 1536]`). Where no
operators were traced half is taken, and all of it as the upper bound.

What guidance cost (`guidance.py`) and what a request would take without it (`prediction`) both
go by this.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.roofline.call_costs import (
    CallCosts,
    KindCost,
    Ratio,
    Scaled,
    call_costs,
)
from profiler.analysis.roofline.device_profile import DeviceProfile
from profiler.analysis.work.shapes import Tensor

__all__ = ["BATCHED", "HalfBatch", "half_batch", "times_batch"]

BATCHED = "batched"
_DIMS = re.compile(r"\[(\d+)")
_ENOUGH = 3  # steady calls of either kind that tell what half a batch takes
_SAME = Scaled(1.0, 1.0)
_GUESS = Ratio(0.5, 0.5, 1.0, known=0.0)


class HalfBatch(Struct, frozen=True):
    """What half of a batch takes over the whole: `wall` of a call's time, `busy` of its device
    time. `measured` is the number of calls for the prompt alone that tell, 0 where none do; then it
    is estimated from operators (`from_operators`), else a guess."""

    wall: Ratio
    busy: Ratio
    measured: int = 0
    from_operators: bool = False


def half_batch(
    inputs: pl.DataFrame,
    calls: pl.DataFrame,
    kinds: pl.DataFrame,
    profiles: Mapping[str, DeviceProfile],
    submodule: str,
    overhead_ratio: float,
) -> HalfBatch:
    """Half of the batched calls of `submodule`.

    `inputs` are calls with the shapes of their inputs, `calls` is the call table, `kinds` the table
    of the kinds of its commands, `profiles` are those of devices by name; `overhead_ratio` is the
    submodule's untraced over traced time, 1 to take times as recorded.
    """
    steady = calls.filter((pl.col("submodule") == submodule) & ~pl.col("first"))
    batched, single = (steady.filter(pl.col("branch") == name) for name in (BATCHED, "cond"))
    if min(len(batched), len(single)) >= _ENOUGH:
        factor = pl.when("ops_traced").then(overhead_ratio).otherwise(1.0)
        wall = _measured(batched, single, pl.col("elapsed_ns") * factor)
        busy = _measured(batched, single, pl.col("busy_ns")) or wall
        if wall is not None and busy is not None:
            return HalfBatch(wall, busy, measured=len(single))
    costs = call_costs(calls, kinds, profiles, submodule)
    if costs is None:
        return HalfBatch(_GUESS, _GUESS)
    rows = inputs.filter(
        (pl.col("submodule").cast(pl.String) == submodule)
        & (pl.col("branch").cast(pl.String) == BATCHED)
    )
    batch = _batch_size(rows)
    scale = _scaling(costs, batch, 0.5)
    wall, busy = _halved(costs, scale, overhead_ratio), _halved(costs.on_device, scale, 1.0)
    return HalfBatch(wall, busy, from_operators=True)


def times_batch(costs: CallCosts, factor: float, overhead_ratio: float) -> tuple[Ratio, Ratio]:
    """What calls take of their time, and of their device time, with `factor` times the batch.

    The batch is the first dim that most of their tensors of three dims or more have. Data that fits
    in a cache may no longer: the upper bound has that where caches are not known.
    """
    counts: Counter[int] = Counter()
    for kind in costs.kinds:
        sizes = {t.dims[0] for t in kind.tensors if t.floating and len(t.dims) > 2}
        counts.update(dict.fromkeys(sizes, kind.commands))
    batch = max(counts, key=lambda size: (counts[size], -size), default=1)
    scale = _scaling(costs, batch, factor)
    wall, busy = costs.ratio(scale, overhead_ratio), costs.on_device.ratio(scale)
    if factor <= 1.0:
        return wall, busy
    return costs.beyond_caches(wall, grows=True), costs.beyond_caches(busy, grows=True)


def _measured(batched: pl.DataFrame, single: pl.DataFrame, time: pl.Expr) -> Ratio | None:
    """The median time of single calls over that of batched ones, None where these took none."""
    alone, both = (float(calls.select(time.median()).item() or 0) for calls in (single, batched))
    if both <= 0:
        return None
    value = min(alone / both, 1.0)
    return Ratio(value, value, value)


def _batch_size(calls: pl.DataFrame) -> int:
    """The first dim that most inputs of the batched calls have, 2 where none is even."""
    counts: Counter[int] = Counter()
    for text in calls["input_shapes"].unique():
        counts.update(int(size) for size in _DIMS.findall(text) if len(size) < 9)
    even = {size: count for size, count in counts.items() if size and size % 2 == 0}
    return max(even, key=lambda size: (even[size], -size), default=2)


def _scaling(costs: CallCosts, batch: int, factor: float) -> Callable[[KindCost], Scaled]:
    """How the work of each of the kinds changes with `factor` times the batch; each is looked at
    once."""
    changed = Scaled(factor, factor, least=min(factor, 1.0), most=max(factor, 1.0))
    unknown = replace(changed, known=False)
    dims = {
        tensor.dims[1]
        for kind in costs.kinds
        for tensor in kind.tensors
        if len(tensor.dims) > 2 and tensor.dims[0] == batch
    }

    def scale(kind: KindCost) -> Scaled:
        if kind.work is None:
            tensors = kind.tensors
            of_batch = any(_of_batch(t, batch, dims) for t in tensors)
            return unknown if of_batch or not tensors else _SAME
        parts = [(t.nbytes or 0, _of_batch(t, batch, dims)) for t in kind.tensors]
        if not any(of_batch for _, of_batch in parts):
            return _SAME
        whole = sum(nbytes for nbytes, _ in parts)
        then = sum(nbytes * (factor if of_batch else 1) for nbytes, of_batch in parts)
        return replace(changed, nbytes=then / whole) if whole else changed

    known = {id(kind): scale(kind) for kind in costs.kinds}
    return lambda kind: known[id(kind)]


def _halved(costs: CallCosts, scale: Callable[[KindCost], Scaled], overhead_ratio: float) -> Ratio:
    ratio = costs.ratio(scale, overhead_ratio, outside=0.5)
    return costs.beyond_caches(ratio, grows=False)


def _of_batch(tensor: Tensor, batch: int, dims: set[int]) -> bool:
    if not tensor.dims or not tensor.floating:
        return False
    first = tensor.dims[0]
    if first == batch:
        return True
    return first % batch == 0 and first // batch in dims
