"""Small ONNX models from onnx's text form: `graph("float[2,4] x", "float[2,4] y", "…")`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

__all__ = ["external_model", "graph", "save"]


def graph(
    inputs: str,
    outputs: str,
    nodes: str,
    *,
    initializers: str = "",
    opset: int = 18,
    domains: str = "",
    arrays: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A model of one graph in onnx's text form; `arrays` are initializers beside those in text."""
    stored = f"<{initializers}>" if initializers else ""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}{domains}]> '
        f"g ({inputs}) => ({outputs}) {stored} {{ {nodes} }}"
    )
    for name, array in (arrays or {}).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def save(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    """The path of `model`, written into `folder`."""
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def external_model(
    folder: Path, *, location: str = "w.data", size: int | None = None, length: int | None = None
) -> Path:
    """A MatMul whose float[8,16] weight lies in `location`; a file of `size` bytes (its length
    where None) is written there if that is inside `folder`, and `length` is said to be its own."""
    model = graph("float[2,8] x", "float[2,16] y", "[m] y = MatMul(x, w)")
    tensor = onnx.TensorProto(
        name="w",
        dims=[8, 16],
        data_type=onnx.TensorProto.FLOAT,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    said = 512 if length is None else length
    for key, value in (("location", location), ("offset", "0"), ("length", str(said))):
        tensor.external_data.add(key=key, value=value)
    model.graph.initializer.append(tensor)
    values = np.arange(128, dtype=np.float32).tobytes()
    if size != 0 and "/" not in location:
        (folder / location).write_bytes(values if size is None else values[:size])
    return save(model, folder)
