"""Names of ONNX nodes, as torch's exporters and ONNX Runtime's fusions write them.

/encoder/layers.0/self_attn/q_proj/MatMul    TorchScript's exporter: modules, then the op type
/conv_in/Conv_nchwc                          ... in ONNX Runtime's own layout
node_MatMul_3/MatMulAddFusion                torch.export's: op type and number, then the fusion
"""

from __future__ import annotations

import re

from profiler.grammars.parsed import ParsedName

__all__ = ["OnnxNode"]

_SCOPED = re.compile(r"/((?:[^/\s]+/)*)([A-Z]\w*)")
_NODE = re.compile(r"(node_([A-Za-z_]+?)(?:_\d+)*)(?:/(\w+))?")
_NUMBER = re.compile(r"(_\d+)+$")
_LAYOUT = re.compile(r"_(nchwc|nhwc|quant)$")


class OnnxNode:
    """Names of nodes with a module path, and those of torch.export's."""

    name = "onnx node"

    def parse(self, name: str) -> ParsedName | None:
        """What a node's name says, with or without ONNX Runtime's `_kernel_time` behind it."""
        node = name.removesuffix("_kernel_time")
        scoped = _SCOPED.fullmatch(node)
        if scoped is not None:
            path = ".".join(part for part in scoped[1].split("/") if part)
            op_type = _NUMBER.sub("", _LAYOUT.sub("", scoped[2]))
            return ParsedName(node, module_path=path, op_types=(op_type,))
        exported = _NODE.fullmatch(node)
        if exported is None:
            return None
        fused = (exported[3],) if exported[3] else ()
        return ParsedName(exported[1], op_types=(exported[2], *fused))
