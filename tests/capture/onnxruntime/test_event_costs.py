"""What recording nodes of ONNX Runtime costs, by how much memory they go through, and what first
calls on new sessions take longer."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from profiler.capture.invocations import Invocation
from profiler.capture.onnxruntime import cost
from profiler.capture.onnxruntime.new_sessions import FirstCalls
from profiler.capture.onnxruntime.touched_bytes import TouchedBytes
from profiler.capture.operator_source import NewSessions
from profiler.ort_profiles.nodes import NodeColumns, NodeKind

KIB, MIB = 1 << 10, 1 << 20


def nodes(*sizes_and_times):
    """Executed nodes: bytes read, bytes written, ns."""
    kinds = [NodeKind("n", "Add", "CPU", read, wrote) for read, wrote, _ in sizes_and_times]
    durations = np.array([time for *_, time in sizes_and_times], dtype=np.int64)
    zeros = np.zeros(len(kinds), dtype=np.int64)
    return NodeColumns(kinds, np.arange(len(kinds), dtype=np.int32), zeros, zeros, durations, zeros)


def test_nodes_are_counted_by_the_memory_they_went_through():
    """What is read and written counts, but no more than 50 bytes a ns: a Reshape that says 8 MiB
    and takes a µs went through 100 kB at most. Unknown sizes are none."""
    touched = TouchedBytes()
    both = nodes((3 * KIB, KIB, 2_000), (4 * MIB, 4 * MIB, 1_000), (MIB, MIB, 90_000))
    touched.add(both)
    touched.add(both)
    touched.add(nodes((-1, -1, 5_000)))
    assert touched.counts == {13: 2, 17: 2, 22: 2, 0: 1}  # 4 KiB, 100 kB, 2 MiB


def test_the_cost_is_weighted_by_what_nodes_go_through(monkeypatch):
    """Chains of known cost, by the side of their tensors: small nodes cost what the smallest chain
    says, large ones what the largest does, half of each the mean; the largest is measured only
    where a node is as large."""
    measured = []

    def pairs(side):
        measured.append(side)
        return [20 * 1e-6 * {16: 5, 256: 8, 362: 12, 512: 14}[side]] * 3

    monkeypatch.setattr(cost, "_pairs", pairs)
    assert cost.onnx_event_cost({3: 7}).ns == pytest.approx(5_000)
    assert cost.onnx_event_cost({}).ns == pytest.approx(5_000)
    assert set(measured) == {16}
    assert cost.onnx_event_cost({30: 1}).ns == pytest.approx(14_000)
    assert cost.onnx_event_cost({30: 2, 3: 2}).ns == pytest.approx(9_500)
    between = cost.onnx_event_cost({19: 1})  # 384 KiB, between 3 and 768
    assert 5_000 < between.ns < 8_000


def test_one_pair_is_an_estimate_without_quartiles(monkeypatch):
    """A busy machine left time for one pair of one chain: no quartiles; noise above the cost is no
    estimate."""
    monkeypatch.setattr(cost, "_pairs", lambda side: [20e-6] * (1 if side > 16 else 9))
    found = cost.onnx_event_cost({20: 1})
    assert (round(found.ns), found.low_ns) == (1_000, None)
    monkeypatch.setattr(cost, "_pairs", lambda _: [-1e-6])
    assert cost.onnx_event_cost({20: 1}) is None


class Session:
    """Stands for a part's own session."""


def ran(first_calls, *durations, renewed=False, **shapes):
    """A first call on a session of ours and later ones."""
    for number, duration in enumerate(durations):
        invocation = Invocation("unet", "denoise", "", 0, "cpu:0", shapes)
        first_calls.add(invocation, duration, first=not number, renewed=renewed)


def test_first_calls_on_new_sessions_are_our_cost_where_the_own_one_was_warm():
    """A first call of 100 ns before later ones of 50 to 60: nobody knows in a program's first run
    whether its own session had run; in the next run it has, and cost 45 longer (40 to 50)."""
    own = Session()
    one = FirstCalls(own)
    ran(one, 100, 50, 55, 60, x="float32[1]")
    assert one.cost() == NewSessions(0.0, 0.0, 50)
    one.close()
    two = FirstCalls(own)
    ran(two, 100, 50, 55, 60, x="float32[1]")
    assert two.cost() == NewSessions(45, 40, 50)
    other = FirstCalls(Session())
    ran(other, 100, 50, 55, 60, x="float32[1]")
    assert other.cost().ns == 0


def test_renewed_sessions_are_our_cost():
    """Others of ours had run before it; calls of other shapes, and fewer than three, tell
    nothing; a first call that was no longer costs nothing."""
    first_calls = FirstCalls(Session())
    ran(first_calls, 100, 50, 55, 60, renewed=True, x="a")
    ran(first_calls, 100, 50, 55, renewed=True, x="b")
    ran(first_calls, 40, renewed=True, x="a")
    assert first_calls.cost() == NewSessions(45, 40, 50)


def test_own_sessions_are_not_kept():
    """A session that has run is forgotten once the program lets go of it."""
    from profiler.capture.onnxruntime import new_sessions

    before = len(new_sessions._have_run)
    own = Session()
    one = FirstCalls(own)
    ran(one, 1, 1, 1, 1)
    one.close()
    assert len(new_sessions._have_run) == before + 1
    del own
    gc.collect()
    assert len(new_sessions._have_run) == before
