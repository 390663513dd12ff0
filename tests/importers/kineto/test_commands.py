"""Which call device work belongs to, and what its commands say."""

from __future__ import annotations

import polars as pl
import pytest

from profiler.analysis.analyze import analyze

from .traces import PIPELINE, STEP, Trace, flux


def device_work(run):
    """Commands on devices: call, track, layer, command_index, op_type."""
    return (
        run.commands.filter(pl.col("device") != "cpu:0")
        .select("call", "track", "layer", "command_index", "op_type")
        .rows()
    )


def test_a_late_kernel_belongs_to_the_call_that_launched_it(tmp_path):
    """A kernel that runs in the next call's host range is not that call's."""
    trace = flux()
    trace.op("aten::mm", 22, 5)
    trace.kernel("gemm", 60, 10, launched=23)
    run = trace.imported(tmp_path)
    assert device_work(run) == [(0, "stream 7", "aten::mm", 0, "aten::mm")]
    assert run.calls["device"].to_list()[:2] == ["cuda:0", "cpu:0"]
    assert run.info.attribution["cuda:0"].share == 1.0


def test_a_launch_and_its_kernel_are_linked(tmp_path):
    """The runtime call is a command of the launching thread, and a flow leads to the kernel."""
    trace = flux()
    trace.thread("thread 1 (python3)")
    trace.kernel("gemm", 60, 10, launched=23)
    run = trace.imported(tmp_path)
    rows = run.commands.select("device", "track", "category", "layer").rows()
    source, target = run.flows.row(0)
    assert rows[source] == ("cpu:0", "thread 1 (python3)", "host", "cudaLaunchKernel")
    assert rows[target] == ("cuda:0", "stream 7", "compute", "gemm")
    assert run.commands.filter(pl.col("track") != "Host")["call"].to_list() == [0, 0]


def test_a_launch_number_that_comes_again_is_of_the_launch_ahead_of_the_work(tmp_path):
    """Three numbers in one submodule, and again in the next, the later launches first in the file:
    each has its three kernels, launched 10 us before they begin."""
    trace = Trace()
    for begin, module in ((1000, "AutoencoderKL_0"), (0, "UNet2DConditionModel_0")):
        trace.module(module, begin, 90)
        for number in range(1, 4):
            start, numbered = begin + 20 * number, {"correlation": number}
            trace.event("cuda_runtime", "cudaLaunchKernel", start, 2, **numbered)
            place = {"pid": 0, "tid": 7, "device": 0, "stream": 7}
            trace.event("kernel", "gemm", start + 10, 5, **place, **numbered)
    run = trace.imported(tmp_path)
    names = dict(run.calls.select("call", pl.col("submodule").cast(pl.String)).rows())
    work = run.commands.filter(pl.col("device") == "cuda:0").sort("start_ns")
    submodules = [names[call] for call in work["call"]]
    assert submodules == ["unet"] * 3 + ["vae"] * 3
    starts = run.commands["start_ns"].to_numpy()
    waited = starts[run.flows["target"].to_numpy()] - starts[run.flows["source"].to_numpy()]
    assert waited.tolist() == [10_000] * 6


def test_a_kernel_without_correlation_is_found_by_its_external_id(tmp_path):
    """The operator that it names leads to the call, and gives no name to the kernel."""
    trace = flux()
    external = trace.op("aten::mm", 160, 5)
    trace.kernel("gemm", 170, 10, external=external)
    run = trace.imported(tmp_path)
    assert device_work(run) == [(2, "stream 7", "gemm", 0, "gemm")]
    assert run.info.attribution["cuda:0"].launch_unknown == 1


def test_a_kernel_launched_by_another_thread_follows_its_operator(tmp_path):
    """A thread without module ranges launches for the call whose operator it names."""
    trace = flux()
    external = trace.op("aten::mm", 160, 5)
    trace.kernel("gemm", 170, 10, launched=162, external=external, tid=2)
    assert device_work(trace.imported(tmp_path))[0][0] == 2


def test_an_external_id_never_names_the_operator(tmp_path):
    """Old recorders wrote the correlation id there, which may be the number of another operator."""
    trace = flux()
    external = trace.op("aten::mm", 160, 5)
    trace.kernel("gemm", 190, 10, launched=180, external=external)
    trace.op("aten::add", 195, 5)
    trace.kernel("add", 205, 10, launched=196, external=external)
    assert device_work(trace.imported(tmp_path)) == [
        (2, "stream 7", "gemm", 0, "gemm"),
        (2, "stream 7", "aten::add", 0, "aten::add"),
    ]


def test_an_operator_without_dims_leaves_its_kernel_to_the_one_around_it(tmp_path):
    """A range that an application records inside an operator is not what the kernel computes."""
    trace = flux()
    shaped = {"Input Dims": [[8, 4], [4, 2]], "Input type": ["float", "float"]}
    trace.op("aten::mm", 160, 10, **shaped)
    trace.op("my library", 161, 8, **{"Input Dims": [], "Input type": []})
    trace.op("bare", 180, 5)
    trace.kernel("gemm", 170, 10, launched=162)
    trace.kernel("other", 190, 10, launched=181)
    run = trace.imported(tmp_path)
    assert [row[4] for row in device_work(run)] == ["aten::mm", "bare"]
    work = run.commands.filter(pl.col("device") == "cuda:0")
    assert work["shapes"].to_list() == ["in: float32[8,4] float32[4,2]", None]


def test_threads_do_not_mix(tmp_path):
    """Calls that overlap on two threads each get what their own thread launched."""
    trace = Trace()
    for tid in (1, 2):
        trace.module(f"UNet2DConditionModel_{tid}", 10 * tid, 100, tid)
        trace.op(f"aten::op{tid}", 50, 10, tid)
        trace.kernel("k", 55, 5, launched=51, tid=tid, device=tid)
    run = trace.imported(tmp_path)
    assert [(row[0], row[4]) for row in device_work(run)] == [(0, "aten::op1"), (1, "aten::op2")]
    assert run.calls["device"].to_list() == ["cuda:1", "cuda:2"]


def test_work_of_no_call_is_kept_with_the_stage_it_was_launched_in(tmp_path):
    """Kernels of the scheduler and of nobody known are commands of no call; the share says so."""
    trace = flux()
    trace.kernel("euler", 295, 10, launched=292)
    trace.kernel("orphan", 5000, 30)
    run = trace.imported(tmp_path)
    outside = run.commands.filter((pl.col("call") == -1) & (pl.col("device") == "cuda:0"))
    assert outside.select("layer", "stage", "step").rows() == [
        ("euler", "denoise", 0),
        ("orphan", None, -1),
    ]
    facts = run.info.attribution["cuda:0"]
    assert (facts.attributed_ns, facts.total_ns, facts.commands_outside_calls) == (
        0,
        40_000,
        2,
    )


def test_layers_are_module_paths_that_do_not_depend_on_other_submodules(tmp_path):
    """Instances are numbered within their parent, equally in every step."""
    trace = Trace()
    trace.frame(PIPELINE, 0, 1000)
    for begin in (100, 300):
        trace.module("SD3Transformer2DModel_0", begin, 100)
        for block, number in ((0, 40), (1, 41)):
            start = begin + 10 + 40 * block
            trace.module(f"Block_{block + 7}", start, 35)
            trace.module(f"Linear_{number}", start + 5, 10)
            trace.op("aten::addmm", start + 6, 5)
            trace.kernel("gemm", start + 8, 2, launched=start + 7)
            trace.kernel("bias", start + 10, 2, launched=start + 8)
            trace.op("aten::add", start + 20, 5)
            trace.kernel("add", start + 24, 2, launched=start + 21)
        trace.frame(STEP, begin + 120, 10)
    work = device_work(trace.imported(tmp_path))
    expected = [
        ("Block_0.Linear", 0, "aten::addmm"),
        ("Block_0.Linear", 1, "aten::addmm"),
        ("Block_0/aten::add", 0, "aten::add"),
        ("Block_1.Linear", 0, "aten::addmm"),
        ("Block_1.Linear", 1, "aten::addmm"),
        ("Block_1/aten::add", 0, "aten::add"),
    ]
    assert [row[2:] for row in work if row[0] == 0] == expected
    assert [row[2:] for row in work if row[0] == 1] == expected


def test_compiled_regions_fall_back_to_operators_and_triton_kernels(tmp_path):
    """Inside what torch.compile made there are no modules; wrappers of it are no operators."""
    trace = Trace()
    trace.module("OptimizedModule_0", 0, 100)
    trace.module("DiTTransformer_0", 5, 90)
    trace.op("Torch-Compiled Region: 0/0", 10, 80)
    trace.op("aten::mm", 20, 10)
    trace.kernel("Cijk_Ailk_Bljk", 25, 5, launched=22)
    trace.kernel("triton_poi_fused_add_0", 45, 5, launched=42)
    assert [row[2:] for row in device_work(trace.imported(tmp_path))] == [
        ("aten::mm", 0, "aten::mm"),
        ("triton_poi_fused_add_0", 0, "triton_poi_fused_add_0"),
    ]


def test_a_generated_kernel_tells_what_it_goes_over(tmp_path):
    """torch records the sizes of a kernel of torch.compile behind its tensors, as scalars."""
    args = {
        "Input Dims": [[1, 24, 768, 128], [1, 24, 1, 128], [], []],
        "Input type": ["c10::BFloat16", "float", "Scalar", "Scalar"],
        "Concrete Inputs": ["", "", "3072", "768"],
    }
    trace = Trace()
    name = "triton_red_fused_mean_0"
    for begin, values in ((0, args), (100, args | {"Concrete Inputs": ["", "", "", "768"]})):
        trace.op(name, begin, 10, **values)
        trace.kernel(name, begin + 5, 5, launched=begin + 2)
    shapes = trace.imported(tmp_path).commands["shapes"].drop_nulls().cast(pl.String).to_list()
    tensors = "in: bfloat16[1,24,768,128] float32[1,24,1,128]"
    assert shapes == [f"{tensors} over 3072,768", tensors]


def test_a_compiled_block_is_told_apart_by_operator(tmp_path):
    """A module without children that runs compiled code is not one operation."""
    trace = Trace()
    trace.module("DiTTransformer_0", 0, 100)
    trace.module("Block_0", 5, 90)
    trace.frame("torch/_dynamo/eval_frame.py(791): compile_wrapper", 10, 80)
    trace.op("aten::mm", 20, 10)
    trace.kernel("gemm", 25, 5, launched=22)
    assert device_work(trace.imported(tmp_path))[0][2] == "Block/aten::mm"


def test_kernels_of_one_graph_launch_keep_their_own_names(tmp_path):
    """A CUDA graph launches all its kernels at once: no operator stands for each of them."""
    trace = Trace()
    trace.module("DiTTransformer_0", 0, 100)
    trace.event("cuda_runtime", "cudaGraphLaunch", 20, 5, correlation=9)
    for number, name in enumerate(("void gemm<float>(float*)", "softmax")):
        place = {"device": 0, "stream": 7, "correlation": 9}
        trace.event("kernel", name, 30 + 10 * number, 5, pid=0, tid=7, **place)
    run = trace.imported(tmp_path)
    assert [row[2] for row in device_work(run)] == ["gemm", "softmax"]
    assert len(run.flows) == 2
    assert (run.commands["layer"] == "cudaGraphLaunch").sum() == 1


def test_copies_have_tracks_categories_and_bytes_of_their_own(tmp_path):
    """Copies to and from the host are dma, those on a device and memset are copy."""
    trace = Trace()
    trace.module("DiTTransformer_0", 0, 100)
    copies = (
        ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 616),
        ("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 32),
        ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 8),
        ("gpu_memset", "Memset (Device)", 4),
    )
    for number, (cat, name, size) in enumerate(copies):
        trace.kernel(name, 10 * number, 5, launched=10 * number, cat=cat, bytes=size)
    trace.kernel("ncclDevKernel_AllGather", 60, 5, launched=55)
    run = trace.imported(tmp_path)
    found = run.commands.filter(pl.col("device") == "cuda:0")
    columns = ("op_type", "track", "category", "bytes_read", "bytes_written")
    assert found.select(columns).rows() == [
        ("Memcpy HtoD", "stream 7 memcpy", "dma", 616, 616),
        ("Memcpy DtoH", "stream 7 memcpy", "dma", 32, 32),
        ("Memcpy DtoD", "stream 7 copy", "copy", 8, 8),
        ("Memset", "stream 7 copy", "copy", None, 4),
        ("ncclDevKernel_AllGather", "stream 7 collectives", "collective", None, None),
    ]


def test_kernels_keep_their_full_names_and_modules_their_paths(tmp_path):
    """Nothing is cut, whatever is known of the operator; copies keep what the runtime calls them.
    Launches ran no kernel, and what runs in the submodule itself belongs to no module of it."""
    full = f"void cutlass::Kernel2<{'tile<128, 256>, ' * 40}bf16>(cutlass::Params<int>)"
    trace = Trace()
    trace.module("DiTTransformer_0", 0, 100)
    trace.module("Block_3", 5, 50)
    trace.op("aten::mm", 20, 10)
    trace.kernel(full, 25, 5, launched=22)
    trace.kernel("Memcpy HtoD (Pageable -> Device)", 70, 5, launched=60, cat="gpu_memcpy")
    commands = trace.imported(tmp_path).commands
    assert len(full) > 600
    assert commands.select("module", "layer", "op_type", "kernel").rows() == [
        (None, "cudaLaunchKernel", None, None),
        ("Block", "Block", "aten::mm", full),
        (None, "cudaMemcpyAsync", None, None),
        (None, "Memcpy HtoD", "Memcpy HtoD", "Memcpy HtoD (Pageable -> Device)"),
    ]


def test_shapes_are_the_launching_operators_inputs(tmp_path):
    """Tensor inputs appear with their types; scalars do not."""
    trace = Trace()
    trace.module("DiTTransformer_0", 0, 100)
    dims, types = [[77, 768], [], [768, 8]], ["c10::BFloat16", "Scalar", "float"]
    trace.op("aten::mm", 10, 10, **{"Input Dims": dims, "Input type": types})
    trace.kernel("gemm", 15, 5, launched=12)
    run = trace.imported(tmp_path)
    shapes = run.commands.filter(pl.col("layer") == "aten::mm")["shapes"].to_list()
    assert shapes == ["in: bfloat16[77,768] float32[768,8]"]


def test_an_argument_more_than_an_operator_reads_is_its_result(tmp_path):
    """`clamp_min(x, 0, out=x)`, of which a `relu_` of torch 1.9 consists, reads x once; an `out`
    without elements is given the size that it needs."""
    trace = Trace()
    trace.module("DiTTransformer_0", 0, 100)
    for begin, dims in (
        (10, [[8, 4], [], [8, 4]]),
        (30, [[8, 4], [8, 4]]),
        (50, [[8, 4], [], [0]]),
    ):
        types = ["float", "Int" if len(dims) == 3 else "float", "float"][: len(dims)]
        trace.op("aten::clamp_min", begin, 10, **{"Input Dims": dims, "Input type": types})
        trace.kernel("clamp", begin + 5, 5, launched=begin + 2)
    run = trace.imported(tmp_path)
    shapes = run.commands.filter(pl.col("layer") == "aten::clamp_min")["shapes"].to_list()
    assert shapes == [
        "float32[8,4] -> float32[8,4]",
        "in: float32[8,4] float32[8,4]",
        "in: float32[8,4]",
    ]


def test_rocm_devices_are_named_after_their_runtime(tmp_path):
    """A HIP trace calls its devices rocm, under the number the events give."""
    trace = Trace(hip_runtime_version=1, deviceProperties=[{"id": 0, "name": "MI300X"}])
    trace.module("DiTTransformer_0", 0, 100)
    trace.kernel("gemm", 15, 5, launched=12, device=2)
    run = trace.imported(tmp_path)
    assert run.calls["device"].to_list() == ["rocm:2"]
    assert run.info.devices["rocm:2"].hardware == "MI300X"


def test_a_run_on_the_cpu_has_its_operators_as_commands(tmp_path):
    """Without device work the outermost operators are what was executed."""
    trace = flux()
    trace.op("aten::linear", 22, 10)
    trace.op("aten::addmm", 24, 5)
    run = trace.imported(tmp_path)
    found = run.commands.filter(pl.col("category") == "compute")
    assert found.select("call", "device", "layer").rows() == [(0, "cpu:0", "aten::linear")]


def test_autograd_on_the_cpu_is_the_operators_that_it_calls(tmp_path):
    """A node counts as what it calls for most of its time, and as itself if it works on its own."""
    trace = Trace()
    for start, node, operators in (
        (0, "AddmmBackward0", [("aten::mm", 4, 60), ("aten::sum", 70, 20)]),
        (100, "MyFunctionBackward", [("aten::empty", 110, 5)]),
        (200, "torch::autograd::AccumulateGrad", []),
    ):
        trace.op(f"autograd::engine::evaluate_function: {node}", start, 100)
        trace.op(node, start + 2, 95)
        for name, begin, length in operators:
            trace.op(name, start % 100 + begin, length)
    found = trace.imported(tmp_path).commands.filter(pl.col("category") == "compute")
    assert found.select("op_type", pl.col("duration_ns") // 1000).rows() == [
        ("aten::mm", 60),
        ("aten::sum", 20),
        ("MyFunctionBackward", 95),
        ("torch::autograd::AccumulateGrad", 95),
    ]


@pytest.mark.parametrize(
    ("kernel", "args", "expected"),
    [
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", {}, "nccl:send_recv"),
        ("ncclDevKernel_SendRecv", {"Collective name": "all_to_allv"}, "nccl:all_to_all"),
        ("ncclDevKernel_Generic", {}, "record_param_comms"),
    ],
)
def test_a_collective_is_named_by_what_it_does(tmp_path, kernel, args, expected):
    """c10d records one operator around every collective: which it is, the kernel says."""
    trace = flux()
    trace.op("record_param_comms", 22, 10)
    trace.kernel(kernel, 30, 5, launched=24, **args)
    found = trace.imported(tmp_path).commands.filter(pl.col("category") == "collective")
    assert found["op_type"].to_list() == [expected]


@pytest.mark.parametrize(
    ("asking", "kind"),
    [
        (("cpu_op", "c10d::allreduce_"), "all_reduce"),
        (("cpu_op", "c10d::alltoall_base_"), "all_to_all"),
        (("user_annotation", "nccl:_all_gather_base"), "all_gather"),
        (("user_annotation", "## all_reduce of gradients ##"), "send_recv"),
    ],
)
def test_a_kernel_of_several_kinds_is_what_its_launch_was_asked_for(tmp_path, asking, kind):
    """Versions of NCCL run every kind by the kernel of sends: an operator of c10d or a range of the
    backend says which, a range of the user does not. The table of collectives has the same kind."""
    trace = flux()
    trace.event(*asking, 21, 12)
    trace.op("record_param_comms", 22, 10)
    trace.kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", 30, 5, launched=24)
    run = trace.imported(tmp_path)
    found = run.commands.filter(pl.col("category") == "collective")
    assert found["op_type"].to_list() == [f"nccl:{kind}"]
    assert analyze(run).collectives.select("kind", "commands").rows() == [(kind, 1)]


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("hccl", "hccl:all_reduce"),
        ("cpu:gloo,cuda:nccl", "nccl:all_reduce"),
        ("cpu:gloo,cuda:xccl", "xccl:all_reduce"),
        ("", "nccl:all_reduce"),
    ],
)
def test_a_collective_has_the_name_of_its_backend(tmp_path, backend, expected):
    """That which the job has for devices of this kind."""
    trace = Trace(distributedInfo={"backend": backend, "rank": 0, "world_size": 2})
    trace.module("Model_0", 0, 100)
    trace.op("record_param_comms", 22, 10)
    trace.kernel("all_reduce_kernel", 30, 5, launched=24, **{"Collective name": "allreduce"})
    found = trace.imported(tmp_path).commands.filter(pl.col("category") != "host")
    assert found["op_type"].to_list() == [expected]


def test_host_work_is_what_the_pipeline_does_between_calls(tmp_path):
    """The largest frames outside the calls, under names that capture uses too."""
    trace = flux()
    frames = (
        ("transformers/tokenization_utils_base.py(2403): __call__", 12, 5),
        ("transformers/tokenization_utils_base.py(2403): __call__", 42, 5),
        ("diffusers/pipelines/flux/pipeline_flux.py(89): retrieve_timesteps", 110, 20),
        ("diffusers/schedulers/scheduling_x.py(282): set_timesteps", 115, 5),
        ("<built-in method to of Tensor object at 0x7f00>", 140, 2),
        ("diffusers/image_processor.py(738): postprocess", 910, 50),
    )
    for frame in frames:
        trace.frame(*frame)
    host = trace.imported(tmp_path).commands.filter(pl.col("track") == "Host")
    assert host.select("layer", "stage", "step").rows() == [
        ("tokenizer", "encode", -1),
        ("tokenizer_2", "encode", -1),
        ("scheduler.set_timesteps", "denoise", -1),
        ("Tensor.to", "denoise", -1),
        ("scheduler.step", "denoise", 0),
        ("scheduler.step", "denoise", 1),
        ("image_processor.postprocess", "decode", -1),
    ]
    assert (
        host["op_type"][4] == "diffusers/schedulers/scheduling_flow_match_euler_discrete.py: step"
    )


_CONVOLUTION = {
    "Input Dims": [[2, 16, 128, 128], [2432, 16, 2, 2], [], [], [], [], []],
    "Input type": ["c10::BFloat16", "c10::BFloat16", "", "ScalarList", "ScalarList", "", ""],
    "Concrete Inputs": ["", "", "", "[0, 0]", "[2, 2]", "[1, 1]", "1"],
}


def _shapes(run):
    return run.commands.filter(pl.col("device") != "cpu:0")["shapes"].cast(pl.String).to_list()


def test_a_convolution_has_its_result(tmp_path):
    """Its stride and padding are in the trace, and what they give is worth knowing."""
    trace = flux()
    trace.op("aten::miopen_convolution", 22, 5, **_CONVOLUTION)
    trace.kernel("conv", 60, 10, launched=23)
    assert _shapes(trace.imported(tmp_path)) == [
        "bfloat16[2,16,128,128] bfloat16[2432,16,2,2] -> bfloat16[2,2432,64,64]"
    ]


def test_a_reduction_has_its_result(tmp_path):
    """The dims that it reduces are in the trace; a sum of integers has another type than these."""
    trace = flux()
    for i, (name, kind) in enumerate((("mean", "float"), ("sum", "int"))):
        reduced = {
            "Input Dims": [[2, 24, 64], [], [], []],
            "Input type": [kind, "ScalarList", "Scalar", ""],
            "Concrete Inputs": ["", "[-1]", "True", ""],
        }
        trace.op(f"aten::{name}", 22 + 2 * i, 1.5, **reduced)
        trace.kernel("reduce", 60 + 20 * i, 10, launched=22.1 + 2 * i)
    assert _shapes(trace.imported(tmp_path)) == [
        "float32[2,24,64] -> float32[2,24,1]",
        "in: int32[2,24,64]",
    ]


def test_an_upsampling_has_its_result(tmp_path):
    """Its size is an argument; where a factor stands there, the result does not follow."""
    trace = flux()
    for i, size in enumerate(("[128, 96]", "")):
        resampled = {
            "Input Dims": [[1, 4, 64, 48], [], [], []],
            "Input type": ["c10::BFloat16", "ScalarList", "", ""],
            "Concrete Inputs": ["", size, "", ""],
        }
        trace.op("aten::upsample_nearest2d", 22 + 2 * i, 1.5, **resampled)
        trace.kernel("upsample", 60 + 20 * i, 10, launched=22.1 + 2 * i)
    assert _shapes(trace.imported(tmp_path)) == [
        "bfloat16[1,4,64,48] -> bfloat16[1,4,128,96]",
        "in: bfloat16[1,4,64,48]",
    ]


def test_a_list_has_the_type_that_its_kernel_tells(tmp_path):
    """`cat` takes a list, whose type the trace leaves out: its kernel copies what has a width."""
    trace = flux()
    joined = {"Input Dims": [[[2, 8], [2, 4]], []], "Input type": ["TensorList", "Scalar"]}
    for i, kernel in enumerate(("CatArrayBatchedCopy<OpaqueType<2u>, unsigned int>", "other")):
        trace.op("aten::cat", 22 + 2 * i, 1.5, **joined)
        trace.kernel(kernel, 60 + 20 * i, 10, launched=22.1 + 2 * i)
    assert _shapes(trace.imported(tmp_path)) == [
        "in: bits16[2,8] bits16[2,4]",
        "in: tensor[2,8] tensor[2,4]",
    ]


def test_a_convolution_with_strange_arguments_has_its_inputs(tmp_path):
    """Arguments that say nothing leave the inputs."""
    trace = flux()
    for i, values in enumerate((["", "", "", "[0", "x"], "none", None)):
        trace.op("aten::conv2d", 22 + 2 * i, 1.5, **{**_CONVOLUTION, "Concrete Inputs": values})
        trace.kernel("conv", 60 + 20 * i, 10, launched=22.1 + 2 * i)
    expected = "in: bfloat16[2,16,128,128] bfloat16[2432,16,2,2]"
    assert _shapes(trace.imported(tmp_path)) == [expected] * 3


def test_kernels_of_one_operator_are_its_parts(tmp_path):
    """Two kernels of one product say so, that nobody counts its work twice."""
    trace = flux()
    inputs = {"Input Dims": [[2, 8], [8, 4]], "Input type": ["float", "float"]}
    trace.op("aten::mm", 22, 5, **inputs)
    trace.kernel("gemm", 60, 10, launched=23)
    trace.kernel("reduce", 70, 10, launched=24)
    trace.op("aten::mm", 30, 5, **inputs)
    trace.kernel("gemm", 80, 10, launched=31)
    text = "in: float32[2,8] float32[8,4]"
    assert _shapes(trace.imported(tmp_path)) == [f"{text} part 1/2", f"{text} part 2/2", text]


def test_a_thread_without_calls_works_for_the_call_that_is_open(tmp_path):
    """Autograd's thread has no module ranges: what it launches while one call is open is that
    call's, and no call's while none is."""
    trace = flux()
    trace.kernel("gemm", 170, 10, launched=162, tid=2)
    trace.kernel("gemm", 250, 10, launched=240, tid=2)
    assert [row[0] for row in device_work(trace.imported(tmp_path))] == [2, -1]


def test_work_whose_launch_is_lost_belongs_to_the_call_around_it(tmp_path):
    """Between two kernels of one call it is that call's; between two calls it is nobody's, and so
    is what ran before the first launch."""
    trace = flux()
    trace.kernel("left over", 1, 2)
    trace.kernel("gemm", 160, 10, launched=155)
    trace.kernel("lost", 171, 2)
    trace.kernel("gemm", 180, 10, launched=156)
    trace.kernel("lost", 200, 2)
    trace.kernel("gemm", 360, 10, launched=355)
    found = {(row[4], row[0]) for row in device_work(trace.imported(tmp_path))}
    assert found == {("left over", -1), ("gemm", 2), ("lost", 2), ("lost", -1), ("gemm", 3)}


def test_the_host_s_waits_are_recorded(tmp_path):
    """A runtime call that waits for a device is a command of category sync on its thread, of the
    call in which it was made; one that was read as a launch is not written twice."""
    trace = flux()
    trace.event("cuda_runtime", "cudaStreamSynchronize", 160, 30, correlation=901)
    trace.event("cuda_runtime", "cudaDeviceSynchronize", 905, 40, correlation=902)
    trace.event("cuda_runtime", "cudaGetDevice", 950, 1, correlation=903)
    trace.kernel("gemm", 170, 10, launched=155)
    run = trace.imported(tmp_path)
    waits = run.commands.filter(pl.col("category") == "sync")
    assert waits.select("call", "device", "track", "layer", "duration_ns").rows() == [
        (2, "cpu:0", "thread 1 sync", "cudaStreamSynchronize", 30_000),
        (-1, "cpu:0", "thread 1 sync", "cudaDeviceSynchronize", 40_000),
    ]
    assert waits["stage"].to_list() == ["denoise", "decode"]


def test_two_kernels_in_one_wrapper_are_two_rows(tmp_path):
    """FlashAttention's and a product's kernels run in `cutlass::device_kernel`, as do two variants
    of the product: none is called by the wrapper's name, and each has a row of its own."""
    inside = ("flash::enable_sm90<flash::Fwd<1>>", "cutlass::Gemm<a, 1>", "cutlass::Gemm<b, 2>")
    trace = Trace()
    for at, name in zip((10, 20, 30), inside, strict=True):
        trace.kernel(f"void cutlass::device_kernel<{name}>(Params)", at, 5)
    shapes = analyze(trace.imported(tmp_path)).shapes
    kinds = sorted(shapes["op_type"].cast(pl.String))
    assert kinds == ["cutlass::Gemm", "cutlass::Gemm", "flash::Fwd"]
    assert shapes["kernel"].n_unique() == 3
