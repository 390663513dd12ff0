"""The results of torch's reductions, from the arguments in its events, against torch."""

from __future__ import annotations

import pytest

from profiler.kineto.operators import has_result, reduced_dims


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        ("aten::mean", ["", [-1], True, ""], (2, 3, 1)),
        ("aten::mean", ["", [-1], False, ""], (2, 3)),
        ("aten::mean", ["", [0, 2], False, ""], (3,)),
        ("aten::sum", ["", "", False, ""], ()),
        ("aten::amax", ["", [1], True], (2, 1, 4)),
        ("aten::var", ["", [1], "1", True], (2, 1, 4)),
        ("aten::linalg_vector_norm", ["", "2", [2], True, ""], (2, 3, 1)),
        ("aten::mean", ["", ""], None),  # of all, by another overload
        ("aten::mean", ["", [-1], True, 6], None),  # in another type
        ("aten::mean", ["", [3], True, ""], None),
        ("aten::mean", ["", "x", True, ""], None),
        ("aten::mean", ["", [-1], "x", ""], None),
        ("aten::mm", ["", [-1], True, ""], None),
    ],
)
def test_result(operator, arguments, expected):
    """The dims that the arguments name are gone, or 1; what does not tell them gives nothing."""
    assert reduced_dims(operator, [2, 3, 4], arguments) == expected


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("mean", {"dim": [1], "keepdim": True}),
        ("sum", {"dim": [0, -1], "keepdim": False}),
        ("amax", {"dim": [2], "keepdim": True}),
        ("linalg_vector_norm", {"dim": [1], "keepdim": False}),
    ],
)
def test_results_are_those_of_torch(name, given):
    """Arguments in the order of torch's own schema give the dims that torch gives."""
    torch = pytest.importorskip("torch")
    packet = getattr(torch.ops.aten, name)
    overload = getattr(packet, {"mean": "dim", "sum": "dim_IntList"}.get(name, "default"))
    arguments = [given.get(one.name, "") for one in overload._schema.arguments]
    result = overload(torch.zeros(2, 3, 4), **given)
    assert has_result(f"aten::{name}")
    assert reduced_dims(f"aten::{name}", [2, 3, 4], arguments) == tuple(result.shape)
