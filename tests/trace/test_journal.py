"""The journal of a run that goes on: what a call's line holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from profiler.events import NO_PIPELINE, Call
from profiler.trace.journal import JOURNAL_NAME, Journal, read_journal

_CALL = Call(0, "vae", "decode", "", -1, "cpu:0", 10, 20, ops_traced=False, pipeline=3)


def _written(directory: Path, *calls: Call) -> Path:
    journal = Journal.create(directory)
    for call in calls:
        journal.add(call, awaits_operators=False)
    journal.close()
    return directory / JOURNAL_NAME


def test_calls_keep_their_pipeline_call(tmp_path: Path) -> None:
    """A call of pipeline call 3 and one outside of any."""
    outside = replace(_CALL, index=1, pipeline=NO_PIPELINE)
    _written(tmp_path, _CALL, outside)
    assert [entry.call for entry in read_journal(tmp_path).values()] == [_CALL, outside]


def test_lines_from_before_pipeline_calls_had_numbers(tmp_path: Path) -> None:
    """They are read as outside of any."""
    path = _written(tmp_path, _CALL)
    entry = json.loads(path.read_text())
    del entry["call"]["pipeline"]
    path.write_text(json.dumps(entry))
    assert read_journal(tmp_path)[0].call == replace(_CALL, pipeline=NO_PIPELINE)


def test_numbers_that_tables_cannot_hold_are_no_calls(tmp_path: Path) -> None:
    """A line with a pipeline call below -1, or too large, is left out."""
    _written(tmp_path, replace(_CALL, pipeline=-2), replace(_CALL, pipeline=1 << 31))
    assert read_journal(tmp_path) == {}
