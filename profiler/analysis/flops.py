"""FLOPs and bytes of each command: by formula, by kernel name, or as recorded.

    work_of("aten::mm", parse_shapes("in: bfloat16[2,2048] bfloat16[2048,2432]")).flops

Work that no formula knows is unknown and counted as such, never as zero. `CallCosts` tell what
calls would take with other work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import prod
from operator import mul
from typing import NamedTuple

import polars as pl
from msgspec import Struct
from msgspec.structs import replace
from msgspec.structs import replace as replace_struct

from profiler.analysis.commands import Kinds
from profiler.analysis.device_profiles import DeviceProfile
from profiler.analysis.flop_formulas import heads_first, sequence_first  # registers its formulas
from profiler.analysis.flop_shapes import (
    DoesNotFit,
    Family,
    Operation,
    Shapes,
    Tensor,
    Work,
    broadcast,
    formula,
    formula_of,
    parse_shapes,
)

# --- How much work: FLOPs and bytes of an operation, from op type, shapes and types.
#
# Formulas are registered by operation type in the modules of this package; work without one is
# unknown and counted as such, never as zero.


def work_of(op_type: str | None, shapes: Shapes | None) -> Work | None:
    """The work of an operation; None if no formula is registered or its shapes do not fit."""
    found = formula_of(op_type) if op_type else None
    if found is None or op_type is None:
        return None
    given = shapes or Shapes((), None)
    try:
        work = found(Operation(op_type, given.inputs, given.outputs, given.causal, given.over))
    except (DoesNotFit, IndexError, ZeroDivisionError):
        return None
    return replace(work, part=given.part, parts=given.parts)


# --- Sizes of an operation, as its family names them.


def product_sizes(shapes: Shapes, work: Work) -> tuple[int, int, int, int] | None:
    """Batch, M, K and N of a product from its work: 2·M·K·N operations for a result `[…,M,N]`."""
    out = work.writes[0] if work.writes else None
    if out is None or not out.size or not work.flops:
        return None
    columns = out.dims[-1] if out.dims else 1
    rows = out.size // max(columns, 1)
    batched = sum(len(tensor.dims) > 2 for tensor in shapes.inputs[-2:]) > 1
    batch = rows // out.dims[-2] if batched and len(out.dims) > 2 and out.dims[-2] else 1
    return batch, rows // batch, work.flops // (2 * out.size), columns


def tiled_sizes(op_type: str, shapes: Shapes, work: Work) -> tuple[int, ...]:
    """The sizes that a kernel cuts into tiles: M, K and N of a product, lengths and width of
    attention, channels of a convolution; empty if they are not known."""
    if work.family is Family.MATMUL:
        return (product_sizes(shapes, work) or (1,))[1:]
    if work.family is Family.CONVOLUTION:
        return shapes.inputs[1].dims[:2]
    found = heads_and_lengths(op_type, shapes) if work.family is Family.ATTENTION else None
    return (*found[1], shapes.inputs[0].dims[3]) if found else ()


def heads_and_lengths(
    op_type: str, shapes: Shapes
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Heads and lengths of attention, each of queries and of keys; None if the order of dims is not
    known."""
    found = formula_of(op_type)
    if found not in (heads_first, sequence_first) or len(shapes.inputs) < 2:
        return None
    q, k = shapes.inputs[:2]
    if len(q.dims) != 4 or len(k.dims) != 4:
        return None
    second, third = (q.dims[1], k.dims[1]), (q.dims[2], k.dims[2])
    return (third, second) if found is sequence_first else (second, third)


# --- Device kernels that are known by their own name, not by an operator's.
#
# A Triton kernel that torch.compile wrote (`triton_poi_…` pointwise, `triton_red_…` and
# `triton_per_…` reductions) takes as pointers what it updates in place, reads and writes, in that
# order, and names the operators in it. Source: torch's `torch/_inductor/codegen/triton.py`
# (`in_out_ptr`, `in_ptr`, `out_ptr`).
#
# A pointer's tensor is the whole buffer, and a view of it may have been cut: the count is what must
# be moved at least. A pointwise kernel has one element of the result a thread, so of a buffer with
# more elements it counts as many as the result has. A reduction reads more than it writes; a buffer
# that its result does not cover is cut to the result's rows where the name says that it cuts. The
# sizes that a kernel goes over (`xnumel`, `r0_numel`), if the trace has them, determine the result:
# the last tensor of that size, else the first, updated in place; and no buffer within them is cut.


_CUTS = re.compile(
    r"_(slice|select|split|split_with_sizes|narrow|unbind|chunk|index|index_select|gather|embedding)"
    r"(?=_|$)"
)


@formula(prefixes=("triton_poi_", "triton_red_", "triton_per_"))
def triton(op: Operation) -> Work:
    """The least that passes through memory of each pointer's tensor. The last one is written, or
    the first if it is updated in place. FLOPs are unknown. Source of the order of pointers: torch's
    `torch/_inductor/codegen/triton.py`."""
    if not op.inputs:
        raise DoesNotFit
    pointwise = op.op_type.startswith("triton_poi_")
    cuts = _CUTS.search(op.op_type) is not None
    first, *_, last = op.inputs if len(op.inputs) > 1 else op.inputs * 2
    elements = prod(op.over)
    results = (elements,) if pointwise else (elements, *accumulate(op.over, mul))
    if last.size in results or first.size in results:
        in_place = last.size not in results
    else:
        in_place, elements = pointwise and not cuts and _in_place(first, last), 0
    written, read = last, list(op.inputs[:-1])
    if in_place or not read:
        written, read = first, list(op.inputs)
    if pointwise:
        read = [_of_result(tensor, written) for tensor in read]
    elif cuts:
        read = [_of_rows(t, written, op.inputs) if t.size > elements else t for t in read]
    return Work(Family.KERNEL, written.dtype, None, tuple(read), (written,))


def _in_place(first: Tensor, last: Tensor) -> bool:
    """Whether a pointwise kernel's last pointer is too small to be its result, and is applied to
    the first, as a bias is."""
    return last.size < first.size and broadcast(first.dims, last.dims) == first.dims


def _of_result(tensor: Tensor, result: Tensor) -> Tensor:
    """Return the most of a buffer that is read by one thread per element of the result."""
    if tensor.size <= result.size:
        return tensor
    if len(tensor.dims) == len(result.dims):
        return tensor.like(*map(min, tensor.dims, result.dims))
    return tensor.like(result.size)


def _of_rows(tensor: Tensor, result: Tensor, every: tuple[Tensor, ...]) -> Tensor:
    """Return `tensor` cut to the rows of the result if it is larger than all others; its last dim
    is the one that is reduced."""
    others = max((t.size for t in every if t.dims != tensor.dims), default=tensor.size)
    if tensor.size <= others:
        return tensor
    rows = tensor.dims[:-1]
    least = (min(pair) for pair in zip(rows, result.dims, strict=False))
    return tensor.like(*least, *rows[len(result.dims) :], tensor.dims[-1])


# --- The work of every kind of command of a run: by formula, else as its producer recorded it.


WORK: Mapping[str, pl.DataType] = {
    "kind": pl.Int32(),
    "family": pl.String(),
    "dtype": pl.String(),
    "flops": pl.Int64(),
    "bytes_read": pl.Int64(),
    "bytes_written": pl.Int64(),
}
"""The columns of `KindWork.table`: sums over all commands of a kind, null if not known."""

_RECORDED = ("flops", "bytes_read", "bytes_written")
# Their shapes are those of the operator that requested them.
_MOVES = ("dma", "copy", "collective")
UNRATED = ("host", "sync", "dma", "collective")
"""Categories of commands that a device's roofline does not bound: links have their own."""
_LARGEST = (1 << 63) - 1


class KindWork(Struct, frozen=True, eq=False):
    """The work of k kinds: `table` has the columns of `WORK`, one row per kind; `works` is the
    formula's result for one command, None if there is none or its shapes do not fit."""

    table: pl.DataFrame
    works: list[Work | None]


def kind_work(kinds: Kinds, commands: pl.DataFrame) -> KindWork:
    """Return what the kinds of `commands` compute and move.

    FLOPs that the producer recorded for every command of a kind take precedence over a formula;
    recorded bytes do only for transfers and without a formula (ONNX Runtime's leave out packed
    weights).
    """
    known: dict[tuple[str | None, str | None], Work | None] = {}
    works: list[Work | None] = []
    rows = kinds.table.select("op_type", "shapes", "category").iter_rows()
    for op_type, shapes, category in rows:
        key = (op_type, shapes)
        if key not in known:
            known[key] = work_of(op_type, parse_shapes(shapes))
        works.append(None if category in ("host", "sync", *_MOVES) else known[key])
    counts = kinds.table["commands"].to_list()
    computed = {
        name: [_sum_of(work, name, count) for work, count in zip(works, counts, strict=True)]
        for name in _RECORDED
    }
    table = pl.DataFrame(
        {
            "kind": kinds.table["kind"],
            "family": [work.family.value if work else None for work in works],
            "dtype": [work.dtype if work else None for work in works],
            **computed,
        },
        schema=WORK,
    )
    recorded = _recorded(kinds, commands)
    return KindWork(
        table.with_columns(
            flops=recorded["flops"].zip_with(recorded["flops"].is_not_null(), table["flops"]),
            bytes_read=pl.coalesce("bytes_read", recorded["bytes_read"]),
            bytes_written=pl.coalesce("bytes_written", recorded["bytes_written"]),
        ),
        works,
    )


def work_of_commands(works: Sequence[Work | None]) -> dict[str, pl.Series]:
    """Return what one command of each kind computes, reads and writes by formula, Int64 by `flops`,
    `bytes_read` and `bytes_written`. If an operator launched several commands, each has a share."""
    found = {}
    for name in _RECORDED:
        values = [getattr(work, name) if work else None for work in works]
        each = [
            None if value is None or work is None else min(value // work.parts, _LARGEST)
            for value, work in zip(values, works, strict=True)
        ]
        found[name] = pl.Series(name, each, dtype=pl.Int64)
    return found


def _sum_of(work: Work | None, name: str, commands: int) -> int | None:
    """Return the sum of `name` over `commands` commands of a kind; the parts of `work` share its
    value."""
    value: int | None = getattr(work, name) if work else None
    if work is None or value is None:
        return None
    total = value * commands // work.parts
    return total if total <= _LARGEST else None


def _recorded(kinds: Kinds, commands: pl.DataFrame) -> pl.DataFrame:
    """The sums of recorded work, one row per kind; null for host work, and if it was not recorded
    for each command."""
    given = [name for name in _RECORDED if commands[name].null_count() < len(commands)]
    sums = (pl.col(name).cast(pl.Float64).sum() for name in given)  # exact to 2^53
    whole = (pl.when(pl.col(one.meta.output_name()).null_count() == 0).then(one) for one in sums)
    found = (
        commands.lazy()
        .select(*given, kind=pl.Series(kinds.of_command, dtype=pl.Int32))
        .group_by("kind")
        .agg(whole)
        .with_columns(
            pl.when(pl.col(name) >= _LARGEST)
            .then(pl.lit(_LARGEST))
            .otherwise(pl.col(name).clip(0).cast(pl.Int64, strict=False))
            .alias(name)
            for name in given
        )
    )
    table = kinds.table.lazy().select("kind", "category")
    device = pl.col("category") != "host"
    return (
        table.join(found, on="kind", how="left", maintain_order="left")
        .select(
            pl.when(device).then(name).alias(name)
            if name in given
            else pl.lit(None, pl.Int64).alias(name)
            for name in _RECORDED
        )
        .collect()
    )


# --- What the calls of a submodule would take if their operators had other work: half the batch,
# another type.
#
# The time of a command is taken as a fixed part and the rest: `t = f + (t - f)`. The fixed part, of
# every command of the submodule, is what its shortest ones take (the mean of those kinds that make
# the first 5 % of its commands). The rest goes with the roofline of its work, `max(FLOPs / peak,
# bytes / bandwidth)`, by the device's profile, else by the best rates that the submodule's own
# operators reached. Time of a call in which no command ran (between commands: launches, the host)
# stays.
#
# Bounds of less work are what remains when nothing is fixed and the rest goes with the smaller of
# FLOPs and bytes, and when it goes with the larger and what is not known stays.
#
# More work takes at least what it takes at its roofline, and no less than before. Nor can commands
# fill a device much better than they did: if a little more than one wave of blocks took two, N
# times as many take N + 1, so of what they took, but for 20 us each to start and end, at least (1 +
# N) / 2 times as much remains. It takes at most what it takes when nothing is fixed and all goes
# with the larger of FLOPs and bytes, and `_SLOWER` of that: of FLUX two images at once took the
# clock of an H200 down by 5 % (docs/gpu-evidence.md).
#
# A processor whose caches are not known may work on less data in one that all of it did not fit in:
# then `_IN_CACHE` of a bound is taken. The denoiser of the embedded SD3 took 0.38 to 0.45 of its
# time for half the batch on one core, its Softmax and attention matmuls 0.42
# (`benchmarks/prediction_intervals.py`, guidance off).


_SHORTEST = 0.05  # of the commands
_IN_CACHE = 0.7
_BEGINS_NS = 20_000.0  # of a command: so much may be its start and end, whatever its size
_SLOWER = 1.1


class Ratio(Struct, frozen=True):
    """New time over old, with its bounds; `known` is the share of the time whose work is known."""

    value: float
    low: float
    high: float
    known: float = 1.0

    @property
    def spread(self) -> tuple[float, float]:
        """The bounds relative to the value."""
        return (self.low / self.value, self.high / self.value) if self.value > 0 else (1.0, 1.0)


class KindCost(Struct, frozen=True):
    """The commands of one kind: their number, their time, the work of one of them."""

    commands: int
    total_ns: float
    work: Work | None
    shapes: Shapes | None
    op_type: str | None = None

    @property
    def flops(self) -> float:
        """FLOPs of one command, 0 if there are none or they are not known."""
        return (self.work.flops or 0) / self.work.parts if self.work else 0.0

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What one command reads and writes, as far as it is known."""
        if self.work is not None:
            return (*self.work.reads, *(self.work.writes or ()))
        return (*self.shapes.inputs, *(self.shapes.outputs or ())) if self.shapes else ()

    @property
    def nbytes(self) -> float:
        """Bytes of one command's tensors, 0 if they are not known."""
        if self.work is None:
            return 0.0
        read = self.work.bytes_read or 0
        return (read + (self.work.bytes_written or 0)) / self.work.parts


class Scaled(Struct, frozen=True):
    """FLOPs (or rather the time for them) and bytes of a kind over what they were; None if its
    work is not known to change like that. `least` and `most` are the smallest and the largest that
    either may become. `alike`: by kernels like those that ran; those of another type are not."""

    flops: float
    nbytes: float
    known: bool = True
    least: float = 0.5
    most: float = 1.0
    alike: bool = True


class CallCosts(Struct, frozen=True):
    """The traced calls of a submodule: `duration_ns` in all of them, `before_after_ns` of it in
    none of the commands of `kinds`."""

    kinds: tuple[KindCost, ...]
    duration_ns: float
    before_after_ns: float
    profile: DeviceProfile | None

    @property
    def on_device(self) -> CallCosts:
        """Without the time in which no command ran."""
        return replace_struct(
            self, duration_ns=self.duration_ns - self.before_after_ns, before_after_ns=0.0
        )

    @property
    def fixed_ns(self) -> float:
        """The fixed part of a command's time."""
        ordered = sorted((k.total_ns / k.commands, k.commands) for k in self.kinds if k.commands)
        wanted = _SHORTEST * sum(count for _, count in ordered)
        time = number = 0.0
        for each, count in ordered:
            time += each * count
            number += count
            if number >= wanted:
                break
        return time / number if number else 0.0

    def ratio(
        self, scale: Callable[[KindCost], Scaled], overhead_ratio: float = 1.0, outside: float = 1.0
    ) -> Ratio:
        """Time over time before, if each kind's work changes as `scale` says.

        `overhead_ratio` is untraced over traced time: what tracing costs is in the fixed parts.
        `outside` is the least that the time outside of commands may become.
        """
        fixed, bandwidth, peak = self.fixed_ns, self._bandwidth(), self._peak_time()
        scales = [scale(kind) for kind in self.kinds]
        then = [
            _then(kind, scaled, fixed, kind.flops * peak(kind), kind.nbytes * bandwidth)
            for kind, scaled in zip(self.kinds, scales, strict=True)
        ]
        fixed_total = self.before_after_ns + sum(one.stays for one in then)
        tracing = min(max(1.0 - overhead_ratio, 0.0) * self.duration_ns, 0.9 * fixed_total)
        total = max(self.duration_ns - tracing, 1.0)
        new = self.before_after_ns + sum(one.value for one in then)
        low = self.before_after_ns * outside + sum(one.low for one in then)
        high = self.before_after_ns + sum(one.high for one in then)
        value, least, largest = ((time - tracing) / total for time in (new, low, high))
        value = max(value, 0.0)
        pairs = zip(self.kinds, scales, strict=True)
        known = sum(kind.total_ns for kind, scaled in pairs if scaled.known)
        busy = sum(kind.total_ns for kind in self.kinds)
        return Ratio(
            value=value,
            low=min(max(least, 0.0), value),
            high=max(largest, value),
            known=known / busy if busy else 0.0,
        )

    def beyond_caches(self, ratio: Ratio, *, grows: bool) -> Ratio:
        """`ratio` with the bound at which data no longer fits in a cache, or does at last, if
        the processor's caches are not known."""
        if self.profile is not None:
            return ratio
        if grows:
            return replace_struct(ratio, high=ratio.high / _IN_CACHE)
        return replace_struct(ratio, low=ratio.low * _IN_CACHE)

    def _bandwidth(self) -> float:
        """ns for a byte."""
        if self.profile is not None and self.profile.memory_bandwidth:
            return 1e9 / self.profile.memory_bandwidth
        return _fastest((k.total_ns / k.commands, k.nbytes) for k in self.kinds if k.commands)

    def _peak_time(self) -> Callable[[KindCost], float]:
        """ns for a FLOP of a kind."""
        own = _fastest((k.total_ns / k.commands, k.flops) for k in self.kinds if k.commands)

        def of(kind: KindCost) -> float:
            peak = self.profile.peak(kind.work.dtype) if self.profile and kind.work else None
            return 1e9 / peak if peak else own

        return of


class _Then(NamedTuple):
    """What the commands of a kind take with other work, in ns, its bounds, and what of it is their
    fixed part."""

    value: float
    low: float
    high: float
    stays: float


def _then(
    kind: KindCost, scaled: Scaled, fixed_ns: float, compute_ns: float, memory_ns: float
) -> _Then:
    """A command's fixed part takes `fixed_ns`, its FLOPs and its bytes `compute_ns` and `memory_ns`
    at their roofline."""
    stays = min(fixed_ns * kind.commands, kind.total_ns)
    before = max(compute_ns, memory_ns)
    after = max(compute_ns * scaled.flops, memory_ns * scaled.nbytes)
    comparable = scaled.known and before > 0
    factor = after / before if comparable else (scaled.flops + scaled.nbytes) / 2
    low, high = _bounds(kind, scaled, stays, kind.commands * after)
    return _Then(stays + (kind.total_ns - stays) * factor, low, high, stays)


def _bounds(kind: KindCost, scaled: Scaled, stays: float, reached: float) -> tuple[float, float]:
    """The least and the most that the commands of a kind take in ns; `stays` is their fixed part,
    `reached` what they take at their roofline."""
    took, both = kind.total_ns, (scaled.flops, scaled.nbytes)
    if max(both) <= 1.0:
        low = took * (min(both) if scaled.known else min(scaled.least, *both))
        return low, stays + (took - stays) * (max(both) if scaled.known else scaled.most)
    if not scaled.known:
        return took, took * scaled.most * _SLOWER
    fewest = stays + (took - stays) * min(both)
    if not scaled.alike:
        return max(took, min(fewest, reached)), took * max(both)
    begins = min(kind.commands * _BEGINS_NS, took)
    fuller = begins + (took - begins) * (1 + min(both)) / 2
    low = max(took, min(fewest, max(reached, fuller)))
    return low, took * max(both) * _SLOWER


def _fastest(pairs: Iterable[tuple[float, float]]) -> float:
    """The least time for one of what is counted, 0 if nothing is."""
    return min((time / count for time, count in pairs if count > 0 and time > 0), default=0.0)


def call_costs(
    calls: pl.DataFrame, kinds: pl.DataFrame, profiles: Mapping[str, DeviceProfile], submodule: str
) -> CallCosts | None:
    """The costs of the traced calls of `submodule`, None if none was traced.

    `calls` is the call table, `kinds` the table of the kinds of its commands, `profiles` are those
    of devices by name.
    """
    calls = calls.filter((pl.col("submodule") == submodule) & pl.col("ops_traced"))
    chosen = kinds.filter(
        (pl.col("submodule") == submodule)
        & pl.col("category").cast(pl.String).is_in(("compute", "copy", "collective", "other"))
        & (pl.col("commands") > 0)
    )
    # A device that works through a queue is busy for longer than its calls take.
    total = float(calls.select(pl.max_horizontal("duration_ns", "busy_ns").sum()).item())
    union = float(calls["busy_ns"].sum())
    busy = float(chosen["total_ns"].sum())
    if chosen.is_empty() or total <= 0 or busy <= 0:
        return None
    squeezed = min(union / busy, 1.0)  # commands at the same time
    found = []
    rows = chosen.select("op_type", "shapes", "commands", "total_ns").iter_rows()
    for op_type, text, commands, time in rows:
        shapes = parse_shapes(text)
        found.append(KindCost(commands, time * squeezed, work_of(op_type, shapes), shapes, op_type))
    inside = min(busy * squeezed, total)
    devices = calls["device"].unique(maintain_order=True).to_list()
    profile = profiles.get(devices[0]) if devices else None
    return CallCosts(tuple(found), total, total - inside, profile)
