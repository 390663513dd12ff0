"""Provenance of a report: its trace files with sizes and hashes, versions and settings.

    trace_files(Path("traces/20261121-093000-sd3"))
    embedded_trace(Path("traces/20261121-093000-sd3"))

`pack` stores columns of numbers as compact text for a page, and `templates/data.js` reads it:
byte planes, deflated, base64. Change both together.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profiler.analysis.document import Group, Part, SectionGroup, SectionKind
from profiler.analysis.dropped_data import missing_rows, part_rows
from profiler.analysis.finding_text import all_events, grouped, grouped_by_name, noun_of
from profiler.analysis.health import is_sound
from profiler.analysis.result import ReportInput, RunSummary, SettingNote
from profiler.analysis.table_text import Sentences
from profiler.files import opened, read_file
from profiler.text import Note, Noun, count, counted, duration, said, size
from profiler.trace.bundle import HOST_NAME, MERGED_NAME, call_files
from profiler.trace.manifest import MANIFEST_NAME
from profiler.trace.manifest_fields import (
    Adapter,
    Attention,
    Compiled,
    Generation,
    Offload,
    Setting,
    SubmoduleSettings,
    WeightType,
    stated,
)

# --- Columns of numbers as compact text for a page: byte planes, deflated, base64.
#
# A column of integers is stored as unsigned numbers above its minimum, in as many bytes as its
# range needs, all lowest bytes first, then all second bytes, and so on: equal high bytes stand
# together and deflate to nothing. Reals are the eight bytes of a double. A column that mostly
# equals another one of its table is stored as the difference (`plus`), instants that follow on
# intervals as what lies between them (`after`). `templates/data.js` reads it.


Table = Mapping[str, npt.NDArray[np.int64] | npt.NDArray[np.float64]]
_EXACT = 1 << 53  # whole numbers below are the same as doubles
_SAMPLED = 4096  # values by which columns are compared


def pack(
    tables: Mapping[str, Table], after: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> tuple[dict[str, Any], str]:
    """Describe and encode `tables` of equally long columns of int64 or float64.

    The description maps table → {"rows": n, "columns": {name: {"at", "width", "base"}}}, `at` being
    the column's offset in the inflated bytes. A column may also have "plus", the name of another
    one: its values are differences to that. Or it has "after": its values are differences to the
    previous value plus the previous value of the other column, to 0 for the first. `after` names
    that other column, by table and column. "real" marks doubles.
    """
    described: dict[str, Any] = {}
    chunks: list[bytes] = []
    at = 0
    for name, columns in tables.items():
        entries = {}
        rows = len(next(iter(columns.values())))
        for column in columns:
            how, stored = _stored(column, columns, after.get(name, {}))
            base, width, data = _planes(stored)
            entries[column] = {"at": at, "width": width, "base": base, **how}
            chunks.append(data)
            at += len(data)
        described[name] = {"rows": rows, "columns": entries}
    return described, deflated(b"".join(chunks))


def _stored(
    column: str, columns: Table, after: Mapping[str, str]
) -> tuple[dict[str, Any], npt.NDArray[Any]]:
    """Return how a column is stored, and the numbers to store."""
    values: npt.NDArray[Any] = columns[column]
    if values.dtype == np.float64:
        if not _all_whole(values):
            return {"real": True}, values
        values = values.astype(np.int64)
    if column in after:
        before = columns[after[column]][:-1]
        return {"after": after[column]}, np.concatenate((values[:1], np.diff(values) - before))
    every = max(1, len(values) // _SAMPLED)
    for name, other in columns.items():
        if name == column:
            break
        if name in after:
            continue
        equal = np.count_nonzero(other[::every] == values[::every])
        if 2 * equal > len(values[::every]) and other.dtype == np.int64:
            return {"plus": name}, values - other
    return {}, values


def _all_whole(values: npt.NDArray[Any]) -> bool:
    """Whether reals are whole numbers that fit exactly into integers."""
    small = np.abs(values) < _EXACT  # False for what is no number
    return bool(small.all() and (values == np.trunc(values)).all())


def deflated(data: bytes, level: int = 6) -> str:
    """`data` as zlib stream in base64, which needs no escaping anywhere in HTML."""
    return base64.b64encode(zlib.compress(data, level)).decode("ascii")


def _planes(values: npt.NDArray[Any]) -> tuple[int, int, bytes]:
    """Return the minimum, the bytes per value and the byte planes of a column."""
    if not len(values):
        return 0, 0, b""
    if values.dtype == np.float64:
        return 0, 8, values.astype("<f8").view(np.uint8).reshape(-1, 8).T.tobytes()
    base = int(values.min())
    above = values.astype("<i8") - base
    width = (int(above.max()).bit_length() + 7) // 8
    planes = above.view(np.uint8).reshape(-1, 8)[:, :width].T
    return base, width, planes.tobytes()


# --- The files that a report was made from: names, sizes, hashes that tell one trace from another,
# and the merged trace itself if it is small.


_HASHED = 256 << 20  # bytes; hashing more would take longer than the report
_EMBEDDED = 4 << 20  # bytes, deflated
_TRIED = 32 << 20  # bytes; what is larger does not become that small
_THOROUGH = 4 << 20  # bytes; larger ones are deflated faster, to a sixth more


class TraceFile(Struct, frozen=True):
    """A file of the trace, or `count` of them together: `size` in bytes, SHA-256 as hex digits, ""
    if it was not computed."""

    name: str
    size: int
    sha256: str = ""
    count: int = 1


class EmbeddedTrace(Struct, frozen=True):
    """A trace of `size` bytes. `packed` is a zlib stream of it in base64, "" if that is too large
    for a page."""

    name: str
    size: int
    packed: str


def trace_files(source: Path) -> tuple[TraceFile, ...]:
    """The files of a bundle, of a Parquet run, or a single trace; what cannot be read is left
    out."""
    if source.is_file():
        return tuple(filter(None, [_trace_file(source)]))
    bundle = source / MANIFEST_NAME
    names = [MANIFEST_NAME, MERGED_NAME, HOST_NAME]
    if not bundle.is_file():
        names = sorted(path.name for path in source.glob("*.parquet"))
    found = [made for name in names if (made := _trace_file(source / name)) is not None]
    if bundle.is_file():
        sizes = [path.stat().st_size for path in call_files(source)]
        if sizes:
            found.append(TraceFile("*.pb", sum(sizes), count=len(sizes)))
    return tuple(found)


def embedded_trace(source: Path | None) -> EmbeddedTrace | None:
    """The merged trace of a bundle, or a single trace; None if there is none to read."""
    if source is None:
        return None
    path = source if source.is_file() else source / MERGED_NAME
    if path.suffix != ".pb":
        return None
    try:
        size = path.stat().st_size
        data = read_file(path) if 0 < size <= _TRIED else b""
    except OSError:
        return None
    packed = deflated(data, level=6 if size <= _THOROUGH else 1) if data else ""
    return EmbeddedTrace(path.name, size, packed if len(packed) <= _EMBEDDED * 4 // 3 else "")


def _trace_file(path: Path) -> TraceFile | None:
    try:
        size = path.stat().st_size
        if size > _HASHED:
            return TraceFile(path.name, size)
        with opened(path) as file:
            return TraceFile(path.name, size, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError:
        return None


# --- How submodules and pipeline calls were set up, as pairs of a name and a value that two runs
# can be compared by: `transformer cache` → `FirstBlockCache threshold=0.05`.
#
# Names and values are the objects' own. What changed while the run went on has all its values, in
# order.


ARGUMENTS: Mapping[str, str] = {
    "num_inference_steps": "steps",
    "guidance_scale": "guidance",
    "true_cfg_scale": "true CFG",
    "height": "resolution",
    "width": "resolution",
    "num_frames": "frames",
}
"""Arguments of pipeline calls that say the same as one of the `generation_pairs`."""

_OPTIONAL = ("cache", "offload", "compile", "adapters")
_NUMBERS = (
    ("steps", "steps"),
    ("guidance", "guidance_scale"),
    ("true CFG", "true_cfg_scale"),
    ("frames", "frames"),
    ("batch", "batch"),
    ("passes a step", "denoiser_passes"),
)


def generation_pairs(generations: Iterable[Generation]) -> dict[str, str]:
    """Return the values of each setting over all pipeline calls, each value once."""
    return _joined(pair for one in generations for pair in _of_generation(one))


def setting_pairs(
    settings: Mapping[str, Sequence[SubmoduleSettings]], without: str = ""
) -> dict[str, str]:
    """Return the settings of all submodules; `without`, if given, stands for optional settings that
    a submodule lacks."""
    pairs = [
        (f"{name} {key}", value)
        for name, known in settings.items()
        for one in known
        for key, value in (dict.fromkeys(_OPTIONAL, without) | dict(_of_submodule(one))).items()
    ]
    kernels = [
        ("sdpa kernels", ", ".join(one.attention.sdpa))
        for known in settings.values()
        for one in known
        if one.attention is not None and one.attention.sdpa
    ]
    return _joined((key, value) for key, value in (*pairs, *kernels) if value)


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for key, value in pairs:
        found.setdefault(key, {})[value] = None
    return {key: ", ".join(values) for key, values in found.items()}


def _of_generation(one: Generation) -> Iterator[tuple[str, str]]:
    for name, field in _NUMBERS:
        value = getattr(one, field)
        if value is not None:
            yield name, f"{value:g}"
    if one.width is not None and one.height is not None:
        yield "resolution", f"{one.width}×{one.height}"
    if one.scheduler is not None:
        yield "scheduler", _with(one.scheduler.name, one.scheduler.config)


def _of_submodule(one: SubmoduleSettings) -> Iterator[tuple[str, str]]:
    weights = {name: found for name, found in one.weights.items() if found.share >= 0.0005}
    if weights:
        yield "dtype", ", ".join(_dtype(*pair) for pair in weights.items())
    if one.attention is not None and (text := _attention(one.attention)):
        yield "attention", text
    if one.cache is not None:
        yield "cache", _with(one.cache.name, one.cache.parameters)
    if one.offload is not None:
        yield "offload", _offload(one.offload)
    if one.compiled is not None:
        yield "compile", _compiled(one.compiled)
    if one.adapters:
        yield "adapters", ", ".join(_adapter(*pair) for pair in one.adapters.items())
    if one.inputs:
        yield "inputs", _with("", one.inputs).strip()
    if one.providers:
        yield "providers", ", ".join(_with(*pair) for pair in one.providers.items())


def _dtype(name: str, found: WeightType) -> str:
    return name if found.share >= 0.9995 else f"{name} {100 * found.share:.1f} %"


def _attention(found: Attention) -> str:
    chosen = ", ".join([*found.backends, *found.implementations])
    processors = ", ".join(found.processors)
    return f"{chosen} ({processors})" if chosen and processors else chosen or processors


def _offload(found: Offload) -> str:
    known = {"on": found.execution_device} if found.execution_device else {}
    return _with(found.kind.value, {**known, **found.device_map, **found.parameters})


def _compiled(found: Compiled) -> str:
    parts = {"modules": found.modules} if found.modules else {}
    named = {"backend": found.backend, "mode": found.mode}
    switches = {"dynamic": found.dynamic, "fullgraph": found.fullgraph}
    options = {
        key: value for key, value in {**named, **switches}.items() if value not in ("", None)
    }
    return _with("whole" if found.whole else "parts", {**parts, **options})


def _adapter(name: str, found: Adapter) -> str:
    known: dict[str, object] = {
        "rank": "/".join(map(str, found.ranks)),
        "scaling": "/".join(f"{scaling:g}" for scaling in found.scalings),
    }
    states = {"fused": True} if found.fused else {} if found.active else {"active": False}
    return _with(name, {**{key: text for key, text in known.items() if text}, **states})


def _with(name: str, parameters: Mapping[str, object]) -> str:
    """`name key=value key=value`."""
    return " ".join([name, *(f"{key}={_text(value)}" for key, value in parameters.items())])


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- The settings of a run as one reads them: what all its pipeline calls share, and what differs.


def run_settings(
    shared: Mapping[str, Setting], by_call: Mapping[str, Mapping[str, Setting]]
) -> dict[str, Setting | Note]:
    """`RunInfo.settings`, and those of `RunInfo.pipeline_settings`: the value, or if it differs a
    note with the range of numbers, or that it differs. If not all calls have it, the note says how
    many."""
    values: dict[str, list[Setting]] = {}
    for own in by_call.values():
        for key, value in own.items():
            values.setdefault(key, []).append(value)
    differing = {key: _differing(found, len(by_call)) for key, found in values.items()}
    return {**differing, **shared}


def _differing(values: Sequence[Setting], calls: int) -> Setting | Note:
    found: Setting | Note = Note.of(SettingNote.DIFFERS)
    if len({repr(value) for value in values}) == 1:
        found = values[0]
    elif len(numbers := [v for v in values if _is_number(v)]) == len(values):
        found = Note.of(SettingNote.RANGE, least=min(numbers), most=max(numbers))
    if len(values) == calls:
        return found
    stated = found if isinstance(found, Note) or _is_number(found) else str(found)
    return Note.of(SettingNote.IN_SOME_CALLS, value=stated, of=len(values), calls=calls)


def _is_number(value: Setting) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# --- Sentences about settings that differ between the pipeline calls of a run.


SENTENCES: Sentences = {
    SettingNote: {
        SettingNote.RANGE: "{least} to {most}",
        SettingNote.IN_SOME_CALLS: "{value} in {of} of {calls} pipeline calls",
    }
}


# --- What ran, on what, with which versions and settings, from which files, and what is missing.


def _groups(of: ReportInput) -> Iterator[Group]:
    run = of.analysis.run
    yield _run(run, noun_of(of.analysis))
    yield grouped(said("Settings"), {**stated(run.recording), **run.settings})
    parts = of.analysis.inputs.run.info.parts
    yield Group(said("Recorded by"), tuple(part_rows(parts)) if parts is not None else ())
    yield grouped(
        said("Set-up"),
        {**generation_pairs(run.generations), **setting_pairs(run.submodule_settings)},
    )
    yield grouped_by_name(said("Devices"), run.devices)
    imported = run.recording is not None and bool(run.recording.source)
    called = {"activate profiler": "traced"} if imported else {}  # else RBLN's setting
    yield grouped_by_name(said("Submodules"), run.submodules, called)
    yield grouped(said("Hardware"), stated(run.hardware))
    yield grouped(said("Versions"), run.versions)
    yield Group(said("Files"), tuple(map(_file_row, trace_files(of.source) if of.source else ())))
    drops = of.analysis.drops
    nothing = ((said("none"), said("no loss was detected")),)
    if unrecorded := of.analysis.accounting.unrecorded_ns:
        silent = said("but for {time} nothing was recorded", time=duration(unrecorded))
        nothing = ((said("none"), silent),)
    sound = is_sound(of.analysis.inputs.run.info.health)
    yield Group(said("Lost data"), tuple(missing_rows(drops)) or (nothing if sound else ()))


def _run(run: RunSummary, noun: Noun) -> Group:
    rows = (
        (said("run"), run.run_id),
        (said("model"), run.model),
        (said("pipeline"), run.pipeline),
        (said("producer"), run.producer),
        (said("started"), run.started.replace("T", " ").replace("+00:00", " UTC")),
        (said("traced"), _traced(run, noun)),
        (said("command line"), " ".join(run.command_line)),
    )
    return Group(said("Run"), tuple(row for row in rows if row[1]))


def _traced(run: RunSummary, noun: Noun) -> str:
    """How many calls there are, and how many of them with operators."""
    traced = said("all") if run.traced_calls == run.calls else count(run.traced_calls)
    return said(
        "{calls}, {traced} with operators: {number} {events}",
        calls=counted(run.calls, "call"),
        traced=traced,
        number=count(run.commands),
        events=all_events(noun),
    )


def _file_row(file: TraceFile) -> tuple[str, str]:
    name = file.name
    if file.count > 1 or name == "*.pb":
        return said("call files"), said("{number}, {size}", number=file.count, size=size(file.size))
    if not file.sha256:
        return name, said("{size}, not hashed", size=size(file.size))
    return name, said("{size}, SHA-256 {hash}", size=size(file.size), hash=file.sha256)


def _parts(of: ReportInput) -> tuple[Part, ...]:
    return (Part(groups=tuple(group for group in _groups(of) if group.rows)),)


SECTION = SectionKind(
    "provenance", 100, said("Provenance"), _parts, tables=("drops",), group=SectionGroup.RUN
)
