"""What findings gain at most is no less than what the same pipeline, simulated with the change,
gains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.prediction.ladder import ladder_of_analysis
from tests.analysis.asked import asked
from tests.queued_runs import Machine, QueuedCall, QueuedPipeline

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
