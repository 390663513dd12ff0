"""What findings gain at most is no less than what the same pipeline, simulated with the change,
gains."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from profiler.analysis import host_bound
from profiler.analysis.findings import words
from profiler.prediction.ladder import ladder_of_analysis
from tests.analysis.asked import asked
from tests.queued_runs import Machine, QueuedCall, QueuedPipeline, Simulated
from tests.runs import tiny_run

_ENCODE = (QueuedCall("text_encoder", "prompt"),)
_STEP = QueuedCall("transformer", "cond", kernels=50)
_DECODE = (QueuedCall("vae", length=50_000, host=5_000),)


@pytest.mark.parametrize(
    ("step", "last", "machine"),
    [
        (_STEP, {}, Machine()),
        (_STEP, {}, Machine(between=3_000)),
        (replace(_STEP, host=9_000), {}, Machine(between=3_000)),
        (replace(_STEP, waits=True), {}, Machine()),
        (replace(_STEP, waits_first=True), {}, Machine(between=1_000)),
        (_STEP, {"stalls": 12_000_000}, Machine()),
    ],
    ids=["late", "gaps", "hardly late", "waits", "waits first", "stands still once"],
)
def test_fewer_launches_gain_no_more_than_the_device_is_idle_for_them(step, last, machine):
    """Graphs gain the wait for launches, what lies between kernels in the queue, and time between
    calls to which the host comes sooner: by simulation, and by the ladder's replay."""
    made = QueuedPipeline(_ENCODE, [[step], [step], [replace(step, **last)]], _DECODE)
    recorded = made.simulated(machine=machine)
    analysis = asked(recorded.run)
    (found,) = [one for one in analysis.findings if one.rule == "host_bound"]
    gain = recorded.ns - made.simulated(graphs=True, machine=machine).ns
    assert 0.95 * found.cost_ns <= gain <= found.cost_ns
    (rung,) = (one for one in ladder_of_analysis(analysis).rungs if one.change.cuda_graph)
    assert rung.change.findings == (found,)
    assert recorded.ns - rung.alone.ns <= found.cost_ns
    beside = found.cost_ns - found.evidence["host_wait_ns"]
    named = "fewer launches may also save" in words(found).title
    assert named is (beside > 0.05 * found.evidence["host_wait_ns"])


@pytest.mark.parametrize(("between", "gained"), [(20_000, 1), (200_000, 0)])
def test_what_the_queue_holds_back_for_long_is_not_for_launches(between, gained):
    """Beside a late host 39 kernels of a call start so long after the one before them though they
    were launched: 20 us lie between kernels of a queue, and graphs may gain them; 200 us are a wait
    for something else, of which the gain has nothing."""
    late, queued = replace(_STEP, host=400_000), QueuedCall("vae", kernels=40, host=5_000)
    made = QueuedPipeline(_ENCODE, [[late]], (queued,))
    analysis = asked(made.simulated(machine=Machine(between=between)).run)
    (found,) = [one for one in analysis.findings if one.rule == "host_bound"]
    waits = analysis.idle.row(0, named=True)
    assert waits["queue_ns"] > 0.95 * 39 * between
    beside = found.cost_ns - waits["launch_ns"] - waits["host_ns"]
    assert beside == pytest.approx(gained * waits["queue_ns"], abs=150_000)


@pytest.mark.parametrize("replays", [True, False], ids=["replayed", "not replayed"])
@pytest.mark.parametrize("short", [20, 100])
def test_waiting_between_calls_costs_the_lead_of_the_host(monkeypatch, replays, short):
    """Of each step the device first works for longer than the host launches, then for less: after a
    wait between them it waits for each launch, without it the host is ahead. By simulation without
    the wait, within 1 %; of a run that cannot be replayed no less is said, and no more than the
    device was idle for the host."""
    if not replays:
        monkeypatch.setattr(host_bound, "replay_gains", lambda _: None)
    long = QueuedCall("transformer", "cond", kernels=50, host=4_000, length=60_000)
    late = QueuedCall("transformer", "uncond", kernels=short, host=20_000, length=2_000)

    def made(*, waits: bool) -> QueuedPipeline:
        step = [replace(long, waits_behind=waits), late]
        return QueuedPipeline(_ENCODE, [step] * 4, _DECODE)

    recorded = made(waits=True).simulated()
    analysis = asked(recorded.run)
    (found,) = (one for one in analysis.findings if one.rule == "scheduler_sync")
    gain = recorded.ns - made(waits=False).simulated().ns
    idle_ns = analysis.idle.select(pl.sum_horizontal("launch_ns", "sync_ns", "host_ns")).item()
    assert found.evidence["device_wait_ns"] == idle_ns
    assert gain <= found.cost_ns <= idle_ns
    if replays:
        assert found.cost_ns == pytest.approx(gain, rel=0.01)


def test_host_work_between_calls_that_the_device_hides_delays_launches():
    """Of 4 ms between calls of a step the device still works for most, and then waits for each
    launch of the next one: without them the same steps, simulated, take far less than the device
    stood still between calls; within 1 %."""
    long = QueuedCall("transformer", "cond", kernels=50, host=4_000, length=60_000)
    late = QueuedCall("transformer", "uncond", kernels=100, host=20_000, length=2_000)

    def simulated(between: int) -> Simulated:
        steps = [[replace(long, ahead=0), replace(late, ahead=between)] for _ in range(4)]
        return QueuedPipeline(_ENCODE, steps, _DECODE).simulated()

    recorded = simulated(4_000_000)
    (found,) = (one for one in asked(recorded.run).findings if one.rule == "host_between_steps")
    gain = recorded.ns - simulated(0).ns
    assert gain > 1.3 * found.evidence["between_ns"]
    assert found.cost_ns == pytest.approx(gain, rel=0.01)


def test_without_launches_no_host_gets_ahead():
    """The tiny run's NPU waits 105 ns for the host in calls, and 200 between them: its calls are
    done when they return, and fewer launches gain the 105."""
    (found,) = (one for one in asked(tiny_run()).findings if one.rule == "host_bound")
    assert (found.evidence["host_wait_ns"], found.cost_ns) == (105, 105)
