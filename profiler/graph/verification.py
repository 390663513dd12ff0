"""Two models, the same inputs → how far each output differs, against the tolerance of its type.

Both are run by ONNX Runtime on its CPU provider, one after the other, as they are: its own
optimizations are off, so that what differs is what the models differ in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from profiler.errors import InputError, OutputError, needing

__all__ = [
    "TOLERANCES",
    "OutputDifference",
    "compare_models",
    "compare_outputs",
    "run_model",
    "verify",
]

_BFLOAT16 = "tensor(bfloat16)"
_MOST_LETTERS = 400  # of ONNX Runtime's own sentence
_BFLOAT16_CODE = 16  # onnx.TensorProto.BFLOAT16
# Largest allowed difference by dtype, relative to the output's largest magnitude; 0 for others.
TOLERANCES = {"float64": 1e-7, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How far an output of two models differs: `absolute` in its own unit, `relative` to the
    largest magnitude that the first model gives; infinite where shapes or types differ, or one
    has an infinity or NaN where the other has none."""

    output: str
    dtype: str
    absolute: float
    relative: float
    tolerance: float
    compared: bool = True  # False where all values are infinite or NaN: nothing is proven

    @property
    def within(self) -> bool:
        """Whether the difference stays within the tolerance of the output's type."""
        return self.relative <= self.tolerance

    def __str__(self) -> str:
        return (
            f"{self.output} ({self.dtype}): largest difference {self.absolute:.3g}, "
            f"{self.relative:.3g} of its largest magnitude; at most {self.tolerance:g}"
        )


def verify(
    before: Path, after: Path, inputs: Mapping[str, Any], *, what: str = "the new model"
) -> list[OutputDifference]:
    """`compare_models`; raises OutputError where an output differs by more than its tolerance."""
    differences = compare_models(before, after, inputs)
    for found in differences:
        if not found.within:
            raise OutputError(f"{what} was not written, for it computes something else: {found}")
    empty = next((found.output for found in differences if not found.compared), "")
    if empty:
        raise OutputError(
            f"{what} was not written, for nothing is proven: output {empty} has no finite value on "
            "random inputs"
        )
    return differences


def compare_models(before: Path, after: Path, inputs: Mapping[str, Any]) -> list[OutputDifference]:
    """How far each output of the model in `after` differs from that in `before`.

    `inputs` are arrays by name. Raises InputError where a model cannot be run, OutputError where
    the models have other outputs.
    """
    return compare_outputs(run_model(before, inputs), run_model(after, inputs))


def compare_outputs(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[OutputDifference]:
    """How far arrays differ, by output. Raises OutputError where they are of other outputs."""
    if list(before) != list(after):
        raise OutputError(
            f"the outputs are {', '.join(after)} where they were {', '.join(before)}: not compared"
        )
    return [_difference(name, before[name], after[name]) for name in before]


def run_model(model: Path | bytes, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of the model in the file or bytes, by name, as arrays.

    Raises InputError where ONNX Runtime does not take the model, fails on the inputs, or gives
    what is no tensor.
    """
    session = _session(model)
    names = [output.name for output in session.get_outputs()]
    try:
        outputs = _outputs(session, names, inputs)
    except Exception as error:  # ONNX Runtime's errors have no common class
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
        raise InputError(
            f"{_called(model)} does not run on inputs {shapes} ({_first_line(error)}): give sizes "
            "that it takes for its symbolic dimensions"
        ) from error
    for name, array in zip(names, outputs, strict=True):
        if not isinstance(array, np.ndarray):
            raise InputError(f"{_called(model)}: output {name!r} is no tensor: it is not compared")
    return dict(zip(names, outputs, strict=True))


def _outputs(session: Any, names: list[str], inputs: Mapping[str, Any]) -> Sequence[Any]:
    """What the session gives; bfloat16, which ONNX Runtime's Python does not take as arrays, goes
    in and out as its bits."""
    given: Sequence[Any]
    entries = (*session.get_inputs(), *session.get_outputs())
    if all(entry.type != _BFLOAT16 for entry in entries):
        given = session.run(names, dict(inputs))
        return given
    with needing("graph", "profiler.graph", "onnxruntime"):
        import onnxruntime

    feeds = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            array.view(np.uint16), _BFLOAT16_CODE
        )
        if array.dtype.name == "bfloat16"
        else onnxruntime.OrtValue.ortvalue_from_numpy(array)
        for name, array in inputs.items()
    }
    given = session.run_with_ort_values(names, feeds)
    return [_array(value) for value in given]


def _array(value: Any) -> Any:
    """An OrtValue as an array."""
    if value.data_type() != _BFLOAT16:
        return value.numpy()
    import ctypes

    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    bits = (ctypes.c_uint16 * count).from_address(value.data_ptr()) if count else ()
    return np.array(bits, dtype=np.uint16).view(ir.DataType.BFLOAT16.numpy()).reshape(shape)


def _called(model: Path | bytes) -> str:
    return str(model) if isinstance(model, Path) else "the model"


def _session(model: Path | bytes) -> Any:
    with needing("graph", "profiler.graph", "onnxruntime"):
        import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(
            str(model) if isinstance(model, Path) else model,
            options,
            providers=["CPUExecutionProvider"],
        )
    except Exception as error:  # as above
        raise InputError(
            f"ONNX Runtime does not take {_called(model)} ({_first_line(error)}): what it computes "
            "cannot be compared"
        ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip()[: _MOST_LETTERS + 1].splitlines()
    line = lines[0] if lines else type(error).__name__
    return line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}…"


def _difference(name: str, before: Any, after: Any) -> OutputDifference:
    dtype = str(before.dtype)
    tolerance = TOLERANCES.get(dtype, 0.0)
    if before.dtype != after.dtype or before.shape != after.shape:
        return OutputDifference(name, dtype, np.inf, np.inf, tolerance)
    if before.dtype.kind in "biuOSU":
        same = bool(np.array_equal(before, after))
        return OutputDifference(name, dtype, *((0.0, 0.0) if same else (np.inf, np.inf)), tolerance)
    wide = np.complex128 if before.dtype.kind == "c" else np.float64
    old, new = before.astype(wide), after.astype(wide)
    finite = np.isfinite(old)
    if not np.array_equal(finite, np.isfinite(new)) or not np.array_equal(
        old[~finite], new[~finite], equal_nan=True
    ):
        return OutputDifference(name, dtype, np.inf, np.inf, tolerance)
    absolute = float(np.max(np.abs(old[finite] - new[finite]), initial=0.0))
    magnitude = float(np.max(np.abs(old[finite]), initial=0.0))
    relative = absolute / magnitude if magnitude else (np.inf if absolute else 0.0)
    compared = bool(finite.any()) or old.size == 0
    return OutputDifference(name, dtype, absolute, relative, tolerance, compared)
