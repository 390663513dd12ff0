"""The operator sets that targets support, according to public sources.

Rebellions' compiler is not listed: its documentation (docs.rbln.ai, v0.12) compiles PyTorch and
TensorFlow and names no ONNX operator set.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiler.errors import InputError


@dataclass(frozen=True, slots=True)
class Target:
    """A compiler or runtime: its lowest and highest ONNX opset, its other operator domains
    (prefixes), and sources. `fixed_sizes` is the source that it supports no dynamic shapes, "" if
    it does."""

    name: str
    title: str
    lowest: int
    highest: int
    domains: tuple[str, ...]
    source: str
    fixed_sizes: str = ""


_ORT_DOMAINS = ("com.microsoft", "ai.onnx.ml", "ai.onnx.preview")
TARGETS = {
    target.name: target
    for target in (
        Target(
            "onnxruntime",
            "ONNX Runtime 1.31",
            7,
            26,
            _ORT_DOMAINS,
            "onnxruntime.ai/docs/reference/compatibility.html (from opset 7); its own message on a "
            "later one (official support till opset 26)",
        ),
        Target(
            "tensorrt-10.0",
            "TensorRT 10.0",
            9,
            20,
            (),
            "github.com/onnx/onnx-tensorrt, docs/operators.md of branch 10.0-GA",
        ),
        Target(
            "tensorrt-11",
            "TensorRT 11",
            9,
            25,
            (),
            "docs.nvidia.com/deeplearning/tensorrt/latest/reference/onnx-opset-guide.html",
        ),
        Target(
            "qnn",
            "Qualcomm AI Runtime 2.39",
            1,
            22,
            (),
            "Qualcomm AI Runtime SDK 2.39 documentation, “Qairt Converter”: up to opset 22",
            "onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html: models with "
            "dynamic shapes are not supported",
        ),
    )
}


def find_target(name: str) -> Target:
    """The target of that name. Raises InputError if there is none."""
    if name not in TARGETS:
        raise InputError(f"no target is called {name!r}: give one of {', '.join(TARGETS)}")
    return TARGETS[name]
