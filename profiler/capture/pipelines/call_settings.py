"""How the submodules of a pipeline are set up now, as their backends read it."""

from __future__ import annotations

from typing import Any

from profiler.capture.pipelines.submodules import part_of, present_entries
from profiler.capture.registry import backend_of
from profiler.interruptions import let_pass
from profiler.trace.manifest_settings import SubmoduleSettings

__all__ = ["part_settings", "submodule_settings"]

_NOTHING = SubmoduleSettings()


def submodule_settings(pipeline: Any) -> dict[str, SubmoduleSettings]:
    """By name; those of which nothing is known are left out, and each is read once."""
    found: dict[str, SubmoduleSettings] = {}
    for entry in present_entries(pipeline):
        if entry.submodule not in found:
            read = part_settings(part_of(pipeline, entry))
            if read is not None:
                found[entry.submodule] = read
    return found


def part_settings(part: Any) -> SubmoduleSettings | None:
    """The settings of what executes a submodule; None where nobody can tell. What fails of the
    user's objects says nothing."""
    try:
        found = backend_of(part).settings(part)
    except Exception as error:  # noqa: BLE001 - settings are not worth a drop
        let_pass(error)
        return None
    return None if found == _NOTHING else found
