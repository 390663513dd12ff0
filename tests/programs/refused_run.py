"""A service that answers three requests; the second has a shape that the model does not take."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

WEIGHTS = helper.make_tensor("w", TensorProto.FLOAT, [4, 4], np.eye(4, dtype=np.float32).ravel())
GRAPH = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["y"], name="projection")],
    "encoder",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
    [WEIGHTS],
)
MODEL = helper.make_model(GRAPH, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
session = onnxruntime.InferenceSession(
    MODEL.SerializeToString(), providers=["CPUExecutionProvider"]
)
for shape in ((2, 4), (3, 4), (2, 4)):
    try:
        print(session.run(None, {"x": np.ones(shape, np.float32)})[0].sum())
    except Exception as error:  # noqa: BLE001 - as a script catches whatever a runtime raises
        print(type(error).__name__)
