"""Two models, the same inputs: how far outputs differ, against the tolerance of their type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profiler.errors import InputError, OutputError
from profiler.graph import run_model
from profiler.graph.verify import compare_outputs, verify
from tests.graph.models import graph, save


def scaled(folder: Path, factor: float, dtype: str = "float") -> Path:
    """A model that multiplies x by a factor."""
    given = (f"{dtype}[3] x", f"{dtype}[3] y", "y = Mul(x, k)")
    return save(graph(*given, initializers=f"{dtype} k={{{factor}}}"), folder, f"{factor}.onnx")


def test_within_and_beyond_the_tolerance(tmp_path: Path) -> None:
    """A float32 output may differ by 1e-4 of its largest magnitude, and by no more."""
    inputs = {"x": np.array([1, -100, 2], np.float32)}
    [found] = verify(scaled(tmp_path, 1), scaled(tmp_path, 1.00009), inputs)
    assert found.output == "y"
    assert found.absolute == pytest.approx(0.009, rel=0.01)
    assert found.relative == pytest.approx(9e-5, rel=0.01)
    with pytest.raises(OutputError, match=r"half was not written.*y \(float32\).*at most 0\.0001"):
        verify(scaled(tmp_path, 1), scaled(tmp_path, 1.0002), inputs, what="half")


@pytest.mark.parametrize(
    ("before", "after", "within"),
    [
        (np.array([1, 2]), np.array([1, 2]), True),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.array([True]), np.array([False]), False),
        (np.array([1, np.nan, np.inf]), np.array([1, np.nan, np.inf]), True),
        (np.array([1, np.nan]), np.array([1, 2.0]), False),
        (np.array([1, np.inf]), np.array([1, -np.inf]), False),
        (np.zeros(2), np.full(2, 1e-30), False),
        (np.zeros(2), np.zeros((2, 1)), False),
        (np.zeros(2, np.float32), np.zeros(2, np.float64), False),
        (np.array([1, 1], np.float16), np.array([1, 1.009], np.float16), True),
        (np.zeros(0), np.zeros(0), True),
    ],
)
def test_differences(before: np.ndarray, after: np.ndarray, within: bool) -> None:
    """Integers must be equal, infinities and NaN in the same places, shapes and types the same."""
    [found] = compare_outputs({"y": before}, {"y": after})
    assert found.within == within


def test_nothing_finite_proves_nothing(tmp_path: Path) -> None:
    """Where an output is NaN throughout, the comparison is refused as no proof."""
    path = scaled(tmp_path, 1)
    with pytest.raises(OutputError, match="output y has no finite value"):
        verify(path, path, {"x": np.full(3, np.nan, np.float32)})


def test_other_outputs() -> None:
    """Models with other outputs are not compared."""
    with pytest.raises(OutputError, match="the outputs are z where they were y"):
        compare_outputs({"y": np.zeros(1)}, {"z": np.zeros(1)})


def test_what_cannot_be_run(tmp_path: Path) -> None:
    """An operator that nobody defines, outputs that are no tensors, and inputs that do not fit are
    one sentence each."""
    unknown = graph("float[3] x", "float[3] y", "y = my.Own(x)", domains=', "my": 1')
    with pytest.raises(InputError, match=r"ONNX Runtime does not take .*Own"):
        run_model(save(unknown, tmp_path), {"x": np.zeros(3, np.float32)})
    sequence = graph("float[3] x", "seq(float[3]) y", "y = SequenceConstruct(x)")
    with pytest.raises(InputError, match="output 'y' is no tensor"):
        run_model(save(sequence, tmp_path), {"x": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match=r"does not run on inputs x \[4\]"):
        run_model(scaled(tmp_path, 1), {"x": np.zeros(4, np.float32)})
