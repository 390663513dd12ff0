"""Device kernels that are known by their own name, not by an operator's.

A Triton kernel that torch.compile wrote (`triton_poi_…` pointwise, `triton_red_…` and
`triton_per_…` reductions) takes as pointers what it updates in place, reads and writes, in that
order, and names the operators in it. Source: torch's `torch/_inductor/codegen/triton.py`
(`in_out_ptr`, `in_ptr`, `out_ptr`).

A pointer's tensor is the whole buffer, and a view of it may have been cut: the count is what must
be moved at least. A pointwise kernel has one element of the result a thread, so of a buffer with
more elements it counts as many as the result has. A reduction reads more than it writes; a buffer
that its result does not cover is cut to the result's rows where the name says that it cuts.
"""

from __future__ import annotations

import re

from profiler.analysis.work.registry import DoesNotFit, Family, Operation, Work, formula
from profiler.analysis.work.shapes import Tensor, broadcast

__all__ = ["triton"]

_CUTS = re.compile(
    r"_(slice|select|split|split_with_sizes|narrow|unbind|chunk|index|index_select|gather|embedding)"
    r"(?=_|$)"
)


@formula(prefixes=("triton_poi_", "triton_red_", "triton_per_"))
def triton(op: Operation) -> Work:
    """Of each pointer's tensor what passes through memory at least; the last is what is written,
    or the first, if it is updated in place. What is computed is not in the shapes: FLOPs are not
    known."""
    if not op.inputs:
        raise DoesNotFit
    pointwise = op.op_type.startswith("triton_poi_")
    cuts = _CUTS.search(op.op_type) is not None
    *read, written = op.inputs
    if not read or (pointwise and not cuts and _in_place(read[0], written)):
        read, written = list(op.inputs), op.inputs[0]
    if pointwise:
        read = [_of_result(tensor, written) for tensor in read]
    elif cuts:
        read = [_of_rows(tensor, written, op.inputs) for tensor in read]
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
