"""The result of a convolution, from the arguments in torch's events, against torch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.kineto.operators import has_result, result_dims
from tests.examples import examples

X, W = [1, 4, 8, 8], [6, 4, 3, 3]


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        ("aten::conv2d", [None, None, None, [2, 2], [1, 1], [1, 1], 1], (1, 6, 4, 4)),
        ("aten::conv2d", [None, None, None, [1], "same"], (1, 6, 8, 8)),
        ("aten::conv2d", [None, None, None, 1, "valid"], (1, 6, 6, 6)),
        ("aten::conv2d", [], (1, 6, 6, 6)),
        ("aten::convolution", ["", "", "", [2, 2], [1, 1], [1, 1], False], (1, 6, 4, 4)),
        ("aten::convolution", ["", "", "", [2, 2], [1, 1], [1, 1], True], None),
        ("aten::cudnn_convolution", ["", "", [1, 1], [2, 2], [1, 1]], (1, 6, 4, 4)),
        ("aten::miopen_convolution", ["", "", "", [0, 0], [2, 2], [1, 1]], (1, 6, 3, 3)),
        ("aten::_slow_conv2d_forward", ["", "", [3, 3], "", [2, 2], [1, 1]], (1, 6, 4, 4)),
        ("aten::conv2d", ["", "", "", [2, 2, 2]], None),
        ("aten::conv2d", ["", "", "", [0, 0]], None),
        ("aten::conv2d", ["", "", "", "wide"], None),
        ("aten::conv2d", ["", "", "", [1, 1], [0, 0], [9, 9]], None),
        ("aten::mm", [], None),
    ],
)
def test_result(operator, arguments, expected):
    """Stride, padding and dilation stand where the operator has them; what does not fit is None."""
    assert result_dims(operator, [X, W], arguments) == expected


def test_missing_dims():
    """A convolution without its weight has no known result."""
    assert result_dims("aten::conv2d", [X], []) is None
    assert result_dims("aten::conv2d", [X, [6]], []) is None
    assert has_result("aten::conv2d")
    assert not has_result("aten::conv_transpose2d")


@pytest.mark.torch
@settings(max_examples=examples(50), deadline=None)
@given(
    st.integers(5, 12), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2)
)
def test_as_torch(size, kernel, stride, padding, dilation):
    """The same size as torch's own result."""
    torch = pytest.importorskip("torch")
    if size + 2 * padding - dilation * (kernel - 1) < 1:
        return
    x, w = torch.zeros(2, 3, size, size), torch.zeros(5, 3, kernel, kernel)
    found = torch.nn.functional.conv2d(x, w, None, stride, padding, dilation)
    arguments = [None, None, None, [stride] * 2, [padding] * 2, [dilation] * 2, 1]
    assert result_dims("aten::conv2d", [x.shape, w.shape], arguments) == tuple(found.shape)
