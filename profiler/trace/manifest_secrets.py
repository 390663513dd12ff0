"""The manifest without secrets: where texts of a user's stand in it. `redaction` decides what one
is; what is written has none, and neither has what is read of bundles that others wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler.redaction import (
    own_homes,
    redacted_arguments,
    redacted_settings,
    redacted_text,
)

__all__ = ["without_secrets"]

_TEXTS = (
    "model",
    "pipeline",
    "recording",
    "parts",
    "host_activities",
    "compilations",
    "submodule_settings",
    "generations",
)


def without_secrets(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a run, by the manifest's keys, without secrets. Values are plain; others
    stay as they are."""
    homes = own_homes()
    found = dict(document)
    if "command_line" in found:
        found["command_line"] = redacted_arguments(found["command_line"], homes)
    if "settings" in found:
        found["settings"] = redacted_settings(found["settings"], homes)
    if "pipeline_settings" in found:
        of_calls = found["pipeline_settings"]
        found["pipeline_settings"] = {
            number: redacted_settings(settings, homes) for number, settings in of_calls.items()
        }
    for key in _TEXTS:
        if key in found:
            found[key] = _plain(found[key], homes)
    for key, part in (("submodules", "model"), ("drops", "detail")):
        if key in found:
            found[key] = _parts(found[key], part, homes)
    return found


def _parts(entries: Any, part: str, homes: tuple[str, ...]) -> Any:
    """Entries by name, or in order, whose `part` alone is a text of a user's."""
    if isinstance(entries, dict):
        return {name: _part(entry, part, homes) for name, entry in entries.items()}
    return [_part(entry, part, homes) for entry in entries]


def _part(entry: Any, part: str, homes: tuple[str, ...]) -> Any:
    if not isinstance(entry, dict) or part not in entry:
        return entry
    return {**entry, part: _plain(entry[part], homes)}


def _plain(value: Any, homes: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redacted_text(value, homes)
    if isinstance(value, dict):
        return {key: _plain(inner, homes) for key, inner in value.items()}
    return [_plain(inner, homes) for inner in value] if isinstance(value, list) else value
