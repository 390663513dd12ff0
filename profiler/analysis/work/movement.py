"""Operations that compute nothing: they move data, or only say how to look at it.

Zero floating-point operations is what is known of all of them, not what is assumed. Source:
onnx.ai/onnx/operators; onnxruntime's CPU kernels, which reuse the input's buffer for Reshape,
Squeeze, Unsqueeze, Flatten and Identity; torch's list of view operations
(docs.pytorch.org/docs/stable/tensor_view.html).
"""

from __future__ import annotations

from profiler.analysis.work.registry import DoesNotFit, Family, Operation, Work, formula
from profiler.analysis.work.shapes import Tensor

__all__ = [
    "clone",
    "copy",
    "embedding",
    "filled",
    "gather",
    "index_of_unknown",
    "index_select",
    "joined",
    "made",
    "part",
    "resample",
    "store_cache",
    "unknown_result",
    "view",
    "whole",
]

_VIEWS = "Reshape Squeeze Unsqueeze Flatten Identity Shape Size Constant"
_ATEN_VIEWS = (
    "view transpose t permute unsqueeze squeeze slice select chunk split split_with_sizes unbind "
    "expand expand_as unflatten flatten alias detach lift_fresh as_strided narrow _unsafe_view "
    "view_as view_as_complex view_as_real real imag _reshape_alias movedim swapaxes dropout "
    "result_type empty empty_like empty_strided resize_ unfold numpy_T tensor_split is_nonzero "
    "item _local_scalar_dense"
)
_WHOLE = "Transpose Concat Pad DepthToSpace SpaceToDepth Tile ReorderInput ReorderOutput Compress"
_PART = "Slice Split Gather GatherND GatherElements Expand SplitToSequence EyeLike"
_FILLED = "full_like zeros_like ones_like rand_like randn_like fill zero"
_UNKNOWN_RESULT = (  # what they give follows from arguments that are not in the shapes
    "pad constant_pad_nd reflection_pad2d replication_pad2d repeat "
    "repeat_interleave tile nonzero roll flip upsample_nearest1d upsample_nearest2d "
    "upsample_nearest3d _upsample_nearest_exact2d _upsample_nearest_exact3d pixel_shuffle "
    "pixel_unshuffle to _to_copy contiguous reshape arange full zeros ones linspace scalar_tensor "
    "one_hot bincount unique"
)


def _aten(names: str) -> tuple[str, ...]:
    return tuple(f"aten::{name}" for name in names.split())


@formula(*_VIEWS.split(), *_aten(_ATEN_VIEWS))
def view(op: Operation) -> Work:
    """Another look at the same memory: nothing is moved. Dropout is one in inference."""
    dtype = op.inputs[0].dtype if op.inputs else ""
    return Work(Family.VIEW, dtype, 0, (), ())


@formula(*_WHOLE.split())
def whole(op: Operation) -> Work:
    """Every input is read, the outputs are written."""
    return Work(Family.MOVEMENT, op.input(0).dtype, 0, op.inputs, op.outputs)


@formula(*_PART.split())
def part(op: Operation) -> Work:
    """What is written was read, of the input no more than there is, and the indices; the rest of
    the input is not touched."""
    if op.outputs is None:
        raise DoesNotFit
    x = op.input(0)
    taken = x.like(min(sum(t.size for t in op.outputs), x.size))
    sizes = [t.nbytes for t in (taken, *op.inputs[1:])]
    read = sum(size for size in sizes if size is not None)
    known = None if None in sizes else read
    return Work(Family.MOVEMENT, x.dtype, 0, op.inputs, op.outputs, known)


@formula(
    "Upsample",
    "Resize",
    "GridSample",
    "aten::upsample_bilinear2d",
    "aten::upsample_bicubic2d",
    "aten::grid_sampler_2d",
    "aten::_upsample_bilinear2d_aa",
    "aten::upsample_trilinear3d",
)
def resample(op: Operation) -> Work:
    """Traffic alone: how values are interpolated is not in the shapes, nor then the FLOPs. Of
    torch's not even that: the size of the result is an argument."""
    return Work(Family.MOVEMENT, op.input(0).dtype, None, op.inputs, op.outputs)


@formula("aten::copy", "aten::_copy_from")
def copy(op: Operation) -> Work:
    """`dst.copy_(src)`: src, broadcast to dst, is read, dst written. Between types it is a
    conversion, which is elementwise."""
    target, source = op.input(0), op.input(1)
    family = Family.MOVEMENT if target.dtype == source.dtype else Family.ELEMENTWISE
    return Work(family, target.dtype, 0, (source,), (target,))


@formula("aten::cat", "aten::concat", "aten::concatenate", "aten::stack", "aten::_cat")
def joined(op: Operation) -> Work:
    """The tensors of a list, each read and written once. The result has as many elements as they
    have together; along which dim is not in the shapes. Source: torch.cat."""
    x = op.input(0)
    out = x.like(sum(t.size for t in op.inputs))
    return Work(Family.MOVEMENT, x.dtype, 0, op.inputs, (out,))


@formula("aten::clone")
def clone(op: Operation) -> Work:
    """The input, copied."""
    x = op.input(0)
    return Work(Family.MOVEMENT, x.dtype, 0, (x,), (x,))


@formula(*_aten(_FILLED))
def filled(op: Operation) -> Work:
    """A tensor of the input's shape is written, nothing is read."""
    x = op.input(0)
    return Work(Family.MOVEMENT, x.dtype, 0, (), (x,))


@formula("aten::embedding")
def embedding(op: Operation) -> Work:
    """One row of the table an index is read and written, of the table no more than there is.
    Source: torch.nn.functional.embedding."""
    table, index = op.input(0), op.input(1)
    out = table.like(*index.dims, *table.dims[1:])
    return Work(Family.MOVEMENT, table.dtype, 0, (_least(out, table), index), (out,))


@formula("aten::gather", "aten::take_along_dim")
def gather(op: Operation) -> Work:
    """One element of the input an index is read and written. An index of several dims is often a
    column that was expanded over the rows: of it a column is read at least."""
    x, index = op.input(0), op.input(1)
    out = Tensor(x.dtype, index.dims)
    column = index.like(*index.dims[:-1]) if len(index.dims) > 1 else index
    return Work(Family.MOVEMENT, x.dtype, 0, (_least(out, x), column), (out,))


@formula("aten::index_select")
def index_select(op: Operation) -> Work:
    """`x.index_select(dim, index)`: as many slices of x as there are indices, read and written.
    Which dim is not in the shapes: the one that gives the least."""
    x, index = op.input(0), op.input(1)
    if not x.dims or len(index.dims) > 1:
        raise DoesNotFit
    slices = [x.size // length * index.size for length in x.dims if length]
    out = x.like(min(slices, default=0))
    return Work(Family.MOVEMENT, x.dtype, 0, (_least(out, x), index), (out,))


@formula("aten::index")
def index_of_unknown(op: Operation) -> Work:
    """`x[i, j]`: the indices are a list, which torch's events do not tell: how much of x is read
    and written is not known."""
    x = op.input(0)
    return Work(Family.MOVEMENT, x.dtype, 0, op.inputs, op.outputs, partly=op.outputs is None)


@formula("sglang::store_cache", "sgl_kernel::store_cache", "sgl_kernel::store_kv_cache")
def store_cache(op: Operation) -> Work:
    """`store_cache(k, v, k_pool, v_pool, slots)`: k and v are read and written to their slots of
    the pools. Source: sglang's `jit_kernel/kvcache.py`."""
    k, v, slots = op.input(0), op.input(1), op.input(4)
    return Work(Family.MOVEMENT, k.dtype, 0, (k, v, slots), (k, v))


def _least(taken: Tensor, source: Tensor) -> Tensor:
    """What is read of `source` where `taken` comes from it: what is taken twice is read once."""
    return taken if taken.size <= source.size else source


@formula("ConstantOfShape", "Range", "RandomNormalLike", "RandomUniformLike", "NonZero")
def made(op: Operation) -> Work:
    """The output is written."""
    return Work(Family.MOVEMENT, op.output.dtype, 0, (), op.outputs)


@formula(*_aten(_UNKNOWN_RESULT))
def unknown_result(op: Operation) -> Work:
    """Nothing is computed, and how much is moved is not in the shapes of the inputs."""
    dtype = op.inputs[0].dtype if op.inputs else ""
    return Work(Family.MOVEMENT, dtype, 0, op.inputs, op.outputs)
