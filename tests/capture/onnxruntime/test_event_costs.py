"""What recording nodes of ONNX Runtime costs, by how far they lie apart, and what first calls on
new sessions take longer."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from profiler.capture import Gaps, Invocation
from profiler.capture.onnxruntime import operators
from profiler.capture.onnxruntime.operators import gaps_between
from profiler.capture.onnxruntime.sessions import FirstCalls
from profiler.capture.operator_source import NewSessions
from profiler.ort_profiles import NodeColumns, NodeKind


def nodes(*begins_and_ends_us):
    """Executed nodes, in order of completion."""
    begins, ends = np.array(begins_and_ends_us, dtype=np.int64).reshape(-1, 2).T * 1_000
    zeros = np.zeros(len(begins), dtype=np.int64)
    kind = np.zeros(len(begins), dtype=np.int32)
    return NodeColumns([NodeKind("n", "Add", "CPU")], kind, zeros, begins, ends - begins, zeros)


def test_gaps_lie_between_one_node_and_the_next():
    """Three gaps of 4, 6 and 5 µs, each half a µs shorter than it looks, for durations are cut to
    whole µs; one node has none, nor has no node."""
    assert gaps_between(nodes((0, 2), (6, 10), (16, 20), (25, 30))) == Gaps(3, 13_500)
    assert gaps_between(nodes((3, 9))) == gaps_between(nodes()) == Gaps()


def test_nodes_within_others_and_beside_them_have_no_gap():
    """A loop's own nodes end before it does; two nodes that overlap ran on two threads."""
    assert gaps_between(nodes((1, 4), (5, 9), (0, 10), (14, 15))) == Gaps(1, 3_500)
    assert gaps_between(nodes((0, 5), (3, 9), (11, 12))) == Gaps(1, 1_500)


def test_a_single_long_gap_counts_as_eight_times_the_median():
    """Another thread had the core for 10 ms: it counts as 8 times 4 µs."""
    found = gaps_between(nodes((0, 1), (5, 6), (10, 11), (10_011, 10_012)))
    assert found == Gaps(3, 4_000 + 4_000 + 32_000 - 1_500)


def test_gaps_add_up():
    """The mean of two calls weighs their gaps; of none it is not known."""
    assert (Gaps(2, 6_000) + Gaps(1, 6_000)).mean_ns == 4_000
    assert Gaps().mean_ns is None


def chain_costs(monkeypatch, *pairs):
    """Pairs of runs of a chain of 20 nodes: µs that recording one took, and µs between two."""
    told = [operators._Pair(20e-6 * each, 1_000 * gap) for each, gap in pairs]
    monkeypatch.setattr(operators, "_pairs", lambda: told)


def test_the_cost_is_as_many_gaps_as_on_the_chain(monkeypatch):
    """On the chain recording takes 9 µs where nodes lie 3 µs apart, three times as much: 21 µs in a
    run whose nodes lie 7 µs apart. It is the chain's own where nobody knows the run's."""
    chain_costs(monkeypatch, (9, 3), (9, 3), (9, 3))
    assert operators.onnx_event_cost(Gaps(4, 28_000)).ns == pytest.approx(21_000)
    assert operators.onnx_event_cost(Gaps()).ns == pytest.approx(9_000)


def test_a_machine_that_is_slower_meanwhile_changes_nothing(monkeypatch):
    """Pairs that other work made twice as slow have gaps twice as long: the cost in the run is the
    same, without spread."""
    chain_costs(monkeypatch, (9, 3), (18, 6), (6, 2))
    found = operators.onnx_event_cost(Gaps(4, 28_000))
    assert (found.low_ns, found.ns, found.high_ns) == pytest.approx((21_000, 21_000, 21_000))


def test_one_pair_is_an_estimate_without_quartiles(monkeypatch):
    """A busy machine left time for one pair: no quartiles; noise above the cost is no estimate."""
    chain_costs(monkeypatch, (1, 4))
    found = operators.onnx_event_cost(Gaps(1, 4_000))
    assert (round(found.ns), found.low_ns) == (1_000, None)
    chain_costs(monkeypatch, (-1, 4))
    assert operators.onnx_event_cost(Gaps(1, 4_000)) is None


class Session:
    """Stands for a part's own session."""


def ran(first_calls, *durations, renewed=False, **shapes):
    """Calls on a new session of ours."""
    for number, duration in enumerate(durations):
        invocation = Invocation("unet", "denoise", "", 0, "cpu:0", shapes)
        first_calls.add(invocation, duration, ran=number, renewed=renewed)


def test_first_calls_on_new_sessions_are_our_cost_where_the_own_one_was_warm():
    """Two calls of 100 and 70 ns before later ones of 50 to 60: nobody knows in a program's first
    run whether its own session had run; in the next run it has, and they cost 60 longer (50 to
    70)."""
    own = Session()
    one = FirstCalls(own)
    ran(one, 100, 70, 50, 55, 60, x="float32[1]")
    assert one.cost() == NewSessions(0.0, 0.0, 70)
    one.close()
    two = FirstCalls(own)
    ran(two, 100, 70, 50, 55, 60, x="float32[1]")
    assert two.cost() == NewSessions(60, 50, 70)
    other = FirstCalls(Session())
    ran(other, 100, 70, 50, 55, 60, x="float32[1]")
    assert other.cost().ns == 0


def test_renewed_sessions_are_our_cost():
    """Others of ours had run before it; of other shapes a single later call tells nothing, so the
    usual part is taken, 0.3 (0.15 to 0.45) of 190 ns."""
    first_calls = FirstCalls(Session())
    ran(first_calls, 100, 70, 50, 55, 60, renewed=True, x="a")
    assert first_calls.cost() == NewSessions(60, 50, 70)
    ran(first_calls, 100, 90, 50, renewed=True, x="b")
    assert first_calls.cost() == NewSessions(60 + 57, 50 + 28.5, 70 + 85.5)


def test_a_second_session_that_warms_up_is_our_cost():
    """Of six calls the first and the last are traced: ours (100, 90 ns) and the own session (80,
    75, 50, 50) warm up. Two calls had been slow anyway; 75 - 50, and 0.3 of 90, which no later
    traced call tells, are our cost."""
    first_calls = FirstCalls(Session())

    def call(duration, ran=None):
        invocation = Invocation("unet", "denoise", "", 0, "cpu:0", {"x": "a"}, 0, duration)
        if ran is None:
            first_calls.own_runs(invocation)
        else:
            first_calls.add(invocation, duration, ran=ran, renewed=False)

    call(100, ran=0)
    for duration in (80, 75, 50, 50):
        call(duration)
    call(90, ran=1)
    assert first_calls.cost() == NewSessions(25 + 27, 25 + 13.5, 25 + 40.5)


def test_a_new_session_that_took_no_longer_costs_nothing():
    """Noise in one of the two calls is not added up: 40 and 60 ns beside 50 are no cost, nor is
    less."""
    same, less = FirstCalls(Session()), FirstCalls(Session())
    ran(same, 40, 60, 50, 50, renewed=True, x="a")
    ran(less, 40, 45, 50, 50, renewed=True, x="a")
    assert same.cost() == less.cost() == NewSessions(0, 0, 0)


def test_own_sessions_are_not_kept():
    """A session that has run is forgotten once the program lets go of it."""
    from profiler.capture.onnxruntime import sessions as new_sessions

    gc.collect()  # those of other tests
    before = len(new_sessions._have_run)
    own = Session()
    one = FirstCalls(own)
    ran(one, 1, 1, 1, 1)
    one.close()
    assert len(new_sessions._have_run) == before + 1
    del own
    gc.collect()
    assert len(new_sessions._have_run) == before
