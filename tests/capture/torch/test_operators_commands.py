"""Events of a torch.profiler session → commands: small lists in, expected tables out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.capture.torch.events import (
    CALL,
    MODULE,
    WEIGHTS,
    Activity,
    TorchEvent,
    TorchEvents,
    find_commands,
)
from tests.examples import examples

ROOTS = {7: "Transformer"}
GENERATED = (Path(__file__).parent / "generated_code.txt").read_text()


class Timeline:
    """Collects events; operators get ids in the order in which they begin, as in torch."""

    def __init__(self):
        self.events: list[TorchEvent] = []
        self.code: dict[str, str] = {}  # generated for graphs, by their key

    def operator(self, name, start, end, **known):
        self.events.append(
            TorchEvent(
                name, Activity.OPERATOR, start, end - start, correlation=self._next(), **known
            )
        )
        return self.events[-1].correlation

    def call(self, start, end, number=7, **known):
        return self.operator(f"{CALL}{number}", start, end, **known)

    def module(self, path, start, end, **known):
        return self.operator(f"{MODULE}{path}", start, end, **known)

    def runtime(self, name, start, end, correlation, linked=0):
        event = TorchEvent(name, Activity.RUNTIME, start, end - start, 1, correlation, linked)
        self.events.append(event)

    def device(self, activity, name, start, end, correlation, **known):
        known = {"device": "cuda:0", "stream": 7, "thread": 0} | known
        duration = end - start
        self.events.append(
            TorchEvent(name, activity, start, duration, correlation=correlation, **known)
        )

    def _next(self):
        return 100 + len(self.events)

    def found(self, roots=ROOTS):
        return find_commands(TorchEvents.of(self.events), roots, lambda key: self.code.get(key, ""))

    def modules(self, number=7):
        """The module of each command of one call."""
        columns = self.found()[number].build()
        return [columns.strings[i] for i in columns.module]

    def commands(self, number=7):
        """(layer, index, op type, track, start, duration) of one call's commands."""
        columns = self.found()[number].build()
        tracks = [columns.tracks[i].name for i in columns.track]
        return list(
            zip(
                [columns.strings[i] for i in columns.layer],
                columns.command_index.tolist(),
                [columns.strings[i] for i in columns.op_type],
                tracks,
                columns.start_ns.tolist(),
                columns.duration_ns.tolist(),
                strict=True,
            )
        )


def test_outermost_operators_are_commands_of_their_module():
    """An operator inside an operator is part of it; each layer numbers its own commands."""
    line = Timeline()
    line.call(0, 100)
    line.module("blocks.0", 10, 90)
    line.module("blocks.0.to_q", 20, 50)
    line.operator("aten::linear", 22, 40)
    line.operator("aten::addmm", 25, 35)
    line.operator("aten::add", 41, 45)
    line.operator("aten::mul", 60, 70)
    assert line.commands() == [
        ("blocks.0.to_q", 0, "aten::linear", "CPU thread 1", 22, 18),
        ("blocks.0.to_q", 1, "aten::add", "CPU thread 1", 41, 4),
        ("blocks.0", 0, "aten::mul", "CPU thread 1", 60, 10),
    ]


def test_what_runs_in_no_module_belongs_to_the_submodule_and_is_counted():
    """Its layer is the submodule's own; only time in modules counts as attributed."""
    line = Timeline()
    line.call(0, 100)
    line.operator("aten::reshape", 10, 20)
    line.module("proj", 20, 60)
    line.operator("aten::linear", 25, 55)
    found = line.found()[7]
    assert [row[:3] for row in line.commands()] == [
        ("Transformer", 0, "aten::reshape"),
        ("proj", 0, "aten::linear"),
    ]
    assert (found.total_ns, found.attributed_ns, found.events) == (40, 30, 4)


def test_an_operator_that_calls_modules_is_not_a_command():
    """Its parts are, so that they find their modules and no time counts twice."""
    line = Timeline()
    line.call(0, 100)
    line.operator("CheckpointFunction", 10, 90)
    line.operator("aten::detach", 12, 14)
    line.module("ff", 20, 80)
    line.operator("aten::gelu", 30, 40)
    assert [row[:3] for row in line.commands()] == [
        ("Transformer", 0, "aten::detach"),
        ("ff", 0, "aten::gelu"),
    ]


def test_what_moves_weights_is_one_command():
    """Of category dma, with the bytes of the weights, in their module, whose operators go on; what
    the move does is part of it."""
    line = Timeline()
    line.call(0, 100)
    line.module("blocks.0", 10, 90)
    line.operator(f"{WEIGHTS}onload 64 blocks.0.to_q", 12, 32)
    line.operator("aten::to", 14, 20)
    line.operator("aten::linear", 40, 50)
    assert line.commands() == [
        ("blocks.0.to_q", 0, "onload", "CPU thread 1 weights", 12, 20),
        ("blocks.0", 0, "aten::linear", "CPU thread 1", 40, 10),
    ]
    columns = line.found()[7].build()
    assert [columns.tracks[i].category for i in columns.track] == ["dma", "compute"]
    assert columns.bytes_read.tolist()[0] == columns.bytes_written.tolist()[0] == 64


def test_copies_of_moved_weights_are_of_the_module_whose_they_are():
    """Where a device copies, its copies are the commands: also of a block that is fetched while
    the one before it runs."""
    line = Timeline()
    line.call(0, 100)
    line.module("blocks.0", 10, 90)
    line.operator(f"{WEIGHTS}onload 64 blocks.1", 12, 32)
    copy = line.operator("aten::copy_", 14, 20)
    line.runtime("cudaMemcpyAsync", 15, 18, 11, linked=copy)
    name = "Memcpy HtoD (Pinned -> Device)"
    line.device(Activity.MEMCPY, name, 40, 80, 11, linked=copy, nbytes=64)
    assert [row[:4] for row in line.commands()] == [
        ("cudaMemcpyAsync", 0, "", "CPU thread 1 launches"),
        ("blocks.1", 0, "Memcpy HtoD", "stream 7 memcpy"),
    ]


def test_ranges_that_begin_together_nest_in_the_order_of_their_ids():
    """A module range and its first operator may share both times."""
    line = Timeline()
    line.call(0, 10)
    line.module("norm", 0, 10)
    line.operator("aten::layer_norm", 0, 10)
    line.operator("aten::native_layer_norm", 0, 10)
    assert line.commands() == [("norm", 0, "aten::layer_norm", "CPU thread 1", 0, 10)]


def test_ranges_of_the_user_are_no_commands():
    """record_function of the script neither hides operators nor counts itself."""
    line = Timeline()
    line.call(0, 100)
    line.events.append(TorchEvent("my range", Activity.ANNOTATION, 10, 80, correlation=150))
    line.operator("aten::add", 20, 30)
    assert [row[2] for row in line.commands()] == ["aten::add"]


def test_each_thread_has_its_own_calls_and_track():
    """Calls that run at the same time on two threads do not see each other."""
    line = Timeline()
    line.call(0, 100, 7, thread=1)
    line.call(0, 100, 8, thread=2)
    line.operator("aten::add", 10, 20, thread=1)
    line.operator("aten::mul", 10, 20, thread=2)
    line.operator("aten::sub", 10, 20, thread=3)
    found = line.found({7: "A", 8: "B"})
    tables = {number: calls.build() for number, calls in found.items()}
    assert {n: [t.strings[i] for i in t.op_type] for n, t in tables.items()} == {
        7: ["aten::add"],
        8: ["aten::mul"],
    }
    assert [tables[8].tracks[0].name] == ["CPU thread 2"]


def test_an_invocation_without_a_range_is_left_out():
    """Another profiler may have taken the session over."""
    line = Timeline()
    line.operator("aten::add", 20, 30)
    assert line.found() == {}


def test_generated_code_is_what_runs_between_a_graphs_operators():
    """Code that torch.compile generated for the CPU records nothing of its own."""
    line = Timeline()
    line.call(0, 100_000)
    line.module("blocks.0", 0, 100_000)
    line.operator("Torch-Compiled Region: 0/0", 1_000, 99_000)
    line.operator("AOTDispatcher Runtime Wrapper Prologue", 2_000, 3_000)
    line.events.append(
        TorchEvent("## Call CompiledFxGraph f1 ##", Activity.ANNOTATION, 5_000, 85_000, 1, 140)
    )
    line.operator("aten::addmm", 20_000, 50_000)
    line.operator("aten::copy_", 21_000, 22_000)
    line.operator("aten::addmm", 50_500, 60_000)
    assert line.commands() == [
        ("blocks.0/inductor::part_0", 0, "CompiledFxGraph", "CPU thread 1", 5_000, 15_000),
        ("blocks.0", 0, "aten::addmm", "CPU thread 1", 20_000, 30_000),
        ("blocks.0", 1, "aten::addmm", "CPU thread 1", 50_500, 9_500),
        ("blocks.0/inductor::part_2", 0, "CompiledFxGraph", "CPU thread 1", 60_000, 30_000),
    ]
    line.code["f1"] = GENERATED
    assert [(row[0], row[2]) for row in line.commands()] == [
        ("blocks.0/inductor::cpp_fused_native_layer_norm_0", "cpp_fused_native_layer_norm_0"),
        ("blocks.0/fx::linear", "aten::addmm"),
        ("blocks.0/fx::linear_1", "aten::addmm"),
        ("blocks.0/inductor::cpp_fused_add_gelu_mul_2", "cpp_fused_add_gelu_mul_2"),
    ]
    assert set(line.modules()) == {"blocks.0"}


@pytest.mark.parametrize(
    "name", ["dynamo", "torch._dynamo", "_compile.compile_inner (dynamo_timed)"]
)
def test_compiling_is_no_operator(name):
    """What torch.compile traces and tries while it compiles is not executed by the model: the call
    has the operators that it ran afterwards, and those around."""
    line = Timeline()
    line.call(0, 100_000)
    line.operator("aten::add", 1_000, 2_000)
    line.operator(name, 3_000, 80_000)
    line.operator("aten::addmm", 4_000, 20_000)
    line.operator("Torch-Compiled Region: 0/0", 21_000, 22_000)
    line.operator("Torch-Compiled Region: 0/0", 81_000, 99_000)
    line.operator("aten::addmm", 82_000, 90_000)
    assert [row[2:] for row in line.commands()] == [
        ("aten::add", "CPU thread 1", 1_000, 1_000),
        ("aten::addmm", "CPU thread 1", 82_000, 8_000),
    ]
    found = line.found()[7]
    assert (found.total_ns, found.end_ns) == (9_000, 100_000)


def test_a_compiled_region_in_which_nothing_was_seen_is_a_command():
    """Nothing finer exists."""
    line = Timeline()
    line.call(0, 100)
    line.operator("Torch-Compiled Region: 3/0", 10, 90)
    assert line.commands() == [
        ("Transformer", 0, "Torch-Compiled Region", "CPU thread 1", 10, 80),
    ]


def _cuda_call():
    """One linear layer: its weight copied to the device, two kernels, the result copied back."""
    line = Timeline()
    line.call(0, 1000)
    line.module("to_q", 100, 900)
    line.operator("aten::to", 110, 200)
    copy = line.operator("aten::copy_", 120, 190)
    line.runtime("cudaMemcpyAsync", 130, 150, 11, copy)
    line.runtime("cudaStreamSynchronize", 150, 185, 12, copy)
    line.operator("aten::linear", 200, 300, shapes="float16[2,8]")
    mm = line.operator("aten::addmm", 210, 290, shapes="float16[8] float16[2,8]")
    line.runtime("cudaLaunchKernel", 220, 230, 13, mm)
    line.operator("aten::view", 240, 250)
    line.device(
        Activity.MEMCPY, "Memcpy HtoD (Pageable -> Device)", 140, 180, 11, linked=copy, nbytes=64
    )
    line.device(Activity.KERNEL, "void gemm<int>(int*)", 5000, 5100, 13, linked=mm)
    return line


def test_kernels_belong_to_the_call_and_module_that_launched_them():
    """Whenever they ran: the kernel below begins after its call has ended. Their operators are no
    commands then."""
    assert _cuda_call().commands() == [
        ("cudaMemcpyAsync", 0, "", "CPU thread 1 launches", 130, 20),
        ("to_q", 0, "Memcpy HtoD", "stream 7 memcpy", 140, 40),
        ("cudaStreamSynchronize", 0, "", "CPU thread 1 sync", 150, 35),
        ("cudaLaunchKernel", 0, "", "CPU thread 1 launches", 220, 10),
        ("to_q", 1, "aten::addmm", "stream 7", 5000, 100),
    ]


def test_device_work_has_category_bytes_shapes_and_its_launch():
    """Copies from and to the host are dma and know their bytes; launches lead to their work."""
    found = _cuda_call().found()[7]
    columns = found.build()
    tracks = [columns.tracks[i] for i in columns.track]
    assert [(t.device, t.category) for t in tracks] == [
        ("cpu:0", "host"),
        ("cuda:0", "dma"),
        ("cpu:0", "sync"),
        ("cpu:0", "host"),
        ("cuda:0", "compute"),
    ]
    assert columns.bytes_read.tolist() == [-1, 64, -1, -1, -1]
    assert columns.bytes_written.tolist() == [-1, 64, -1, -1, -1]
    assert columns.strings[columns.shapes[4]] == "float16[8] float16[2,8]"
    assert columns.kernel is not None
    assert columns.module is not None
    texts = [[columns.strings[code] for code in c] for c in (columns.kernel, columns.module)]
    assert texts == [
        ["", "Memcpy HtoD (Pageable -> Device)", "", "", "void gemm<int>(int*)"],
        ["", "to_q", "", "", "to_q"],
    ]
    assert sorted(map(tuple, columns.flows.tolist())) == [(0, 1), (3, 4)]
    assert (found.total_ns, found.attributed_ns, found.dropped) == (140, 140, 0)


def test_kernels_of_one_operator_are_its_parts():
    """Two kernels of one product say so, that nobody counts its work twice."""
    line = Timeline()
    line.call(0, 1000)
    mm = line.operator("aten::mm", 200, 300, shapes="float[2,8] float[8,4]")
    for number, name in enumerate(("gemm", "reduce")):
        line.runtime("cudaLaunchKernel", 210 + number, 211 + number, 20 + number, mm)
        line.device(
            Activity.KERNEL, name, 400 + 9 * number, 405 + 9 * number, 20 + number, linked=mm
        )
    columns = line.found()[7].build()
    shapes = [columns.strings[i] for i in columns.shapes]
    assert [text for text in shapes if text] == [
        "float[2,8] float[8,4] part 1/2",
        "float[2,8] float[8,4] part 2/2",
    ]


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ("void CatArrayBatchedCopy<at::native::OpaqueType<2u>, int>(int*)", "bits16"),
        ("void CatArrayBatchedCopy<c10::BFloat16, int>(int*)", "bfloat16"),
        ("void CatArrayBatchedCopy<float, int>(int*)", "float"),
        ("void mine(int*)", "tensor"),
    ],
)
def test_the_kernel_that_copied_a_list_tells_its_type(kernel, dtype):
    """As in imported traces: of the kernel's template argument, by ONNX's name."""
    line = Timeline()
    line.call(0, 1000)
    cat = line.operator("aten::cat", 200, 300, shapes="tensor[2,8] tensor[1,8]")
    line.runtime("cudaLaunchKernel", 210, 211, 20, cat)
    line.device(Activity.KERNEL, kernel, 400, 405, 20, linked=cat)
    columns = line.found()[7].build()
    shapes = [columns.strings[i] for i in columns.shapes]
    assert [text for text in shapes if text] == [f"{dtype}[2,8] {dtype}[1,8]"]


def test_copies_on_the_device_and_collectives():
    """Device to device, memset and NCCL stand on tracks of their own."""
    line = Timeline()
    line.call(0, 1000)
    work = [
        (Activity.MEMCPY, "Memcpy DtoD (Device -> Device)", "cudaMemcpyAsync"),
        (Activity.MEMCPY, "Memcpy DtoH (Device -> Pinned)", "cudaMemcpyAsync"),
        (Activity.MEMSET, "Memset (Device)", "cudaMemsetAsync"),
        (Activity.KERNEL, "ncclDevKernel_AllReduce(int)", "cudaLaunchKernelExC"),
    ]
    for number, (activity, name, launch) in enumerate(work):
        start = 100 * (number + 1)
        line.runtime(launch, start, start + 10, number + 1)
        line.device(activity, name, start + 20, start + 40, number + 1)
    columns = line.found()[7].build()
    tracks = {(columns.tracks[i].name, columns.tracks[i].category) for i in columns.track}
    assert tracks == {
        ("CPU thread 1 launches", "host"),
        ("stream 7 copy", "copy"),
        ("stream 7 memcpy", "dma"),
        ("stream 7 collectives", "collective"),
    }


def test_one_graph_launch_runs_many_kernels():
    """A CUDA graph stays one launch; its kernels keep their own names, and lead back to it."""
    line = Timeline()
    line.call(0, 1000)
    line.module("blocks.0", 10, 990)
    replay = line.operator("my::replay", 20, 100)
    line.runtime("cudaGraphLaunch", 30, 40, 5, replay)
    line.device(Activity.KERNEL, "void gemm<1>(int)", 200, 300, 5)
    line.device(Activity.KERNEL, "softmax", 300, 350, 5)
    assert line.commands() == [
        ("cudaGraphLaunch", 0, "", "CPU thread 1 launches", 30, 10),
        ("blocks.0", 0, "gemm", "stream 7", 200, 100),
        ("blocks.0", 1, "softmax", "stream 7", 300, 50),
    ]
    assert line.found()[7].build().flows.tolist() == [[0, 1], [0, 2]]


def test_triton_kernels_keep_their_names():
    """They say what was fused; the operator around them is torch.compile's, or none."""
    line = Timeline()
    line.call(0, 1000)
    line.operator("Torch-Compiled Region: 0/0", 5, 900)
    line.runtime("cuLaunchKernel", 30, 40, 5)
    line.device(Activity.KERNEL, "triton_poi_fused_gelu_mul_0", 200, 300, 5)
    assert line.commands()[1] == (
        "Transformer",
        0,
        "triton_poi_fused_gelu_mul_0",
        "stream 7",
        200,
        100,
    )


def test_a_kernel_without_its_launch_is_found_by_its_operator():
    """Where the runtime call was not recorded."""
    line = Timeline()
    line.call(0, 1000)
    line.module("proj", 10, 900)
    operator = line.operator("aten::mm", 20, 50)
    line.device(Activity.KERNEL, "gemm", 200, 300, 77, linked=operator)
    assert line.commands() == [("proj", 0, "aten::mm", "stream 7", 200, 100)]


def test_device_work_of_nobody_is_left_out():
    """Kernels that were launched outside every invocation are not those of one."""
    line = Timeline()
    line.call(0, 1000)
    line.runtime("cudaLaunchKernel", 2000, 2010, 5)
    line.device(Activity.KERNEL, "gemm", 2100, 2200, 5)
    line.device(Activity.KERNEL, "gemm", 100, 200, 6)
    assert line.commands() == []


def test_launches_without_their_work_are_counted():
    """Kineto drops device events when its buffers are full."""
    line = Timeline()
    line.call(0, 1000)
    line.runtime("cudaLaunchKernel", 100, 110, 5)
    line.runtime("cudaLaunchKernel", 200, 210, 6)
    line.runtime("cudaMalloc", 300, 310, 7)
    line.runtime("cudaMemsetAsync", 320, 330, 8)  # of no bytes, perhaps
    line.device(Activity.KERNEL, "gemm", 400, 500, 5)
    assert line.found()[7].dropped == 1


def test_launches_into_a_graph_that_is_being_captured_run_nothing():
    """They are not lost: the graph's launch runs them later."""
    line = Timeline()
    line.call(0, 1000)
    line.runtime("cudaStreamBeginCapture", 100, 110, 5)
    line.runtime("cudaLaunchKernel", 200, 210, 6)
    line.runtime("cudaStreamEndCapture_v10000", 300, 310, 7)
    line.runtime("cudaLaunchKernel", 400, 410, 8)
    assert line.found()[7].dropped == 1


def test_a_runtime_call_that_outlasts_its_operator_hides_no_module():
    """The device's runtime has a clock of its own, and the link to the operator is exact."""
    line = Timeline()
    line.call(0, 1000)
    line.module("to_q", 10, 50)
    mm = line.operator("aten::mm", 20, 50)
    line.runtime("cudaLaunchKernel", 15, 70, 5, mm)
    line.device(Activity.KERNEL, "gemm", 300, 400, 5, linked=mm)
    line.module("to_k", 52, 100)
    mm = line.operator("aten::mm", 55, 90)
    line.runtime("cudaLaunchKernel", 92, 95, 6, mm)
    line.device(Activity.KERNEL, "gemm", 400, 500, 6, linked=mm)
    assert [row[:3] for row in line.commands() if row[3] == "stream 7"] == [
        ("to_q", 0, "aten::mm"),
        ("to_k", 0, "aten::mm"),
    ]


def test_events_that_never_ended_are_counted():
    """Their duration is unknown."""
    line = Timeline()
    line.call(0, 1000)
    event = TorchEvent("aten::add", Activity.OPERATOR, 10, 90, correlation=120, finished=False)
    line.events.append(event)
    assert line.commands() == [("Transformer", 0, "aten::add", "CPU thread 1", 10, -1)]
    assert line.found()[7].unfinished == 1


_LEAF = st.tuples(st.integers(1, 5), st.sampled_from(["aten::a", "aten::b", f"{MODULE}m"]))
_TREES = st.recursive(
    st.builds(lambda leaf: (*leaf, []), _LEAF),
    lambda inner: st.builds(
        lambda leaf, children: (*leaf, children), _LEAF, st.lists(inner, max_size=3)
    ),
    max_leaves=20,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(_TREES, max_size=5))
def test_no_time_counts_twice(trees):
    """Whatever nests in what, commands of a thread do not overlap."""
    line = Timeline()
    now = 1

    def lay(tree):
        nonlocal now
        length, name, children = tree
        start, position = now, len(line.events)
        line.operator(name, start, start)
        for child in children:
            lay(child)
        now += length
        event = line.events[position]
        line.events[position] = TorchEvent(
            name, event.activity, start, now - start, correlation=event.correlation
        )

    for tree in trees:
        lay(tree)
    line.events.insert(0, TorchEvent(f"{CALL}7", Activity.OPERATOR, 0, now + 1, correlation=1))
    rows = line.commands()
    ends = [row[4] + row[5] for row in rows]
    assert all(end <= row[4] for end, row in zip(ends, rows[1:], strict=False))
