"""What a module holds itself, also where its children and tensors are in no dict (TorchScript)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["child", "own_tensors"]


def child(module: Any, name: str) -> Any:
    """The child of that name; None where there is none."""
    children: Any = getattr(module, "_modules", {})
    return children[name] if name in children else None  # noqa: SIM401 - it may have no `get`


def own_tensors(module: Any) -> Iterator[Any]:
    """Its parameters and buffers, but not its children's."""
    own = module.__dict__
    for kind in ("_parameters", "_buffers"):
        held = own[kind] if kind in own else getattr(module, kind)
        yield from (tensor for tensor in held.values() if tensor is not None)
