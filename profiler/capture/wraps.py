"""Reversible replacements of attributes: everything that capture changes on a pipeline.

wraps = Wraps()
wraps.around(pipe.scheduler, "step", lambda original, args, kwargs: original(*args, **kwargs))
wraps.undo()   # the pipeline is as it was
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["WRAPPED", "Around", "Wraps"]

WRAPPED = "_profile_sd3_wrapped"  # marks the class of an object whose call is wrapped

Around = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class _CallableProxy:
    """Stands in for an object that is called (`pipe.tokenizer(...)`): calls go through `around`,
    everything else to the object itself."""

    def __init__(self, target: Any, around: Around) -> None:
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_around", around)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._around(self._target, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._target, name, value)


class Wraps:
    """A stack of replacements, undone in reverse order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def around(self, owner: Any, name: str, around: Around) -> None:
        """Replace `owner.name` by what calls `around(original, args, kwargs)`."""
        original = getattr(owner, name)
        if callable(getattr(type(original), "__get__", None)):  # functions and bound methods

            @functools.wraps(original)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return around(original, args, kwargs)

            self.replace(owner, name, wrapper)
        else:
            self.replace(owner, name, _CallableProxy(original, around))

    def around_call(self, owner: Any, around: Around) -> None:
        """Wrap `owner(...)` itself: `owner` becomes an instance of a subclass of its class.

        Python looks `__call__` up on the type, so an attribute of the instance cannot do it;
        a subclass concerns this one object only, and `isinstance` keeps its answers.
        """
        original_class = type(owner)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return around(functools.partial(original_class.__call__, self), args, kwargs)

        functools.update_wrapper(call, original_class.__call__)
        subclass = type(
            original_class.__name__, (original_class,), {"__call__": call, WRAPPED: True}
        )
        subclass.__module__, subclass.__qualname__ = (
            original_class.__module__,
            original_class.__qualname__,
        )
        owner.__class__ = subclass
        self._undo.append(lambda: setattr(owner, "__class__", original_class))

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name`; undoing restores or removes the attribute of the instance."""
        missing = object()
        before = getattr(owner, "__dict__", {}).get(name, missing)
        setattr(owner, name, value)

        def undo() -> None:
            if before is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        self._undo.append(undo)

    def on_undo(self, action: Callable[[], None]) -> None:
        """Run `action` when the wraps are undone, in its turn."""
        self._undo.append(action)

    def undo(self) -> None:
        """Undo everything, the last first; may be called again without effect."""
        while self._undo:
            self._undo.pop()()
