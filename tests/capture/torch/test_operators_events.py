"""Events of a session: reading them, their clock, and the memory they tell of."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.capture.torch.events import (
    Activity,
    CallCommands,
    TorchEvent,
    TorchEvents,
    input_text,
    session_events,
)
from profiler.capture.torch.modules import device_memory, new_profiler, quiet
from profiler.capture.torch.profiler_session import TracedCall, misplaced_ns, on_clock
from profiler.kineto.trace_file import read_kineto


@pytest.mark.parametrize(
    ("dims", "dtypes", "text"),
    [
        ([[2, 77, 64], [1]], ["float", "long int"], "float[2,77,64] int64[1]"),
        ([[2], [], []], ["c10::Half", "Scalar", ""], "float16[2]"),
        ([[], [3]], ["c10::BFloat16", "bool"], "bfloat16[] bool[3]"),
        ([[[2, 3], [2, 4]], []], ["TensorList", "Scalar"], "tensor[2,3] tensor[2,4]"),
        ([[]], ["TensorList"], ""),
        ([], [], ""),
    ],
)
def test_inputs_are_written_as_those_of_onnx(dims, dtypes, text):
    """Tensors alone, with ONNX's names of dtypes."""
    assert input_text(dims, dtypes) == text


def test_times_follow_the_runs_clock():
    """The offset between the two clocks moves evenly while a session runs."""
    events = TorchEvents.of(
        TorchEvent("aten::add", Activity.OPERATOR, start) for start in (1000, 1500, 2000, 2500)
    )
    moved = on_clock(events, start=(1000, 70), end=(2000, 90))
    assert moved.start_ns.tolist() == [1070, 1580, 2090, 2590]


@pytest.mark.parametrize(
    ("start", "end", "moved"),
    [
        (1_000_000, 2_000_000, 0),
        (960_000, 2_040_000, 0),
        (940_000, 1_950_000, 60_000),
        (1_500_000, 2_500_000, -500_000),
    ],
)
def test_events_outside_their_invocation_are_moved_to_its_begin(start, end, moved):
    """The wall clock was set while the session ran; 50 µs are tolerated."""
    call = TracedCall("Model", lambda _: None, begin_ns=1_000_000, end_ns=2_000_000)
    assert misplaced_ns(call, CallCommands(start, end)) == moved


def test_memory_counters_start_with_the_level_and_follow_the_changes():
    """By device: allocations before an invocation count, those after it do not."""

    def memory(time, nbytes, device):
        return TorchEvent("[memory]", Activity.MEMORY, time, device=device, nbytes=nbytes)

    events = TorchEvents.of(
        [
            memory(30, -16, "cuda:0"),
            memory(10, 64, "cuda:0"),
            memory(20, 8, "cpu:0"),
            memory(40, 32, "cuda:0"),
        ]
    )
    cpu, cuda = device_memory(events, {"cuda:0": 1000})
    assert (cpu.device, cpu.after, cuda.after) == ("cpu:0", 8, 1080)
    counter = cuda.between(25, 35)
    assert (counter.device, counter.name, counter.unit) == ("cuda:0", "torch allocated", "bytes")
    assert (counter.times_ns.tolist(), counter.values.tolist()) == ([25, 30], [1064, 1048])
    assert cpu.between(0, 5).values.tolist() == [0]


@pytest.mark.torch
def test_a_session_of_the_installed_torch_is_read_whole(tmp_path):
    """Its trace has the times that the events in process have to the ns, their nesting, inputs,
    allocations, and what had not ended when the session was stopped."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    from torch._C._profiler import _RecordFunctionFast

    profiler = new_profiler(memory=True)
    with quiet():
        profiler.__enter__()
    opened = _RecordFunctionFast("open")
    opened.__enter__()
    with torch.profiler.record_function("mine"):
        kept = torch.cat([torch.ones(2, 3, dtype=torch.float16), torch.ones(1, 3).half()])
    profiler.__exit__(None, None, None)
    opened.__exit__(None, None, None)
    profiler.kineto_results.save(str(tmp_path / "trace.json"))
    events = session_events(read_kineto(tmp_path / "trace.json"))
    in_process = [event for event in profiler.kineto_results.events() if event.name() != "[memory]"]
    host = np.flatnonzero(events.activity < Activity.RUNTIME).tolist()
    by_id = {int(events.correlation[row]): row for row in host if events.correlation[row]}
    assert len(by_id) == len(in_process)
    for event in in_process:
        row = by_id[event.correlation_id()]
        assert events.names[row] == event.name()
        assert events.start_ns[row] == event.start_ns()
        assert event.name() == "open" or events.duration_ns[row] == event.duration_ns()
    (unfinished,) = events.unfinished
    assert events.names[unfinished] == "open"
    cat = events.names.index("aten::cat")
    assert events.shapes(cat) == "tensor[2,3] tensor[1,3]"
    assert events.activity[events.names.index("mine")] == Activity.ANNOTATION
    memory = events.rows_of(Activity.MEMORY).tolist()
    assert {events.device[row] for row in memory} == {"cpu:0"}
    assert sum(events.nbytes[row] for row in memory) >= kept.nbytes
    assert set(events.thread[host].tolist()) <= {0, 1}


@pytest.mark.torch
def test_results_of_reductions_and_resamplings_follow(tmp_path):
    """From their arguments, as in imported traces; a sum of integers has another type."""
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    session = new_profiler()
    with quiet():
        session.__enter__()
    torch.ones(2, 3, 4, dtype=torch.bfloat16).mean(-1, keepdim=True)
    torch.ones(2, 3, dtype=torch.int32).sum(1)
    torch.nn.functional.interpolate(torch.ones(1, 2, 4, 4), size=(8, 8))
    session.__exit__(None, None, None)
    session.kineto_results.save(str(tmp_path / "trace.json"))
    events = session_events(read_kineto(tmp_path / "trace.json"))
    names = ("aten::mean", "aten::sum", "aten::upsample_nearest2d")
    rows = enumerate(events.names)  # the last of a name: on a CPU a mean sums, too
    told = {name: events.shapes(row) for row, name in rows if name in names}
    assert told == {
        "aten::mean": "bfloat16[2,3,4] -> bfloat16[2,3,1]",
        "aten::sum": "int32[2,3]",
        "aten::upsample_nearest2d": "float[1,2,4,4] -> float[1,2,8,8]",
    }
