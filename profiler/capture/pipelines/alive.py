"""The instances of some classes that live in the process, found in one look at all objects.

Subclasses are asked of their classes, so that each object costs a look at its type and no more.
What `gc.freeze()` hides, as in a child that was forked from a profiled process, is looked for in
what the script's variables lead to.
"""

from __future__ import annotations

import gc
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType, FunctionType, ModuleType
from typing import Any

from profiler.capture.notices import notice
from profiler.capture.pipelines.variables import values_around

__all__ = ["instances"]

_MOST_FROZEN = 100_000  # objects that are looked at one by one
_CLOSED = (type, ModuleType)  # what they lead to are classes and libraries
_OWN = "profiler."


def instances(kinds: Sequence[type], caller: FrameType | None = None) -> list[Any]:
    """Those of `kinds` and of their subclasses. Of what `gc.freeze()` has hidden, those that lie
    outermost in what variables of modules that are no library, and of the frames from `caller` on,
    lead to."""
    wanted = _with_subclasses(kinds)
    if not wanted:
        return []
    found = [one for one in gc.get_objects() if type(one) in wanted]
    if gc.get_freeze_count():
        known = set(map(id, found))
        roots = [*_script_globals(), *values_around(caller)]
        found += [one for one in _reached(roots, wanted) if id(one) not in known]
    return found


def _reached(roots: Iterable[Any], wanted: set[type]) -> list[Any]:
    """The instances of these classes that the roots lead to, but not through one another."""
    found, seen = [], set[int]()
    pending = list(roots)
    while pending:
        further: list[Any] = []
        for one in pending:
            if id(one) in seen or not gc.is_tracked(one) or isinstance(one, _CLOSED):
                continue
            seen.add(id(one))
            if type(one) in wanted:
                found.append(one)
            elif isinstance(one, FunctionType):
                further.append(one.__closure__)
            else:
                further.append(one)
        if len(seen) > _MOST_FROZEN:
            notice(
                "gc.freeze() hides objects from the look at what is not captured: some of what "
                "runs may be missing from the coverage"
            )
            break
        pending = gc.get_referents(*further)
    return found


def _script_globals() -> Iterator[dict[str, Any]]:
    """The variables of modules that are no library's."""
    library = sysconfig.get_path("stdlib")
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        foreign = "site-packages" in file or "dist-packages" in file or file.startswith(library)
        if not foreign and not name.startswith(_OWN) and (file or name == "__main__"):
            yield vars(module)


def _with_subclasses(kinds: Sequence[type]) -> set[type]:
    found, left = set(kinds), list(kinds)
    while left:
        below: list[type] = type.__subclasses__(left.pop())
        new = [kind for kind in below if kind not in found]
        found.update(new)
        left += new
    return found
