"""Which norm it is: by class, by op type, by the chain that it is written as."""

from __future__ import annotations

from profiler.analysis.roles.evidence import Evidence
from profiler.analysis.roles.kernels import FusedKernel
from profiler.analysis.roles.operations import Sort
from profiler.analysis.roles.places import Place, Purpose
from profiler.analysis.roles.tensors import in_groups, modulation_width

__all__ = ["fused_norm", "norm_kind"]

_ADAPTIVE = (  # what a class's name holds
    ("Continuous", "AdaLayerNormContinuous"),
    ("AdaGroupNorm", "AdaGroupNorm"),
    ("Zero", "AdaLayerNormZero"),
    ("Ada", "AdaLayerNorm"),
)
_PLAIN = (
    ("RMS", "RMSNorm"),
    ("T5LayerNorm", "RMSNorm"),  # no mean is taken off
    ("GroupNorm", "GroupNorm"),
    ("BatchNorm", "BatchNorm"),
    ("InstanceNorm", "InstanceNorm"),
    ("LayerNorm", "LayerNorm"),
)
_FUSED = (  # words of a fused kernel
    ("native_group_norm", "GroupNorm"),
    ("group_norm", "GroupNorm"),
    ("native_batch_norm", "BatchNorm"),
    ("native_layer_norm", "LayerNorm"),
    ("layer_norm", "LayerNorm"),
    ("rms_norm", "RMSNorm"),
    ("_fused_rms_norm", "RMSNorm"),
    ("sub", "LayerNorm"),  # written out: the mean is taken off
    ("rsqrt", "RMSNorm"),
    ("sqrt", "RMSNorm"),
)


def norm_kind(found: Evidence) -> str:
    """The kind of a norm, "" where nothing tells."""
    place, operation = found.place, found.operation
    inner = place.purpose is Purpose.NORM
    adaptive = _named(place.outer_class if inner else place.own_class, _ADAPTIVE)
    by_class = _named(place.own_class, _PLAIN) if inner else ""
    chained = found.chained.norm_kind if found.chained else ""
    own = by_class or _of_operation(found) or operation.norm_kind or chained
    if not adaptive and _is_modulated(place) and own in ("", "LayerNorm"):
        return "AdaLayerNorm"
    return adaptive or own


def fused_norm(found: Evidence, fused: FusedKernel) -> str:
    """The kind of a norm in a kernel that torch.compile wrote. One that shifts and scales by parts
    of a vector is adaptive: six parts of it make a Zero, two a Continuous one."""
    width = modulation_width(found.shapes) if found.shapes else 0
    if Sort.NORM in fused.sorts and "mul" in fused.words and width:
        return "AdaLayerNormContinuous" if width == 2 else "AdaLayerNormZero"
    return next((kind for word, kind in _FUSED if word in fused.words), "")


def _named(class_name: str, marks: tuple[tuple[str, str], ...]) -> str:
    return next((kind for mark, kind in marks if mark in class_name), "")


def _is_modulated(place: Place) -> bool:
    return place.purpose is Purpose.NORM and place.outer is Purpose.MODULATION


def _of_operation(found: Evidence) -> str:
    """What an op type is besides what its name says."""
    word = found.operation.word
    if word == "instance_normalization" and in_groups(found.shapes):
        return "GroupNorm"  # as ONNX has it
    return "RMSNorm" if word == "linalg_vector_norm" else ""
