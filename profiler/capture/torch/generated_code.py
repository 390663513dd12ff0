"""What the code that torch.compile generated for a graph executes, in its order.

The profiler says of such a graph when it ran and which operators it called; the fused kernels
between these record nothing of their own. The generated code has both in one list:

    # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.t, aten.addmm]
    extern_kernels.addmm(arg4_1, buf3, …, out=buf4)
    cpp_fused_add_gelu_mul_1(buf6, arg2_1, buf4, …)

Names of layers are `fx::linear` where the code tells the nodes of the traced graph, else
`inductor::cpp_fused_add_gelu_mul_1`.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["GraphLayers", "Statement", "layers_of", "source_of", "statements"]

_BODY = re.compile(r"^( *)def call\(.*?\):\n(.*?)^\1    return", re.MULTILINE | re.DOTALL)
_NODES = re.compile(r"# (?:Topologically Sorted )?Source Nodes: \[(.*?)\]")
_KERNEL = re.compile(r"((?:cpp|triton)_\w+)(?:\.run)?\(")
_EXTERN = re.compile(
    r"(?:\w+ = )?(?:extern_kernels\.(\w+)|(?:torch\.ops\.\w+|aten)\.(\w+)(?:\.\w+)?)\("
)
_PROFILED = re.compile(r"(?:graph_\d+_)?((?:cpp|triton)_\w+)")  # kernels that record themselves
_MOST_NODES = 8
_GRAPH = "CompiledFxGraph"


@dataclass(frozen=True, slots=True)
class Statement:
    """A kernel, or an operator (`extern`) by its name without namespace, and the nodes of the
    traced graph that it stands for."""

    name: str
    extern: bool
    nodes: tuple[str, ...] = ()

    @property
    def layer(self) -> str:
        """What its layer is called below the module."""
        if not self.nodes:
            return f"inductor::{self.name}"
        more = "_and_more" if len(self.nodes) > _MOST_NODES else ""
        return f"fx::{'_'.join(self.nodes[:_MOST_NODES])}{more}"


@dataclass(frozen=True, slots=True)
class GraphLayers:
    """Layers of what ran in one call of a graph, below its module: of each operator that was
    seen, "" where nothing is known, and of the gap before each and behind the last, with its op
    type."""

    operators: tuple[str, ...]
    gaps: tuple[tuple[str, str], ...]


def statements(code: str) -> list[Statement]:
    """What generated code executes, in its order; empty for what is no such code."""
    body = _BODY.search(code)
    return [*_read(body[2])] if body else []


def _read(body: str) -> Iterator[Statement]:
    nodes: tuple[str, ...] = ()
    for line in map(str.strip, body.splitlines()):
        told = _NODES.match(line)
        if told is not None:
            nodes = tuple(re.findall(r"\w+", told[1]))
            continue
        kernel, extern = _KERNEL.match(line), _EXTERN.match(line)
        if kernel is not None:
            yield Statement(kernel[1], extern=False, nodes=nodes)
        elif extern is not None:
            yield Statement(extern[1] or extern[2], extern=True, nodes=nodes)
        if kernel is not None or extern is not None:
            nodes = ()


def layers_of(found: Sequence[Statement], seen: Sequence[str]) -> GraphLayers:
    """The layers of one call of a graph, of which the operators `seen` were recorded.

    They are those of the code where it calls these operators in this order; else a gap has a
    layer of its own by its number, and an operator none.
    """
    kernels = {s.name: s.layer for s in found if not s.extern}
    externs = [s for s in found if s.extern]
    profiled = [_PROFILED.fullmatch(name) for name in seen]
    called = [name.rpartition("::")[2] for name, k in zip(seen, profiled, strict=True) if k is None]
    told = bool(found) and called == [s.name for s in externs]
    following = iter([s.layer for s in externs] if told else [""] * len(called))
    operators = tuple(
        next(following) if k is None else kernels.get(k[1], f"inductor::{k[1]}") for k in profiled
    )
    if told and not any(profiled):  # else what lies between is not the kernels
        return GraphLayers(operators, tuple(_gaps(found)))
    numbered = ((f"inductor::part_{number}", _GRAPH) for number in range(len(seen) + 1))
    return GraphLayers(operators, tuple(numbered))


def _gaps(found: Sequence[Statement]) -> Iterator[tuple[str, str]]:
    """Layer and op type of what runs before each operator and behind the last."""
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
    """The code that torch.compile generated for the graph of that key, as the profiler names it;
    "" where this process has no such graph any more."""
    module = sys.modules.get("torch._inductor.output_code")
    kind = getattr(module, _GRAPH, None)
    if kind is None:
        return ""
    for graph in gc.get_referrers(kind):
        if type(graph) is kind and getattr(graph, "_fx_graph_cache_key", None) == key:
            code = getattr(graph, "source_code", "")
            return code if isinstance(code, str) else ""
    return ""
