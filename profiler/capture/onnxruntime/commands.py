"""From the nodes of a call to its commands and counters: layers, tracks of providers, memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from profiler.capture.onnxruntime.layers import LayerMap
from profiler.events import ROOT_DEVICE, UNKNOWN, Category, Track
from profiler.ort_profiles.commands import CommandTable, Placed
from profiler.ort_profiles.nodes import NodeColumns, NodeKind
from profiler.ort_profiles.providers import CPU, device_of_provider
from profiler.trace.columns import CommandColumns, Counter

__all__ = ["Attributed", "Commands", "Placement", "arena_counters"]

_TRANSFERS = ("MemcpyToHost", "MemcpyFromHost")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the providers of a session execute: `device` is the submodule's own, `devices` holds
    those of the session's providers by name."""

    device: str
    devices: Mapping[str, str]

    def device_of(self, node: NodeKind) -> str:
        """The provider's device. A node on the CPU runs on the submodule's device where that is a
        CPU, else on the root device."""
        if node.provider in (CPU, ""):
            return self.device if self.device.startswith("cpu") else ROOT_DEVICE
        known = self.devices.get(node.provider)
        return known or device_of_provider(node.provider, {})

    def track_of(self, node: NodeKind, *, moves: bool = False) -> Track:
        """The track of its provider, or of its copies; `moves` says of a node that it only hands
        data to the parts of an operation or gathers theirs."""
        provider = node.provider or "provider unknown"
        category: Category = "copy" if moves else "compute"
        name = f"{provider} copies" if moves else provider
        if node.op_type in _TRANSFERS:
            category, name = "dma", "Memcpy"
        return Track(self.device_of(node), name, category)


@dataclass(slots=True)
class Attributed:
    """How much operator time found a module path, of how much; in ns."""

    attributed_ns: int = 0
    total_ns: int = 0


class Commands:
    """The commands of calls, whose nodes have their place by `layers`: those of one profile, asked
    once each."""

    def __init__(self, placement: Placement, layers: LayerMap, nodes: NodeColumns) -> None:
        self.layers, self._placement = layers, placement
        self._table = CommandTable(nodes.kinds, self._of_kind)

    def of(self, nodes: NodeColumns, origin_ns: int, attributed: Attributed) -> CommandColumns:
        """Those of one call; `origin_ns` is the profile's start on the run's clock. Adds to
        `attributed`."""
        commands = self._table.commands(nodes, origin_ns)
        attributed.total_ns += int(nodes.duration_ns.sum())
        if commands.module is not None:
            attributed.attributed_ns += int(commands.duration_ns[commands.module > 0].sum())
        return commands

    def _of_kind(self, node: NodeKind) -> Placed:
        layer, module = self.layers.layer_of(node.name, node.op_type)
        part = self.layers.part_of(node.name)
        return Placed(
            self._placement.track_of(node, moves=part is not None and part.moves),
            layer,
            module,
            part.command_index if part is not None else UNKNOWN,
        )


def arena_counters(
    nodes: NodeColumns, origin_ns: int, placement: Placement, name: str
) -> tuple[Counter, ...]:
    """Bytes in use over time, one counter a device: each provider's nodes tell of the arena of
    their own provider. Values that did not change are left out."""
    known = nodes.rows(nodes.arena_bytes >= 0)
    ends = origin_ns + known.start_ns + known.duration_ns
    of_device: dict[str, list[int]] = {}
    for code in np.unique(known.kind).tolist():
        of_device.setdefault(placement.device_of(known.kinds[code]), []).append(code)
    counters = []
    for device, codes in sorted(of_device.items()):
        rows = np.isin(known.kind, codes)
        order = np.lexsort((known.arena_bytes[rows], ends[rows]))
        times, values = ends[rows][order], known.arena_bytes[rows][order]
        changed = np.flatnonzero(np.diff(values, prepend=-1))
        counters.append(
            Counter(device, f"{name} arena in use", "bytes", times[changed], values[changed])
        )
    return tuple(counters)
