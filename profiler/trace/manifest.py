"""`manifest.json`: what a bundle holds and how it came to be.

The manifest is untrusted input when read: file names must be plain names inside the bundle, and
every field that the tables rely on is checked. `docs/file-format.md` describes the keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from profiler.errors import InputError
from profiler.events import NO_PIPELINE, Call, Loss

__all__ = ["FORMAT_VERSION", "MANIFEST_NAME", "CallEntry", "Manifest", "RunInfo", "read_manifest"]

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
_LIMIT = 256 << 20  # bytes; a manifest of a million calls stays below


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What the producer of a run knows beside its events.

    `devices` maps a device to its `hardware` and, for a CPU device, its `cores`; `submodules`
    maps a submodule to its `device`, `activate_profiler`, `model` and what else is known of it.
    `settings` are what all pipeline calls were given, `pipeline_settings` by number of the pipeline
    call what is of that call alone.
    `clocks`: `clock`, and `monotonic_offset_ns` to add to CLOCK_MONOTONIC to get it.
    `overhead`: what tracing cost, each key a measured number with its unit in the name.
    `warmup`: what ran before the run and is not in it.
    `capabilities`: codes of what an imported trace tells: timeline, launches, shapes, memory, ….
    """

    producer: str
    model: str = ""
    pipeline: str = ""
    command_line: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=dict)
    devices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    submodules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    pipeline_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    clocks: Mapping[str, Any] = field(default_factory=dict)
    overhead: Mapping[str, Any] = field(default_factory=dict)
    warmup: Mapping[str, Any] = field(default_factory=dict)
    attribution: Mapping[str, Any] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class CallEntry:
    """A call and the file that holds it; `bytes` is the file's size, `commands` its commands."""

    call: Call
    file: str
    bytes: int
    commands: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything in `manifest.json`. `created` is UTC, ISO 8601; `files` maps the files that are
    no call (`host.pb`, `merged.pb`) to their sizes in bytes."""

    run_id: str
    created: str
    info: RunInfo
    calls: tuple[CallEntry, ...]
    files: Mapping[str, int]

    def to_json(self) -> str:
        info = asdict(self.info)
        losses = info.pop("losses")
        calls = [
            {**asdict(entry.call), "file": entry.file, "bytes": entry.bytes}
            | {"commands": entry.commands}
            for entry in self.calls
        ]
        document = {
            "format_version": FORMAT_VERSION,
            "run_id": self.run_id,
            "created": self.created,
            **info,
            "calls": calls,
            "files": dict(self.files),
            "losses": losses,
        }
        return json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n"


def read_manifest(path: Path) -> Manifest:
    """Read and check `manifest.json` at `path`. Raises InputError with the remedy."""
    try:
        if path.stat().st_size > _LIMIT:
            raise InputError(f"{path} is larger than any manifest: record the run again")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        remedy = f"remove it and run `profile-sd3 merge {path.parent}` to rebuild it"
        raise InputError(f"{path} is not valid JSON ({error}): {remedy}") from error
    try:
        _refuse_newer(document, path)
        return _manifest(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        remedy = f"remove it and run `profile-sd3 merge {path.parent}` to rebuild it"
        raise InputError(f"{path} is not a profile-sd3 manifest ({error!r}): {remedy}") from error


def _refuse_newer(document: dict[str, Any], path: Path) -> None:
    version = _integer(document["format_version"], 1, 63)
    if version > FORMAT_VERSION:
        known = f"format {version}, this one reads up to {FORMAT_VERSION}"
        raise InputError(f"{path} was written by a newer profile-sd3 ({known}): update it")


def _manifest(document: dict[str, Any]) -> Manifest:
    mappings = ("versions", "hardware", "settings", "clocks", "overhead", "warmup", "attribution")
    described: dict[str, Any] = {name: dict(document.get(name, {})) for name in mappings}
    for name in ("devices", "submodules", "pipeline_settings"):
        described[name] = {str(k): dict(v) for k, v in document.get(name, {}).items()}
    info = RunInfo(
        producer=str(document["producer"]),
        model=str(document.get("model", "")),
        pipeline=str(document.get("pipeline", "")),
        command_line=tuple(map(str, document.get("command_line", ()))),
        capabilities=tuple(map(str, document.get("capabilities", ()))),
        losses=tuple(_loss(entry) for entry in document.get("losses", ())),
        **described,
    )
    files = {_plain(name): _integer(size, 0, 63) for name, size in document["files"].items()}
    if not isinstance(document["calls"], list):
        raise TypeError("calls is no list")
    calls = tuple(_entry(entry) for entry in document["calls"])
    if len({entry.call.index for entry in calls}) < len(calls):
        raise ValueError("a call is listed twice")
    if len({*files, *(entry.file for entry in calls)}) < len(files) + len(calls):
        raise ValueError("a file is listed twice")
    return Manifest(str(document["run_id"]), str(document["created"]), info, calls, files)


def _entry(entry: dict[str, Any]) -> CallEntry:
    call = Call(
        index=_integer(entry["index"], 0, 31),
        submodule=str(entry["submodule"]),
        stage=str(entry["stage"]),
        branch=str(entry["branch"]),
        step=_integer(entry["step"], -1, 31),
        device=str(entry["device"]),
        start_ns=_integer(entry["start_ns"], 0, 63),
        duration_ns=_integer(entry["duration_ns"], -1, 63),
        ops_traced=bool(entry["ops_traced"]),
        input_shapes={str(k): str(v) for k, v in entry.get("input_shapes", {}).items()},
        pipeline=_integer(entry.get("pipeline", NO_PIPELINE), -1, 31),
    )
    size, commands = _integer(entry["bytes"], 0, 63), _integer(entry["commands"], 0, 63)
    return CallEntry(call, _plain(entry["file"]), size, commands)


def _loss(entry: dict[str, Any]) -> Loss:
    return Loss(
        kind=str(entry["kind"]),
        where=str(entry["where"]),
        count=_integer(entry["count"], -1, 63),
        unit=str(entry["unit"]),
        detail=str(entry["detail"]),
    )


def _integer(value: Any, least: int, bits: int) -> int:
    """`value` if it is an integer that the tables can hold."""
    if type(value) is not int or not least <= value < 1 << bits:
        raise ValueError(f"{value!r:.40} is no integer from {least} to 2^{bits} - 1")
    return value


def _plain(name: Any) -> str:
    """A file name without any folder, so that nothing outside the bundle is ever opened."""
    plain = isinstance(name, str) and name == Path(name).name and name.isprintable()
    if not plain or name in ("", ".", ".."):
        raise ValueError(f"{name!r:.80} is no plain file name")
    return str(name)
