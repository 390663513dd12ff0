"""The types of tensors of lists, by the names of kernels as torch 2.11 and older ones have them."""

from __future__ import annotations

import pytest

from profiler.kineto.operators import is_list_copy, listed_type

_CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy"
_OPAQUE = "<at::native::(anonymous namespace)::OpaqueType"
_COPY = (
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::"
    "{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}>(…)::{lambda(int)#1}>(int)"
)
_EACH = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl"


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (f"{_CAT}{_OPAQUE}<2u>, unsigned int, 4, 64, 64>(…)", "bits16"),
        (f"{_CAT}_vectorized{_OPAQUE}<4u>, unsigned int, 2, 128, 1, 16, 4>(char*)", "bits32"),
        (f"{_CAT}<c10::Half, unsigned int, 2, 64>(…)", "Half"),
        (f"{_EACH}_nocast<at::native::{_COPY}", "BFloat16"),
        (f"{_EACH}<at::native::{_COPY}", ""),  # it converts
        ("void at::native::vectorized_elementwise_kernel<4, …>", ""),
        (f"{_CAT}<" + "x" * 20_000, ""),
        ("", ""),
    ],
)
def test_type(kernel, expected):
    """Of a copy of bits the width, of one by type the type, of one that converts nothing."""
    assert listed_type(kernel) == expected


def test_operators():
    """Lists are copied by what joins tensors; a product takes none."""
    assert is_list_copy("aten::cat")
    assert not is_list_copy("aten::mm")
