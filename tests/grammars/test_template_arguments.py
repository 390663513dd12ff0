"""What is said of kernels whose names differ in their template arguments alone."""

import pytest

from profiler.grammars.names import telling_apart

_QUANTIZED = "void mul_mat_vec_q<(ggml_type){}, 1, false, false>(void const*, HIP_vector_type<int>)"
_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<{}, std::array<char*, {}ul> >(int)"
_COPY = "8, at::native::copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}"


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        ([_QUANTIZED.format(n) for n in (13, 12, 8)], ["13", "12", "8"]),
        (
            [
                _ELEMENTWISE.format("4, at::native::FillFunctor<float>", 1),
                _ELEMENTWISE.format(_COPY, 2),
            ],
            ["FillFunctor<float>", "copy_kernel_cuda"],
        ),
        (["f<1, int>(int)", "f<2, int>(int)", "f<1, long>(int)"], ["1, int", "2, int", "1, long"]),
        (["f<a::{lambda()#1}>()", "f<a::{lambda()#2}>()"], ["a::{lambda()#1}", "a::{lambda()#2}"]),
        ([f"f<g<{'a' * 60}, {n}>>()" for n in (1, 2)], ["…1>", "…2>"]),
        (["f<1>(int)", "f<1>(long)"], ["", ""]),
        (["f", "g +2"], ["", ""]),
        (["f<1", "f<"], ["", ""]),
    ],
)
def test_the_fewest_arguments_that_tell_kernels_apart(kernels, said):
    """A type or functor before a number, all that differ where none does alone, casts, namespaces,
    parameters and lambdas only where they are the difference; nothing where names end or agree."""
    assert telling_apart(kernels) == said
