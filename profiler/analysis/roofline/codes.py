"""Words of the roofline's tables: closed sets."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Bound", "FusionKind"]


class Bound(StrEnum):
    """What the time of commands is bound by."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LAUNCH = "launch"
    HOST = "host"


class FusionKind(StrEnum):
    """What a chain of commands that could be one computes."""

    ATTENTION = "attention"
    NORM = "norm"
    MODULATION = "modulation"
    NORM_AND_MODULATION = "norm_and_modulation"
    ROPE = "rope"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"
