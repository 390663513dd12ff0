"""`ParsedName`: what a name says, whatever grammar it was written in."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["UNNUMBERED", "ParsedName"]

UNNUMBERED = -1  # the name does not say which of its layer's commands it is


@dataclass(frozen=True, slots=True)
class ParsedName:
    """`layer` is the tensor-level operation and `command_index` which of its commands the name is
    of, `UNNUMBERED` where it does not say. `module_path` is the dotted path of the module that
    it lies in, "" where the name has none; `op_types` what it computes, in order of execution,
    as far as the name tells."""

    layer: str
    command_index: int = UNNUMBERED
    module_path: str = ""
    op_types: tuple[str, ...] = ()
