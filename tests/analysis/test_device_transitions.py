"""Switches between ONNX Runtime's providers, and what is cpu_fallback on the host."""

import polars as pl

from profiler.analysis import CommandArrays
from profiler.analysis.transfers import transition_tables
from tests.runs import Command, make_call, make_run

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def _node(start, end, provider=CUDA, op_type="MatMul", call=0):
    device = "cpu:0" if provider == CPU else "cuda:0"
    return Command(call, device, provider, "compute", op_type.lower(), start, end - start, op_type)


def _copy(start, end, op_type, call=0):
    return Command(call, "cuda:0", "Memcpy", "dma", "memcpy", start, end - start, op_type)


def _tables(commands, calls=1, written=None):
    called = [make_call(i, "unet", i * 100, i * 100 + 100, device="cuda:0") for i in range(calls)]
    run = make_run(called, commands)
    frame = run.commands
    if written is not None:
        frame = frame.with_columns(bytes_written=pl.Series(written, dtype=pl.Int64))
    found = transition_tables(run.calls, frame, CommandArrays.of(frame, run.calls))
    return [table.rows() for table in found]


ISLAND = [
    _node(0, 10),
    _copy(12, 15, "MemcpyToHost"),
    _node(15, 20, CPU, "NonZero"),
    _node(20, 24, CPU, "Gather"),
    _copy(25, 30, "MemcpyFromHost"),
    _node(31, 40),
]


def test_island_on_the_host():
    """One switch each way; copies of 3 and 5 ns, gaps of 2 and 2 ns beside them; both nodes of the
    CPU are cpu_fallback."""
    device_transitions, cpu_fallback = _tables(ISLAND, written=[8, 64, 8, 8, 128, 8])
    assert device_transitions == [
        ("unet", CPU, CUDA, 1, 1, 1, 128, 5, 2),
        ("unet", CUDA, CPU, 1, 1, 1, 64, 3, 2),
    ]
    assert cpu_fallback == [
        ("unet", "nonzero", "NonZero", CPU, 1, 5),
        ("unet", "gather", "Gather", CPU, 1, 4),
    ]


def test_several_calls_add_up():
    """A call's first node is no switch from the last of the call before."""
    later = [
        Command(1, c.device, c.track, c.category, c.layer, c.start + 100, c.duration, c.op_type)
        for c in ISLAND
    ]
    device_transitions, cpu_fallback = _tables([*ISLAND, *later], calls=2)
    assert [row[3:6] for row in device_transitions] == [(2, 2, 2), (2, 2, 2)]
    assert [row[6] for row in device_transitions] == [None, None]
    assert [row[4] for row in cpu_fallback] == [2, 2]


def test_arithmetic_on_shapes_is_not_stranded():
    """Nodes on the CPU without copies cost a switch, and nobody waits for data."""
    nodes = [_node(0, 10), _node(11, 12, CPU, "Shape"), _node(13, 20)]
    device_transitions, cpu_fallback = _tables(nodes)
    assert [row[4:8] for row in device_transitions] == [(1, 0, None, 0), (1, 0, None, 0)]
    assert cpu_fallback == []


def test_copies_of_inputs_are_no_switches():
    """What a session is given is copied to the device before its first node."""
    nodes = [_copy(0, 5, "MemcpyFromHost"), _node(5, 6, CPU, "Shape"), _node(6, 20)]
    device_transitions, cpu_fallback = _tables(nodes)
    assert device_transitions == [("unet", CPU, CUDA, 1, 1, 1, None, 5, 0)]
    assert cpu_fallback == []


def test_providers_that_are_not_the_cpus_switch_too():
    """TensorRT hands over to CUDA without a copy."""
    nodes = [_node(0, 10, "TensorrtExecutionProvider"), _node(13, 20)]
    device_transitions, cpu_fallback = _tables(nodes)
    assert device_transitions == [("unet", "TensorrtExecutionProvider", CUDA, 1, 1, 0, None, 0, 3)]
    assert cpu_fallback == []


def test_threads_of_one_provider_are_one():
    """The executor's second thread is the same provider."""
    assert _tables([_node(0, 10, CPU), _node(5, 15, f"{CPU} thread 1")]) == [[], []]


def test_session_with_one_provider_has_no_rows():
    """Nor have calls of it beside another session with several."""
    assert _tables([_node(0, 10), _node(10, 20)]) == [[], []]
    assert len(_tables([*ISLAND, _node(110, 120, call=1)], calls=2)[0]) == 2
