"""The simulation of many requests, against timelines worked out by hand and laws of queues."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.errors import InputError
from profiler.prediction.requests import mean_durations, simulate
from profiler.prediction.workload import ORDERS, request_graph
from tests.analysis.prediction.served import call, host, workload, workloads
from tests.examples import examples

BOTH = pytest.mark.parametrize("order", ORDERS)


def diffusion(**known):
    """T5 and VAE on cpu:1, two steps on cpu:0: 27 ns one after another."""
    return workload(
        [call("text_encoder_3", 4, "cpu:1")],
        [call("transformer", 10, "cpu:0", first=10)],
        [call("vae", 3, "cpu:1")],
        steps=2,
        **known,
    )


@BOTH
def test_one_request_takes_the_sum_of_its_parts(order):
    """With one request in flight nobody waits."""
    found = simulate(diffusion(), 1, order)
    assert set(found.latency_ns.tolist()) == {27}
    assert found.throughput == pytest.approx(1e9 / 27)
    assert found.utilization == pytest.approx({"host": 0, "cpu:0": 20 / 27, "cpu:1": 7 / 27})
    assert found.queue_wait_ns == {"host": 0, "cpu:0": 0, "cpu:1": 0}


@BOTH
def test_two_requests_on_two_devices(order):
    """By hand: from the second round on each request waits 3 ns for its first step (41 to 44) and
    10 ns for its second, while the other's runs; one ends every 20 ns on average."""
    found = simulate(diffusion(), 2, order)
    assert found.throughput == pytest.approx(1e9 / 20)
    assert set(found.latency_ns.tolist()) == {40}
    assert [found.latency(50), found.latency(99)] == [40, 40]
    assert found.utilization == pytest.approx({"host": 0, "cpu:0": 1.0, "cpu:1": 7 / 20})
    assert found.queue_wait_ns == pytest.approx({"host": 0, "cpu:0": 13, "cpu:1": 0})
    assert found.bottleneck == "cpu:0"


def test_encoders_run_beside_each_other_in_an_ensemble():
    """The graph's encoders wait for nothing: 8 ns for both, then 10 and 2; in the pipeline's order
    5 more."""
    encode = [call("text_encoder", 5), call("text_encoder_3", 8, "cpu:1")]
    made = workload(encode, [call("transformer", 10, first=10)], [call("vae", 2, "cpu:1")])
    assert simulate(made, 1, "graph").latency(50) == 20
    assert simulate(made, 1, "pipeline").latency(50) == 25


def test_work_behind_the_encoders_waits_for_all_of_them():
    """Joining embeddings begins when the slower encoder is done, and its parts stay in order."""
    encode = [call("text_encoder", 5), call("text_encoder_3", 8, "cpu:1"), host(2), host(3)]
    made = workload(encode, [call("transformer", 10, first=10)])
    assert simulate(made, 1, "graph").latency(50) == 8 + 2 + 3 + 10


def test_tokenizers_of_an_ensemble_share_the_host_thread():
    """Two encoders, each with 4 ns of host work before it: the second's begins at 4 and ends at 8,
    its encoder at 13."""
    encode = [host(4), call("text_encoder", 5), host(4), call("text_encoder_3", 5, "cpu:1")]
    assert simulate(workload(encode), 1, "graph").latency(50) == 13
    assert simulate(workload(encode), 1, "pipeline").latency(50) == 18


def test_host_work_in_a_row_is_one_piece():
    """The scheduler of one step and the preparation of the next are one node of the graph, as is
    what joins embeddings with it; its time is that of all together."""
    step = [host(1), call("transformer", 10), host(2), host(3)]
    graph = request_graph(workload([call("text_encoder", 5), host(4)], step, steps=2), "graph")
    assert mean_durations(graph) == [5, 5, 10, 6, 10, 5]
    assert graph.waits_for == (0, 1, 1, 1, 1, 1)


def test_branches_on_two_devices_run_beside_each_other():
    """cond and uncond of one step are independent, the scheduler waits for both, the next step
    for it; a batched call beside them keeps all in order."""
    step = [call("transformer", 10, "cpu:0", "cond"), call("other", 7, "cpu:1", "uncond"), host(1)]
    assert simulate(workload(step=step, steps=3), 1, "graph").latency(50) == 33
    assert simulate(workload(step=step, steps=3), 1, "pipeline").latency(50) == 54
    step.append(call("transformer_2", 1, "cpu:2", "batched"))
    assert simulate(workload(step=step), 1, "graph").latency(50) == 19


def test_a_control_net_comes_before_the_transformer_of_its_branch():
    """Calls of one branch stay in order, whatever their devices."""
    step = [
        call("controlnet", 3, "cpu:1", "cond"),
        call("transformer", 10, "cpu:0", "cond"),
        call("controlnet", 3, "cpu:1", "uncond"),
        call("transformer", 10, "cpu:0", "uncond"),
    ]
    assert simulate(workload(step=step), 1, "graph").latency(50) == 3 + 10 + 10


@BOTH
def test_host_work_of_all_requests_needs_one_thread(order):
    """10 ns of host work and 4 of a call: with three requests one ends every 10 ns."""
    found = simulate(workload(step=[host(10), call("transformer", 4)]), 3, order)
    assert found.throughput == pytest.approx(1e8)
    assert found.bottleneck == "host"


def test_a_request_repeats_one_measured_pipeline_call():
    """Parts that were slow together stay together: 110 or 220 ns, never 120 or 210."""
    made = workload([call("text_encoder", [10, 20])], decode=[call("vae", [100, 200])])
    assert set(simulate(made).latency_ns.tolist()) == {110, 220}


def test_the_first_step_has_its_own_time():
    """One step of 50 ns and two of 10; what was measured stands in for what was not."""
    made = workload(step=[call("transformer", 10, first=50)], steps=3)
    assert simulate(made).latency(50) == 70
    assert simulate(workload(step=[call("transformer", 10)], steps=3)).latency(50) == 30
    never_later = np.zeros((1, 0), dtype=np.int64)
    only_first = replace(call("transformer", 10, first=50), steady_ns=never_later)
    assert simulate(workload(step=[only_first], steps=2)).latency(50) == 100


def test_the_same_arguments_give_the_same_result():
    """Draws have a fixed seed."""
    made = workload([call("text_encoder", [1, 2, 3, 4])], decode=[call("vae", [5, 6, 7, 8])])
    one, other = simulate(made, 3), simulate(made, 3)
    assert one.latency_ns.tolist() == other.latency_ns.tolist()
    assert one.latency_ns.tolist() != simulate(made, 3, seed=1).latency_ns.tolist()


def test_the_interval_is_of_what_was_measured():
    """Five pipeline calls that scatter by a tenth: the throughput may be off by about that over
    the root of five, times the factor for few values; without scatter not at all; of one pipeline
    call nothing is known."""
    times = [900, 1100, 950, 1050, 1000]
    found = simulate(workload([call("text_encoder", times)], calls=5))
    assert 1e6 * 0.85 < found.low < 1e6 * 0.97
    assert 1e6 * 1.03 < found.high < 1e6 * 1.15
    steady = simulate(workload([call("text_encoder", [1000] * 5)], calls=5))
    assert steady.low == pytest.approx(steady.throughput) == pytest.approx(steady.high)
    assert simulate(workload([call("text_encoder", 1000)])).low is None


def test_so_many_requests_are_measured_as_asked():
    """In whole rounds of those in flight, ten at least."""
    assert simulate(diffusion(), 2, requests=100).requests == 100
    assert simulate(diffusion(), 3, requests=100).requests == 102
    assert simulate(diffusion(), 2, requests=1).requests == 20


@pytest.mark.parametrize(
    ("made", "options", "words"),
    [
        (diffusion(), {"concurrency": 0}, "the concurrency is 0"),
        (diffusion(), {"order": "random"}, "'random' is not an order of tasks; use graph or"),
        (workload(), {}, "no tasks"),
        (workload(step=[call("unet", 1)], steps=10_000), {"concurrency": 99}, "99 requests at on"),
        (workload([call("vae", 0)]), {}, "took no time"),
    ],
)
def test_refuses_in_a_sentence(made, options, words):
    """Nothing to simulate."""
    with pytest.raises(InputError, match=words):
        simulate(made, **options)


@settings(max_examples=examples(60), deadline=None)
@given(workloads(), st.integers(1, 5), st.sampled_from(ORDERS))
def test_laws_of_closed_loops(made, concurrency, order):
    """Throughput lies between one request after another and the busiest resource, no request is
    faster than its critical path, none busier than all of the time, and requests in flight are
    throughput times latency (Little). At both ends of the window requests are partly in it."""
    graph = request_graph(made, order)
    durations = mean_durations(graph)
    found = simulate(made, concurrency, order, requests=40)
    edge = concurrency / found.requests
    busy = [0.0] * len(graph.resources)
    for resource, duration in zip(graph.resource, durations, strict=True):
        busy[resource] += duration
    assert found.throughput <= 1e9 / max(busy) * (1 + edge) * (1 + 1e-9)
    assert found.throughput >= 1e9 / sum(busy) / (1 + edge) * (1 - 1e-9)
    assert found.latency_ns.min() >= graph.critical_path(durations) - 1
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in found.utilization.values())
    in_flight = found.throughput * found.latency_ns.mean() / 1e9
    most = found.latency_ns.max() / found.window_ns * concurrency
    assert abs(in_flight - concurrency) <= most + 1e-6


@settings(max_examples=examples(30), deadline=None)
@given(workloads())
def test_alone_a_request_takes_what_it_was_measured_to_take(made):
    """One request in flight in the pipeline's order: the sum of its parts."""
    total = round(sum(mean_durations(request_graph(made, "pipeline"))))
    assert set(simulate(made, 1, "pipeline", requests=10).latency_ns.tolist()) == {total}
