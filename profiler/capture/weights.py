"""How many bytes the weights of a submodule take on its device: "does it fit?"."""

from __future__ import annotations

from typing import Any

from profiler.capture.torch_hooks import is_module
from profiler.errors import InputError

__all__ = ["weight_bytes"]


def weight_bytes(part: Any) -> int | None:
    """Bytes of a part's weights, as they are stored: a torch module's parameters and buffers,
    each once; an ONNX model's initializers. None where nobody can tell.

    Nothing is loaded: a torch tensor's size is known, an ONNX model's are read from its graph.
    """
    if is_module(part):
        tensors = [*part.parameters(), *part.buffers()]
        return int(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
    from profiler.capture.onnx_lending import model_of
    from profiler.capture.onnx_weights import model_weights

    try:
        return model_weights(model_of(part)).total_bytes
    except InputError:
        return None
