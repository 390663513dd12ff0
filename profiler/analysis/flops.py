"""FLOPs and bytes of each command: by formula, by kernel name, or as recorded.

    work_of("aten::mm", parse_shapes("in: bfloat16[2,2048] bfloat16[2048,2432]")).flops

Work that no formula knows is unknown and counted as such, never as zero.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from operator import mul

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.commands import Kinds
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
# Formulas are registered by operation type in the modules of this package; what none knows is
# unknown and counted, never zero.


def work_of(op_type: str | None, shapes: Shapes | None) -> Work | None:
    """The work of an operation; None if no formula is registered or its shapes do not fit."""
    found = formula_of(op_type) if op_type else None
    if found is None or op_type is None:
        return None
    op = (
        Operation(op_type, shapes.inputs, shapes.outputs, shapes.causal, shapes.over)
        if shapes
        else Operation(op_type, (), None)
    )
    try:
        work = found(op)
    except (DoesNotFit, IndexError, ZeroDivisionError):
        return None
    return replace(work, part=shapes.part, parts=shapes.parts) if shapes else work


# --- What an operation's sizes are, in the words of its family.


def product_sizes(shapes: Shapes, work: Work) -> tuple[int, int, int, int] | None:
    """Batch, M, K and N, from what it computes: 2·M·K·N operations for a result `[…,M,N]`."""
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
    """Heads and lengths, each of queries and of keys; None if the order of dims is not known."""
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
# sizes that a kernel goes over (`xnumel`, `r0_numel`), if the trace has them, tell the result: the
# last tensor of that size, else the first, updated in place; and no buffer within them is cut.


_CUTS = re.compile(
    r"_(slice|select|split|split_with_sizes|narrow|unbind|chunk|index|index_select|gather|embedding)"
    r"(?=_|$)"
)


@formula(prefixes=("triton_poi_", "triton_red_", "triton_per_"))
def triton(op: Operation) -> Work:
    """Of each pointer's tensor what passes through memory at least; the last is what is written,
    or the first, if it is updated in place. What is computed is not in the shapes: FLOPs are not
    known. Source of the order of pointers: torch's `torch/_inductor/codegen/triton.py`."""
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
        read = [
            _of_rows(tensor, written, op.inputs) if tensor.size > elements else tensor
            for tensor in read
        ]
    return Work(Family.KERNEL, written.dtype, None, tuple(read), (written,))


def _in_place(first: Tensor, last: Tensor) -> bool:
    """Whether a pointwise kernel's last pointer is too small to be its result, and is applied to
    the first, as a bias is."""
    return last.size < first.size and broadcast(first.dims, last.dims) == first.dims


def _of_result(tensor: Tensor, result: Tensor) -> Tensor:
    """What a thread for each element of the result reads of a buffer at most."""
    if tensor.size <= result.size:
        return tensor
    if len(tensor.dims) == len(result.dims):
        return tensor.like(*map(min, tensor.dims, result.dims))
    return tensor.like(result.size)


def _of_rows(tensor: Tensor, result: Tensor, every: tuple[Tensor, ...]) -> Tensor:
    """A buffer that is larger than all others, cut to the rows of the result; its last dim is the
    one that is reduced."""
    others = max((t.size for t in every if t.dims != tensor.dims), default=tensor.size)
    if tensor.size <= others:
        return tensor
    rows = tensor.dims[:-1]
    least = (min(pair) for pair in zip(rows, result.dims, strict=False))
    return tensor.like(*least, *rows[len(result.dims) :], tensor.dims[-1])


# --- The work of every kind of command of a run: by formula, else as its producer recorded it.


WORK = pl.Schema(
    {
        "kind": pl.Int32(),
        "family": pl.String(),
        "dtype": pl.String(),
        "flops": pl.Int64(),
        "bytes_read": pl.Int64(),
        "bytes_written": pl.Int64(),
    }
)
"""The columns of `KindWork.table`: sums over all commands of a kind, null if not known."""

_RECORDED = ("flops", "bytes_read", "bytes_written")
# The shapes of these are those of the operator that asked for them.
_MOVES = ("dma", "copy", "collective")
UNRATED = ("host", "sync", "dma", "collective")
"""Categories of commands that no roofline of a device bounds: links have their own."""
_LARGEST = (1 << 63) - 1


class KindWork(Struct, frozen=True, eq=False):
    """The work of k kinds: `table` has the columns of `WORK`, one row a kind; `works` what the
    formula of one command gave, None if there is none or its shapes do not fit."""

    table: pl.DataFrame
    works: list[Work | None]


def kind_work(kinds: Kinds, commands: pl.DataFrame) -> KindWork:
    """What the kinds of `commands` compute and move.

    FLOPs that the producer recorded for every command of a kind stand before those of a formula;
    bytes only if no formula knows them (ONNX Runtime's leave out packed weights), and for
    transfers.
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
    """What one command of each kind computes, reads and writes by formula, Int64 by `flops`,
    `bytes_read` and `bytes_written`: of an operator that launched several, its share."""
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
    """What `commands` commands of a kind have of what `work` has of all its parts."""
    value: int | None = getattr(work, name) if work else None
    if work is None or value is None:
        return None
    total = value * commands // work.parts
    return total if total <= _LARGEST else None


def _recorded(kinds: Kinds, commands: pl.DataFrame) -> pl.DataFrame:
    """The sums, one row a kind, of what was recorded for each of its commands; null for host work
    and if it was not."""
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
