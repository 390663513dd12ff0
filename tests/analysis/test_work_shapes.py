"""The text of shapes, as ONNX Runtime's capture, torch's capture and the Kineto import write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.analysis import parse_shapes
from profiler.analysis.flop_shapes import Shapes, Tensor

X = Tensor("float32", (2, 77, 64))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("float[2,77,64] -> float[2,77,64]", Shapes((X,), (X,))),
        (
            "int64[] float[2,77,64] -> bool[77] int64[1]",
            Shapes(
                (Tensor("int64", ()), X),
                (Tensor("bool", (77,)), Tensor("int64", (1,))),
            ),
        ),
        ("-> float[2,77,64]", Shapes((), (X,))),
        ("float[2,77,64] ->", Shapes((X,), ())),
        ("in: float32[2,77,64]", Shapes((X,), None)),
        ("float[2,77,64]", Shapes((X,), None)),
        ("tensor[2,77,64]", Shapes((Tensor("tensor", (2, 77, 64)),), None)),
        ("in: float32[2,77,64] part 2/5", Shapes((X,), None, 2, 5)),
        ("float[2,77,64] -> float[2,77,64] part 1/2", Shapes((X,), (X,), 1, 2)),
        ("in: float32[2,77,64] causal", Shapes((X,), None, causal=True)),
        ("in: float32[2,77,64] causal part 2/5", Shapes((X,), None, 2, 5, causal=True)),
        ("causal", None),
        ("causal float32[2,77,64]", None),
        ("float[0,3]", Shapes((Tensor("float32", (0, 3)),), None)),
        (None, None),
        ("", None),
        ("float", None),
        ("float[2,]", None),
        ("float[2,-1]", None),
        ("float[2] part 3/2", None),
        ("float[2] part 0/0", None),
        ("12 rows", None),
        ("float[99999999999,99999999999]", None),
        ("float[1]" * 20_000, None),
    ],
)
def test_texts(text, expected):
    """Every form that producers write is read; anything else is no shapes."""
    assert parse_shapes(text) == expected


@pytest.mark.parametrize(
    ("dtype", "nbytes"),
    [
        ("float32", 24),
        ("bfloat16", 12),
        ("complex64", 48),
        ("int64", 48),
        ("bool", 6),
        ("int4", 3),
        ("tensor", None),
    ],
)
def test_bytes(dtype, nbytes):
    """Elements times the size of the type; a type without known size has no bytes."""
    assert Tensor(dtype, (2, 3)).nbytes == nbytes


@given(st.text(max_size=60))
def test_any_text_is_read_or_not(text):
    """No text raises."""
    parse_shapes(text)


_DIMS = st.lists(st.integers(0, 4096), max_size=5).map(tuple)
_TENSORS = st.lists(st.builds(Tensor, st.sampled_from(["float16", "int8", "bool"]), _DIMS))


def _text(tensors):
    return " ".join(f"{t.dtype}[{','.join(map(str, t.dims))}]" for t in tensors)


@given(_TENSORS, _TENSORS)
def test_written_and_read(inputs, outputs):
    """What is written in the grammar is read as it was."""
    found = parse_shapes(f"{_text(inputs)} -> {_text(outputs)}")
    assert found == Shapes(tuple(inputs), tuple(outputs))
