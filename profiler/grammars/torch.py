"""Paths of torch modules, alone or with the operator that ran in the module.

transformer_blocks.0.attn.to_q
CLIPTextTransformer.CLIPEncoder.CLIPEncoderLayer_3.CLIPAttention/aten::bmm
"""

from __future__ import annotations

import re

from profiler.grammars.parsed import ParsedName

__all__ = ["TorchModule"]

_PATH = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*)(?:/(\w+::\w+|triton_\w+))?")


class TorchModule:
    """Dotted paths; a word alone is one only with an operator behind it."""

    name = "torch module path"

    def parse(self, name: str) -> ParsedName | None:
        """What a path says: the module, and the operator as op type."""
        match = _PATH.fullmatch(name)
        if match is None or not (match[2] or "." in match[1]):
            return None
        return ParsedName(name, module_path=match[1], op_types=(match[2],) if match[2] else ())
