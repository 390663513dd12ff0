"""What QNN and Qualcomm's converter made of the names of a model's nodes, undone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from profiler.importers.qnn.rows import Node

__all__ = ["Names", "op_type"]

_TOKEN = re.compile(r"_token_\d+(?:_\d+)?$")
_NUMBER = re.compile(r"_\d+$")
_INSERTED = (
    (re.compile(r"_(?:pre|post)_reshape$"), "Reshape"),
    (re.compile(r"_n(?:fc|cf|hwc|chw|dhwc|cdhw)$"), "Transpose"),
    (re.compile(r"_cast(?:_to_\w+)?$"), "Cast"),
    (re.compile(r"^rms_norm__"), "RmsNorm"),
)  # by Qualcomm's converter
_ENDS = ("Input", "Output")  # nodes of QNN's own


@dataclass(frozen=True, slots=True)
class Names:
    """How nodes are called: without what QNN appends to the names of the model."""

    numbered: bool

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> Names:
        """A number ends every name where QNN appended it, else it is the model's."""
        own = [node.name for node in nodes if node.name not in _ENDS]
        return cls(bool(own) and all(_NUMBER.search(name) for name in own))

    def layer(self, name: str) -> str:
        """`/a/Conv_token_1_2` → `/a/Conv`."""
        if _TOKEN.search(name):
            return _TOKEN.sub("", name)
        return _NUMBER.sub("", name) if self.numbered else name


def op_type(layer: str) -> str:
    """`Conv` of `/a/convolution/Conv`, `QuantizeLinear` of `pixel_values_QuantizeLinear`, `Reshape`
    of `_MatMul_2_pre_reshape`, which Qualcomm's converter puts in."""
    last = layer.rstrip("/").rpartition("/")[2]
    inserted = next((kind for pattern, kind in _INSERTED if pattern.search(last)), "")
    if inserted:
        return inserted
    found = re.search(r"(?:^|_)([A-Z][A-Za-z0-9]*)$", _NUMBER.sub("", last))
    return found[1] if found else last
