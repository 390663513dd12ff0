"""What of a data set counts: the commit rule, removals and compactions, in any order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.errors import InputError
from profiler.fleet import Dataset, LocalStorage, commit_batch, compact, make_dataset
from profiler.fleet.add import metrics_frame, parquet_bytes, runs_frame
from profiler.fleet.dataset import remove, selected
from profiler.fleet.storage import file_name, snapshot
from tests.fleet.simulated import addition, filled, key


@pytest.fixture
def storage(tmp_path):
    found = LocalStorage(tmp_path / "data")
    make_dataset(found)
    return found


def _runs(storage):
    return Dataset(storage.place).runs()["run_id"].to_list()


def test_metrics_without_their_run_do_not_exist(storage):
    """A writer killed between both files leaves nothing that a reader sees; adding completes it."""
    one = addition(1)
    name = file_name("metrics", one.folder, f"b{1:032x}")
    storage.create(name, parquet_bytes(metrics_frame([one], f"b{1:032x}")))
    data = Dataset(storage.place)
    assert data.runs().is_empty()
    assert data.history("denoise.step").is_empty()
    assert data.names() == []
    commit_batch(storage, [one])
    assert data.history("denoise.step")["value"].to_list() == [5e6]


def test_a_run_that_two_writers_added_counts_once(storage):
    """The earliest batch counts, in runs and in metrics, before and after a compaction."""
    for number, value in enumerate((5e6, 6e6)):
        commit_batch(storage, [addition(1, {"step": value}), addition(number + 2)])
    data = Dataset(storage.place)
    for _ in range(2):
        found = data.history("denoise.step", where=f"run={key(1)}")
        assert found["value"].to_list() == [5e6]
        assert len(data.runs()) == 3
        compact(storage, grace_s=0)


def test_a_removed_run_can_be_added_again(storage):
    """Removing hides all that is there of a run, compaction drops it, and adding it counts again:
    also where the compaction began before the removal."""
    filled(storage, [addition(1), addition(2)])
    filled(storage, [addition(1)])
    assert remove(storage, selected(storage, ["run1"])) == 1
    assert _runs(storage) == ["run2"]
    commit_batch(storage, [addition(1, {"step": 7e6})])
    assert Dataset(storage.place).history("denoise.step")["value"].to_list() == [7e6, 5e6]
    for _ in range(3):
        compact(storage, grace_s=0)
    assert Dataset(storage.place).history("denoise.step")["value"].to_list() == [7e6, 5e6]
    assert not storage.names("removed")
    with pytest.raises(InputError, match="no run 'run9'"):
        selected(storage, ["run9"])


def test_a_killed_compaction_leaves_nothing_that_counts(storage, monkeypatch):
    """Merged files of a compaction that ended before its generation are not read; the next one
    does the work and deletes them."""
    filled(storage, [addition(number) for number in range(4)], batch=2)
    with monkeypatch.context() as patch:
        patch.setattr("profiler.fleet.add._commit", lambda *_: (_ for _ in ()).throw(OSError))
        patch.setattr(LocalStorage, "remove", lambda *_: None)
        with pytest.raises(OSError):  # noqa: PT011
            compact(storage)
    assert snapshot(storage).orphans
    assert _runs(storage) == ["run0", "run1", "run2", "run3"]
    compact(storage, grace_s=0)
    compact(storage, grace_s=0)
    assert not snapshot(storage).orphans
    assert len(storage.names("runs")) == 1
    assert _runs(storage) == ["run0", "run1", "run2", "run3"]


def test_of_two_compactions_one_counts(storage, monkeypatch):
    """The one that ends second is told, and takes its files away."""
    filled(storage, [addition(number) for number in range(4)], batch=2)
    import profiler.fleet.add as module

    commit = module._commit

    def overtaken(storage, generation):
        monkeypatch.setattr(module, "_commit", commit)
        compact(storage)
        return commit(storage, generation)

    monkeypatch.setattr(module, "_commit", overtaken)
    with pytest.raises(InputError, match="another compaction"):
        compact(storage)
    assert not snapshot(storage).orphans
    assert _runs(storage) == ["run0", "run1", "run2", "run3"]


def test_large_files_stay_as_they_are(storage):
    """Files of the target's size are not merged, unless a removed run is in them; smaller ones are,
    up to it."""
    filled(storage, [addition(number) for number in range(6)], batch=2)
    assert compact(storage, target_bytes=1).after == 6
    assert compact(storage).after == 2
    remove(storage, selected(storage, ["run3"]))
    compact(storage, target_bytes=1)
    assert _runs(storage) == ["run0", "run1", "run2", "run4", "run5"]


def test_a_reader_that_is_overtaken_starts_over(storage, monkeypatch):
    """A snapshot whose files a compaction deletes before they are read is taken anew."""
    filled(storage, [addition(number) for number in range(4)], batch=2)
    import profiler.fleet.dataset as module

    taken = []

    def overtaken(storage):
        found = snapshot(storage)
        if not taken:
            monkeypatch.setattr(module, "snapshot", snapshot)  # compactions take it, too
            compact(storage, grace_s=0)
            compact(storage, grace_s=0)
            monkeypatch.setattr(module, "snapshot", overtaken)
        taken.append(found)
        return found

    monkeypatch.setattr(module, "snapshot", overtaken)
    assert len(Dataset(storage.place).runs()) == 4
    assert len(taken) == 2


_ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sets(st.integers(0, 5), min_size=1)),
        st.tuples(st.just("remove"), st.integers(0, 5)),
        st.tuples(st.just("compact"), st.sampled_from([0, 3600])),
    ),
    max_size=12,
)


@settings(max_examples=15)
@given(actions=_ACTIONS)
def test_any_order(tmp_path_factory, actions):
    """After any sequence of additions, removals and compactions readers see each run that was
    added and not removed since, once, with its metrics."""
    storage = LocalStorage(tmp_path_factory.mktemp("any") / "data")
    make_dataset(storage)
    there: set[int] = set()
    for action, of in actions:
        if action == "add":
            commit_batch(storage, [addition(number) for number in sorted(of)])
            there |= of
        elif action == "remove" and of in there:
            remove(storage, selected(storage, [key(of)]))
            there.remove(of)
        elif action == "compact":
            compact(storage, grace_s=of)
        expected = [f"run{number}" for number in sorted(there)]
        assert _runs(storage) == expected
        assert Dataset(storage.place).history("elapsed")["run_id"].to_list() == expected


def test_files_say_what_the_page_says(storage):
    """Columns and their types in the files are the declared ones."""
    frame = runs_frame([addition(1)], "b", 5)
    assert frame.columns[0] == "run"
    assert frame["added_ns"].to_list() == [5]


def test_damaged_files_are_named(storage):
    """A file that is no Parquet is said in one sentence."""
    filled(storage, [addition(1)])
    storage.create(file_name("runs", addition(1).folder, f"b{9:032x}"), b"no parquet")
    with pytest.raises(InputError, match="cannot be read"):
        Dataset(storage.place).runs()
