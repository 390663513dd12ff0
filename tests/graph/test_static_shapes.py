"""Shapes of a run, found without one, are those of a run."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from profiler.graph import Optimizer, optimize_files, random_inputs, read_model
from profiler.graph.compare import inventory
from profiler.graph.shapes import input_shape, static_shapes
from tests.graph.models import graph, save
from tests.graph.optimized_models import TINY
from tests.graph.split_models import make_model, numbers


def found_and_run(path):
    """Shapes by value: those found, and those of a run that gives out every value."""
    model = read_model(path)
    inputs = {value.name: input_shape(value, {}) for value in model.graph.inputs}
    found = static_shapes(model, inputs)
    proto = onnx.load(path)
    given = {value.name for value in proto.graph.output}
    names = [name for node in proto.graph.node for name in node.output if name]
    for name in names:
        if name not in given:
            proto.graph.output.append(onnx.ValueInfoProto(name=name))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    arrays = session.run(names, random_inputs(model))
    return found, {name: array.shape for name, array in zip(names, arrays, strict=True)}


@pytest.mark.parametrize("part", ["text_encoder", "text_encoder_3", "transformer", "vae_decoder"])
def test_as_in_a_run(part):
    """Of the tiny model every value's shape is found, through sizes that are computed, and all are
    as ONNX Runtime has them; where sizes depend on data nothing is claimed."""
    found, run = found_and_run(TINY / part / "model.onnx")
    assert {name: found[name] for name in run if name in found} == {
        name: shape for name, shape in run.items() if name in found
    }
    assert len(run) - sum(name in found for name in run) <= len(run) // 50


def test_values_that_are_no_numbers_warn_of_nothing():
    """A mask of infinities among the sizes that are followed leaves stderr to the command."""
    nodes = [("Log", ["zero"], "a", {}), ("Cast", ["a"], "y", {"to": int(ir.DataType.INT64)})]
    model = make_model(nodes, {"x": numbers(1)}, {"zero": np.zeros(1, np.float32)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert static_shapes(model, {})["a"] == (1,)
    assert caught == []


def test_sizes_of_what_has_no_known_shape():
    """Of the shape of another domain's result nothing is claimed, and what is known stays."""
    nodes = [
        ("own:Thing", ["x"], "a", {}),
        ("Shape", ["a"], "s", {}),
        ("Reshape", ["x", "s"], "y", {}),
        ("Shape", ["x"], "known", {}),
    ]
    found = static_shapes(make_model(nodes, {"x": numbers(2, 3)}), {"x": (2, 3)})
    assert found == {"x": (2, 3), "known": (2,)}


def test_fused_operators(tmp_path):
    """Operators of ONNX Runtime's own, of which ONNX knows no shapes, do not end it."""
    pytest.importorskip("sympy")
    source = TINY / "transformer" / "model.onnx"
    optimize_files(source, tmp_path / "o.onnx", Optimizer("ort-transformers"))
    found, run = found_and_run(tmp_path / "o.onnx")
    assert {name: found[name] for name in run} == run


def test_an_inventory(tmp_path):
    """Nodes have shapes as ONNX Runtime's profiles write them; sizes are the asked ones."""
    weight = np.zeros((4, 5), dtype=np.float32)
    model = graph(
        "float[rows,4] x, float[seen] unused",
        "float[rows,5] y",
        "[s] s = Shape(x) [r] r = Reshape(x, s) [m] y = MatMul(r, w) [z] z = own.Thing(y)",
        arrays={"w": weight},
        domains=', "own": 1',
    )
    found = inventory(save(model, tmp_path), {"rows": 7})
    assert [(node.type, node.layer, node.shapes) for node in found.nodes] == [
        ("Shape", "s", "float32[7,4] -> int64[2]"),
        ("Reshape", "r", "float32[7,4] int64[2] -> float32[7,4]"),
        ("MatMul", "m", "float32[7,4] float32[4,5] -> float32[7,5]"),
        ("own.Thing", "z", ""),
    ]
    assert found.inputs == {"x": "float32[7,4]", "unused": "float32[8]"}
    assert (found.weight_bytes, found.file_bytes) == (80, found.path.stat().st_size)
