"""Two spawned workers of a pool run a small ONNX model; leaving the pool ends them by SIGTERM."""

import multiprocessing

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

WEIGHTS = helper.make_tensor("w", TensorProto.FLOAT, [64, 64], np.eye(64, dtype=np.float32).ravel())
GRAPH = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["y"], name="projection")],
    "encoder",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 64])],
    [WEIGHTS],
)
MODEL = helper.make_model(GRAPH, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
session = None


def open_session():
    global session
    session = onnxruntime.InferenceSession(
        MODEL.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def encode(number):
    return float(session.run(None, {"x": np.full((4, 64), number, np.float32)})[0].sum())


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2, open_session) as pool:
        print(pool.map(encode, range(6), chunksize=3))
    open_session()
    print(encode(7))
