"""`graph annotate`: a model and what a run measured → the model with time on its nodes.

    annotation = annotate_model(model, measured, layer_of, executed, values)

Measured commands have a layer and an op type. Where it is known which nodes were executed, the n-th
command of a layer and op type is the n-th such node, and its time goes to the node that it stands
for. Where it is not, or their numbers differ, a command is placed at the only node of its layer and
op type, else at its layer alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from profiler.graph.executed import ExecutedNode, Origins, origins_of
from profiler.graph.metadata import LAYER, MEASURED, PREFIX
from profiler.graph.values import nodes as all_nodes
from profiler.plugins import plain_text

__all__ = ["Annotation", "HotNode", "MeasuredCommand", "annotate_model"]

_Key = tuple[str, str]
_NAMED = 6  # fused nodes that a node names


@dataclass(frozen=True, slots=True)
class MeasuredCommand:
    """A command of every call: the `position`-th, from 0, of the `of` commands of its layer and op
    type. `duration_ns` and bytes are sums over the `calls` that have it; bytes None: unknown."""

    layer: str
    op_type: str
    position: int
    of: int
    calls: int
    duration_ns: int
    bytes_read: int | None = None
    bytes_written: int | None = None
    role: str = ""


@dataclass(frozen=True, slots=True)
class HotNode:
    """A node with its time: `duration_ns` over all calls, `share` of all commands' time."""

    node: str
    op_type: str
    layer: str
    role: str
    duration_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class Annotation:
    """How much time, in ns over all calls, was placed: at nodes, at layers alone, or nowhere.

    `fused` are nodes whose time another carries; `nodes` those that carry time, most first;
    `unplaced` the commands of layers that the model lacks, as layer and op type with their time.
    """

    at_nodes_ns: int
    at_layers_ns: int
    nowhere_ns: int
    nodes: tuple[HotNode, ...]
    fused: int
    unplaced: tuple[tuple[str, str, int], ...]

    @property
    def total_ns(self) -> int:
        """The time of all commands."""
        return self.at_nodes_ns + self.at_layers_ns + self.nowhere_ns

    @property
    def placed(self) -> str:
        """Where the time was placed, as a phrase."""
        total = max(self.total_ns, 1)
        parts = (
            (self.at_nodes_ns, "at nodes"),
            (self.at_layers_ns, "at layers alone"),
            (self.nowhere_ns, "nowhere"),
        )
        return ", ".join(f"{100 * part / total:.1f} % {where}" for part, where in parts if part)


@dataclass(slots=True)
class _Sum:
    """What was measured of one node."""

    duration_ns: int = 0
    bytes_read: int | None = 0
    bytes_written: int | None = 0
    roles: dict[str, int] = field(default_factory=dict)
    calls_of: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    kinds: dict[str, None] = field(default_factory=dict)
    others: dict[ir.Node, None] = field(default_factory=dict)

    def add(self, command: MeasuredCommand, others: Iterable[ir.Node]) -> None:
        self.calls_of[command.op_type][command.of] = command.calls
        self.duration_ns += command.duration_ns
        self.bytes_read = _plus(self.bytes_read, command.bytes_read)
        self.bytes_written = _plus(self.bytes_written, command.bytes_written)
        self.kinds[command.op_type] = None
        self.others |= dict.fromkeys(others)
        if command.role:
            self.roles[command.role] = self.roles.get(command.role, 0) + command.duration_ns

    @property
    def calls(self) -> int:
        """In how many calls it ran: those with one number of its commands are no others'."""
        return max((sum(calls.values()) for calls in self.calls_of.values()), default=0)

    @property
    def role(self) -> str:
        return max(self.roles, key=lambda role: self.roles[role], default="")


def annotate_model(
    model: ir.Model,
    measured: Sequence[MeasuredCommand],
    layer_of: Callable[[str, str], str],
    executed: Sequence[ExecutedNode] | None = None,
    values: frozenset[str] = frozenset(),
) -> Annotation:
    """Write what was measured on the nodes of `model`, in place; what an earlier run wrote goes.

    `layer_of` gives the layer of a node by its name, of one without by the first value it writes,
    and its op type, as capture names layers.
    `executed` are the nodes that were executed, in that order, and `values` all values of their
    graph; None where that is not known.
    """
    nodes = list(all_nodes(model))
    for node in nodes:
        for key in MEASURED:
            node.metadata_props.pop(key, None)
    layers = {node: layer_of(_key(node), node.op_type) for node in nodes}
    if executed is None:
        candidates = [(layers[node], node.op_type, Origins(node)) for node in nodes]
    else:
        origins = origins_of(model, executed, values)
        candidates = [
            (node.layer, node.op_type, origin)
            for node, origin in zip(executed, origins, strict=True)
        ]
    return _Placing(measured, layers, candidates, ordered=executed is not None).write()


def _key(node: ir.Node) -> str:
    return node.name or next((value.name for value in node.outputs if value.name), "")


class _Placing:
    """Commands on their way to nodes."""

    def __init__(
        self,
        measured: Sequence[MeasuredCommand],
        layers: Mapping[ir.Node, str],
        candidates: Sequence[tuple[str, str, Origins]],
        *,
        ordered: bool,
    ) -> None:
        self._layers = layers
        self._known = set(layers.values())
        self._ordered = ordered
        self._total = max(sum(command.duration_ns for command in measured), 1)
        self._groups: dict[_Key, list[Origins]] = defaultdict(list)
        for layer, op_type, origins in candidates:
            self._groups[layer, op_type].append(origins)
        self._sums: dict[ir.Node, _Sum] = {}
        self._of_layers: dict[str, _Sum] = {}
        self._at_layers = 0
        self._nowhere: dict[_Key, int] = defaultdict(int)
        for command in measured:
            self._place(command)

    def _place(self, command: MeasuredCommand) -> None:
        origins = self._origins(command)
        if origins is not None and origins.counted_at is not None:
            found = self._sums.setdefault(origins.counted_at, _Sum())
            found.add(command, origins.others)
        elif command.layer in self._known:
            self._at_layers += command.duration_ns
        else:
            self._nowhere[command.layer, command.op_type] += command.duration_ns
        self._of_layers.setdefault(command.layer, _Sum()).add(command, ())

    def _origins(self, command: MeasuredCommand) -> Origins | None:
        """Where a command belongs, None where that cannot be told."""
        group = self._groups.get((command.layer, command.op_type), [])
        if len(group) == 1:
            return group[0]
        if self._ordered and len(group) == command.of:
            return group[command.position]
        return None

    def write(self) -> Annotation:
        """Write the metadata of all nodes."""
        for node, layer in self._layers.items():
            self._write_layer(node, layer)
        fused: dict[ir.Node, ir.Node] = {}
        for node, found in self._sums.items():
            self._write_node(node, found)
            fused |= {other: node for other in found.others if other not in self._sums}
        for other, node in fused.items():
            other.metadata_props[f"{PREFIX}counted_at"] = plain_text(node.name or node.op_type)
        if self._ordered and self._sums:
            for node in self._layers:
                if node not in self._sums and node not in fused and node.op_type != "Constant":
                    node.metadata_props[f"{PREFIX}executed"] = "no: folded or removed"
        hot = [self._hot(node, found) for node, found in self._sums.items()]
        nowhere = [(*key, duration) for key, duration in self._nowhere.items()]
        return Annotation(
            sum(found.duration_ns for found in self._sums.values()),
            self._at_layers,
            sum(self._nowhere.values()),
            tuple(sorted(hot, key=lambda node: -node.duration_ns)),
            len(fused),
            tuple(sorted(nowhere, key=lambda entry: -entry[2])),
        )

    def _hot(self, node: ir.Node, found: _Sum) -> HotNode:
        share = found.duration_ns / self._total
        name, layer = node.name or "", self._layers[node]
        return HotNode(name, node.op_type, layer, found.role, found.duration_ns, share)

    def _write_layer(self, node: ir.Node, layer: str) -> None:
        found = self._of_layers.get(layer)
        if found is None or not found.calls:
            return
        node.metadata_props.setdefault(LAYER, layer)
        text = f"{_microseconds(found)}, {self._share(found)}: the whole layer"
        node.metadata_props[f"{PREFIX}layer_time"] = text

    def _write_node(self, node: ir.Node, found: _Sum) -> None:
        written = {
            "time": _microseconds(found),
            "share": self._share(found),
            "calls": str(found.calls),
            "bytes_read": _per_call(found.bytes_read, found.calls, "read"),
            "bytes_written": _per_call(found.bytes_written, found.calls, "written"),
            "role": found.role,
        }
        kinds = list(found.kinds)
        if kinds != [node.op_type]:
            written["executed_as"] = ", ".join(kinds)
        if found.others:
            named = [other.name or other.op_type for other in found.others]
            more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            written["stands_for"] = f"{', '.join(named[:_NAMED])}{more}"
        for name, text in written.items():
            if text:
                node.metadata_props[PREFIX + name] = plain_text(text)

    def _share(self, found: _Sum) -> str:
        return f"{100 * found.duration_ns / self._total:.2f} %"


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _microseconds(found: _Sum) -> str:
    """The mean time of a call."""
    return f"{found.duration_ns / max(found.calls, 1) / 1000:.1f} µs a call"


def _per_call(total: int | None, calls: int, done: str) -> str:
    """Bytes with what was done with them: Netron cuts long names."""
    return "" if total is None else f"{round(total / max(calls, 1))} bytes {done} a call"
