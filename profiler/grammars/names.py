"""Names that tell which layer a command is of, and where that layer lies in the model.

    parse_name("i0_12_W3_linear_196_0")        → layer linear_196, command 0
    parse_name("/encoder/layers.0/fc1/MatMul") → module path encoder.layers.0.fc1
    parse_name("Conv_5 + Add_6 + Relu_7")      → op types Conv, Add, Relu

Grammars are tried in order, the first that fits speaks. Others can be added without a change here:
a package names them under the entry point group `profile_sd3.grammars`, as objects with a `name`
and a `parse`; they are tried before those of `BUILT_IN`. One that cannot be loaded is left out,
with a line on stderr (`profiler.plugins`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from profiler.grammars.onnx import OnnxNode
from profiler.grammars.parsed import ParsedName
from profiler.grammars.rbln import GRAMMARS as RBLN_VERSIONS
from profiler.grammars.rbln import NameGrammar as RblnGrammar
from profiler.grammars.tensorrt import TensorRtLayer
from profiler.grammars.torch import TorchModule
from profiler.plugins import plugins

__all__ = ["BUILT_IN", "GROUP", "Grammar", "grammars", "parse_name"]

GROUP = "profile_sd3.grammars"


class Grammar(Protocol):
    """How one producer names what it executes."""

    @property
    def name(self) -> str:
        """What the grammar is called."""

    def parse(self, name: str) -> ParsedName | None:
        """What `name` says, None where it is none of this producer's."""


@dataclass(frozen=True, slots=True)
class _Rbln:
    """A version of RBLN's names."""

    name: str
    grammar: RblnGrammar

    def parse(self, name: str) -> ParsedName | None:
        command = self.grammar.parse(name)
        if command is None:
            return None
        return ParsedName(command.layer, command.command_index, "", (command.op_type,))


BUILT_IN: tuple[Grammar, ...] = (
    *(_Rbln(f"rbln {version.version}", version) for version in RBLN_VERSIONS),
    TensorRtLayer(),
    OnnxNode(),
    TorchModule(),
)


@cache
def grammars() -> tuple[Grammar, ...]:
    """All grammars in the order in which they are tried."""
    return (*plugins(GROUP, "name", "parse"), *BUILT_IN)


def parse_name(name: str, among: Sequence[Grammar] | None = None) -> ParsedName | None:
    """What the first grammar that fits reads in `name`, None where none does."""
    for grammar in grammars() if among is None else among:
        parsed = grammar.parse(name)
        if parsed is not None:
            return parsed
    return None
