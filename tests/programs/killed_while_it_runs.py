"""A model with 4 MB of weights that runs until somebody kills it; here it kills itself."""

import os
import signal

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

values = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1024])]
outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1024])]
nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="/proj/MatMul")]
graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(values, "w")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
model.ir_version = 8
onnx.save(model, "model.onnx")

session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
for _ in range(3):
    session.run(None, {"x": np.ones((1, 1024), np.float32)})
os.kill(os.getpid(), signal.SIGKILL)
