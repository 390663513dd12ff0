"""`summary.json`: what a data set keeps of a run, in its bundle.

Made from the analysis that somebody has at hand, so that adding the run to a data set needs none.
It counts while the bundle is what it was: the digest of its files stands in it. What is
read is untrusted: checked against its types, bounded, and made anew where anything is wrong.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from profiler.analysis.assembly import assembled
from profiler.analysis.inputs import Inputs
from profiler.analysis.result import Analysis
from profiler.analysis.selection import Selection
from profiler.errors import InputError, OutputError, ProfilerError
from profiler.files import converted, decoded, write_atomically
from profiler.fleet.columns import RUNS, SCHEMA_VERSION
from profiler.fleet.commits import commit_of
from profiler.fleet.content import bundle_digest, key_of_run
from profiler.fleet.measures import READS, Measure, measures_of
from profiler.fleet.recorded_identity import recorded_identity
from profiler.run.run import Run
from profiler.sources.load import load_source
from profiler.sources.resolve import Kind, Source
from profiler.trace.manifest import MANIFEST_NAME, read_manifest

__all__ = [
    "RESIDUAL_LIMIT",
    "SUMMARY_NAME",
    "TRACING_LIMIT",
    "Summary",
    "read_summary",
    "summarize_analysis",
    "summarize_recorded",
    "summarized",
    "summary_of",
    "write_summary",
]

SUMMARY_NAME = "summary.json"
RESIDUAL_LIMIT = 0.01
TRACING_LIMIT = 0.25
"""From which on quality is bad: shares of a pipeline call, and of the time without tracing."""

_LIMIT = 16 << 20  # bytes
_TIME_OF_DAY = 946_684_800_000_000_000  # 2000-01-01
_ADDED = ("batch", "schema_version", "added_ns", "labels", "place")  # when it is added, not before

_Text = Annotated[str, Meta(max_length=20_000)]
_TYPES: dict[str, type] = {"Float64": float, "Int64": int, "String": _Text}
_Row = msgspec.defstruct(
    "_Row",
    [
        (
            column.name,
            _TYPES[str(column.dtype)] | None if column.nullable else _TYPES[str(column.dtype)],
        )
        for column in RUNS
        if column.name not in _ADDED
    ],
    frozen=True,
    forbid_unknown_fields=True,
)


class Summary(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run for a data set: `run` are its columns of `runs` but for those that adding it sets,
    `metrics` its rows. `content` is the digest of the bundle that it was made of, "" of others."""

    schema_version: int
    content: str
    run: dict[str, Any]
    metrics: tuple[Measure, ...] = field(default_factory=tuple)


class _Times(Struct, frozen=True):
    ns: int
    told_by: str


def summary_of(
    analysis: Analysis, source: Source, *, content: str = "", commit: str | None = None
) -> Summary:
    """The summary of a run from its analysis, which is of the whole run. `source` is where it
    lies; `content` the digest of its bundle; `commit` that of the program."""
    run, info = analysis.run, analysis.inputs.run.info
    times = _times(analysis.inputs.run, source)
    quality = _quality(analysis)
    row = {
        "run": key_of_run(analysis.inputs.run),
        "run_id": run.run_id,
        "time_ns": times.ns,
        "time_from": times.told_by,
        "commit": commit,
        "producer": run.producer or None,
        **recorded_identity(analysis),
        "python": run.versions.get("python"),
        "system": run.hardware.system or None,
        "cpu": run.hardware.cpu or None,
        "cores": run.hardware.cores,
        "memory_bytes": run.hardware.memory_bytes,
        "versions": json.dumps(dict(run.versions), sort_keys=True),
        "settings": json.dumps(info.settings, sort_keys=True),
        "pipelines": len(analysis.pipelines),
        "calls": run.calls,
        "commands": run.commands,
        **quality,
    }
    bounded = {name: v[:20_000] if isinstance(v, str) else v for name, v in row.items()}
    return Summary(
        schema_version=SCHEMA_VERSION,
        content=content,
        run=bounded,
        metrics=tuple(measures_of(analysis)),
    )


def summarized(source: Source) -> Summary:
    """The summary of the run of a source that is no foreign one, from the tables that it needs
    alone. Raises InputError where the run cannot be read or holds no call."""
    content = bundle_digest(source.path) if source.kind is Kind.BUNDLE else ""
    run = load_source(source)
    if run.calls.is_empty():
        raise InputError(f"{source.place} holds no call of a submodule: record the run again")
    analysis = assembled(Inputs(run, Selection(), (), {}), READS)
    return summary_of(analysis, source, content=content)


def write_summary(bundle: Path, summary: Summary) -> bool:
    """Write `summary.json` into a bundle; False where it cannot be, which is no error: the next
    who needs it makes it."""
    try:
        write_atomically(bundle / SUMMARY_NAME, msgspec.json.encode(summary) + b"\n")
    except OutputError:
        return False
    return True


def read_summary(bundle: Path) -> Summary | None:
    """The summary in `bundle`; None where there is none that is current. Raises InputError where
    a file of it cannot be read."""
    found = _read(bundle)
    if found is None or found.schema_version != SCHEMA_VERSION:
        return None
    return found if found.content == bundle_digest(bundle) else None


def summarize_analysis(analysis: Analysis, source: Source) -> bool:
    """Write the summary of an analysis of a whole run into its bundle; the commit that an older one
    names stays. Whether the bundle has one now."""
    if source.kind is not Kind.BUNDLE or source.origin is not None or analysis.run.selection:
        return False
    try:
        before, content = _read(source.path), bundle_digest(source.path)
        commit = None if before is None else before.run["commit"]
        summary = summary_of(analysis, source, content=content, commit=commit)
        return summary == before or write_summary(source.path, summary)
    except InputError:  # a file went meanwhile: the report stands without
        return False


def summarize_recorded(bundle: Path, folder: Path) -> bool:
    """Write the summary of a bundle that a program in `folder` has just recorded, with the commit
    there, or add that to the one which is there. Whether it could be."""
    source = Source(bundle, Kind.BUNDLE)
    try:
        found = read_summary(bundle) or summarized(source)
        told = {**found.run, "commit": found.run["commit"] or commit_of(folder)}
        return write_summary(bundle, msgspec.structs.replace(found, run=told))
    except ProfilerError:  # who analyzes the bundle is told what is wrong with it
        return False


def _read(bundle: Path) -> Summary | None:
    path = bundle / SUMMARY_NAME
    try:
        if not path.is_file() or path.stat().st_size > _LIMIT:
            return None
        found = decoded(path.read_bytes(), Summary)
        converted(found.run, _Row)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found


def _times(run: Run, source: Source) -> _Times:
    """When the run began: by its trace, by its manifest, by the file's time."""
    firsts = [frame["start_ns"].min() for frame in (run.spans, run.calls, run.commands)]
    known = [first for first in firsts if isinstance(first, int)]
    if known and min(known) >= _TIME_OF_DAY:
        return _Times(min(known), "trace")
    manifest = source.path / MANIFEST_NAME
    if source.kind is Kind.BUNDLE and manifest.is_file() and source.origin is None:
        from datetime import datetime

        try:
            created = datetime.fromisoformat(read_manifest(manifest).created)
            return _Times(int(created.timestamp()) * 1_000_000_000, "manifest")
        except ValueError:
            pass
    try:
        return _Times(source.place.stat().st_mtime_ns, "file")
    except OSError:
        return _Times(time.time_ns(), "file")


def _quality(analysis: Analysis) -> Mapping[str, Any]:
    missing = [drop for drop in analysis.drops if drop.kind.time_missing]
    shares = analysis.pipelines["residual_share"].abs().drop_nulls()
    residual = max(shares.to_list(), default=None)
    cost = analysis.run.overhead.share
    bad = {
        "drops": bool(missing),
        "residual": residual is not None and residual > RESIDUAL_LIMIT,
        "tracing_cost": cost is not None and cost > TRACING_LIMIT,
    }
    return {
        "drops": len(missing),
        "drop_kinds": ",".join(sorted({drop.kind.value for drop in analysis.drops})),
        "residual": residual,
        "tracing_cost": cost,
        "quality": ",".join(name for name, is_bad in bad.items() if is_bad),
    }
