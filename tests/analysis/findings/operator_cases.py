"""Runs for the rules about operators: split, fused, moved, against the roofline, between
providers."""

from profiler.analysis import DeviceProfile
from tests.analysis.findings.cases import analyzed, command, gpu_call, misses, triggers

CALL = gpu_call(0, 0, 1000)


def _split(second, *, devices=("rbln:0", "rbln:0"), serial=False):
    """An operator in two parts of 100 and `second` ns, side by side or one after the other."""
    begin = 100 if serial else 0
    parts = [
        command(0, 0, 100, device=devices[0], track="Cluster 0", layer="mlp"),
        command(0, begin, begin + second, device=devices[1], track="Cluster 1", layer="mlp"),
    ]
    return analyzed([CALL], parts)


@triggers("track_imbalance", operators=1, lost_ns=20, worst_imbalance=1.25, worst_tracks=2)
def tracks_of_100_and_60():
    return _split(60)


@misses("track_imbalance")
def tracks_of_100_and_67():
    return _split(67)


@misses("track_imbalance")
def tracks_one_after_the_other():
    return _split(60, serial=True)


@misses("track_imbalance")
def a_split_over_devices_is_another_rule():
    return _split(60, devices=("rbln:0", "rbln:1"))


@triggers("device_imbalance", operators=1, lost_ns=20, worst_imbalance=1.25, worst_devices=2)
def devices_of_100_and_60():
    return _split(60, devices=("rbln:0", "rbln:1"))


@misses("device_imbalance")
def devices_of_100_and_67():
    return _split(67, devices=("rbln:0", "rbln:1"))


@misses("device_imbalance")
def devices_of_two_kinds_are_no_split():
    return _split(60, devices=("cuda:0", "cpu:0"))


X, ROW = "float[2,8,4]", "float[2,8,1]"
SCORES, HEADS = "float[2,8,8]", "float[2,4,8]"
ATTENTION = (
    ("MatMul", f"{X} {HEADS} -> {SCORES}"),
    ("Softmax", f"{SCORES} -> {SCORES}"),
    ("MatMul", f"{SCORES} {X} -> {X}"),
)
NORM = (
    ("Pow", f"{X} float[] -> {X}"),
    ("ReduceMean", f"{X} int64[1] -> {ROW}"),
    ("Add", f"{ROW} float[] -> {ROW}"),
    ("Sqrt", f"{ROW} -> {ROW}"),
    ("Reciprocal", f"{ROW} -> {ROW}"),
    ("Mul", f"{X} {ROW} -> {X}"),
)
FUSED_NORM = (
    ("LayerNormalization", f"{X} float[64] float[64] -> {X}"),
    ("Add", f"{X} {X} -> {X}"),
    ("Relu", f"{X} -> {X}"),
)
ELEMENTWISE = (("Add", f"{X} {X} -> {X}"), ("Tanh", f"{X} -> {X}"))


def _chain(operations, duration, profile=None, end=1000):
    """A call with these operations, `duration` ns each, one right after the other."""
    commands = [
        command(0, i * duration, (i + 1) * duration, op_type=op_type, layer="block")
        for i, (op_type, _) in enumerate(operations)
    ]
    shapes = [shape for _, shape in operations]
    call = gpu_call(0, 0, end)
    return analyzed([call], commands, end=end, shapes=shapes, profile=profile)


def _profile(bandwidth=1e9, launch=None, peak=1e12, half=1e12):
    """Of cuda:0: bytes/s, ns, FLOP/s of float32 and of 16-bit types."""
    peaks = {"float32": peak, "bfloat16": half, "float16": half}
    return DeviceProfile("unit", peaks, bandwidth, launch, "", True, device="cuda:0")


@triggers("unfused_attention", chains=1, total_ns=60, longest_chain="MatMul → Softmax → MatMul")
def attention_of_6_percent():
    return _chain(ATTENTION, 20)


@triggers("unfused_attention", saved_ns=4976, saved_share=0.01)
def attention_that_saves_1_percent():
    """6000 ns for what one command does in 1024, at 1 byte a ns: scores are not moved any more."""
    return _chain(ATTENTION, 2000, _profile(), 497_600)


@misses("unfused_attention")
def attention_of_4_percent():
    return _chain(ATTENTION, 16)


@misses("unfused_attention")
def attention_that_saves_less_than_1_percent():
    return _chain(ATTENTION, 2000, _profile(), 497_700)


@triggers("norm_chains", chains=1, total_ns=54)
def a_norm_by_hand():
    return _chain(NORM, 9)


@misses("norm_chains")
def a_short_norm_by_hand():
    return _chain(NORM, 8)


@misses("norm_chains")
def a_norm_that_is_one_operator():
    """Between arithmetic: nobody wrote it by hand."""
    return _chain(FUSED_NORM, 25)


@triggers("elementwise_chains", chains=1, total_ns=75)
def arithmetic_beside_a_norm():
    return _chain(FUSED_NORM, 25)


def _with_a_norm(norm, profile=None):
    """A norm of this many ns, then an addition and a ReLU of 25 ns each."""
    edges = [0, norm, norm + 25, norm + 50]
    commands = [
        command(0, begin, end, op_type=op_type, layer=f"block/{op_type}")
        for begin, end, (op_type, _) in zip(edges[:-1], edges[1:], FUSED_NORM, strict=True)
    ]
    shapes = [shape for _, shape in FUSED_NORM]
    return analyzed([gpu_call(0, 0, 1000)], commands, shapes=shapes, profile=profile)


@triggers("elementwise_chains", norm="LayerNormalization", norm_total_ns=50, total_ns=100)
def a_norm_that_is_half_of_its_chain():
    """What to look at is the norm."""
    return _with_a_norm(50)


@triggers("elementwise_chains", norm=None, norm_total_ns=None)
def a_norm_that_is_less_than_half_of_its_chain():
    return _with_a_norm(49)


@triggers("elementwise_chains", norm="LayerNormalization", norm_of_roofline_share=0.1)
def a_norm_far_from_its_roofline():
    """1024 bytes, of which 1 ns moves 8."""
    return _with_a_norm(1280, _profile(8e9))


@triggers("elementwise_chains", chains=1, total_ns=50, longest_chain="Add → Tanh")
def two_elementwise_operators():
    return _chain(ELEMENTWISE, 25)


@misses("elementwise_chains")
def two_short_elementwise_operators():
    return _chain(ELEMENTWISE, 24)


@misses("elementwise_chains")
def a_norm_is_another_rule():
    return _chain(NORM, 100)


def _transposed(transposes, others, end=1000):
    commands = [
        command(0, 0, transposes, op_type="Transpose", layer="attn/Transpose"),
        command(0, transposes, transposes + others, op_type="Gemm", layer="ff"),
    ]
    return analyzed([gpu_call(0, 0, end)], commands, end=end)


@triggers("data_movement", total_ns=100, compute_time_share=0.1, op_types="Transpose")
def a_tenth_of_transposes():
    return _transposed(100, 900)


@misses("data_movement")
def less_than_a_tenth_of_transposes():
    return _transposed(99, 901)


@misses("data_movement")
def transposes_in_a_short_submodule():
    """Half of the device time, 1.9 % of the run."""
    return _transposed(19, 19)


def _cast_in_two_calls(first, second):
    """Two calls of a cast and 50 ns of work each; the cast takes this long in each."""
    calls, commands, at = [], [], 0
    for number, cast in enumerate((first, second)):
        end = at + cast + 50
        calls.append(gpu_call(number, at, end, branch="cond"))
        commands.append(command(number, at, at + cast, op_type="Cast", layer="attn/Cast"))
        commands.append(command(number, at + cast, end, op_type="Gemm", layer="ff"))
        at = end
    return analyzed(calls, commands, end=at)


@misses("data_movement")
def a_cast_that_loads_a_library():
    """800 ns in the first call, 1 in the later one: `first_call` says so."""
    return _cast_in_two_calls(800, 1)


@triggers("data_movement", total_ns=40, compute_time_share=40 / 140, commands=2)
def casts_of_each_call():
    """800 ns in the first call and 20 in the later one: 20 in each, without the first's start."""
    return _cast_in_two_calls(800, 20)


@misses("data_movement")
def transfers_beside_what_is_computed():
    """A dma track is busy all the time, a tenth of it alone: `transfers_exposed` is for that."""
    moved = command(0, 0, 900, track="DMA", category="dma", op_type="dma", layer="load")
    work = command(0, 100, 1000, op_type="Gemm", layer="ff")
    return analyzed([gpu_call(0, 0, 1000)], [moved, work])


def _adds(count, end=1000):
    operations = [("Add", "float[4] float[4] -> float[4]")] * count
    return _chain(operations, 10, _profile(1e12, launch=10.0), end)


@triggers("launch_bound", total_ns=50, device_time_share=1.0, commands=5)
def five_short_commands():
    return _adds(5)


@misses("launch_bound")
def four_short_commands():
    return _adds(4)


@misses("launch_bound")
def launches_that_were_measured_too_long():
    """Commands of 10 ns that are said to take 12 at least."""
    operations = [("Add", "float[4] float[4] -> float[4]")] * 5
    return _chain(operations, 10, _profile(1e12, launch=12.0), 1000)


DIMS = "float16[16,16] float16[16,16] -> float16[16,16]"  # 8192 FLOPs
SINGLE = DIMS.replace("float16", "float")


def _product(duration, attainable, shapes=DIMS, **profile):
    """A product of an mlp, which takes at least `attainable` ns."""
    profile = _profile(1e15, peak=8192e9 / attainable, half=8192e9 / attainable, **profile)
    product = command(0, 0, duration, op_type="MatMul", layer="transformer_blocks.0.ff.net.2")
    return analyzed([CALL], [product], shapes=[shapes], profile=profile)


def a_slow_product(size, **info):
    """A product of two matrices of `size`² at a fifth of the roofline."""
    peak = 2 * size**3 * 1e9 / 20
    product = command(0, 0, 100, op_type="MatMul", layer="transformer_blocks.0.ff.net.2")
    shapes = [DIMS.replace("16,16", f"{size},{size}")]
    profile = _profile(1e15, peak=peak, half=peak)
    return analyzed([CALL], [product], shapes=shapes, profile=profile, **info)


@triggers("slow_products", total_ns=100, roofline_ns=24, of_roofline_share=0.24)
def a_product_below_a_quarter_of_the_roof():
    return _product(100, 24)


@misses("slow_products")
def a_product_at_a_quarter_of_the_roof():
    return _product(100, 25)


@misses("slow_products")
def a_slow_product_of_less_than_a_tenth():
    return _product(99, 20)


def _in_type(shapes, duration, half):
    product = command(0, 0, duration, op_type="MatMul", layer="transformer_blocks.0.ff.net.2")
    return analyzed([CALL], [product], shapes=[shapes], profile=_profile(peak=1e12, half=half))


@triggers("single_precision", total_ns=50, commands=1, roles="mlp", peak_ratio=2.0)
def products_in_float32():
    return _in_type(SINGLE, 50, 2e12)


@misses("single_precision")
def few_products_in_float32():
    return _in_type(SINGLE, 49, 2e12)


@misses("single_precision")
def products_in_float16():
    return _in_type(DIMS, 500, 2e12)


@misses("single_precision")
def a_device_that_is_no_faster_in_16_bits():
    return _in_type(SINGLE, 500, 1.4e12)


def _kernels(*names, shapes=SINGLE, profile=None, **info):
    """Products of 100 ns of a run of 1000 by these kernels."""
    products = [
        command(0, 100 * i, 100 * i + 100, op_type="aten::mm", layer="ff", kernel=name)
        for i, name in enumerate(names)
    ]
    return analyzed([CALL], products, shapes=[shapes] * len(names), profile=profile, **info)


@triggers("single_precision", total_ns=200, commands=2, tf32="off", peak_ratio=4.0)
def products_without_tensor_cores():
    return _kernels(
        "ampere_sgemm_128x64_tn",
        "cutlass_80_simt_sgemm_128x32_8x5_nn_align1",
        profile=_profile(half=4e12),
    )


@triggers("single_precision", total_ns=100, commands=1, tf32="off", peak_ratio=None)
def a_kernel_of_float32_on_an_unknown_gpu_that_has_tf32():
    return _kernels("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3", shapes=None)


@triggers("single_precision", total_ns=200, tf32="on", peak_ratio=2.0)
def products_in_tf32():
    """TF32 is on: 16 bits are twice as fast, whatever float32 without tensor cores takes."""
    return _kernels(
        "ampere_s1688gemm_fp32_128x64_ldg8_nn",
        "cutlass_tensorop_s1688tf32gemm_64x64",
        profile=_profile(half=8e12),
    )


@misses("single_precision")
def a_kernel_of_float32_on_a_gpu_without_tf32():
    return _kernels("volta_sgemm_128x64_tn")


def _gpu(hardware):
    return {"devices": {"cuda:0": {"hardware": hardware}}}


@triggers("single_precision", total_ns=200, commands=2, tf32="none", peak_ratio=7.96)
def products_of_float32_on_a_gpu_without_tf32():
    """Its tensor cores take float16 alone; names of cuDNN's own kernels tell no generation."""
    return _kernels(
        "volta_sgemm_128x64_tn",
        "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)",
        shapes=None,
        **_gpu("Tesla V100-SXM2-32GB"),
    )


@triggers("single_precision", tf32="none")
def shapes_of_float32_on_a_gpu_without_tf32():
    return _kernels("matmul_kernel", **_gpu("Tesla T4"))


@misses("single_precision")
def a_kernel_of_float16_on_a_gpu_without_tf32():
    return _kernels("volta_h884gemm_128x64_ldg8_nn", shapes=DIMS, **_gpu("TITAN V"))


@misses("single_precision")
def a_kernel_of_float32_on_a_gpu_without_tensor_cores():
    return _kernels("volta_sgemm_128x64_tn", **_gpu("NVIDIA GeForce GTX 1660"))


@misses("single_precision")
def a_kernel_of_float32_on_a_gpu_whose_number_is_that_of_an_older_one():
    """TF32 it has, but no profile, and its kernel does not say so."""
    return _kernels("volta_sgemm_128x64_tn", **_gpu("NVIDIA RTX 2000 Ada Generation"))


@misses("single_precision")
def a_kernel_of_float16_that_sums_in_float32():
    return _kernels("ampere_fp16_sgemm_fp16_128x64_nn", shapes=DIMS, profile=_profile(half=4e12))


CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def _islands(count, end, copied=True):
    """`count` times: 10 ns on the GPU, copies of 3 and 5 ns around a node of 5 ns on the host."""
    commands = []
    for number in range(count):
        begin = 30 * number
        pieces = [
            (begin, begin + 10, "cuda:0", CUDA, "compute", "MatMul"),
            (begin + 12, begin + 15, "cuda:0", "Memcpy", "dma", "MemcpyToHost"),
            (begin + 15, begin + 20, "cpu:0", CPU, "compute", "NonZero"),
            (begin + 20, begin + 25, "cuda:0", "Memcpy", "dma", "MemcpyFromHost"),
        ]
        commands += [
            command(0, a, b, device=d, track=t, category=c, op_type=o, layer=o.lower())
            for a, b, d, t, c, o in pieces
            if copied or c == "compute"
        ]
    last = 30 * count
    node = command(0, last, last + 10, track=CUDA, op_type="MatMul", layer="matmul")
    return analyzed([gpu_call(0, 0, min(end, 400))], [*commands, node], end=end)


@triggers("cpu_fallback", layers=1, nodes=1, nodes_ns=5, copies_and_gaps_ns=15)
def a_node_on_the_host():
    """Of 20 ns: the node's 5, copies of 3 and 5, gaps of 2 and 5."""
    return _islands(1, 2000)


@misses("cpu_fallback")
def a_node_on_the_host_of_a_long_run():
    return _islands(1, 2001)


@misses("cpu_fallback")
def nodes_that_need_no_copies():
    return _islands(4, 400, copied=False)


@triggers("provider_switches", switches=8, switches_per_call=8.0, copies=8, copy_ns=32)
def four_islands():
    return _islands(4, 400)


@misses("provider_switches")
def three_islands():
    return _islands(3, 400)
