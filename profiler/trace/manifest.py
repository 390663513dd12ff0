"""`manifest.json`: what a bundle contains and how it was recorded, without secrets.

The manifest is untrusted when it is read: every value is checked against its type, and file
names must be plain names inside the bundle. Secrets are removed when it is written and when it
is read. `docs/file-format.md` describes the keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from profiler.errors import InputError
from profiler.files import converted, decoded, opened, size_of, writable
from profiler.text import Note, Value
from profiler.trace.events import (
    NO_ITERATION,
    NO_PIPELINE,
    UNKNOWN,
    Call,
    Drop,
    DropKind,
    DropReason,
)
from profiler.trace.manifest_fields import (
    Attribution,
    CachedCall,
    Clocks,
    Compilation,
    Coverage,
    Device,
    Fields,
    Generation,
    Hardware,
    HealthNote,
    HostActivity,
    Job,
    Number,
    NumberOrNone,
    Occupancy,
    Overhead,
    Parts,
    Recording,
    Setting,
    Shortened,
    Submodule,
    SubmoduleSettings,
    Told,
    Warmup,
)
from profiler.trace.redaction import own_homes, redacted_arguments, redacted_settings, redacted_text

# --- The manifest without secrets in the user's texts. `redaction` decides what is one. They are
# removed on writing, and on reading bundles that others wrote.


_TEXTS = (
    "model",
    "pipeline",
    "recording",
    "parts",
    "health",
    "host_activities",
    "compilations",
    "submodule_settings",
    "generations",
)


def without_secrets(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a run, by the manifest's keys, without secrets. Plain values are redacted;
    others are unchanged."""
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
    """Entries by name, or in order, with `part`, their only text of the user, redacted."""
    if isinstance(entries, dict):
        return {name: _plain_part(entry, part, homes) for name, entry in entries.items()}
    return [_plain_part(entry, part, homes) for entry in entries]


def _plain_part(entry: Any, part: str, homes: tuple[str, ...]) -> Any:
    if not isinstance(entry, dict) or part not in entry:
        return entry
    return {**entry, part: _plain(entry[part], homes)}


def _plain(value: Any, homes: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redacted_text(value, homes)
    if isinstance(value, dict):
        return {key: _plain(inner, homes) for key, inner in value.items()}
    return [_plain(inner, homes) for inner in value] if isinstance(value, list) else value


# --- `manifest.json`: what a bundle contains and how it was recorded.


FORMAT_VERSION = 2
MANIFEST_NAME = "manifest.json"
_LIMIT = 256 << 20  # bytes; a manifest of a million calls stays below
_LONGEST_KEY = 60  # characters of a key in a message
_STEP = re.compile(r"\[\.\.\.\]|\[\d+\]|(?<=\.)\w+")  # of a place such as $.devices[...].cores[1]
_REASONS = {
    "Object contains unknown field": "unknown key",
    "Object missing required field": "missing key",
    "Expected": "expected",
    "Number": "number",
    "Invalid": "invalid",
}

_Int64 = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class _Described(Fields, frozen=True, kw_only=True):
    """What the producer of a run knows besides its events and drops.

    `devices`, `submodules` and `attribution` are by name, `attribution` by submodule (capture) or
    device (imports). `settings` are common to all pipeline calls, `pipeline_settings` are those of
    one, by its number. `capabilities` are sorted codes of what the producer recorded, such as
    timeline, launches, shapes, memory: an open set. `health` are the notes of `trace/health.py`,
    `shortened` the commands whose lengths it corrected, `workless` the numbers of calls whose
    launches have no recorded work. `occupancy` is of kernels, if the producer reports it.
    `host_activities` are what the host did in the longest gaps of devices. `compilations` are in
    order of their start, `generations` in that of the first pipeline call of each.
    `submodule_settings` are by name, in order of the pipeline calls from which they hold.
    `cached_calls` are calls that were made under a step cache, in order of their index. `job` is
    None if the run is of one process, `parts` if one recorder saw all of it.
    """

    producer: str
    model: str = ""
    pipeline: str = ""
    command_line: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    hardware: Hardware = Hardware()
    devices: dict[str, Device] = field(default_factory=dict)
    submodules: dict[str, Submodule] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    pipeline_settings: dict[str, dict[str, Setting]] = field(default_factory=dict)
    recording: Recording | None = None
    clocks: Clocks = Clocks()
    overhead: Overhead = Overhead()
    coverage: Coverage | None = None
    warmup: Warmup | None = None
    attribution: dict[str, Attribution] = field(default_factory=dict)
    health: tuple[HealthNote, ...] = ()
    shortened: tuple[Shortened, ...] = ()
    occupancy: tuple[Occupancy, ...] = ()
    workless: tuple[Number, ...] = ()
    host_activities: tuple[HostActivity, ...] = ()
    compilations: tuple[Compilation, ...] = ()
    submodule_settings: dict[str, tuple[SubmoduleSettings, ...]] = field(default_factory=dict)
    generations: tuple[Generation, ...] = ()
    cached_calls: tuple[CachedCall, ...] = ()
    job: Job | None = None
    parts: Parts | None = None


class RunInfo(_Described, frozen=True, kw_only=True):
    """What the producer of a run knows besides its events."""

    drops: tuple[Drop, ...] = ()


@dataclass(frozen=True, slots=True)
class CallEntry:
    """A call and its file; `bytes` is the file's size, `commands` the number of its commands."""

    call: Call
    file: str
    bytes: int
    commands: int


class _CallRow(Fields, frozen=True, kw_only=True):
    index: Number
    submodule: str
    stage: str
    branch: str
    step: NumberOrNone
    device: str
    start_ns: _Int64
    duration_ns: Told
    ops_traced: bool
    file: str
    bytes: _Int64
    commands: _Int64
    input_shapes: dict[str, str] = field(default_factory=dict)
    pipeline: NumberOrNone = NO_PIPELINE
    iteration: NumberOrNone = NO_ITERATION
    device_lag_ns: Told = UNKNOWN
    device_duration_ns: Told = UNKNOWN

    @classmethod
    def of(cls, entry: CallEntry) -> _CallRow:
        call = dict(zip(Call.__slots__, _values_of_call(entry.call), strict=True))
        return cls(**call, file=entry.file, bytes=entry.bytes, commands=entry.commands)

    def entry(self) -> CallEntry:
        call = Call(*_values_of_call(self))
        return CallEntry(call, self.file, self.bytes, self.commands)


_values_of_call = attrgetter(*Call.__slots__)


class _Detail(Fields, frozen=True, kw_only=True):
    """The note of a drop; its values may be notes, too."""

    code: DropReason
    values: dict[str, int | float | str | _Detail | tuple[int | float | str | _Detail, ...]] = (
        field(default_factory=dict)
    )

    def note(self) -> Note:
        """The `Note` for this entry. Raises ValueError if a value is called `code`."""
        if "code" in self.values:
            raise ValueError("a value of a drop's detail is called code")
        return Note(self.code, {name: _value(value) for name, value in self.values.items()})


def _value(value: Any) -> Value:
    if isinstance(value, tuple):
        return tuple(map(_value, value))
    return value.note() if isinstance(value, _Detail) else value


class DropRow(Fields, frozen=True, kw_only=True):
    """One of the manifest's `drops`."""

    kind: DropKind
    where: str
    count: Told
    unit: str
    detail: _Detail

    def drop(self) -> Drop:
        """The `Drop` for this entry."""
        return Drop(self.kind, self.where, self.count, self.unit, self.detail.note())


class _InfoDocument(_Described, frozen=True, kw_only=True):
    drops: tuple[DropRow, ...] = ()

    def info(self) -> RunInfo:
        described = {name: getattr(self, name) for name in _Described.__struct_fields__}
        drops = tuple(drop.drop() for drop in self.drops)
        return RunInfo(**without_secrets(described), drops=drops)


class _Document(_InfoDocument, frozen=True, kw_only=True):
    format_version: int
    run_id: str
    created: str
    calls: tuple[_CallRow, ...]
    files: dict[str, _Int64]


class _Version(msgspec.Struct):
    format_version: _Int64


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything in `manifest.json`. `created` is UTC, ISO 8601; `files` has the sizes in bytes of
    files that are not calls (`host.pb`, `merged.pb`)."""

    run_id: str
    created: str
    info: RunInfo
    calls: tuple[CallEntry, ...]
    files: Mapping[str, int]

    def to_json(self) -> str:
        """The text of `manifest.json`."""
        return b"".join(self.chunks()).decode()

    def chunks(self) -> Iterator[bytes]:
        """Yield the text of `manifest.json`, some calls at a time, so that a long run needs no copy
        of it in the recorded program's memory."""
        info = info_document(self.info)
        document = {
            "format_version": FORMAT_VERSION,
            "run_id": self.run_id,
            "created": self.created,
            **{key: value for key, value in info.items() if key != "drops"},
            "calls": [],
            "files": dict(self.files),
            "drops": info["drops"],
        }
        before, found, after = _json(document).partition(_NO_CALLS)  # once: texts have no newline
        yield before
        for at in range(0, len(self.calls), _TOGETHER):
            rows = _json({"calls": [*map(_CallRow.of, self.calls[at : at + _TOGETHER])]})
            yield b"," if at else _FIRST_CALL
            yield rows[len(_BEFORE_CALLS) : -len(_AFTER_CALLS)]
        yield b"\n ]" if self.calls else found
        yield after + b"\n"


_TOGETHER = 256  # calls
_NO_CALLS = b'\n "calls": []'
_FIRST_CALL = _NO_CALLS[:-1]
_BEFORE_CALLS, _AFTER_CALLS = b"{" + _FIRST_CALL, b"\n ]\n}"


def _json(document: dict[str, Any]) -> bytes:
    try:
        text = msgspec.json.encode(document)
    except UnicodeEncodeError:  # a file name or an argument that is no UTF-8
        text = msgspec.json.encode(writable(msgspec.to_builtins(document)))
    return msgspec.json.format(text, indent=1)


def info_document(info: RunInfo) -> dict[str, Any]:
    """`info` as plain values under the manifest's keys, without secrets."""
    document = without_secrets(msgspec.to_builtins(info))
    drops = document.pop("drops", [])
    return {**document, "drops": drops}


def parse_info(document: object) -> RunInfo:
    """The inverse of `info_document`. Raises ValueError that names the key that is wrong."""
    try:
        return converted(document, _InfoDocument).info()
    except msgspec.ValidationError as error:
        raise ValueError(_located(document, _InfoDocument, error)) from error


def read_manifest(path: Path) -> Manifest:
    """Read and check `manifest.json` at `path`. Raises InputError with what to do."""
    try:
        with opened(path) as file:
            if size_of(file) > _LIMIT:
                raise InputError(f"{path} is larger than any manifest: record the run again")
            text = file.read(_LIMIT)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    advice = f"remove it and run `profile-sd3 merge {path.parent}` to rebuild it"
    try:
        _check_version(decoded(text, _Version).format_version, path, advice)
        return _manifest(decoded(text, _Document))
    except msgspec.ValidationError as error:
        reason = _located(_loosely(text), _Document, error)
        raise InputError(f"{path} is not a profile-sd3 manifest ({reason}): {advice}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error}): {advice}") from error
    except ValueError as error:
        raise InputError(f"{path} is not a profile-sd3 manifest ({error}): {advice}") from error


def _loosely(text: bytes) -> object:
    """The document for use in an error message; None if it cannot be parsed at all."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _check_version(version: int, path: Path, advice: str) -> None:
    if version > FORMAT_VERSION:
        known = f"format {version}, this one reads up to {FORMAT_VERSION}"
        raise InputError(f"{path} was written by a newer profile-sd3 ({known}): update it")
    if version < FORMAT_VERSION:
        raise InputError(
            f"{path} has format {version}, this one reads {FORMAT_VERSION}: record the run again, "
            f"or {advice}"
        )


def _manifest(document: _Document) -> Manifest:
    for name in document.files:
        _check_plain(name, "files")
    for number, row in enumerate(document.calls):
        _check_plain(row.file, f"calls[{number}].file")
    calls = tuple(row.entry() for row in document.calls)
    files = document.files
    if len({entry.call.index for entry in calls}) < len(calls):
        raise ValueError("a call is listed twice")
    if len({*files, *(entry.file for entry in calls)}) < len(files) + len(calls):
        raise ValueError("a file is listed twice")
    return Manifest(document.run_id, document.created, document.info(), calls, files)


def _check_plain(name: str, where: str) -> None:
    """Raise ValueError if a file name has a folder, so that no file outside the bundle is
    opened."""
    if name != Path(name).name or not name.isprintable() or name in ("", ".", ".."):
        raise ValueError(f"{where}: {name!r:.80} is no plain file name")


def _located(document: object, wanted: type, error: msgspec.ValidationError) -> str:
    """What is wrong, and where: `devices.cpu:0.cores[1]: expected int, got str`."""
    message, _, place = str(error).partition(" - at ")
    where = ""
    at: Any = document
    keys: list[str | int] = []
    for step in _STEP.findall(place):
        key = _failing_key(document, keys, at, wanted, place) if step == "[...]" else step
        number = re.fullmatch(r"\[(\d+)\]", key)
        keys.append(int(number[1]) if number else key)
        where += key if number else f".{_shown(key)}"
        at = _get(at, keys[-1])
    reason = message.replace("`", "")
    for theirs, ours in _REASONS.items():
        reason = reason.replace(theirs, ours)
    if not reason.isprintable():  # a key that is unknown
        reason = repr(reason)[1:-1]
    return f"{where.removeprefix('.')}: {reason:.200}" if where else f"{reason:.200}"


def _failing_key(
    document: object, keys: Sequence[str | int], mapping: object, wanted: type, place: str
) -> str:
    """The first key of `mapping`, which lies at `keys`, whose value is wrong at `place`: msgspec
    does not name it."""
    entries = mapping.items() if isinstance(mapping, dict) else ()
    for key, value in entries:
        try:
            converted(_with(document, keys, {key: value}), wanted)
        except msgspec.ValidationError as error:
            if str(error).endswith(place):
                return str(key)
    return "…"


def _with(document: Any, keys: Sequence[str | int], value: object) -> Any:
    """A copy of `document` with `value` at `keys`."""
    if not keys:
        return value
    part = _with(_get(document, keys[0]), keys[1:], value)
    if isinstance(document, dict):
        return {**document, keys[0]: part}
    return [part if number == keys[0] else entry for number, entry in enumerate(document)]


def _get(value: Any, key: str | int) -> Any:
    try:
        return value[key]
    except (KeyError, IndexError, TypeError):
        return None


def _shown(key: str) -> str:
    return key if key.isprintable() and len(key) <= _LONGEST_KEY else f"{key!r:.{_LONGEST_KEY}}"


# --- Which bundles are ranks of the same run of a job.


class _OfJob(msgspec.Struct, frozen=True):
    run_id: str = ""
    created: str = ""
    job: Job | None = None


def job_of(bundle: Path) -> Job | None:
    """The job of a bundle that has one rank of it; None for other bundles and paths."""
    return _rank_of(bundle).job


def _rank_of(bundle: Path) -> _OfJob:
    """The job in a manifest; empty if it is not a bundle of one rank."""
    manifest = bundle / MANIFEST_NAME
    if not manifest.is_file():
        return _OfJob()
    try:
        with opened(manifest) as file:
            found = decoded(file.read(_LIMIT), _OfJob)
    except (OSError, InputError, ValueError, RecursionError):  # reported when it is loaded
        return _OfJob()
    return found if found.job is not None and len(found.job.ranks) == 1 else _OfJob()


def ranks_of_newest(bundles: Sequence[Path]) -> list[Path]:
    """The bundles that are ranks of the same run as the first of `bundles`, which are sorted newest
    first. The search ends at a rank that was already found: that is an earlier run of the job. A
    copy of a bundle is not an earlier run and is skipped."""
    own = job_of(bundles[0])
    if own is None:
        return [bundles[0]]
    found: dict[int, Path] = {}
    known: dict[int, _OfJob] = {}
    for bundle in bundles:
        one = _rank_of(bundle)
        job = one.job
        if job is None or (job.name, job.world_size) != (own.name, own.world_size):
            continue
        rank = job.ranks[0].rank
        if one == known.get(rank):
            continue
        if rank in found:
            break
        found[rank], known[rank] = bundle, one
    return [found[rank] for rank in sorted(found)]
