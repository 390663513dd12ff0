"""Words of the module tree: closed sets."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Node"]


class Node(StrEnum):
    """What a node of the tree is."""

    RUN = "run"
    STAGE = "stage"
    SUBMODULE = "submodule"
    MODULE = "module"
    ROLE = "role"
    OPERATOR = "operator"
    UNTRACED = "untraced"
