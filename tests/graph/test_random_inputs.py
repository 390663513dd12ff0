"""Random inputs fit the types and the uses of a model's inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from profiler.errors import InputError
from profiler.graph import random_inputs, read_model, run_model
from profiler.graph.shapes import refuse_unknown_sizes
from profiler.pipelines import default_model_folder
from tests.graph.models import graph


def model(*given: str, **options: object) -> ir.Model:
    """The graph as onnx_ir's model."""
    return ir.from_proto(graph(*given, **options))


def test_indices_stay_in_their_tables() -> None:
    """An integer that selects rows, through a Cast and a Reshape, is below the smallest table."""
    made = random_inputs(
        model(
            "int32[64,64] i",
            "float[64,64,4] y",
            "c = Cast<to=7>(i) r = Reshape(c, s) a = Gather(w, r) b = Gather(v, i) y = Add(a, b)",
            initializers="int64[2] s={64,64}",
            arrays={"w": np.ones((9, 4), "float32"), "v": np.ones((5, 4), "float32")},
        )
    )["i"]
    assert made.dtype == np.int32
    assert (made.min(), made.max()) == (0, 4)


def test_sizes_and_seed() -> None:
    """Symbolic sizes are taken from `sizes`, else 2 for a batch and 8; a seed gives the same."""
    made = model("float[batch,height,3] x, bool[width] m", "float[batch,height,3] y", "y = Relu(x)")
    first = random_inputs(made, {"height": 5}, seed=7)
    assert {name: array.shape for name, array in first.items()} == {"x": (2, 5, 3), "m": (8,)}
    assert np.array_equal(first["x"], random_inputs(made, {"height": 5}, seed=7)["x"])
    assert not np.array_equal(first["x"], random_inputs(made, {"height": 5}, seed=8)["x"])


def test_positive_where_a_root_is_taken() -> None:
    """What goes into Sqrt is positive, masks are 0 or 1, types are the inputs' own."""
    made = random_inputs(
        model(
            "float16[99] x, int64[99] m",
            "float16[99] y",
            "c = Cast<to=10>(m) s = Sqrt(x) y = Mul(s, c)",
        )
    )
    assert made["x"].dtype == np.float16
    assert made["x"].min() > 0
    assert set(made["m"].tolist()) == {0, 1}


def test_inputs_with_an_initializer_are_left_to_it() -> None:
    """An input that has a default is not made up."""
    given = model(
        "float[2] x, float[2] w", "float[2] y", "y = Add(x, w)", initializers="float[2] w={1,2}"
    )
    assert list(random_inputs(given)) == ["x"]


@pytest.mark.parametrize(
    ("inputs", "sizes", "recommendation"),
    [
        ("string[2] x", {}, "export the model without it"),
        ("seq(float[2]) x", {}, "export it as one"),
        ("float[65536,65536] x", {}, "export it with sizes from 0 on"),
        ("float[N,65536] x", {"N": 65536}, "give smaller ones by --size"),
    ],
)
def test_what_cannot_be_made_up(inputs: str, sizes: dict, recommendation: str) -> None:
    """Strings, sequences and enormous shapes are refused by the input's name, with a way out."""
    with pytest.raises(InputError, match=f"^input 'x' .*: {recommendation}"):
        random_inputs(model(inputs, "float[1] y", "y = Identity(x)"), sizes)


def test_sizes_that_can_be_named(tmp_path: Path) -> None:
    """A name that no dimension has is refused with those that inputs have, not with what is
    computed from them; a model of fixed sizes has none."""
    nodes = "y = Relu(x)"
    path = tmp_path / "model.onnx"
    given = graph("float[H,W] x", "float[H,W] y", nodes)
    given.graph.value_info.append(onnx.helper.make_tensor_value_info("y", 1, ["2*H", "W"]))
    path.write_bytes(given.SerializeToString())
    with pytest.raises(InputError, match=r"called so: give one of H, W$"):
        refuse_unknown_sizes([path], {"height": 4})
    path.write_bytes(graph("float[2] x", "float[2] y", nodes).SerializeToString())
    with pytest.raises(InputError, match="all are fixed, so leave it out"):
        refuse_unknown_sizes([path], {"height": 4})


def test_the_tiny_pipeline_runs_on_them() -> None:
    """Each part of the tiny pipeline runs on its random inputs and gives finite values."""
    for path in sorted(default_model_folder().glob("*/model.onnx")):
        outputs = run_model(path, random_inputs(read_model(path)))
        assert all(np.isfinite(array).all() for array in outputs.values())
