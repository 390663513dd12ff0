"""The journal of a run that goes on: what a call's line holds, and who is writing it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from profiler.errors import InputError
from profiler.trace import (
    JOURNAL_NAME,
    MANIFEST_NAME,
    NO_PIPELINE,
    Call,
    Journal,
    merge_bundle,
    read_journal,
    read_manifest,
)
from profiler.trace.bundle import JournalEntry, is_running

_CALL = Call(0, "vae", "decode", "", -1, "cpu:0", 10, 20, ops_traced=False, pipeline=3, iteration=5)

_ON_DEVICE = ("device_lag_ns", "device_duration_ns")


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
    """A line with a pipeline call, or a time on a device, below -1 or too large is left out."""
    wrong = [{"pipeline": -2}, {"pipeline": 1 << 31}]
    wrong += [{name: value} for name in _ON_DEVICE for value in (-2, 1 << 60, -(10**20))]
    _written(tmp_path, *(replace(_CALL, **each) for each in wrong))
    assert read_journal(tmp_path) == {}


ASK = """
import sys
from pathlib import Path
from profiler.trace.bundle import JournalEntry, is_running
print(is_running(Path(sys.argv[1])))
"""


def _another_process_sees_it_run(directory: Path) -> bool:
    command = [sys.executable, "-c", ASK, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout == "True\n"


@pytest.mark.skipif(sys.platform == "win32", reason="locks of POSIX")
def test_who_asks_for_its_own_run_keeps_its_lock(tmp_path: Path) -> None:
    """The writing process knows that it is running, and others know it, too, after it has asked
    (which would drop its lock, if it opened the file for that)."""
    journal = Journal.create(tmp_path)
    journal.add(_CALL, awaits_operators=False)
    assert _another_process_sees_it_run(tmp_path)
    assert is_running(tmp_path)
    with pytest.raises(InputError, match="still going on"):
        merge_bundle(tmp_path)
    assert _another_process_sees_it_run(tmp_path)
    journal.close()
    assert not is_running(tmp_path)
    assert not _another_process_sees_it_run(tmp_path)


ORPHAN = """
import os, sys
from pathlib import Path
from profiler.trace.bundle import Journal, is_running

directory = Path(sys.argv[1])
journal = Journal.create(directory)
alive, end = os.pipe()
if os.fork():
    os._exit(0)
os.close(end)
os.read(alive, 1)  # returns when the parent has gone
print(is_running(directory))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="fork of POSIX")
def test_a_forked_child_asks_for_its_parents_run(tmp_path: Path) -> None:
    """What the child has inherited is not the child's: the run is over when its parent has gone."""
    command = [sys.executable, "-c", ORPHAN, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("killed_in", ["merge_files", "write_manifest", "shutil"])
def test_a_merge_that_is_killed_is_done_again(tmp_path: Path, monkeypatch, killed_in: str) -> None:
    """Once call files are written, or the manifest, too: the second merge counts as many calls
    without operators as one that nobody killed, and says each thing once."""
    calls = [replace(_CALL, index=index) for index in range(4)]
    for name in ("once", "twice"):
        (tmp_path / name).mkdir()
        with (tmp_path / name / JOURNAL_NAME).open("wb") as file:
            for call in calls:
                file.write(b"\n" + msgspec.json.encode(JournalEntry(call, call.index > 0)))

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        place = "shutil.rmtree" if killed_in == "shutil" else f"profiler.trace.bundle.{killed_in}"
        patch.setattr(place, killed)
        with pytest.raises(KeyboardInterrupt):
            merge_bundle(tmp_path / "twice")
    once, twice = (
        read_manifest(merge_bundle(tmp_path / name).parent / MANIFEST_NAME).info.drops
        for name in ("once", "twice")
    )
    assert sorted(map(str, once)) == sorted(map(str, twice))
    assert [drop.count for drop in twice if drop.kind == "untraced_call"] == [3]
