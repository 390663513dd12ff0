"""Several processes at once, some of which are killed: nothing is lost, doubled or half there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from profiler.fleet import Dataset, LocalStorage, make_dataset
from profiler.fleet.add import State, Wishes, add
from profiler.fleet.workers import Lost, Workers, batches_of, mapped
from tests.fleet.bundles import write_bundles
from tests.fleet.killed_worker import deadly_seven, killing_once
from tests.fleet.simulated import addition, filled


def _python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


_WRITER = """
import sys
from profiler.fleet.add import commit_batch
from profiler.fleet.storage import LocalStorage
from profiler.fleet.workers import Workers
from tests.fleet.bundles import write_bundles
from tests.fleet.killed_worker import killing_once
from tests.fleet.simulated import addition
place, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(first, last):
    commit_batch(LocalStorage(__import__("pathlib").Path(place)), [addition(number)])
    print(number, flush=True)
"""

_COMPACTOR = """
import sys
from pathlib import Path
from profiler.errors import InputError
from profiler.fleet.add import compact
from profiler.fleet.storage import LocalStorage
print("ready", flush=True)
while True:
    try:
        compact(LocalStorage(Path(sys.argv[1])), grace_s=int(sys.argv[2]))
    except InputError:
        pass
"""


def test_writers_readers_and_a_compaction_at_once(tmp_path):
    """Two writers that share half of their runs, of which one is killed midway, and a compaction
    that is killed, too: each reader meanwhile sees the runs that were there before, all new ones
    whole, and none twice; afterwards adding the rest gives what one process gives."""
    place = tmp_path / "data"
    storage = filled(LocalStorage(place), [addition(number) for number in range(10)], batch=2)
    compactor = _python(_COMPACTOR, place, 1)
    assert compactor.stdout is not None
    compactor.stdout.readline()
    writers = [_python(_WRITER, place, 10, 22), _python(_WRITER, place, 16, 28)]
    data, seen = Dataset(place), 0
    try:
        for line in iter(writers[0].stdout.readline, ""):
            history = data.history("denoise.step")
            runs = history["run_id"].to_list()
            assert len(set(runs)) == len(runs) >= seen >= 0
            assert {f"run{number}" for number in range(10)} <= set(runs)
            assert f"run{line.strip()}" in runs
            seen = len(runs)
            if line.strip() == "14":
                os.kill(writers[1].pid, signal.SIGKILL)
                os.kill(compactor.pid, signal.SIGKILL)
    finally:
        for process in (*writers, compactor):
            process.kill()
            process.communicate()
    have = set(data.runs()["run_id"])
    rest = [number for number in range(28) if f"run{number}" not in have]
    filled(storage, [addition(number) for number in rest])
    from profiler.fleet import compact

    compact(storage, grace_s=0)
    whole = filled(LocalStorage(tmp_path / "whole"), [addition(number) for number in range(28)])
    for question in ("runs", "history"):
        found, expected = (
            getattr(Dataset(each.place), question)(
                *(["denoise.step"] if question == "history" else [])
            )
            for each in (storage, whole)
        )
        assert found.drop("added_ns", strict=False).equals(expected.drop("added_ns", strict=False))


def test_a_killed_add_is_completed(tmp_path):
    """`add` of a folder, killed once its first batch is there, leaves whole runs; once more, the
    rest is added and nothing twice."""
    write_bundles(tmp_path / "traces", 6)
    code = """
    import os, signal, sys
    from pathlib import Path
    import profiler.fleet.add as adding
    from profiler.fleet.storage import LocalStorage
    adding._BATCH_RUNS = 2
    def say(done, of, outcome):
        if done == 5:
            os.kill(os.getpid(), signal.SIGKILL)
    adding.add(LocalStorage(Path(sys.argv[1])), [Path(sys.argv[2])], say=say)
    """
    process = _python(code, tmp_path / "data", tmp_path / "traces")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    data = Dataset(tmp_path / "data")
    assert len(data.runs()) == len(data.history("elapsed")) == 4
    outcomes = add(LocalStorage(tmp_path / "data"), [tmp_path / "traces"])
    assert [one.state for one in outcomes].count(State.ADDED) == 2
    assert len(data.runs()) == len(data.history("elapsed")) == 6


def test_two_make_the_same_data_set(tmp_path):
    """Who comes second finds what the first has made."""
    for _ in range(2):
        make_dataset(LocalStorage(tmp_path / "data"))
    assert Dataset(tmp_path / "data").runs().is_empty()


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    place = tmp_path_factory.mktemp("bundles")
    write_bundles(place / "traces", 8)
    (place / "traces" / "run003" / "manifest.json").write_text("{")
    return place


def test_workers_of_which_one_is_killed(bundles, tmp_path, monkeypatch):
    """Two worker processes, one killed while it reads a bundle: sorted by key, the data set is
    the one that a single process makes; a bad bundle is a row and no stop."""
    pytest.importorskip("distributed", reason="needs the fleet extra: distributed")
    traces, mark = bundles / "traces", tmp_path / "mark"
    alone = add(LocalStorage(tmp_path / "alone"), [traces])
    monkeypatch.setenv("KILLED_AT", "run005")
    monkeypatch.setenv("KILLED_MARK", str(mark))
    monkeypatch.setattr("profiler.fleet.add.outcome_of", killing_once)
    outcomes = add(LocalStorage(tmp_path / "workers"), [traces], Wishes(workers=Workers(local=2)))
    assert mark.exists()
    assert [(one.place, one.state) for one in outcomes] == [(one.place, one.state) for one in alone]
    assert [one.state for one in outcomes].count(State.FAILED) == 1
    for table in ("runs", "metrics"):
        one, other = (_sorted(tmp_path / name, table) for name in ("alone", "workers"))
        assert one.equals(other)


@pytest.mark.parametrize(
    ("items", "workers", "largest"),
    [(0, 2, 0), (1, 2, 1), (8, 2, 1), (200, 2, 12), (10_000, 2, 16)],
)
def test_items_go_to_workers_in_batches(items, workers, largest):
    """Each item once, in order; several at once where there are many, and enough batches that all
    workers end at about the same time."""
    batches = batches_of(items, workers)
    assert [number for batch in batches for number in batch] == [*range(items)]
    assert max(map(len, batches), default=0) == largest
    assert items < 8 * workers or len(batches) >= 8 * workers


@pytest.mark.nightly
def test_of_a_batch_that_kills_workers_one_item_is_lost():
    """Forty items in batches of two, of which one kills every worker that has it: that one is lost,
    its neighbour is not."""
    pytest.importorskip("distributed", reason="needs the fleet extra: distributed")
    found = dict(mapped(deadly_seven, range(40), Workers(local=2)))
    assert isinstance(found.pop(7), Lost)
    assert found == {number: number for number in range(40) if number != 7}


@pytest.mark.nightly
def test_who_shares_a_worker_with_a_killer_is_not_lost():
    """One worker has the items that follow in its queue whenever the first one kills it: Dask
    blames them as well, yet that first one alone is lost."""
    pytest.importorskip("distributed", reason="needs the fleet extra: distributed")
    dask = pytest.importorskip("dask")
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        found = dict(mapped(deadly_seven, [7, 8, 9, 10], Workers(local=1)))
    assert isinstance(found.pop(0), Lost)
    assert found == {1: 8, 2: 9, 3: 10}


def _sorted(place, table):
    """All that a data set holds of a table, by key."""
    data = Dataset(place)
    found = data.runs().drop("added_ns") if table == "runs" else data.metrics(data.names())
    return found.sort(["run", "name"] if "name" in found.columns else ["run"])
