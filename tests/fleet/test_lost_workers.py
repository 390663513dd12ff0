"""Clusters that are past help: one sentence, and no waiting for ever."""

from __future__ import annotations

import asyncio

import pytest

from profiler.errors import InputError
from profiler.fleet import workers as under_test
from profiler.fleet.workers import Workers, mapped
from tests.fleet.killed_worker import deadly_seven

distributed = pytest.importorskip("distributed", reason="needs the fleet extra: distributed")


@pytest.fixture
def restarting(monkeypatch):
    """Puts a coroutine in the place of what starts a worker process for the second time."""
    from distributed.nanny import WorkerProcess

    start = WorkerProcess.start
    started = set()

    def put(restart):
        async def first_only(process):
            if process in started:
                return await restart()
            started.add(process)
            return await start(process)

        monkeypatch.setattr(WorkerProcess, "start", first_only)

    return put


def test_a_worker_that_cannot_be_restarted_ends_the_work(restarting):
    """The only worker is killed and its process cannot be started again: the work ends with one
    sentence, where Dask alone would keep the items for a worker that never comes."""

    async def refused():
        raise OSError("no more processes")

    restarting(refused)
    with pytest.raises(InputError, match="workers have died and none could be restarted: run"):
        list(mapped(deadly_seven, [7, 8], Workers(local=1)))


def test_a_worker_that_never_comes_back_is_not_waited_for(restarting, monkeypatch):
    """Its restart neither succeeds nor fails: after the patience that there is, it is said."""

    async def pending():
        await asyncio.sleep(30)  # cancelled with the cluster

    restarting(pending)
    monkeypatch.setattr(under_test, "_GONE_S", 0.0)
    monkeypatch.setattr(under_test, "_ASK_S", 0.01)
    with pytest.raises(InputError, match="has had no worker for 0 s: run"):
        list(mapped(deadly_seven, [7, 8], Workers(local=1)))


def test_what_dask_raises_while_it_gathers_is_one_sentence(monkeypatch):
    """An AssertionError from within Dask comes out as an InputError that names it."""

    def gather(*_, **__):
        raise AssertionError

    monkeypatch.setattr(distributed.Future, "result", gather)
    with pytest.raises(InputError, match=r"Dask failed \(AssertionError\): run the command again"):
        list(mapped(deadly_seven, [1], Workers(local=1)))


def test_a_cluster_that_does_not_start_is_one_sentence(monkeypatch):
    """So is a cluster none of whose processes can be started."""

    async def refused(_):
        raise OSError("no more processes")

    monkeypatch.setattr("distributed.nanny.WorkerProcess.start", refused)
    with pytest.raises(InputError, match=r"Dask failed \(.+\): run the command again"):
        list(mapped(deadly_seven, [1], Workers(local=1)))
