"""Which role a kind of command has, and which evidence decided.

The first that speaks decides: an op type that can be nothing else, the class of the innermost
module that is for something, the names on its path, the chain that the command stands in, its
shapes, the kernel's name. What belongs where:

- `attention`: scores, softmax, weighting, masks and position biases; `qkv_projection`: every
  projection into and out of it.
- `mlp` and `convolution` have the activations that stand between their products.
- `adapter`: all that a LoRA or another adapter computes beside the weights that it adapts, its
  casts included; the weights themselves keep their role.
- `modulation`: shift, scale and gate from a conditioning vector, and the projection of it.
- `embedding`: of tokens, patches, positions and timesteps, and the projections into and out of a
  model's width.
- `data_movement`: copies, reshapes, concatenations and casts, but not those that are part of a
  norm, a modulation, an embedding or rotary positions.
- `matmul` and `elementwise`: a product, and arithmetic, of which nothing tells where it belongs.
"""

from __future__ import annotations

from profiler.analysis.roles.evidence import Decision, Evidence
from profiler.analysis.roles.kernel_rules import of_fused, of_kernel
from profiler.analysis.roles.kernels import fused_kernel
from profiler.analysis.roles.library_kernels import writes_cache
from profiler.analysis.roles.norms import norm_kind
from profiler.analysis.roles.operations import Sort
from profiler.analysis.roles.places import Purpose
from profiler.analysis.roles.tensors import (
    bias_of_channels,
    broadcasts,
    has_number,
    of_images,
    only_vectors,
    pairs,
    projection_of,
    same_dims,
    single_input,
)
from profiler.analysis.work.shapes import Shapes

__all__ = ["decide"]

_MOVES = (Sort.LAYOUT, Sort.REORDER)
_ROPE_WORDS = frozenset(
    (
        "mul",
        "add",
        "sub",
        "neg",
        "stack",
        "unbind",
        "view_as_complex",
        "view_as_real",
        "type_as",
        "sin",
        "cos",
        "complex",
    )
)
_CERTAIN = {
    Sort.ATTENTION: "attention",
    Sort.NORM: "norm",
    Sort.RESAMPLE: "resample",
    Sort.ROPE: "rope",
    Sort.REORDER: "data_movement",
}
_WHOLE = {  # modules all of whose operations are for the same
    Purpose.NORM: "norm",
    Purpose.MODULATION: "modulation",
    Purpose.EMBEDDING: "embedding",
    Purpose.ROPE: "rope",
}
_PARTS = {  # modules whose arithmetic is for the same
    Purpose.MLP: "mlp",
    Purpose.CONVOLUTION: "convolution",
    Purpose.RESAMPLE: "resample",
}
_BY_CATEGORY = {"dma": "data_movement", "copy": "data_movement", "collective": "collective"}
_WITHOUT_PLACE = {Sort.MATMUL: "matmul", Sort.ARITHMETIC: "elementwise"}
_FILLS = ("fill", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like")  # as memset


def decide(found: Evidence) -> Decision | None:
    """The role of a kind; None for host work, which has none."""
    if found.category in ("host", "sync"):
        return None
    if found.category in _BY_CATEGORY:
        return _of_transfer(found)
    fused = fused_kernel(found.op_type)
    if fused is not None:
        return of_fused(found, fused)
    if found.place.purpose is Purpose.ADAPTER:
        return Decision("adapter", found.place.by)
    decision = _of_update(found) or _of_operation(found) or _of_place(found) or _of_chain(found)
    return decision or _of_shapes(found) or of_kernel(found) or _last(found)


def _of_transfer(found: Evidence) -> Decision:
    """Work on tracks that compute nothing: between ranks, or a copy."""
    return Decision(_BY_CATEGORY[found.category], "category")


def _of_operation(found: Evidence) -> Decision | None:
    """Op types that can be nothing else."""
    sort = found.operation.sort
    if found.concludes:
        return Decision("elementwise", "chain")
    if sort in _CERTAIN:
        kind = norm_kind(found) if sort is Sort.NORM else ""
        return Decision(_CERTAIN[sort], "op_type", kind)
    if sort is Sort.UNKNOWN and writes_cache(found.op_type):
        return Decision("data_movement", "op_type")
    special = (Purpose.ATTENTION, Purpose.EMBEDDING, Purpose.MODULATION)
    if sort is Sort.CONVOLUTION and found.place.purpose not in special:
        return Decision("convolution", "op_type")
    return None


def _of_update(found: Evidence) -> Decision | None:
    """Arithmetic of an optimizer's pass is its update; it makes neither residuals nor
    modulations."""
    arithmetic = found.operation.sort is Sort.ARITHMETIC and found.operation.word not in _FILLS
    return Decision("optimizer", "path") if found.updates and arithmetic else None


def _of_place(found: Evidence) -> Decision | None:
    """By the innermost module that is for something."""
    place, sort, purpose = found.place, found.operation.sort, found.place.purpose
    if purpose is None:
        return None
    if sort is Sort.IDENTITY:
        decision = Decision("other", "op_type")
    elif purpose is Purpose.EMBEDDING and place.outer is Purpose.ATTENTION:
        decision = Decision("attention", place.by)  # a table of position biases
    elif purpose in _WHOLE:
        kind = norm_kind(found) if purpose is Purpose.NORM else ""
        decision = Decision(_WHOLE[purpose], place.by, kind)
    elif purpose is Purpose.ATTENTION:
        decision = _in_attention(found)
    elif sort in _MOVES:
        decision = Decision("data_movement", "op_type")
    elif purpose is Purpose.HEAD:
        return Decision("matmul", place.by) if sort is Sort.MATMUL else None
    elif purpose is Purpose.CONVOLUTION and _prepares_modulation(found):
        decision = Decision("modulation", "shapes")
    elif purpose in _PARTS:
        decision = Decision(_PARTS[purpose], place.by)
    else:
        return _in_block(found)
    return decision


def _prepares_modulation(found: Evidence) -> bool:
    """An activation of the timestep's vector in a convolution block."""
    return found.operation.sort is Sort.ACTIVATION and only_vectors(found.shapes)


def _in_attention(found: Evidence) -> Decision:
    """Projections are modules in the attention module; the rest is its own."""
    place, operation, role = found.place, found.operation, "attention"
    moves = operation.sort in _MOVES
    weights = operation.sort is Sort.MATMUL and single_input(found.shapes)
    if (place.child and not moves) or weights or operation.sort is Sort.CONVOLUTION:
        role = "qkv_projection"
    elif found.projected and operation.word in ("add", "div", "mul"):
        role = "residual"
    elif found.rotates and (_turns(found) or _rotates_half(found)):
        role = "rope"
    elif moves:
        return Decision("data_movement", "op_type")
    return Decision(role, place.by)


def _turns(found: Evidence) -> bool:
    """Arithmetic of queries or keys with positions, not of scores with a number."""
    return found.operation.word in _ROPE_WORDS and not has_number(found.shapes)


def _rotates_half(found: Evidence) -> bool:
    """`cat((-second, first))`, or pairs apart and together, as rotary positions are written."""
    joins = found.operation.word in ("cat", "concat", "stack")
    return (joins and found.negated) or (
        (joins or found.operation.word == "split") and pairs(found.shapes)
    )


def _in_block(found: Evidence) -> Decision | None:
    """A block adds what its parts compute, and applies gates and modulation itself."""
    place, operation = found.place, found.operation
    if found.chained is not None:
        return _of_chain(found)
    if operation.sort is Sort.ACTIVATION:
        return Decision("convolution" if place.purpose is Purpose.RESNET else "mlp", place.by)
    if operation.word not in ("add", "mul", "sub", "div", "bias_add"):
        return None
    vector = found.shapes is not None and broadcasts(found.shapes)
    modulates = operation.word == "mul" or vector
    return Decision("modulation" if modulates else "residual", place.by)


def _of_chain(found: Evidence) -> Decision | None:
    if found.chained is None:
        return None
    return Decision(found.chained.role, "chain", found.chained.norm_kind)


def _of_shapes(found: Evidence) -> Decision | None:
    """Products by their sizes, arithmetic by what it broadcasts, where no path tells."""
    sort = found.operation.sort
    if sort in _MOVES:
        return Decision("data_movement", "op_type")
    if sort is Sort.EMBEDDING:
        return Decision("embedding", "op_type")
    role = _shaped(found, found.shapes) if found.shapes is not None else ""
    return Decision(role, "shapes") if role else None


def _shaped(found: Evidence, shapes: Shapes) -> str:
    word, role = found.operation.word, ""
    if word == "einsum" and len(shapes.inputs) == 1:
        role = "data_movement"
    elif found.operation.sort is Sort.MATMUL:
        role = "attention" if found.weighs else ""
        role = role or (projection_of(shapes) if found.attends else "")
    elif found.rotated and word in _ROPE_WORDS:
        role = "rope"
    elif word == "add" and found.op_type.endswith("_") and bias_of_channels(shapes):
        role = "convolution"
    elif word in ("add", "mul") and broadcasts(shapes):
        role = "modulation"
    elif word == "add" and same_dims(shapes):
        role = "residual"
    return role


def _last(found: Evidence) -> Decision:
    """What is left: activations stand between products; products and arithmetic have no place;
    the rest is other."""
    if found.operation.sort is not Sort.ACTIVATION:
        return _without_place(found)
    images = of_images(found.shapes)
    return Decision("convolution" if images else "mlp", "shapes" if images else "op_type")


def _without_place(found: Evidence) -> Decision:
    role = _WITHOUT_PLACE.get(found.operation.sort, "")
    if found.operation.word in _FILLS:
        role = "data_movement"
    return Decision(role, "op_type") if role else Decision("other", "")
