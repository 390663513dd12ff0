"""One optimizer on one model, as a process: `python -m profiler.graph.optimize.runner REQUEST`.

REQUEST is a JSON object: `name` of the optimizer, `level`, `model_type`, `source`, `data` (the
folder of the source's external data), `out`, and `error`, a file for the reason if it fails
(exit code 1). What is written is not verified.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_INLINE_BYTES = 1 << 10  # larger tensors are written as external data
_READ_BYTES = 1 << 20  # larger weights are not read for fusions that only need constants
_PROTOBUF_BYTES = (1 << 31) - 1
_NO_CPU_KERNEL = (  # fusions to operators that ONNX Runtime has only on GPUs
    *("enable_nhwc_conv", "enable_group_norm", "enable_skip_group_norm", "enable_bias_splitgelu"),
    *("enable_packed_qkv", "enable_packed_kv", "enable_bias_add", "enable_qordered_matmul"),
)


def main() -> int:
    """Run the requested optimizer."""
    request = json.loads(sys.argv[1])
    try:
        _OPTIMIZERS[request["name"]](request)
    except Exception as error:  # noqa: BLE001 - the parent reports it
        text = " ".join(str(error).split()) or type(error).__name__
        Path(request["error"]).write_text(text[:300], encoding="utf-8", errors="replace")
        return 1
    return 0


def _ort(request: Mapping[str, Any]) -> None:
    """Run ONNX Runtime's own optimizations up to a level."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    level = f"ORT_ENABLE_{request['level'].upper()}"
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = request["out"]
    options.log_severity_level = 4
    prefix = "session.optimized_model_external_initializers"
    for key, value in (
        (f"{prefix}_file_name", f"{Path(request['out']).name}.data"),
        (f"{prefix}_min_size_in_bytes", str(_INLINE_BYTES)),
        ("session.disable_prepacking", "1"),  # no second copy of weights in memory
    ):
        options.add_session_config_entry(key, value)
    onnxruntime.InferenceSession(request["source"], options, providers=["CPUExecutionProvider"])


def _onnxslim(request: Mapping[str, Any]) -> None:
    import onnxslim

    _write(onnxslim.slim(request["source"]), request)


def _onnxsim(request: Mapping[str, Any]) -> None:
    import onnxsim

    onnxsim.simplify(request["source"], output_path=request["out"])  # we verify its outputs


def _ort_transformers(request: Mapping[str, Any]) -> None:
    """Run the fusions of a model type, without ONNX Runtime's own optimizations."""
    import onnx
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_by_fusion

    model = onnx.load(request["source"], load_external_data=False)
    constants_alone = request["model_type"] == "mmdit"
    _read_data(model, request["data"], _READ_BYTES if constants_alone else _PROTOBUF_BYTES)
    options = FusionOptions(request["model_type"])
    for name in _NO_CPU_KERNEL:
        setattr(options, name, False)
    optimized = optimize_by_fusion(model, request["model_type"], optimization_options=options)
    _write(optimized.model, request)


def _read_data(model: Any, folder: str, most_bytes: int) -> None:
    """Load external tensors of at most `most_bytes` each; with protobuf's limit all of them.

    Raises ValueError if all must be read and they exceed that limit.
    """
    from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

    outside = [(t, _length(t)) for t in model.graph.initializer if uses_external_data(t)]
    if most_bytes == _PROTOBUF_BYTES and sum(length for _, length in outside) > most_bytes:
        raise ValueError("its fusions read the weights, which are more than 2 GB")
    for tensor, length in outside:
        if length <= most_bytes:
            load_external_data_for_tensor(tensor, folder)
            tensor.data_location = tensor.DEFAULT
            del tensor.external_data[:]


def _length(tensor: Any) -> int:
    return int(next((e.value for e in tensor.external_data if e.key == "length"), "0"))


def _write(model: Any, request: Mapping[str, Any]) -> None:
    """Write `model` with its data beside it; references to the source's data are kept."""
    import onnx

    domains = {entry.domain for entry in model.opset_import}
    for domain in sorted({node.domain for node in model.graph.node} - domains):
        if domain not in ("", "ai.onnx"):
            model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    out = Path(request["out"])
    if any(tensor.data_location == tensor.EXTERNAL for tensor in model.graph.initializer):
        out.write_bytes(model.SerializeToString())
        return
    onnx.save(
        model,
        str(out),
        save_as_external_data=True,
        location=f"{out.name}.data",
        size_threshold=_INLINE_BYTES,
    )


_OPTIMIZERS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "ort": _ort,
    "onnxslim": _onnxslim,
    "onnxsim": _onnxsim,
    "ort-transformers": _ort_transformers,
}


if __name__ == "__main__":
    sys.exit(main())
