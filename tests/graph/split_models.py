"""Small models whose operations are split, run before and after; numbers are from a seed."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from profiler.graph import COMMAND_INDEX, LAYER, split_model
from profiler.graph.model import CATEGORY

__all__ = ["add_scopes", "check_same", "commands", "make_model", "numbers", "run"]

_TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float16): TensorProto.FLOAT16,
    np.dtype(np.float64): TensorProto.DOUBLE,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.bool_): TensorProto.BOOL,
}


def numbers(*shape, seed=0, dtype=np.float32):
    """Normally distributed numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def make_model(nodes, feeds, weights=None, outputs=("y",), *, shapes=None, opset=18):
    """A model of `nodes` (op type, inputs, output, attributes): an op type may have its domain
    before a colon; `feeds` and `weights` are arrays by name. `shapes` are those of inputs where
    they shall not be the feeds' own."""
    made = []
    for number, (op_type, inputs, output, attributes) in enumerate(nodes):
        domain, _, name = op_type.rpartition(":")
        node = helper.make_node(name, inputs, [output], f"{name}_{number}", domain=domain)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
        made.append(node)
    inputs = [
        helper.make_tensor_value_info(
            name, _TYPES[array.dtype], (shapes or {}).get(name, array.shape)
        )
        for name, array in feeds.items()
    ]
    found = next(iter(feeds.values())).dtype
    results = [helper.make_tensor_value_info(name, _TYPES[found], None) for name in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(made, "small", inputs, results, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return ir.from_proto(proto)


def add_scopes(model, paths):
    """Module paths as torch's exporter leaves them, by node name."""
    for node in model.graph:
        if node.name in paths:
            scopes = repr(["", paths[node.name], "operation"])
            node.metadata_props["pkg.torch.onnx.name_scopes"] = scopes


def run(model, feeds):
    """The outputs on ONNX Runtime, its optimizations on."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    content = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def check_same(model, feeds, target, *, tolerance=1e-4, **asked):
    """Split the model; its outputs must stay the same within `tolerance` of the largest. Returns
    what `split_model` does."""
    before = run(model, feeds)
    result = split_model(model, target, **asked)
    for old, new in zip(before, run(model, feeds), strict=True):
        assert old.shape == new.shape
        assert old.dtype == new.dtype
        largest = np.abs(old).max(initial=0)
        assert np.abs(old - new).max(initial=0) <= tolerance * max(largest, 1e-3)
    return result


def commands(model):
    """(name, layer, command index, category) of every node that a split has made."""
    return [
        (
            node.name,
            node.metadata_props[LAYER],
            int(node.metadata_props[COMMAND_INDEX]),
            node.metadata_props.get(CATEGORY, ""),
        )
        for node in model.graph
        if COMMAND_INDEX in node.metadata_props
    ]
