"""Names of TensorRT's layers: the ONNX nodes that a layer fuses, joined with ` + `.

Conv_5 + Add_6 + Relu_7
/blocks.0/attn/to_q/MatMul + /blocks.0/attn/to_q/Add
PWN(PWN(/act/Sigmoid), /act/Mul)                        pointwise nodes
Reformatting CopyNode for Input Tensor 0 to Conv_3      a copy into another layout
{ForeignNode[/layers.0/Constant.../layers.11/Add]}      a part that Myelin compiled
__myl_MulMeaAddSqrtDiv_myl0_12                          ... one kernel of it
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from profiler.grammars.parsed import ParsedName

__all__ = ["EngineLayer", "TensorRtLayer", "engine_layer"]

_COPY = re.compile(r"Reformatting CopyNode for (?:Input|Output) Tensor \d+ to (.+)", re.DOTALL)
_FOREIGN = re.compile(r"\{ForeignNode\[(.+?)\.\.\.(.+?)\]\}", re.DOTALL)
_MYELIN = re.compile(r"__myl_([A-Za-z]+)(?:_myl\d+_(\d+))?")
_WORD = re.compile(r"[A-Z][a-z0-9]*")
_POINTWISE = re.compile(r"PWN\(|\)|,")
_NODE = re.compile(r"(?:/?(?:[^/\s]+/)*)?([A-Z]\w*?)(?:_\d+)*")
_SEVERAL = re.compile(r" \+ |\s*,\s*|\s+")
_HELPER = re.compile(
    r"(?:copied_)?(?:reshape|squeeze|unsqueeze|shuffle)_(?:node_)?(?:before|after)_(?=.)"
)
_BESIDE = " || "  # layers that run as one, side by side


@dataclass(frozen=True, slots=True)
class EngineLayer:
    """The ONNX nodes that a layer runs, or prepares the tensors of (`helps`); `last` where all from
    the only one of `nodes` to that one are in it."""

    nodes: tuple[str, ...]
    last: str = ""
    helps: bool = False


def engine_layer(name: str) -> EngineLayer:
    """The nodes that a layer of an engine stands for; none for a kernel that Myelin wrote, whose
    name does not tell."""
    copy = _COPY.fullmatch(name)
    if copy is not None:
        whole = engine_layer(copy[1])
        return EngineLayer(whole.nodes, whole.last, helps=True)
    foreign = _FOREIGN.fullmatch(name)
    if foreign is not None:
        return EngineLayer((foreign[1],), foreign[2])
    if _MYELIN.fullmatch(name):
        return EngineLayer(())
    helper = _HELPER.match(name)
    if helper is not None:
        return EngineLayer((name[helper.end() :],), helps=True)
    return EngineLayer(tuple(node for part in name.split(_BESIDE) for node in _nodes(part)))


class TensorRtLayer:
    """Names of `exportProfile` and `exportLayerInfo`."""

    name = "tensorrt layer"

    def parse(self, name: str) -> ParsedName | None:
        """What a layer's name says; its module path is the one that its nodes share."""
        copy = _COPY.fullmatch(name)
        if copy is not None:
            return ParsedName(name, module_path=_shared(_nodes(copy[1])), op_types=("Reformat",))
        foreign = _FOREIGN.fullmatch(name)
        if foreign is not None:
            return ParsedName(name, module_path=_shared([foreign[1], foreign[2]]))
        kernel = _MYELIN.fullmatch(name)
        if kernel is not None:
            return ParsedName(name, op_types=tuple(_WORD.findall(kernel[1])))
        if " + " not in name and not name.startswith("PWN("):
            return None
        nodes = _nodes(name)
        types = [_NODE.fullmatch(node) for node in nodes]
        found = tuple(match[1] for match in types if match is not None)
        return ParsedName(name, module_path=_shared(nodes), op_types=found) if found else None


def _nodes(name: str) -> list[str]:
    """The names of the nodes that a layer fuses."""
    return [node for node in _SEVERAL.split(_POINTWISE.sub(" ", name)) if node and node != "+"]


def _shared(nodes: list[str]) -> str:
    """The module path that all nodes with a path lie in, "" where there is none."""
    paths = [node.strip("/").split("/")[:-1] for node in nodes if "/" in node]
    if not paths:
        return ""
    shared = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)
