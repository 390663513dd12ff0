"""How the submodules of a pipeline are set up now, as their backends read it, and the numbers that
a call of it was given."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping
from typing import Any

from profiler.capture.pipelines.submodules import part_of, present_entries
from profiler.capture.registry import backend_of
from profiler.interruptions import let_pass
from profiler.trace.manifest_fields import Setting, setting
from profiler.trace.manifest_settings import SubmoduleSettings

__all__ = ["block_defaults", "call_numbers", "part_settings", "submodule_settings"]

_NOTHING = SubmoduleSettings()
_DEFAULTS: weakref.WeakKeyDictionary[Any, dict[str, Setting]] = weakref.WeakKeyDictionary()
"""By blocks of modular pipelines, which take milliseconds to tell."""


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


def call_numbers(function: Any, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Setting]:
    """The numbers and switches among a call's arguments, defaults included; no text of the user."""
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        let_pass(error)
        return {}
    bound.apply_defaults()
    given = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:  # as all arguments of a modular pipeline are
            given |= given.pop(name)
    return _plain(given)


def block_defaults(pipeline: Any) -> dict[str, Setting]:
    """The numbers and switches that a modular pipeline takes where it is given none, as its blocks
    say; none of any other pipeline."""
    blocks = getattr(pipeline, "_blocks", None)
    try:
        if blocks is None:
            return {}
        if blocks in _DEFAULTS:
            return _DEFAULTS[blocks]
        inputs: Any = getattr(blocks, "inputs", None)
        found = {one.name: one.default for one in inputs if isinstance(one.name, str)}
        return _DEFAULTS.setdefault(blocks, _plain(found))
    except Exception as error:  # noqa: BLE001 - settings are not worth a drop
        let_pass(error)
        return {}


def _plain(given: Mapping[str, Any]) -> dict[str, Setting]:
    return {k: setting(v) for k, v in given.items() if isinstance(v, (bool, int, float))}
