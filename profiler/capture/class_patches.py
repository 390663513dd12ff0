"""Methods that capture replaces on classes of libraries, and puts back at the end."""

from __future__ import annotations

from typing import Any

__all__ = ["ClassPatches"]

_MISSING = object()


class ClassPatches:
    """The methods that have been replaced; false while there are none."""

    def __init__(self) -> None:
        self._replaced: list[tuple[type, str, Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._replaced)

    def replace(self, owner: type, name: str, value: Any) -> None:
        """Let `value` stand for `name` in `owner`, the class that defines it: KeyError where a
        class above does."""
        self._replaced.append((owner, name, value, vars(owner)[name]))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Leave the classes as they were; what somebody else has patched since stays patched."""
        while self._replaced:
            owner, name, ours, before = self._replaced.pop()
            if vars(owner).get(name, _MISSING) is ours:
                setattr(owner, name, before)
