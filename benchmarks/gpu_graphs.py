"""CUDA graphs of a module: recorded at the first call with new shapes, replayed from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["graphed"]


def graphed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Inputs are copied into the graph's own, outputs out of it: callers may keep what they got.

    What cannot be recorded (it waits for the device) runs as before, and is told of.
    """
    graphs: dict[Any, tuple[Any, list[torch.Tensor], Any] | None] = {}

    def replayed(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        rest = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
        key = (str(spec), tuple((one.shape, one.dtype) for one in given), repr(rest))
        if key not in graphs:
            graphs[key] = _recorded(forward, leaves, spec)
        recorded = graphs[key]
        if recorded is None:
            return forward(*args, **kwargs)
        graph, held, out = recorded
        for own, one in zip(held, given, strict=True):
            own.copy_(one)
        graph.replay()
        return pytree.tree_map_only(torch.Tensor, torch.clone, out)

    return replayed


def _recorded(
    forward: Callable[..., Any], leaves: list[Any], spec: Any
) -> tuple[Any, list[torch.Tensor], Any] | None:
    held = [one.clone() if isinstance(one, torch.Tensor) else one for one in leaves]
    args, kwargs = pytree.tree_unflatten(held, spec)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            forward(*args, **kwargs)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            out = forward(*args, **kwargs)
    except RuntimeError as error:
        print(f"no graph of {forward}: {error}"[:300], flush=True)
        torch.cuda.synchronize()
        return None
    return graph, [one for one in held if isinstance(one, torch.Tensor)], out
