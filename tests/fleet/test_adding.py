"""`fleet add`: what it takes, takes once, and says of what it cannot take."""

from __future__ import annotations

import shutil

import pytest

from profiler.errors import InputError
from profiler.fleet import Dataset, LocalStorage
from profiler.fleet.add import State, Wishes, add
from profiler.tools.metrics import SUMMARY_NAME
from tests.command_line import run_command
from tests.fleet.bundles import write_bundle, write_bundles
from tests.importers.kineto.traces import flux
from tests.runs import write_empty_bundle


@pytest.fixture
def traces(tmp_path):
    write_bundles(tmp_path / "traces", 3)
    return tmp_path / "traces"


def test_a_folder_once(traces, tmp_path):
    """Every bundle of a folder, in order of time; again, a copy, and its merged trace: known."""
    storage = LocalStorage(tmp_path / "data")
    outcomes = add(storage, [traces], Wishes("abc", {"branch": "main"}, keep_paths=True))
    assert [outcome.state for outcome in outcomes] == [State.ADDED] * 3
    runs = Dataset(tmp_path / "data").runs()
    assert runs["run_id"].to_list() == ["run000", "run001", "run002"]
    assert runs["commit"].unique().to_list() == ["abc"]
    assert runs["labels"].unique().to_list() == ['{"branch": "main"}']
    assert runs["place"][0] == str(traces / "run000")
    shutil.copytree(traces / "run000", tmp_path / "copy")
    again = add(storage, [traces, tmp_path / "copy", traces / "run001" / "merged.pb"])
    assert {outcome.state for outcome in again} == {State.KNOWN}
    assert len(Dataset(tmp_path / "data").runs()) == 3


def test_summaries_are_made_and_taken(traces, tmp_path):
    """Adding leaves a summary in a bundle without one; a current one is taken as it is, which a
    number of its own shows; one that is not current is not."""
    add(LocalStorage(tmp_path / "one"), [traces])
    path = traces / "run001" / SUMMARY_NAME
    path.write_text(path.read_text().replace('"elapsed",1000.0', '"elapsed",7777.0'))
    add(LocalStorage(tmp_path / "two"), [traces])
    values = Dataset(tmp_path / "two").history("elapsed")["value"].to_list()
    assert values == [1000, 7777, 1000]


def test_bad_runs_stop_nothing(traces, tmp_path, capsys):
    """A damaged manifest, a run without calls, a text, a path that is not there: each is said, all
    others are added, and the exit code tells."""
    (traces / "run001" / "manifest.json").write_text("{")
    write_empty_bundle(tmp_path, "empty")
    (tmp_path / "text.txt").write_text("hello")
    bad = [traces / "run001", tmp_path / "empty", tmp_path / "text.txt", tmp_path / "nothing"]
    assert (
        run_command("fleet", "add", tmp_path / "data", traces / "run000", traces / "run002", *bad)
        == 2
    )
    out, err = capsys.readouterr()
    assert out == f"added 2 runs to {tmp_path / 'data'}\n"
    assert err.count("not added: ") == 4
    assert "4 runs of 6 could not be added" in err
    assert len(Dataset(tmp_path / "data").runs()) == 2


def test_what_is_no_data_set_is_left_alone(traces, tmp_path, capsys):
    """A folder with other things becomes no data set; reading what is none is refused."""
    before = sorted(traces.iterdir())
    assert run_command("fleet", "add", traces, traces / "run000") == 2
    assert "holds other things" in capsys.readouterr().err
    assert sorted(traces.iterdir()) == before
    with pytest.raises(InputError, match="no data set of runs"):
        Dataset(tmp_path / "nothing")


def test_versions(traces, tmp_path):
    """A data set of a later version is neither read nor written."""
    storage = LocalStorage(tmp_path / "data")
    add(storage, [traces / "run000"])
    (tmp_path / "data" / "dataset.json").write_text('{"schema_version": 2}')
    with pytest.raises(InputError, match="update it"):
        Dataset(tmp_path / "data")
    with pytest.raises(InputError, match="update it"):
        add(storage, [traces / "run001"])


def test_foreign_files_are_known_by_what_is_imported(tmp_path, capsys):
    """A profile of another recorder, added as it is, then as the bundle that `import` makes of it:
    one run; its row says where it is only if that was asked for."""
    path = flux().write(tmp_path)
    storage = LocalStorage(tmp_path / "data")
    (outcome,) = add(storage, [path], Wishes(keep_paths=True))
    assert (outcome.state, outcome.place) == (State.ADDED, str(path))
    (outcome,) = add(LocalStorage(tmp_path / "other"), [path])
    assert (outcome.state, outcome.place) == (State.ADDED, str(path))
    assert Dataset(tmp_path / "other").runs()["place"].to_list() == [""]
    assert str(tmp_path) not in str(Dataset(tmp_path / "other").runs().rows())
    assert run_command("import", path, "--out", tmp_path / "traces") == 0
    capsys.readouterr()
    assert [one.state for one in add(storage, [tmp_path / "traces"])] == [State.KNOWN]
    assert Dataset(tmp_path / "data").runs()["place"].to_list() == [str(path)]


def test_what_is_unknown_stays_unknown(tmp_path):
    """A run whose manifest tells no settings has nulls where others have values."""
    write_bundle(tmp_path / "traces", 0, settings={}, versions={})
    add(LocalStorage(tmp_path / "data"), [tmp_path / "traces"])
    (row,) = Dataset(tmp_path / "data").runs().iter_rows(named=True)
    assert [row[name] for name in ("steps", "resolution", "cache", "software")] == [None] * 4
