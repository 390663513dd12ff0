"""The results of torch's upsamplings, from the arguments in its events, against torch."""

from __future__ import annotations

import pytest

from profiler.kineto.operators import has_result, resampled_dims


@pytest.mark.parametrize(
    ("operator", "dims", "arguments", "expected"),
    [
        ("aten::upsample_nearest2d", [1, 4, 8, 6], ["", [16, 12], "", ""], (1, 4, 16, 12)),
        ("aten::_upsample_nearest_exact3d", [1, 4, 2, 8, 6], ["", [4, 16, 12]], (1, 4, 4, 16, 12)),
        ("aten::upsample_nearest2d", [1, 4, 8, 6], ["", "", [2.0, 2.0]], None),  # by a factor
        ("aten::upsample_nearest2d", [1, 4, 8, 6], ["", [16]], None),
        ("aten::upsample_nearest2d", [1, 4, 8, 6], ["", [16, -1]], None),
        ("aten::upsample_nearest2d", [1, 4, 8, 6], [], None),
        ("aten::mm", [1, 4, 8, 6], ["", [16, 12]], None),
    ],
)
def test_result(operator, dims, arguments, expected):
    """Batch and channels stay, the sizes are the argument behind the input."""
    assert resampled_dims(operator, dims, arguments) == expected


@pytest.mark.torch
def test_the_size_is_where_torch_has_it():
    """The argument behind the input is the one that torch's own schema calls so."""
    torch = pytest.importorskip("torch")
    assert has_result("aten::upsample_nearest2d")
    schema = torch.ops.aten.upsample_nearest2d.default._schema
    assert schema.arguments[1].name == "output_size"
