"""torch.compile: compilations, graph breaks, settings, and the generated code of graphs.

They are read from dynamo's own metrics and counters, without hooks. A torch version that lacks
one of these reports less. Kernels of a compiled CPU graph leave no events, so the generated
code gives their order:

    # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.t, aten.addmm]
    extern_kernels.addmm(arg4_1, buf3, ..., out=buf4)
    cpp_fused_add_gelu_mul_1(buf6, arg2_1, buf4, ...)
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from profiler.plugins import let_pass
from profiler.trace.manifest_fields import (
    LONGEST_NAME,
    LONGEST_REASON,
    Compilation,
    Compiled,
    GraphBreak,
)

# --- What dynamo compiled, from its own metrics and counters, without hooks.
#
# `torch._dynamo.utils.get_compilation_metrics()` has the last 64 compilations,
# `counters["graph_break"]` how often each reason broke a graph, `graph_break_reasons` where, and
# `compilation_time_metrics` how long every compilation of a frame took.


_FRAME = "_compile.compile_inner"  # the phase that is a frame's whole compilation
_TEXT_VALUE = re.compile(r"(?<=[=!]= )['\"].*", re.DOTALL)  # of a guard; it may contain a prompt
_DETAILS = ("Developer debug context:", "For more details")


class DynamoLog:
    """What dynamo has compiled since this log was created. Reads nothing if dynamo is not
    imported."""

    def __init__(self) -> None:
        dynamo = _dynamo()
        metrics = _metrics(dynamo)
        self._last = metrics[-1] if metrics else None
        self._frames = len(_frame_seconds(dynamo))
        self._breaks = _breaks(dynamo)

    def new(self) -> Sequence[Compilation]:
        """The compilations since the last call. dynamo's list holds references, so the identity of
        its last entry shows whether there are any."""
        dynamo = _dynamo()
        metrics = _metrics(dynamo)
        if not metrics or metrics[-1] is self._last:
            return ()
        known = next((n for n, one in enumerate(metrics) if one is self._last), -1)
        self._last = metrics[-1]
        return self._compilations(dynamo, metrics[known + 1 :])

    def _compilations(self, dynamo: Any, metrics: Sequence[Any]) -> list[Compilation]:
        broken, self._breaks = self._breaks, _breaks(dynamo)
        left = Counter(
            {
                reason: times - broken[reason] if times >= broken[reason] else times
                for reason, times in self._breaks.items()  # fewer if they were cleared
            }
        )
        places = _places(dynamo)
        found = [_compilation(one, _own(one, left, places)) for one in metrics]
        rest = tuple(_graph_breaks(+left, places))  # breaks that no compilation claims
        found[-1] = structs.replace(found[-1], graph_breaks=found[-1].graph_breaks + rest)
        number, total_ns = self._forgotten(dynamo, metrics)
        if number:
            found[0] = structs.replace(found[0], forgotten=number, forgotten_ns=total_ns)
        return found

    def _forgotten(self, dynamo: Any, metrics: Iterable[Any]) -> tuple[int, int]:
        """The number of frame compilations that are missing in the new `metrics`, and their total
        ns: they are the oldest."""
        seconds, before = _frame_seconds(dynamo), self._frames
        self._frames = len(seconds)
        if len(seconds) < before:  # it was cleared
            before = 0
        of_frames = sum(getattr(one, "frame_key", None) is not None for one in metrics)
        number = max(len(seconds) - before - of_frames, 0)
        return number, round(1e9 * sum(seconds[before : before + number]))


def _dynamo() -> Any:
    return sys.modules.get("torch._dynamo.utils")


def _metrics(dynamo: Any) -> list[Any]:
    read = getattr(dynamo, "get_compilation_metrics", None)
    return [] if read is None else read()


def _frame_seconds(dynamo: Any) -> Sequence[float]:
    seconds: Sequence[float] = getattr(dynamo, "compilation_time_metrics", {}).get(_FRAME, ())
    return seconds


def _breaks(dynamo: Any) -> Counter[str]:
    return Counter(getattr(dynamo, "counters", {}).get("graph_break", {}))


def _places(dynamo: Any) -> dict[str, str]:
    """The last line that broke a graph, by reason."""
    found = {}
    for one in getattr(dynamo, "graph_break_reasons", ()):
        stack = getattr(one, "user_stack", None)
        if stack:
            found[one.reason] = f"{os.path.basename(stack[-1].filename)}:{stack[-1].lineno}"  # noqa: PTH119 - pathlib takes longer
    return found


def _own(metrics: Any, left: Counter[str], places: Mapping[str, str]) -> tuple[GraphBreak, ...]:
    """The graph breaks in a compilation's reasons to restart; they are subtracted from `left`."""
    reasons = getattr(metrics, "restart_reasons", None) or ()
    own = Counter({reason: 1 for reason in sorted(reasons) if left[reason] > 0})
    left.subtract(own)
    return tuple(_graph_breaks(own, places))


def _graph_breaks(counted: Mapping[str, int], places: Mapping[str, str]) -> Iterator[GraphBreak]:
    for reason, times in counted.items():
        place = _short(places.get(reason, ""), LONGEST_NAME)
        yield GraphBreak(reason=_reason(reason), place=place, times=times)


def _compilation(metrics: Any, graph_breaks: tuple[GraphBreak, ...]) -> Compilation:
    start_us = getattr(metrics, "start_time_us", None) or 0
    end_us = getattr(metrics, "end_time_us", None)
    if end_us is None:
        end_us = start_us + (getattr(metrics, "duration_us", None) or 0)
    return Compilation(
        id=_short(getattr(metrics, "compile_id", None), LONGEST_NAME),
        function=_short(getattr(metrics, "co_name", None), LONGEST_NAME),
        start_ns=1000 * start_us,
        duration_ns=1000 * max(end_us - start_us, 0),
        recompile_reason=_reason(getattr(metrics, "recompile_reason", None)),
        failure=_reason(getattr(metrics, "fail_reason", None)),
        graph_breaks=graph_breaks,
    )


def _reason(text: object) -> str:
    """dynamo's reason without its hints for developers, and without the text that an argument was
    compared with."""
    whole = "" if text is None else str(text)
    for details in _DETAILS:
        whole = whole.partition(details)[0]
    return _short(_TEXT_VALUE.sub("'…'", whole), LONGEST_REASON)


def _short(text: object, longest: int) -> str:
    """The text as one line of printable characters in any encoding, limited to `longest`."""
    words = "" if text is None else " ".join(str(text)[: 4 * longest].split())
    printable = "".join(char if char.isprintable() else "\ufffd" for char in words)
    return printable if len(printable) <= longest else f"{printable[: longest - 1]}…"


# --- The settings of torch.compile for a module, read from what it left in the module's place.


_DEEPEST = 8  # nested functions and compilers
_BELOW = ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable")


def compiled(root: Any, modules: Sequence[Any]) -> Compiled | None:
    """The compile settings of `root`, else of those of its `modules` that are compiled; None if
    none is."""
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
    """torch's context of a compiled module, or None."""
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
        pending.append(getattr(function, "__wrapped__", None))  # our wrapper is around it
    return None


def _closed_over(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError as error:  # an empty cell
            let_pass(error)


def _compiler(context: Any) -> Any:
    """The innermost of a context's nested compilers: the chosen one."""
    found = getattr(context, "callback", None)
    for _ in range(_DEEPEST):
        below = next((b for b in (getattr(found, n, None) for n in _BELOW) if b is not None), None)
        if below is None:
            return found
        found = below
    return found


def _mode(compiler: Any) -> str:
    """The mode that set Inductor's options; "" if none did, or for another backend."""
    options = getattr(compiler, "config", None)
    if not isinstance(options, dict):
        return ""
    if not options:
        return "default"
    modes: dict[str, object] = getattr(
        sys.modules.get("torch._inductor"), "list_mode_options", dict
    )()
    return next((str(mode) for mode, of_mode in modes.items() if of_mode == options), "")


# --- The kernels in the code that torch.compile generated for a graph, in order.
#
# The profiler reports when such a graph ran and which operators it called; the fused kernels
# between these leave no events. The generated code has both, as the module docstring shows. Names
# of layers are `fx::linear` if the code names the nodes of the traced graph, else
# `inductor::cpp_fused_add_gelu_mul_1`.


_BODY = re.compile(r"^( *)def call\(.*?\):\n(.*?)^\1    return", re.MULTILINE | re.DOTALL)
_NODES = re.compile(r"# (?:Topologically Sorted )?Source Nodes: \[(.*?)\]")
_KERNEL = re.compile(r"((?:cpp|triton)_\w+)(?:\.run)?\(")
_EXTERN = re.compile(
    r"(?:\w+ = )?(?:extern_kernels\.(\w+)|(?:torch\.ops\.\w+|aten)\.(\w+)(?:\.\w+)?)\("
)
_PROFILED = re.compile(r"(?:graph_\d+_)?((?:cpp|triton)_\w+)")  # kernels that leave events
_MOST_NODES = 8
_GRAPH = "CompiledFxGraph"


@dataclass(frozen=True, slots=True)
class Statement:
    """A kernel, or an operator (`extern`) by its name without namespace, and the nodes of the
    traced graph that it computes."""

    name: str
    extern: bool
    nodes: tuple[str, ...] = ()

    @property
    def layer(self) -> str:
        """The name of its layer below the module."""
        if not self.nodes:
            return f"inductor::{self.name}"
        more = "_and_more" if len(self.nodes) > _MOST_NODES else ""
        return f"fx::{'_'.join(self.nodes[:_MOST_NODES])}{more}"


@dataclass(frozen=True, slots=True)
class GraphLayers:
    """Layers in one call of a graph, below its module: of each recorded operator, "" if unknown,
    and of the gap before each and after the last, with its op type."""

    operators: tuple[str, ...]
    gaps: tuple[tuple[str, str], ...]


def statements(code: str) -> list[Statement]:
    """The kernels and operators that generated code executes, in order; empty for other code."""
    body = _BODY.search(code)
    return [*_read(body[2])] if body else []


def _read(body: str) -> Iterator[Statement]:
    nodes: tuple[str, ...] = ()
    for line in map(str.strip, body.splitlines()):
        match = _NODES.match(line)
        if match is not None:
            nodes = tuple(re.findall(r"\w+", match[1]))
            continue
        kernel, extern = _KERNEL.match(line), _EXTERN.match(line)
        if kernel is not None:
            yield Statement(kernel[1], extern=False, nodes=nodes)
        elif extern is not None:
            yield Statement(extern[1] or extern[2], extern=True, nodes=nodes)
        if kernel is not None or extern is not None:
            nodes = ()


def layers_of(found: Sequence[Statement], seen: Sequence[str]) -> GraphLayers:
    """The layers of one call of a graph, in which the operators `seen` were recorded.

    They come from the code if it calls these operators in this order. Otherwise gaps have numbered
    layers, and operators none.
    """
    kernels = {s.name: s.layer for s in found if not s.extern}
    externs = [s for s in found if s.extern]
    profiled = [_PROFILED.fullmatch(name) for name in seen]
    called = [name.rpartition("::")[2] for name, k in zip(seen, profiled, strict=True) if k is None]
    complete = bool(found) and called == [s.name for s in externs]
    following = iter([s.layer for s in externs] if complete else [""] * len(called))
    operators = tuple(
        next(following) if k is None else kernels.get(k[1], f"inductor::{k[1]}") for k in profiled
    )
    if complete and not any(profiled):  # else the gaps are not just the kernels
        return GraphLayers(operators, tuple(_gaps(found)))
    numbered = ((f"inductor::part_{number}", _GRAPH) for number in range(len(seen) + 1))
    return GraphLayers(operators, tuple(numbered))


def _gaps(found: Sequence[Statement]) -> Iterator[tuple[str, str]]:
    """Layer and op type of what runs before each operator and after the last."""
    some: list[Statement] = []
    number = 0
    for statement in (*found, None):
        if statement is not None and not statement.extern:
            some.append(statement)
            continue
        if len(some) == 1:
            yield some[0].layer, some[0].name
        elif some:
            yield f"inductor::{some[0].name}_to_{some[-1].name}", _GRAPH
        else:
            yield f"inductor::part_{number}", _GRAPH
        some, number = [], number + 1


def source_of(key: str) -> str:
    """The code that torch.compile generated for the graph with that key, as the profiler names it;
    "" if the graph no longer exists in this process."""
    module = sys.modules.get("torch._inductor.output_code")
    kind = getattr(module, _GRAPH, None)
    if kind is None:
        return ""
    for graph in gc.get_referrers(kind):
        if type(graph) is kind and getattr(graph, "_fx_graph_cache_key", None) == key:
            code = getattr(graph, "source_code", "")
            return code if isinstance(code, str) else ""
    return ""
