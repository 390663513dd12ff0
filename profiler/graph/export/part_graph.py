"""What the export of one part needs: a torch module, its forward under fixed names, its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PartGraph", "Trial", "free_sizes", "shapes_of"]

Trial = Mapping[str, int]
"""A size for each name of an axis: what a graph is traced and compared on."""


@dataclass(frozen=True, slots=True)
class PartGraph:
    """A part as it is exported.

    forward     arrays by input name → tensors, in the order of `outputs`; what is traced
    inputs      name → axes: a number where the axis is static, else the name of a free one
    draw        (numpy generator, sizes) → torch tensors by input name, in the graph's types
    trials      sizes of the free axes, and what `draw` needs beside them: the first is traced,
                all are compared on
    reference   (sizes, tensors by name) → what torch computes, None: `forward`
    """

    module: Any
    forward: Callable[..., tuple[Any, ...]]
    inputs: Mapping[str, tuple[int | str, ...]]
    outputs: tuple[str, ...]
    draw: Callable[[Any, Trial], dict[str, Any]]
    trials: tuple[Trial, ...]
    reference: Callable[[Trial, Mapping[str, Any]], tuple[Any, ...]] | None = None
    notes: tuple[str, ...] = field(default=())

    def free_axes(self) -> dict[str, dict[int, str]]:
        """Input → axis → name, of the axes that stay free."""
        return {
            name: {i: axis for i, axis in enumerate(axes) if isinstance(axis, str)}
            for name, axes in self.inputs.items()
        }

    def computed(self, sizes: Trial, tensors: Mapping[str, Any]) -> tuple[Any, ...]:
        """What torch computes on the tensors."""
        if self.reference is not None:
            return self.reference(sizes, tensors)
        return self.forward(**tensors)


def free_sizes(
    trials: Mapping[str, tuple[int, int]], static: Mapping[str, int | None]
) -> tuple[Trial, ...]:
    """Two sets of sizes, or one where all are static: `trials` has two of each axis, `static` takes
    their place where it is not None."""
    fixed = {name: size for name, size in static.items() if size is not None}
    both = [{**{name: pair[i] for name, pair in trials.items()}, **fixed} for i in (0, 1)]
    return tuple(both[:1] if both[0] == both[1] else both)


def shapes_of(
    inputs: Mapping[str, tuple[int | str, ...]], sizes: Trial
) -> dict[str, tuple[int, ...]]:
    """The shape of each input under `sizes`."""
    return {
        name: tuple(sizes[axis] if isinstance(axis, str) else axis for axis in axes)
        for name, axes in inputs.items()
    }
