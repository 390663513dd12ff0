"""A pipeline of diffusers' shape on real ONNX Runtime sessions that the test makes, and its models.

The first dimension of what a call is given is its own, so the shapes of operators tell whose they
are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import profiler

__all__ = ["Part", "Pipeline", "call_on", "gathering", "opened", "ran", "ways", "weighted"]


def gathering() -> onnx.ModelProto:
    """y = (x + x)[i]: two nodes, of which the second fails where i is beyond x's rows. x is
    float32[n,3], i int64[1]."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    i = helper.make_tensor_value_info("i", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Add", ["x", "x"], ["sum"], name="add"),
        helper.make_node("Gather", ["sum", "i"], ["y"], name="gather"),
    ]
    return _model(helper.make_graph(nodes, "gathering", [x, i], [y]))


def weighted(folder: Path, *, rows: int = 64, external: bool = False) -> Path:
    """The file of y = x @ weight, weight float32[rows,4], inside it or in `weights.bin`."""
    weight = numpy_helper.from_array(np.ones((rows, 4), np.float32), "weight")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", rows])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    node = helper.make_node("MatMul", ["x", "weight"], ["y"], name="matmul")
    model = _model(helper.make_graph([node], "weighted", [x], [y], [weight]))
    path = folder / "model.onnx"
    outside = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(model, str(path), **(outside if external else {}))
    return path


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    return model


def opened(model: Any, **options: Any) -> onnxruntime.InferenceSession:
    """A session on the CPU; `options` are attributes of its options."""
    session_options = onnxruntime.SessionOptions()
    session_options.log_severity_level = 4
    for name, value in options.items():
        setattr(session_options, name, value)
    model = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    return onnxruntime.InferenceSession(model, session_options, providers=["CPUExecutionProvider"])


def ways() -> dict[str, Callable[[Any, Any], Any]]:
    """Every way to run a session of `gathering` on x, by its name; each returns y."""

    def feeds(x: Any) -> dict[str, Any]:
        return {"x": x, "i": np.array([0])}

    def with_values(session: Any, x: Any) -> Any:
        values = {k: onnxruntime.OrtValue.ortvalue_from_numpy(v) for k, v in feeds(x).items()}
        return session.run_with_ort_values(["y"], values)[0].numpy()

    def with_binding(session: Any, x: Any) -> Any:
        binding = session.io_binding()
        for name, value in feeds(x).items():
            binding.bind_cpu_input(name, value)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()[0]

    def asynchronously(session: Any, x: Any) -> Any:
        answered, results = threading.Event(), []

        def answer(values: Any, _data: Any, _error: str) -> None:
            results.extend(values)
            answered.set()

        session.run_async(["y"], feeds(x), answer, None)
        answered.wait()
        return results[0]

    return {
        "run": lambda session, x: session.run(None, feeds(x))[0],
        "run_with_ort_values": with_values,
        "run_with_iobinding": with_binding,
        "run_async": asynchronously,
    }


class Part:
    """A submodule that runs `session` in the `way` that its call names."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def forward(self, x: Any, way: Callable[[Any, Any], Any]) -> Any:
        return way(self.session, x)


class Pipeline:
    """Its call runs (submodule, rows of x, way) in turn; what fails gives None."""

    def __init__(self, **parts: Part) -> None:
        vars(self).update(parts)

    def __call__(self, *calls: tuple[str, int, Callable[[Any, Any], Any]]) -> list[Any]:
        results: list[Any] = []
        for submodule, rows, way in calls:
            try:
                results.append(getattr(self, submodule).forward(ones(rows), way))
            except Exception:  # noqa: BLE001 - a file of another format must not end in a traceback
                results.append(None)
        return results


def ones(rows: int) -> Any:
    return np.ones((rows, 3), np.float32)


def ran(bundle: Path | None) -> list[tuple[str, str, list[str]]]:
    """Of each call in order: its submodule, its inputs, and its operators with the shape of what
    they were given first."""
    assert bundle is not None
    run = profiler.load(bundle)
    found = []
    for call in run.calls.sort("call").iter_rows(named=True):
        commands = run.commands.filter(call=call["call"]).sort("start_ns")
        operators = [
            f"{layer} {str(shapes).split()[0]}"
            for layer, shapes in commands.select("layer", "shapes").rows()
        ]
        found.append((str(call["submodule"]), str(call["input_shapes"]), operators))
    return found


def call_on(submodule: str, rows: int) -> tuple[str, str, list[str]]:
    """What `ran` says of a call of `gathering`, by a `Part`, on so many rows."""
    shape = f"[{rows},3]"
    return submodule, f"x: float32{shape}", [f"add float{shape}", f"gather float{shape}"]
