"""Modules that a pipeline call may execute outside captured calls: whatever lives in the process,
and the pieces of captured modules.

Nothing inside what has been compiled is hooked, and where something has been compiled already, only
what is compiled as a whole: torch.compile guards hooks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from profiler.capture.torch.entry_points import encoder_of
from profiler.capture.torch.hooks import is_compiled
from profiler.capture.torch.modules import is_one_piece
from profiler.capture.torch.script_modules import outermost

__all__ = ["outside"]

_DEPTH = 2  # of pieces below a captured module
_COMPILERS = ("torch.fx.", "torch._")
_GRAPHS = "torch.fx.graph_module"


def outside(captured: Mapping[str, Any], alive: Sequence[Any]) -> Iterator[tuple[str, str, Any]]:
    """Name ("" where its variable names it), method and module of each; of others than captured
    ones among those that are `alive`."""
    import torch

    owners = {n: owner for n, owner in captured.items() if isinstance(owner, torch.nn.Module)}
    inside = {id(below) for owner in owners.values() for below in owner.modules()}
    compiled = _has_compiled()
    for name, owner in owners.items():
        if not compiled and not is_one_piece(owner):
            entered = encoder_of(owner)
            yield from (one for one in _pieces(name, owner, _DEPTH) if one[2] is not entered)
    modules = [one for one in alive if issubclass(type(one), torch.nn.Module)]
    for module in outermost(modules):
        where = type(module).__module__
        own = where.startswith(_COMPILERS) and not is_one_piece(module)
        if where == _GRAPHS and not compiled:
            own = False  # the script's: nothing else makes any
        if own or any(id(below) in inside for below in module.modules()):
            continue
        if is_one_piece(module) if compiled else True:
            yield "", "forward", module


def _pieces(name: str, module: Any, depth: int) -> Iterator[tuple[str, str, Any]]:
    for child_name, child in module.named_children():
        path = f"{name}.{child_name}"
        yield path, "forward", child
        if depth > 1 and not (is_compiled(child) or is_one_piece(child)):
            yield from _pieces(path, child, depth - 1)


def _has_compiled() -> bool:
    """Whether torch.compile has compiled anything in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", None)
    return bool(counters and counters.get("frames"))
