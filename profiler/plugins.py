"""Plug-ins: objects that other packages register under an entry point group of ours.

    for importer in plugins("profile_sd3.importers", "name", "recognises", "read"):
        ...

A plug-in that cannot be loaded is left out, and one line on stderr names it and its package. Entry
points are looked up where plug-ins are used, never by `import profiler` or `--help`.
"""

from __future__ import annotations

import contextlib
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

from profiler.plain_text import plain_text

__all__ = ["plugins"]


@cache
def plugins(group: str, *needs: str) -> tuple[Any, ...]:
    """The objects registered under `group`, in order of their names; those that cannot be loaded
    or lack an attribute of `needs` are left out, each with one line on stderr."""
    # It takes a fifth of the time of `--help`, which asks for no plug-in.
    from importlib.metadata import entry_points

    found = []
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        try:
            plugin = point.load()
            missing = [need for need in needs if not hasattr(plugin, need)]
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever its module does
            _leave_out(point, group, f"cannot be loaded ({type(error).__name__}: {error})")
            continue
        if missing:
            _leave_out(point, group, f"has no {missing[0]}")
        else:
            found.append(plugin)
    return tuple(found)


def _leave_out(point: EntryPoint, group: str, why: str) -> None:
    """Name a plug-in that is not used; nothing happens where there is no stderr."""
    package = point.dist.name if point.dist else point.module
    line = f"profile-sd3: the plug-in {point.name} ({group}) of {package} {why} and is left out: "
    line += f"update {package} or uninstall it"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(plain_text(" ".join(line.split())) + "\n")
        sys.stderr.flush()
