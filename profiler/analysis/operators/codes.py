"""Words of the tables of operators: closed sets."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["SplitPart"]


class SplitPart(StrEnum):
    """Which of a split operator's commands a row is about."""

    WHOLE = "whole"
    COMPUTE = "compute"
    MOVEMENT = "movement"
    DEVICE = "device"
