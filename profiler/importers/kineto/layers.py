"""Layers of a Kineto trace: module paths, operators and kernels under readable, stable names.

A module's path joins the classes of the modules around it below the call, each numbered among the
instances of its class under the same parent: `CLIPTextTransformer.CLIPEncoder.CLIPEncoderLayer_3`.
The trace's own numbers (`CLIPEncoderLayer_15`) count through all submodules and depend on what
else was recorded; these do not, so that two runs can be compared layer by layer.

- A command launched in a module without children has the module's path.
- In a module with children, or one that torch.compile compiled, the launching operator follows
  (`…CLIPAttention_0/aten::_flash_attention_forward`): it does several things of its own.
- Directly in the submodule, and so in all of a submodule compiled as one, the operator stands
  alone (`aten::mm`); where no operator is known, the kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec
import numpy as np

from profiler.importers.kineto.frames import Frames, Kind, class_of
from profiler.kineto.events import Args

__all__ = ["ModulePaths", "input_dims"]


class ModulePaths:
    """The path of each module range below its call, "" for the submodule itself.

    `roots` are the indices of the module ranges that are submodules as a whole. An autoencoder's
    method has none: every module in it has a path.
    """

    def __init__(self, frames: Frames, roots: Iterable[int]) -> None:
        self._frames = frames
        self._roots = frozenset(roots)
        self._parent = frames.modules.parent.tolist()
        self._labels = _labels(frames)
        self._whole = _leaves(frames)
        self._paths: dict[int, str] = {}

    def path(self, module: int) -> str:
        """The path of the module range with this index."""
        chain = []
        while module >= 0 and module not in self._paths and module not in self._roots:
            chain.append(module)
            module = self._parent[module]
        path = self._paths.get(module, "")
        for index in reversed(chain):
            path = f"{path}.{self._label(index)}" if path else self._label(index)
            self._paths[index] = path
        return path

    def layer(self, module: int, operator: str) -> str:
        """The layer of a command that `operator` launched in this module range (-1: in none)."""
        path = self.path(module) if module >= 0 else ""
        if not path:
            return operator
        return path if self._frames.instances[module] in self._whole else f"{path}/{operator}"

    def _label(self, module: int) -> str:
        parent = self._parent[module]
        above = self._frames.instances[parent] if parent >= 0 else ""
        return self._labels[above, self._frames.instances[module]]


def _labels(frames: Frames) -> dict[tuple[str, str], str]:
    """(parent instance, instance) → class, numbered where the parent has several of the class."""
    siblings: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    pairs = set()
    for instance, parent in zip(frames.instances, frames.modules.parent.tolist(), strict=True):
        above = frames.instances[parent] if parent >= 0 else ""
        name, number = class_of(instance)
        siblings[above, name].add(number)
        pairs.add((above, instance))
    ranks = {
        key: {number: rank for rank, number in enumerate(sorted(numbers))}
        for key, numbers in siblings.items()
    }
    labels = {}
    for above, instance in pairs:
        name, number = class_of(instance)
        rank = ranks[above, name]
        labels[above, instance] = f"{name}_{rank[number]}" if len(rank) > 1 else name
    return labels


def _leaves(frames: Frames) -> set[str]:
    """Instances that are one operation: no module and no compiled code runs in them."""
    compiled = frames.of_kind(Kind.COMPILED)
    around = frames.modules.innermost(compiled.thread, compiled.start_ns)
    composed = {index for index in frames.modules.parent.tolist() if index >= 0}
    composed.update(index for index in np.unique(around).tolist() if index >= 0)
    return set(frames.instances) - {frames.instances[index] for index in composed}


def input_dims(args: Args | None) -> list[list[int]]:
    """Shapes of an operator's tensor inputs; empty where shapes were not recorded."""
    if args is None or not bytes(args.dims):
        return []
    found: list[list[int]] = []
    try:
        _collect(msgspec.json.decode(args.dims), found)
    except msgspec.DecodeError:
        return []
    return found


def _collect(dims: object, found: list[list[int]]) -> None:
    """Shapes in nested lists: tensor lists hold lists of shapes."""
    if not isinstance(dims, list) or not dims:
        return
    if all(isinstance(size, int) for size in dims):
        found.append(dims)
        return
    for entry in dims:
        _collect(entry, found)
