"""Names of kernels and nesting of ranges."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.kineto.events import Ranges
from profiler.kineto.operators import kernel_name


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("void at::native::reduce_kernel<512, 1>(at::Op<float, 4>)", "at::native::reduce_kernel"),
        ("void (anonymous namespace)::norm<half, 8u>(int)", "norm"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("void f<a<b>, c>::g<d>(e<f>)", "f::g"),
        ("void at::native::<unnamed>::layer_norm<float, (bool)0>(int)", "at::native::layer_norm"),
        (
            "std::enable_if<(((8)>(0)))&&is<T>::exists, void>::type vllm::norm<T, 8>(T*)",
            "vllm::norm",
        ),
        (
            "void cutlass::Kernel<cutlass_80_wmma_gemm>(cutlass_80_wmma_gemm::Params)",
            "cutlass_80_wmma_gemm",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<f<2>, g>>>(P)",
            "flash::FlashAttnFwdSm90",
        ),
        ("a kernel of words", "a kernel of words"),
        ("()", "()"),
        ("", ""),
    ],
)
def test_kernel_names_lose_templates_and_parameters(full, short):
    """What remains is the qualified name, of wrappers that of the kernel they wrap."""
    assert kernel_name(full) == short


def test_long_kernel_names_are_cut():
    """Generated GEMM kernels spell out their whole configuration."""
    assert len(kernel_name("Cijk_" * 100)) == 120


def test_innermost_range_is_found_per_thread():
    """A time finds the range that begun last and has not ended, on its own thread only."""
    values = np.array([(0, 0, 100), (0, 10, 20), (0, 30, 60), (1, 15, 40)])
    thread, start, end = values.T
    ranges = Ranges.of(np.arange(4), thread.astype(np.int32), start, end)
    assert ranges.parent.tolist() == [-1, 0, 0, -1]
    threads = np.array([0, 0, 0, 0, 1, 1, 2], dtype=np.int32)
    times = np.array([5, 10, 20, 100, 15, 5, 5])
    assert ranges.innermost(threads, times).tolist() == [0, 1, 0, -1, 3, -1, -1]


def test_no_ranges_enclose_nothing():
    """An empty set of ranges answers -1."""
    none = np.empty(0, dtype=np.int64)
    ranges = Ranges.of(none, none.astype(np.int32), none, none)
    assert ranges.innermost(np.array([0], dtype=np.int32), np.array([1])).tolist() == [-1]
