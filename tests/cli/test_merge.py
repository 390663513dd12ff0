"""`profile-sd3 merge` writes merged.pb anew and says what a rebuilt run lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.cli.commands.merge import MergeOptions, merge
from profiler.errors import ProfilerError
from profiler.trace import HOST_NAME, MANIFEST_NAME, MERGED_NAME, Journal, find_bundles
from tests.trace.samples import small_bundle


def test_path_and_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The path and size of merged.pb are printed, and nothing is said to be lost."""
    merged = small_bundle(tmp_path) / MERGED_NAME
    before = merged.read_bytes()
    merged.unlink()
    merge(MergeOptions(directory=merged.parent))
    assert merged.read_bytes() == before
    out, err = capsys.readouterr()
    assert (out, err) == (f"{merged}: {len(before):,} bytes\n", "")


def test_drops_of_a_rebuilt_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without its manifest and host file a run is rebuilt, and the drop is said on stderr."""
    bundle = small_bundle(tmp_path)
    (bundle / MANIFEST_NAME).unlink()
    (bundle / HOST_NAME).unlink()
    merge(MergeOptions(directory=bundle))
    err = capsys.readouterr().err
    assert err.startswith(f"dropped: {HOST_NAME}: missing_file, 1 file: ")
    assert (bundle / MANIFEST_NAME).is_file()


def test_a_folder_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest that was cut short is completed; where none was, the runs are named."""
    for name in ("one", "two"):
        bundle = small_bundle(tmp_path, name)
    with pytest.raises(ProfilerError, match=r"no run in .* was cut short: .*\(one, two\)"):
        merge(MergeOptions(directory=tmp_path))
    (bundle / MANIFEST_NAME).unlink()
    merge(MergeOptions(directory=tmp_path))
    assert capsys.readouterr().out.startswith(f"{bundle / MERGED_NAME}: ")
    assert (bundle / MANIFEST_NAME).is_file()


def test_a_run_that_is_still_going_on(tmp_path: Path) -> None:
    """Neither `merge` nor `analyze` sends the user to the other."""
    journal = Journal.create(small_bundle(tmp_path))
    refused = pytest.raises(ProfilerError, match=r"small is still going on: wait for its end$")
    try:
        with refused:
            merge(MergeOptions(directory=tmp_path))
        with refused:
            find_bundles(tmp_path)
    finally:
        journal.close()


def test_no_run(tmp_path: Path) -> None:
    """A folder without call files is refused."""
    with pytest.raises(ProfilerError, match="holds no call files"):
        merge(MergeOptions(directory=tmp_path))
