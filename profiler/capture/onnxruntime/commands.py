"""From the nodes of a call to its commands and counters: layers, tracks of providers, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiler.capture.onnxruntime.layers import LayerMap
from profiler.events import ROOT_DEVICE, UNKNOWN, Category, Track
from profiler.ort_profiles.profile import NodeEvent
from profiler.ort_profiles.providers import CPU, device_of_provider
from profiler.trace.columns import CommandBuilder, CommandColumns, Counter

__all__ = ["Attributed", "Placement", "arena_counters", "commands_of"]

_TRANSFERS = ("MemcpyToHost", "MemcpyFromHost")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the providers of a session execute: `device` is the submodule's own, `devices` holds
    those of the session's providers by name."""

    device: str
    devices: Mapping[str, str]

    def device_of(self, node: NodeEvent) -> str:
        """The provider's device. A node on the CPU runs on the submodule's device where that is a
        CPU, else on the root device."""
        if node.provider in (CPU, ""):
            return self.device if self.device.startswith("cpu") else ROOT_DEVICE
        known = self.devices.get(node.provider)
        return known or device_of_provider(node.provider, {})

    def track_of(
        self, node: NodeEvent, threads: dict[tuple[str, str], list[int]], *, moves: bool = False
    ) -> Track:
        """The track of its provider, or of its copies; `moves` says of a node that it only hands
        data to the parts of an operation or gathers theirs. `threads` keeps the executor's threads
        of each, in order of their first node: the second and later have tracks of their own."""
        device = self.device_of(node)
        provider = node.provider or "provider unknown"
        category: Category = "copy" if moves else "compute"
        name = f"{provider} copies" if moves else provider
        if node.op_type in _TRANSFERS:
            category, name = "dma", "Memcpy"
        seen = threads.setdefault((device, name), [])
        if node.thread not in seen:
            seen.append(node.thread)
        number = seen.index(node.thread)
        return Track(device, f"{name} thread {number}" if number else name, category)


@dataclass(slots=True)
class Attributed:
    """How much operator time found a module path, of how much; in ns."""

    attributed_ns: int = 0
    total_ns: int = 0


def commands_of(
    nodes: Sequence[NodeEvent],
    origin_ns: int,
    placement: Placement,
    layers: LayerMap,
    attributed: Attributed,
) -> CommandColumns:
    """The commands of one call; `origin_ns` is the profile's start on the run's clock. Adds to
    `attributed`."""
    builder = CommandBuilder()
    threads: dict[tuple[str, str], list[int]] = {}
    for node in nodes:
        layer, module = layers.layer_of(node.name, node.op_type)
        part = layers.part_of(node.name)
        attributed.total_ns += node.duration_ns
        attributed.attributed_ns += node.duration_ns if module else 0
        builder.add(
            placement.track_of(node, threads, moves=part is not None and part.moves),
            layer,
            node.op_type,
            origin_ns + node.start_ns,
            node.duration_ns,
            shapes=node.shapes,
            module=module,
            name=module,
            bytes_read=node.bytes_read,
            bytes_written=node.bytes_written,
            command_index=part.command_index if part is not None else UNKNOWN,
        )
    return builder.build()


def arena_counters(
    nodes: Sequence[NodeEvent], origin_ns: int, placement: Placement, name: str
) -> tuple[Counter, ...]:
    """Bytes in use over time, one counter a device: each provider's nodes tell of the arena of
    their own provider. Values that did not change are left out."""
    samples: dict[str, list[tuple[int, int]]] = {}
    for node in nodes:
        if node.arena_bytes >= 0:
            time_ns = origin_ns + node.start_ns + node.duration_ns
            samples.setdefault(placement.device_of(node), []).append((time_ns, node.arena_bytes))
    counters = []
    for device, found in sorted(samples.items()):
        times, values = np.array(sorted(found), dtype=np.int64).T
        changed = np.flatnonzero(np.diff(values, prepend=-1))
        counters.append(
            Counter(device, f"{name} arena in use", "bytes", times[changed], values[changed])
        )
    return tuple(counters)
