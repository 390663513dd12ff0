"""`profile-sd3 dump` prints a trace as text, as far as the trace goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.cli.commands.dump import DumpOptions, dump
from profiler.errors import ProfilerError
from profiler.trace import encode_call
from profiler.trace.dump import dump_lines
from tests.trace.samples import small_calls


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.pb"
    path.write_bytes(encode_call(*small_calls()[0]))
    return path


def test_all_lines(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a limit every line is printed."""
    dump(DumpOptions(file=trace))
    assert capsys.readouterr().out.splitlines() == list(dump_lines(trace))


@pytest.mark.parametrize("limit", [0, 1, 5, 10_000])
def test_limit(trace: Path, capsys: pytest.CaptureFixture[str], limit: int) -> None:
    """With a limit no more lines than that are printed."""
    dump(DumpOptions(file=trace, limit=limit))
    assert capsys.readouterr().out.splitlines() == list(dump_lines(trace))[:limit]


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    """A bundle is a folder: which of its files to give is said."""
    with pytest.raises(ProfilerError, match=r"is a folder: give one \.pb file, such as a bundle's"):
        dump(DumpOptions(file=tmp_path))


def test_cut_file(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a cut file what is whole is printed before the error; a limit before the cut hides it."""
    whole = list(dump_lines(trace))
    trace.write_bytes(trace.read_bytes()[:-1])
    with pytest.raises(ProfilerError, match="cut or damaged at byte"):
        dump(DumpOptions(file=trace))
    assert capsys.readouterr().out.splitlines() == whole[:-1]
    dump(DumpOptions(file=trace, limit=3))
    assert capsys.readouterr().out.splitlines() == whole[:3]
