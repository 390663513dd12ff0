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
from profiler.events import Call, Loss

__all__ = ["FORMAT_VERSION", "MANIFEST_NAME", "CallEntry", "Manifest", "RunInfo", "read_manifest"]

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
_LIMIT = 256 << 20  # bytes; a manifest of a million calls stays below


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What the producer of a run knows beside its events.

    `devices` maps a device to its `hardware` and, for a CPU device, its `cores`; `submodules`
    maps a submodule to its `device`, `activate_profiler`, `model` and what else is known of it.
    `clocks`: `clock`, and `monotonic_offset_ns` to add to CLOCK_MONOTONIC to get it.
    `overhead`: what tracing cost, each key a measured number with its unit in the name.
    `warmup`: what ran before the run and is not in it.
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
    clocks: Mapping[str, Any] = field(default_factory=dict)
    overhead: Mapping[str, Any] = field(default_factory=dict)
    warmup: Mapping[str, Any] = field(default_factory=dict)
    attribution: Mapping[str, Any] = field(default_factory=dict)
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
        return _manifest(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        remedy = f"remove it and run `profile-sd3 merge {path.parent}` to rebuild it"
        raise InputError(f"{path} is not a profile-sd3 manifest ({error!r}): {remedy}") from error


def _manifest(document: dict[str, Any]) -> Manifest:
    version = int(document["format_version"])
    if version > FORMAT_VERSION:
        raise ValueError(f"format_version {version} is newer than {FORMAT_VERSION}: update")
    mappings = ("versions", "hardware", "devices", "submodules", "settings", "clocks")
    mappings += ("overhead", "warmup", "attribution")
    info = RunInfo(
        producer=str(document["producer"]),
        model=str(document.get("model", "")),
        pipeline=str(document.get("pipeline", "")),
        command_line=tuple(map(str, document.get("command_line", ()))),
        losses=tuple(_loss(entry) for entry in document.get("losses", ())),
        **{name: dict(document.get(name, {})) for name in mappings},
    )
    files = {_plain(name): int(size) for name, size in document["files"].items()}
    calls = tuple(_entry(entry) for entry in document["calls"])
    return Manifest(str(document["run_id"]), str(document["created"]), info, calls, files)


def _entry(entry: dict[str, Any]) -> CallEntry:
    call = Call(
        index=int(entry["index"]),
        submodule=str(entry["submodule"]),
        stage=str(entry["stage"]),
        branch=str(entry["branch"]),
        step=int(entry["step"]),
        device=str(entry["device"]),
        start_ns=int(entry["start_ns"]),
        duration_ns=int(entry["duration_ns"]),
        ops_traced=bool(entry["ops_traced"]),
        input_shapes={str(k): str(v) for k, v in entry.get("input_shapes", {}).items()},
    )
    return CallEntry(call, _plain(entry["file"]), int(entry["bytes"]), int(entry["commands"]))


def _loss(entry: dict[str, Any]) -> Loss:
    return Loss(
        kind=str(entry["kind"]),
        where=str(entry["where"]),
        count=int(entry["count"]),
        unit=str(entry["unit"]),
        detail=str(entry["detail"]),
    )


def _plain(name: str) -> str:
    """A file name without any folder, so that nothing outside the bundle is ever opened."""
    if not isinstance(name, str) or name != Path(name).name or name in ("", ".", ".."):
        raise ValueError(f"{name!r} is no plain file name")
    return name
