"""The report as one JSON document; `docs/json.md` describes every key.

Times are integers in nanoseconds, shares and other ratios numbers with 1.0 for all of it; what is
not known is null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis.accounting.identity import Accounting
from profiler.analysis.registry import tables
from profiler.analysis.result import Analysis, RunSummary
from profiler.analysis.roofline.device_profile import DeviceProfile
from profiler.analysis.steps.summary import StepSummary
from profiler.files import json_text, plain
from profiler.report.sections.steps import outlier_count
from profiler.report.sentences.worded import why_not, worded, worded_cell
from profiler.report.sentences.worded_tables import worded_tables_by_name
from profiler.run.columns import Column
from profiler.text import Note, NoteCode

__all__ = ["DOCUMENT_VERSION", "document", "to_json"]

DOCUMENT_VERSION = 1  # rises when a key goes or changes its meaning


def document(analysis: Analysis) -> dict[str, Any]:
    """The analysis as plain values: mappings, lists, text, numbers, booleans, None."""
    columns = {table.name: table.columns for table in tables()}
    frames = analysis.tables()
    rows = {name: _rows(frame, columns.get(name, ())) for name, frame in frames.items()}
    rows |= {name: table.rows(analysis) for name, table in worded_tables_by_name().items()}
    return {
        "version": DOCUMENT_VERSION,
        "run": _run(analysis.run),
        "accounting": _noted(analysis.accounting, "why_not"),
        "step_summary": _noted(analysis.step_summary, "rule"),
        **rows,
        "step_outliers_total": outlier_count(analysis),
        "device_profiles": _profiles(analysis.device_profiles),
    }


def to_json(analysis: Analysis) -> str:
    """The document as JSON text that ends with a newline; no NaN, no Infinity."""
    return json_text(document(analysis)) + "\n"


def _run(run: RunSummary) -> dict[str, Any]:
    """Plain values; settings that differ as text, and as objects under `settings_codes`."""
    notes = {name: value for name, value in run.settings.items() if isinstance(value, Note)}
    settings = {name: str(worded(note)) for name, note in notes.items()}
    return {
        **plain(run),
        "settings": {**plain(run.settings), **settings},
        "settings_codes": {name: note.as_json() for name, note in notes.items()},
    }


def _noted(value: Accounting | StepSummary, name: str) -> dict[str, Any]:
    """Plain values; the note of that name as a sentence, and as an object under `…_code`."""
    note: Note | None = getattr(value, name)
    as_json = None if note is None else note.as_json()
    return {**plain(value), name: str(why_not(note)), f"{name}_code": as_json}


def _rows(frame: pl.DataFrame, columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The rows of a table; notes as a list of objects, and as text under `…_text`."""
    rows = frame.to_dicts()
    for column in columns:
        if column.codes is not None and issubclass(column.codes, NoteCode):
            for row in rows:
                row[f"{column.name}_text"] = str(worded_cell(row[column.name], column.codes))
                row[column.name] = json.loads(row[column.name])
    return rows


def _profiles(profiles: Mapping[str, DeviceProfile]) -> dict[str, Any]:
    """What each device was held against, by device."""
    return {
        device: {
            "hardware": profile.hardware,
            "measured": profile.measured,
            "source": profile.source,
            "memory_bandwidth": profile.memory_bandwidth,
            "cache_bytes": profile.cache_bytes,
            "cache_bandwidth": profile.cache_bandwidth,
            "launch_ns": None if profile.launch_ns is None else round(profile.launch_ns),
            "peak_flops": dict(profile.peak_flops),
        }
        for device, profile in profiles.items()
    }
