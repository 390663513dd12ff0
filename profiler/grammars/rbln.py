"""The names that RBLN's profiler gives to commands, as documented for its versions.

    up to 0.11   {sequence}_{layer}_{command}                              12_linear_196_0
    from 0.12    i{instance}_{sequence}_W{workload}_{layer}_{command}      i0_12_W3_linear_196_0

`i` stands in Multi Stream files only, and Host commands carry no `W`: without both, the two
versions are one. The layer is greedy: it may hold digits and underscores, and the number behind
the last underscore is the command. A name that fits neither is no command name and stays whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

__all__ = [
    "GRAMMARS",
    "RBLN_0_11",
    "RBLN_0_12",
    "UNNAMED",
    "CommandName",
    "NameGrammar",
    "parse_name",
]

UNNAMED = -1  # a number that the name does not carry

_PREFIX, _SUFFIX = "fused(", ")"
_NUMBER = "[0-9]{1,18}"  # fits int64
_INDEX = "[0-9]{1,9}"  # fits int32


@dataclass(frozen=True, slots=True)
class CommandName:
    """What a command's name says.

    `command_index` is the n-th command of its `layer`; `sequence` the execution order on the
    runtime instance; `workload` the runtime call and `instance` the runtime, `UNNAMED` where the
    name has none.
    """

    layer: str
    command_index: int
    sequence: int
    workload: int = UNNAMED
    instance: int = UNNAMED

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of the layer: those joined with `+` in `fused(…)`, else the layer."""
        return _operators(self.layer)

    @property
    def op_type(self) -> str:
        """The layer without the numbers of its operators: `linear`, `fused(conv+relu)`.

        That the trailing number tells operators of one kind apart is inferred from the names that
        are known (`linear_196`, `paged_attn`), not documented.
        """
        kinds = [_without_number(operator) for operator in self.operators]
        return f"{_PREFIX}{'+'.join(kinds)}{_SUFFIX}" if _is_fused(self.layer) else kinds[0]


class NameGrammar(Protocol):
    """How one producer writes what a command is into the name of its slice."""

    version: str

    def parse(self, name: str) -> CommandName | None:
        """What `name` says, None where it does not fit."""

    def format(self, command: CommandName) -> str:
        """The name that `parse` reads back as `command`."""


class _Rbln011:
    version = "0.11"
    _pattern = re.compile(rf"({_NUMBER})_(.+)_({_INDEX})", re.DOTALL)

    def parse(self, name: str) -> CommandName | None:
        match = self._pattern.fullmatch(name)
        if match is None:
            return None
        return CommandName(match[2], int(match[3]), int(match[1]))

    def format(self, command: CommandName) -> str:
        return f"{command.sequence}_{command.layer}_{command.command_index}"


class _Rbln012:
    """Names with an `i`, a `W` or both; without them they are those of 0.11."""

    version = "0.12"
    _pattern = re.compile(
        rf"(?=i|{_NUMBER}_W{_NUMBER}_)(?:i({_NUMBER})_)?({_NUMBER})_(?:W({_NUMBER})_)?(.+)_({_INDEX})",
        re.DOTALL,
    )

    def parse(self, name: str) -> CommandName | None:
        match = self._pattern.fullmatch(name)
        if match is None:
            return None
        instance, sequence, workload, layer, index = match.groups()
        return CommandName(
            layer=layer,
            command_index=int(index),
            sequence=int(sequence),
            workload=int(workload) if workload else UNNAMED,
            instance=int(instance) if instance else UNNAMED,
        )

    def format(self, command: CommandName) -> str:
        instance = f"i{command.instance}_" if command.instance != UNNAMED else ""
        workload = f"W{command.workload}_" if command.workload != UNNAMED else ""
        layer = f"{command.layer}_{command.command_index}"
        return f"{instance}{command.sequence}_{workload}{layer}"


RBLN_0_11: NameGrammar = _Rbln011()
RBLN_0_12: NameGrammar = _Rbln012()
GRAMMARS: tuple[NameGrammar, ...] = (RBLN_0_12, RBLN_0_11)  # in the order in which they are tried


def parse_name(name: str, grammars: tuple[NameGrammar, ...] = GRAMMARS) -> CommandName | None:
    """What the first grammar that fits reads in `name`, None where none does."""
    for grammar in grammars:
        command = grammar.parse(name)
        if command is not None:
            return command
    return None


def _is_fused(layer: str) -> bool:
    return layer.startswith(_PREFIX) and layer.endswith(_SUFFIX)


def _operators(layer: str) -> tuple[str, ...]:
    """Split `fused(a+b(c+d))` at the `+` outside inner parentheses."""
    if not _is_fused(layer):
        return (layer,)
    parts, depth, start = [], 0, len(_PREFIX)
    end = len(layer) - len(_SUFFIX)
    for position in range(start, end):
        character = layer[position]
        depth += (character == "(") - (character == ")")
        if character == "+" and depth == 0:
            parts.append(layer[start:position])
            start = position + 1
    return (*parts, layer[start:end])


def _without_number(operator: str) -> str:
    """`linear_196` → `linear`."""
    head, _, tail = operator.rpartition("_")
    while head and tail.isascii() and tail.isdigit():
        operator = head
        head, _, tail = operator.rpartition("_")
    return operator
