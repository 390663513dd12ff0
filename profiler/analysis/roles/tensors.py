"""What the shapes of a command say of what it is for."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from profiler.analysis.work.shapes import Shapes

__all__ = [
    "bias_of_channels",
    "broadcasts",
    "expands_weight",
    "has_number",
    "in_groups",
    "modulation_width",
    "of_images",
    "only_integers",
    "only_vectors",
    "pairs",
    "projection_of",
    "rotated_dims",
    "same_dims",
    "single_input",
    "turns",
    "two_activations",
    "weighs",
]

_VOCABULARY = 20_000  # from this width on a product may be of a language model's vocabulary
_WIDEST_HEAD = 512  # of the single one of an autoencoder; those of transformers have 256 at most
_VECTORS = 16  # rows up to which a product works on vectors of the batch, not on tokens


def single_input(shapes: Shapes | None) -> bool:
    """Whether one tensor goes in: ONNX Runtime does not list weights."""
    return shapes is not None and shapes.outputs is not None and len(shapes.inputs) == 1


def has_number(shapes: Shapes | None) -> bool:
    """Whether one of the first two tensors that go in is a single number."""
    return shapes is not None and any(not tensor.dims for tensor in shapes.inputs[:2])


def turns(shapes: Shapes | None) -> bool:
    """Whether two tensors of at least three dimensions go in: parts of queries or keys."""
    if shapes is None or len(shapes.inputs) < 2:
        return False
    return all(len(tensor.dims) > 2 and tensor.floating for tensor in shapes.inputs[:2])


def pairs(shapes: Shapes | None) -> bool:
    """Whether first and second numbers of pairs, [..., 1] each, become pairs, [..., 2], or pairs
    become these: stack and unbind, as ONNX has them."""
    if shapes is None or shapes.outputs is None:
        return False
    first, second = (tuple(t.dims for t in side) for side in (shapes.inputs, shapes.outputs))
    return _halves_of(first, second[:1]) or _halves_of(second, first[:1])


def _halves_of(halves: tuple[tuple[int, ...], ...], whole: tuple[tuple[int, ...], ...]) -> bool:
    """Whether two tensors [..., 1] are the halves of the `whole` [..., 2]."""
    return any(
        len(dims) > 3 and dims[-1] == 2 and halves == ((*dims[:-1], 1),) * 2 for dims in whole
    )


def in_groups(shapes: Shapes | None) -> bool:
    """Whether channels and pixels were folded into groups, [b,groups,n]: ONNX has a GroupNorm as
    an InstanceNormalization of these."""
    return shapes is not None and bool(shapes.inputs) and len(shapes.inputs[0].dims) == 3


def two_activations(shapes: Shapes) -> bool:
    """Whether a product is of two batches of matrices: weights are a matrix."""
    return len(shapes.inputs) > 1 and all(len(tensor.dims) > 2 for tensor in shapes.inputs[:2])


def expands_weight(shapes: Shapes) -> bool:
    """Whether a batched product [b,m,k] by [b,k,n] is a layer with its weight expanded over the
    batch, as torch computes it on tokens that are not contiguous: both sides of the matrix are
    wider than any head, whose width scores and what they weight have on one side."""
    tensors = [tensor.dims for tensor in shapes.inputs[:3]]  # the result may stand behind them
    return any(
        len(left) == len(right) == 3
        and left[0] == right[0]
        and left[2] == right[1]
        and min(right[1:]) > _WIDEST_HEAD
        for left, right in pairwise(tensors)
    )


def of_images(shapes: Shapes | None) -> bool:
    """Whether the largest tensor that goes in is a batch of images or videos."""
    tensors = shapes.inputs if shapes is not None else ()
    largest = max(tensors, key=lambda tensor: tensor.size, default=None)
    return largest is not None and len(largest.dims) in (4, 5)


def weighs(product: Shapes, softmax: Shapes) -> bool:
    """Whether a product of two batches of matrices may make the scores of a softmax, or weight by
    them, forward or backward: one of its matrices has their size."""
    left, right = (tensor.dims for tensor in product.inputs[:3][-2:])
    if len(left) < 2 or len(right) < 2:
        return False
    batch = max(prod(left[:-2]), prod(right[:-2]))
    scores = softmax.inputs[0]
    return any(
        batch * rows * columns == scores.size and scores.dims[-1:] in ((rows,), (columns,))
        for rows, columns in (left[-2:], right[-2:], (left[-2], right[-1]), (left[-2], right[-2]))
    )


def only_integers(text: str | None) -> bool:
    """Whether the text in `shapes` has tensors of integers or truth values alone."""
    return text is not None and "float" not in text and ("int" in text or "bool" in text)


def only_vectors(shapes: Shapes | None) -> bool:
    """Whether nothing goes in that has more than a batch and a width."""
    return shapes is not None and all(len(tensor.dims) <= 2 for tensor in shapes.inputs)


def same_dims(shapes: Shapes) -> bool:
    """Whether the first two tensors that go in are of one shape and hold tokens or images."""
    if len(shapes.inputs) < 2:
        return False
    first, second = shapes.inputs[0].dims, shapes.inputs[1].dims
    return first == second and len(first) >= 2


def broadcasts(shapes: Shapes) -> bool:
    """Whether a vector of the batch meets tokens or pixels ([b,1,d] with [b,n,d], [b,c,1,1] with
    [b,c,h,w]), or is itself changed by a number (1 + scale)."""
    tensors = [tensor.dims for tensor in shapes.inputs[:2]]
    if len(tensors) < 2:
        return False
    small, large = sorted(tensors, key=lambda dims: (len(dims), dims))
    if small in ((), (1,)):
        return len(large) == 3 and large[1] == 1
    if len(small) != len(large):
        return len(small) == 2 and len(large) == 3 and small[-1] == large[-1]
    return small != large and 1 in small[1:]


def bias_of_channels(shapes: Shapes) -> bool:
    """Whether [1,c,1,1] meets [n,c,h,w], or the like of a video: a bias for each channel."""
    tensors = [tensor.dims for tensor in shapes.inputs[:2]]
    if len(tensors) < 2 or len(tensors[0]) not in (4, 5) or len(tensors[0]) != len(tensors[1]):
        return False
    large, small = tensors
    channels = large[1]
    return large != small and small == (1, channels, *(1 for _ in large[2:]))


def rotated_dims(shapes: Shapes | None) -> tuple[int, ...] | None:
    """The dims of queries or keys that meet the cosines or sines of their positions, which all
    heads share: [b,s,h,d] with [1,s,1,d], or [b,h,s,d] with [1,1,s,d]; None for anything else."""
    tensors = shapes.inputs[:2] if shapes is not None else ()
    if len(tensors) < 2 or not all(len(t.dims) == 4 and t.floating for t in tensors):
        return None
    small, large = sorted((tensor.dims for tensor in tensors), key=prod)
    one, (_, first, second, width) = small[1:3], large
    shared = small[3] == width and 1 < width <= _WIDEST_HEAD and first > 1 < second
    return large if shared and one in ((first, 1), (1, second)) else None


def projection_of(shapes: Shapes) -> str:
    """What a product [rows, k] by [k, n] is for in a transformer, "" where its sizes do not tell.

    Products of vectors project conditioning; of tokens, those that keep the width belong to
    attention and those that widen it three times or more, or narrow it so, to the mlp. From a
    model's width to a vocabulary they are of the model's head, which is none of these.
    """
    product = _product(shapes)
    if product is None:
        return ""
    rows, k, n = product
    if _of_vocabulary(rows, k, n):
        return ""
    if rows <= _VECTORS:
        return "modulation" if n >= 2 * k and n % k == 0 else "embedding"
    if n in (k, 3 * k):
        return "qkv_projection"
    if 2.5 * k <= n <= 8 * k or 2.5 * n <= k <= 8 * n:
        return "mlp"
    return "embedding"


def _of_vocabulary(rows: int, k: int, n: int) -> bool:
    """Whether one side is a vocabulary: wider than an mlp, and than all shifts, scales and gates
    of a block (12 widths in HiDream)."""
    narrow, wide = sorted((k, n))
    modulates = rows <= _VECTORS and n % k == 0 and n <= 12 * k
    return wide >= _VOCABULARY and wide > 8 * narrow and not modulates


def _product(shapes: Shapes) -> tuple[int, int, int] | None:
    """Rows, inner and outer size of a product with weights; a bias may come first."""
    matrices = [tensor.dims for tensor in shapes.inputs if len(tensor.dims) >= 2]
    if len(matrices) == 1 and shapes.outputs:
        width = shapes.outputs[0].dims[-1:] or (0,)
        matrices.append((matrices[0][-1], *width))
    if len(matrices) < 2 or not (len(matrices[1]) == 2 or expands_weight(shapes)):
        return None
    left, right = matrices[0], matrices[1][-2:]
    if not left[-1] or not all(right):
        return None
    k = left[-1]
    if k not in right:
        return None
    n = right[1] if right[0] == k else right[0]
    rows = 1
    for size in left[:-1]:
        rows *= size
    return rows, k, n


def modulation_width(shapes: Shapes) -> int:
    """How many vectors of the model's width stand in one vector that goes in: 6 for shift, scale
    and gate of two parts, 2 for shift and scale; 0 where there is none."""
    widths = [tensor.dims[-1] for tensor in shapes.inputs if len(tensor.dims) == 3]
    vectors = [tensor.dims[1] for tensor in shapes.inputs if len(tensor.dims) == 2]
    found = {
        vector // width
        for width in widths
        for vector in vectors
        if width > 1 and vector % width == 0 and vector // width in (2, 3, 6, 9)
    }
    return max(found, default=0)
