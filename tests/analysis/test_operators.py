"""Operators: commands folded by layer, what their numbers mean and what they never do."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis import Selection
from profiler.run import intervals
from profiler.trace import HOST_TRACK
from tests.analysis.asked import asked
from tests.analysis.linked_runs import linked
from tests.examples import examples
from tests.runs import Command, make_call, make_info, make_run, tiny_run


def _compute(call, layer, start, duration, track="Cluster 0", **more):
    return Command(call, "rbln:0", track, "compute", layer, start, duration, **more)


def _row(run, layer, *, host=False):
    found = asked(run).operators.filter((pl.col("layer") == layer) & (pl.col("host") == host))
    assert len(found) == 1
    return found.row(0, named=True)


def test_split_operator():
    """attn ran on two tracks in two calls: unions 100 + 80, sums 160 + 140."""
    row = _row(tiny_run(), "blocks.0.attn")
    assert (row["submodule"], row["calls"], row["commands"]) == ("transformer", 2, 4)
    assert (row["tracks"], row["devices"], row["commands_per_call"]) == (2, "rbln:0", 2.0)
    assert (row["wall_ns"], row["total_ns"]) == (180, 300)
    assert row["parallel_utilization"] == pytest.approx(300 / 360)
    assert row["imbalance"] == pytest.approx((100 + 80) / (80 + 70))
    assert (row["first_ns"], row["median_ns"]) == (100, 80)


def test_operator_on_one_track_is_perfectly_even():
    """One command a call: union and sum agree, efficiency and imbalance are 1."""
    row = _row(tiny_run(), "blocks.0.mlp")
    assert (row["wall_ns"], row["total_ns"]) == (230, 230)
    assert (row["parallel_utilization"], row["imbalance"]) == (1.0, 1.0)


def test_op_types_most_time_first():
    """MatMul and Softmax take 160 and 140 ns of attn."""
    assert _row(tiny_run(), "blocks.0.attn")["op_types"] == "MatMul, Softmax"


def test_longest_operator_first_and_all_of_them():
    """Sorted by total; equal ones by submodule."""
    table = asked(tiny_run()).operators.filter(~pl.col("host"))
    assert table["layer"].to_list() == ["blocks.0.attn", "blocks.0.mlp", "layers.0", "conv"]


def test_shares_of_devices_and_of_the_host_add_up_apart():
    """Host work does not dilute the operators of the devices."""
    table = asked(tiny_run()).operators
    sums = dict(table.group_by("host").agg(pl.col("share").sum()).iter_rows())
    assert sums == {False: pytest.approx(1.0), True: pytest.approx(1.0)}
    assert _row(tiny_run(), "blocks.0.attn")["share"] == pytest.approx(300 / 670)


def test_launches_of_a_layer_stand_apart_from_its_kernels():
    """A launch of 50 ns before a kernel of 20 ns does not make the operator 70 ns long."""
    call = make_call(0, "transformer", 0, 100)
    launch = Command(0, "cpu:0", "python", "host", "attn", 0, 50)
    run = make_run([call], [launch, _compute(0, "attn", 60, 20)])
    assert _row(run, "attn")["wall_ns"] == 20
    assert _row(run, "attn", host=True)["wall_ns"] == 50


def _waiting(device, *others):
    """A call of 100 ns in which a CPU waits for 60, and what other devices do meanwhile."""
    wait = Command(0, "cpu:0", "python sync", "sync", "cudaDeviceSynchronize", 30, 60)
    return make_run([make_call(0, "model", 0, 100, device=device)], [wait, *others])


def test_a_wait_of_the_cpu_for_an_accelerator_is_the_hosts():
    """cudaDeviceSynchronize is no operator of a device and dilutes none of their shares."""
    kernel = Command(0, "cuda:0", "stream 7", "compute", "mm", 10, 70)
    run = _waiting("cuda:0", kernel)
    assert _row(run, "mm")["share"] == 1
    assert _row(run, "cudaDeviceSynchronize", host=True)["total_ns"] == 60
    assert asked(run).operators["host"].sum() == 1


def test_a_wait_of_a_stream_is_its_devices():
    """An event that a stream waits for is no work of the host."""
    kernel = Command(0, "cuda:0", "stream 7", "compute", "mm", 10, 70)
    event = Command(0, "cuda:0", "stream 7 sync", "sync", "event", 80, 10)
    assert _row(_waiting("cuda:0", kernel, event), "event")["total_ns"] == 10


def test_a_cpu_that_is_the_only_device_waits_for_itself():
    """Without accelerators the CPU is the device, and its waits are its operators."""
    node = Command(0, "cpu:0", "python", "compute", "MatMul", 0, 30)
    assert _row(_waiting("cpu:0", node), "cudaDeviceSynchronize")["share"] == 60 / 90


def test_whose_a_wait_is_does_not_depend_on_the_selection():
    """Of a selection without the accelerator's commands the wait is still the host's."""
    kernel = Command(0, "cuda:0", "stream 7", "compute", "mm", 10, 70)
    found = asked(_waiting("cuda:0", kernel), selection=Selection(device=("cpu:0",)))
    assert found.operators.select("layer", "host").rows() == [("cudaDeviceSynchronize", True)]


def test_self_time_is_without_what_ran_within():
    """Of `postprocess` (100 ns) a blocking copy takes 60, of which a nested call takes 10; the copy
    waited for what the device did, the rest of `postprocess` is its own work."""
    work = Command(-1, "cpu:0", HOST_TRACK, "host", "postprocess", 300, 100)
    copy = Command(-1, "cpu:0", "python", "host", "hipMemcpyWithStream", 320, 60)
    nested = Command(-1, "cpu:0", "python", "host", "hipGetDevice", 330, 10)
    moved = Command(-1, "cuda:0", "stream 7 memcpy", "dma", "copy", 350, 25)
    run = make_run([make_call(0, "vae", 0, 100)], [work, copy, nested, moved])
    run = linked(run, (1, 3))
    columns = ("layer", "total_ns", "self_ns", "waited_ns", "share")
    table = asked(run).operators.filter("host").sort("layer").select(columns)
    assert table.rows() == [
        ("hipGetDevice", 10, 10, 0, 0.1),
        ("hipMemcpyWithStream", 60, 50, 50, 0.5),
        ("postprocess", 100, 40, 0, 0.4),
    ]


def test_threads_do_not_take_each_others_time():
    """What another thread launches while one waits is neither within the wait nor waiting."""
    wait = Command(0, "cpu:0", "main sync", "sync", "hipDeviceSynchronize", 0, 80)
    launch = Command(0, "cpu:0", "autograd", "host", "hipLaunchKernel", 10, 20)
    kernel = Command(0, "cuda:0", "stream 7", "compute", "mm", 35, 40)
    run = linked(make_run([make_call(0, "model", 0, 100)], [wait, launch, kernel]), (1, 2))
    columns = ("layer", "self_ns", "waited_ns")
    table = asked(run).operators.filter("host").sort("layer").select(columns)
    assert table.rows() == [("hipDeviceSynchronize", 80, 80), ("hipLaunchKernel", 20, 0)]


def test_work_of_no_call_is_folded_by_step():
    """scheduler.step ran after each of two steps; it belongs to no submodule."""
    row = _row(tiny_run(), "scheduler.step", host=True)
    assert (row["submodule"], row["calls"], row["commands"]) == (None, 2, 2)
    assert (row["wall_ns"], row["first_ns"], row["median_ns"]) == (80, 40, 40)


def test_same_layer_in_two_submodules_is_two_operators():
    """Layer names repeat between text encoders."""
    calls = [make_call(0, "a", 0, 50), make_call(1, "b", 50, 100)]
    table = asked(
        make_run(calls, [_compute(0, "mlp", 0, 10), _compute(1, "mlp", 50, 20)])
    ).operators
    assert table.select("submodule", "total_ns").rows() == [("b", 20), ("a", 10)]


def test_same_track_name_on_two_devices_is_two_tracks():
    """stream 7 of cuda:0 is not stream 7 of cuda:1."""
    call = make_call(0, "t", 0, 100)
    commands = [Command(0, d, "stream 7", "compute", "mlp", 0, 40) for d in ("cuda:1", "cuda:0")]
    row = _row(make_run([call], commands), "mlp")
    assert (row["tracks"], row["devices"]) == (2, "cuda:0, cuda:1")
    assert (row["parallel_utilization"], row["imbalance"]) == (1.0, 1.0)


def test_a_track_that_only_moves_data_does_not_stand_still():
    """Two parts of 60 and 40 ns, then a copy of 25 on its own track: of 85 ns the two could have
    worked 170, and worked 100; the busier has 60 where 50 is the mean."""
    call = make_call(0, "t", 0, 100)
    copy = Command(0, "rbln:0", "Copy", "copy", "mlp", 60, 25)
    parts = [_compute(0, "mlp", 0, 60), _compute(0, "mlp", 0, 40, track="Cluster 1")]
    row = _row(make_run([call], [*parts, copy]), "mlp")
    assert (row["tracks"], row["total_ns"], row["wall_ns"]) == (3, 125, 85)
    assert row["parallel_utilization"] == pytest.approx(100 / 170)
    assert row["imbalance"] == pytest.approx(60 / 50)


def test_transfers_beside_the_computation_do_not_make_it_more_efficient():
    """A transfer of 100 ns lies under a computation of 100: the one track worked all the time."""
    call = make_call(0, "t", 0, 100)
    moved = Command(0, "rbln:0", "DMA", "dma", "mlp", 0, 100)
    row = _row(make_run([call], [_compute(0, "mlp", 0, 100), moved]), "mlp")
    assert (row["parallel_utilization"], row["imbalance"]) == (1.0, 1.0)


def test_copies_on_the_track_that_computes_are_its_work():
    """A GPU's stream computes and copies: both keep it busy, another stream only copies."""
    call = make_call(0, "t", 0, 100)
    copies = [Command(0, "rbln:0", track, "copy", "mlp", 50, 50) for track in ("Cluster 0", "DMA")]
    row = _row(make_run([call], [_compute(0, "mlp", 0, 50), *copies]), "mlp")
    assert (row["tracks"], row["parallel_utilization"], row["imbalance"]) == (2, 1.0, 1.0)


def test_operator_that_only_moves_data_is_of_all_its_tracks():
    """No computation: two queues of 30 and 20 ns one after the other are half busy."""
    call = make_call(0, "t", 0, 100)
    moves = [("DMA 0", "dma", 0, 30), ("DMA 1", "copy", 30, 20)]
    commands = [Command(0, "rbln:0", t, kind, "mlp", a, b) for t, kind, a, b in moves]
    row = _row(make_run([call], commands), "mlp")
    assert (row["parallel_utilization"], row["imbalance"]) == (0.5, 30 / 25)


def test_computation_that_took_no_time_counts_no_tracks():
    """A node below the clock's resolution says nothing of how its track was used: all count."""
    call = make_call(0, "t", 0, 100)
    copy = Command(0, "rbln:0", "Copy", "copy", "mlp", 50, 20)
    row = _row(make_run([call], [_compute(0, "mlp", 50, 0), copy]), "mlp")
    assert (row["parallel_utilization"], row["imbalance"]) == (0.5, 2.0)


def test_command_that_never_closed_has_no_duration():
    """-1 counts as nothing, and ratios of nothing are null."""
    call = make_call(0, "t", 0, 100)
    row = _row(make_run([call], [_compute(0, "mlp", 10, -1)]), "mlp")
    assert (row["total_ns"], row["wall_ns"]) == (0, 0)
    assert row["parallel_utilization"] is None
    assert row["share"] is None


def test_corrected_to_untraced_calls():
    """Traced steady calls take 100 ns, untraced ones 80: operators count four fifths. The first
    call of either kind is cold."""
    times = [(0, 150, True), *((100 * i, 100 * i + 100, True) for i in (2, 3, 4))]
    times += [(500, 620, False), *((100 * i, 100 * i + 80, False) for i in (7, 8, 9))]
    calls = [make_call(i, "t", a, b, traced=traced) for i, (a, b, traced) in enumerate(times)]
    commands = [_compute(i, "mlp", times[i][0], 50) for i in range(4)]
    row = _row(make_run(calls, commands), "mlp")
    assert (row["total_ns"], row["corrected_ns"]) == (200, 160)


@pytest.mark.parametrize(
    ("low", "high", "corrected_ns"),
    [(0.7, 1.1, 200), (0.7, 0.9, 160), (1.0, 1.2, 200), (1.1, 1.2, 160)],
)
def test_an_overhead_ratio_within_noise_leaves_times_as_traced(low, high, corrected_ns):
    """The interval of the factor 0.8 holds 1: nobody knows whether tracing cost anything, and the
    medians of the calls, 80 and 100 ns, do not tell either."""
    measured = {"factor": 0.8, "low": low, "high": high}
    info = make_info("capture", submodules={"t": {"overhead_ratio": measured}})
    starts = range(0, 900, 100)
    traced = [n < 5 for n in range(9)]
    calls = [
        make_call(n, "t", start, start + (100 if of else 80), traced=of)
        for n, (start, of) in enumerate(zip(starts, traced, strict=True))
    ]
    commands = [_compute(n, "mlp", 100 * n, 50) for n in range(4)]
    found = asked(make_run(calls, commands, info=info))
    within_noise = corrected_ns == 200
    assert found.submodules["overhead_ratio"].item() == (1.0 if within_noise else 0.8)
    assert found.operators["corrected_ns"].item() == corrected_ns
    assert found.roles["corrected_ns"].sum() == corrected_ns


def test_run_without_commands_has_no_operators():
    """Calls alone, recorded at call level."""
    run = make_run([make_call(0, "t", 0, 100, traced=False)])
    assert asked(run).operators.is_empty()


_COMMANDS = st.lists(
    st.tuples(
        st.integers(0, 2),  # call, of 100 ns each
        st.sampled_from(["attn", "mlp", "norm"]),
        st.sampled_from(["Cluster 0", "Cluster 1", "DMA"]),
        st.integers(0, 99),
        st.integers(0, 99),
        st.sampled_from(["compute", "dma", "host"]),
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None, max_examples=examples(40))
@given(_COMMANDS)
def test_redundant_work_of_operators(rows):
    """For any commands within their calls: union ≤ sum, union ≤ calls, shares add up to 1."""
    calls = [make_call(i, "t", 100 * i, 100 * i + 100) for i in range(3)]
    commands = [
        Command(call, "rbln:0", track, kind, layer, 100 * call + min(a, b), max(a, b) - min(a, b))
        for call, layer, track, a, b, kind in rows
    ]
    analysis = asked(make_run(calls, commands))
    table = analysis.operators
    assert (table["wall_ns"] <= table["total_ns"]).all()
    assert (table["wall_ns"] <= 100 * table["calls"]).all()
    assert table["commands"].sum() == len(rows)
    assert table["total_ns"].sum() == sum(command.duration for command in commands)
    for _, group in table.group_by("host"):
        if group["total_ns"].sum():
            assert group["share"].sum() == pytest.approx(1.0)
    assert (analysis.calls["busy_ns"] <= analysis.calls["duration_ns"]).all()
    assert (table["imbalance"].drop_nulls() >= 1 - 1e-9).all()


def _expected(commands):
    """(layer, host) → union, total, and of the working tracks: worked and possible time, busiest,
    mean; one nanosecond and fold at a time."""
    folds = {}
    for command in commands:
        key = (command.layer, command.category == "host", command.call)
        folds.setdefault(key, {}).setdefault(command.track, []).append(command)
    found = {}
    for (layer, host, _), tracks in folds.items():
        moments = [
            {t for c in part for t in range(c.start, c.start + c.duration)}
            for part in tracks.values()
        ]
        covered = set().union(*moments)
        total = sum(c.duration for part in tracks.values() for c in part)
        busy = [len(some) for some in moments]
        sums = found.setdefault((layer, host), [0, 0, 0, 0, 0, 0.0])
        computing = [any(c.category == "compute" for c in part) for part in tracks.values()]
        works = [b for b, computes in zip(busy, computing, strict=True) if computes]
        works = works if sum(works) else busy
        parts = (len(covered), total, sum(works), len(covered) * len(works), max(works))
        for i, part in enumerate((*parts, sum(works) / len(works))):
            sums[i] += part
    return found


@settings(deadline=None, max_examples=examples(40))
@given(rows=_COMMANDS, batch=st.sampled_from([1, 20, 1 << 20]))
def test_operators_against_counting(rows, batch):
    """Union, sum, efficiency and imbalance, whatever the size of the batches inside."""
    calls = [make_call(i, "t", 100 * i, 100 * i + 100) for i in range(3)]
    commands = [
        Command(call, "rbln:0", track, kind, layer, 100 * call + a, b)
        for call, layer, track, a, b, kind in rows
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_BATCH", batch)
        table = asked(make_run(calls, commands)).operators
    found = {(row["layer"], row["host"]): row for row in table.iter_rows(named=True)}
    expected = _expected(commands)
    assert found.keys() == expected.keys()
    for key, (union, busy, worked, possible, busiest, even) in expected.items():
        row = found[key]
        assert (row["wall_ns"], row["total_ns"]) == (union, busy)
        if possible:
            assert row["parallel_utilization"] == pytest.approx(worked / possible)
        if even:
            assert row["imbalance"] == pytest.approx(busiest / even)


@settings(deadline=None, max_examples=examples(40))
@given(_COMMANDS)
def test_order_of_the_rows_does_not_matter(rows):
    """Commands from a shuffled Parquet file give the same operators."""
    calls = [make_call(i, "t", 100 * i, 100 * i + 100) for i in range(3)]
    commands = [
        Command(call, "rbln:0", track, kind, layer, 100 * call + a, b)
        for call, layer, track, a, b, kind in rows
    ]
    forward, backward = (
        asked(make_run(calls, order)).operators for order in (commands, commands[::-1])
    )
    assert forward.equals(backward)
