"""How torch.compile was told to compile a module, from what it left in the module's place."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from profiler.interruptions import let_pass
from profiler.trace.manifest_settings import Compiled

__all__ = ["compiled"]

_DEEPEST = 8  # functions and compilers in one another
_BELOW = ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable")


def compiled(root: Any, modules: Sequence[Any]) -> Compiled | None:
    """Of `root`, else of those of its `modules` that are compiled; None where nothing is."""
    whole = _context(root)
    parts = [] if whole else [module for module in modules if _is_compiled(module)]
    if whole is None and not parts and not _is_compiled(root):
        return None
    context = whole or (_context(parts[0]) if parts else None)
    compiler = _compiler(context)
    return Compiled(
        whole=whole is not None or _is_compiled(root),
        modules=0 if whole is not None or _is_compiled(root) else len(parts),
        backend=str(getattr(compiler, "compiler_name", "") or ""),
        mode=_mode(compiler),
        dynamic=_switch(compiler, "dynamic"),
        fullgraph=_switch(context, "fullgraph"),
    )


def _is_compiled(module: Any) -> bool:
    own = vars(module)
    return own.get("_compiled_call_impl") is not None or "dynamo_ctx" in own


def _switch(of: Any, name: str) -> bool | None:
    value = getattr(of, name, None)
    return value if isinstance(value, bool) else None


def _context(module: Any) -> Any:
    """torch's context of a compiled module; None where there is none, or it is not found."""
    own = vars(module)
    if "dynamo_ctx" in own:
        return own["dynamo_ctx"]
    pending, seen = [own.get("_compiled_call_impl")], set[int]()
    while pending and len(seen) < _DEEPEST:
        function = pending.pop(0)
        if function is None or id(function) in seen:
            continue
        seen.add(id(function))
        for value in _closed_over(function):
            if type(value).__name__.endswith("OptimizeContext"):
                return value
        pending.append(getattr(function, "__wrapped__", None))  # ours stands around it
    return None


def _closed_over(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError as error:  # it is empty
            let_pass(error)


def _compiler(context: Any) -> Any:
    """The innermost of a context's wrapped compilers: the one that was chosen."""
    found = getattr(context, "callback", None)
    for _ in range(_DEEPEST):
        below = next((b for b in (getattr(found, n, None) for n in _BELOW) if b is not None), None)
        if below is None:
            return found
        found = below
    return found


def _mode(compiler: Any) -> str:
    """The mode whose options Inductor was given; "" where no mode is, or of another backend."""
    options = getattr(compiler, "config", None)
    if not isinstance(options, dict):
        return ""
    if not options:
        return "default"
    modes: dict[str, object] = getattr(
        sys.modules.get("torch._inductor"), "list_mode_options", dict
    )()
    return next((str(mode) for mode, of_mode in modes.items() if of_mode == options), "")
