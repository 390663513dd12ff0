"""Ctrl-C while a profiler is being stopped: it waits, and no operators are lost of it."""

from __future__ import annotations

import signal
import threading

import pytest

from profiler.capture.imports import interrupts_wait


@pytest.fixture(autouse=True)
def terminal():
    """In a shell's background job SIGINT is ignored, and nothing waits for it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(times):
    """What a block does that so many interrupts reach; the last of them ends it, or its caller."""
    done = []
    try:
        with interrupts_wait():
            done.append("begun")
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            done.append("whole")
    except KeyboardInterrupt:
        return done
    raise AssertionError("never interrupted")


def test_an_interrupt_waits_for_the_end_of_the_block():
    """It is raised when the block has ended, and handlers are those of before."""
    assert interrupted(1) == ["begun", "whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_does_not_wait():
    """Who presses Ctrl-C once more wants to leave."""
    assert interrupted(2) == ["begun"]


def test_the_scripts_own_handlers_wait_and_ignored_signals_stay_ignored():
    """A handler of the script's is called once the block has ended; SIG_IGN is left alone."""
    told = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_wait():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            assert told == []
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told == [signal.SIGTERM]


def test_other_threads_are_left_alone():
    """Python interrupts the main thread alone."""
    seen = []

    def work():
        with interrupts_wait():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


@pytest.mark.torch
def test_ctrl_c_while_torchs_profiler_is_stopped(monkeypatch):
    """The session is kept, though the interrupt came as torch handed its results over."""
    torch_profiler = pytest.importorskip("torch.autograd.profiler", reason="needs the torch extra")
    from tests.capture.torch.test_operators import MODEL_TABLE, Run, table

    stop = torch_profiler._disable_profiler

    def interrupted():
        results = stop()
        signal.raise_signal(signal.SIGINT)
        return results

    monkeypatch.setattr(torch_profiler, "_disable_profiler", interrupted)
    run = Run()
    with pytest.raises(KeyboardInterrupt), run:
        run.call()
    assert [table(trace) for trace in run.traces()] == [MODEL_TABLE]
