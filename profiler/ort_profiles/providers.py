"""Which device an ONNX Runtime execution provider runs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler.events import ROOT_DEVICE

__all__ = ["CPU", "KNOWN", "device_of_provider", "device_of_session", "devices_of_session"]

CPU = "CPUExecutionProvider"
_SUFFIX = "ExecutionProvider"
_ON_HOST = ("CPU", "Azure", "Dnnl", "Xnnpack", "XNNPACK", "ACL")
_KINDS = {"Tensorrt": "cuda", "NvTensorRTRTX": "cuda", "CUDA": "cuda", "MIGraphX": "rocm"}
KNOWN = frozenset(
    f"{name}{_SUFFIX}"
    for name in (*_ON_HOST, *_KINDS, "ROCM", "Dml", "OpenVINO", "QNN", "CoreML", "WebGpu", "JS")
)
"""Providers that are known here, by their full names."""


def device_of_provider(provider: str, options: Mapping[str, Any]) -> str:
    """The device of a provider with the `options` that a session knows of it."""
    name = provider.removesuffix(_SUFFIX)
    if name in _ON_HOST:
        return ROOT_DEVICE
    if name == "OpenVINO":  # its device_type is "CPU", "GPU", "GPU.1", "NPU", "AUTO:GPU,CPU", …
        kind, _, index = str(options.get("device_type") or "CPU").lower().partition(".")
        if kind == "cpu":
            return ROOT_DEVICE
        return f"{kind}:{index or 0}" if kind.isalpha() else "openvino:0"
    return f"{_KINDS.get(name, name.lower())}:{options.get('device_id') or 0}"


def devices_of_session(session: Any) -> dict[str, str]:
    """Device by provider, in the session's order."""
    options = session.get_provider_options()
    names = session.get_providers()
    return {name: device_of_provider(name, options.get(name, {})) for name in names}


def device_of_session(session: Any) -> str:
    """The device of a session: that of its first provider, "cpu:0" where it has none."""
    return next(iter(devices_of_session(session).values()), ROOT_DEVICE)
