"""What a module's weights take as they are stored, quantized ones too, by type of elements.

- A tensor of a class of its own that is made of others (torchao's, DTensor) takes what these take;
  its own size is that of what it stands for.
- bitsandbytes keeps the scales of its weights beside them.
- What torch's dynamic quantization has packed is no tensor any more: its module knows the dims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from profiler.capture.torch.children import child, own_tensors

__all__ = ["packed_shapes", "stored_bytes"]

_PLAIN = ("Tensor", "Parameter", "Buffer")
_PACKED = "_packed_params"
_PACKED_BYTES = {"torch.qint8": 1, "torch.quint8": 1, "torch.float16": 2}
_PACKED_NAMES = {"torch.float16": "half"}
_BIAS_BYTES = 4  # of each value: it stays float32


def stored_bytes(modules: Iterable[Any]) -> dict[str, int]:
    """Bytes by type of elements, each tensor once: `bfloat16`; of quantized ones the class before
    it, `Int8Tensor (float32)`, for their dtype is what they stand for."""
    tensors: dict[int, Any] = {}
    sizes: dict[str, int] = {}
    for module in modules:
        tensors.update({id(tensor): tensor for tensor in own_tensors(module)})
        for name, size in _packed_bytes(module):
            sizes[name] = sizes.get(name, 0) + size
    by_type: dict[tuple[type, Any], int] = {}
    for tensor in tensors.values():
        key = type(tensor), getattr(tensor, "quant_type", None) or tensor.dtype
        by_type[key] = by_type.get(key, 0) + sum(map(_nbytes, _parts(tensor)))
    for (kind, dtype), size in by_type.items():
        name = _element_type(kind.__name__, dtype)
        sizes[name] = sizes.get(name, 0) + size
    return sizes


def packed_shapes(module: Any) -> str:
    """Weight and bias of a linear layer that torch has quantized dynamically, as `shapes` has
    them; "" for any other module. torch's events have no dims of packed weights."""
    found = _packed(module)
    if found is None:
        return ""
    dtype, rows, columns, bias = found
    name = _PACKED_NAMES.get(dtype, dtype.removeprefix("torch."))
    return f"{name}[{rows},{columns}]" + (f" float[{rows}]" if bias else "")


def _element_type(kind: str, dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    return name if kind in _PLAIN else f"{kind} ({name})"


def _parts(tensor: Any) -> Iterator[Any]:
    """The tensors that are stored for one."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        for name in flatten()[0]:
            yield from _parts(getattr(tensor, name))
        return
    yield tensor
    state = getattr(tensor, "quant_state", None)
    for scales in (getattr(tensor, "SCB", None), *_scales(state)):
        if scales is not None:
            yield scales


def _scales(state: Any) -> tuple[Any, ...]:
    """Of blocks of four-bit weights, and of these scales themselves where they are quantized."""
    return getattr(state, "absmax", None), getattr(getattr(state, "state2", None), "absmax", None)


def _nbytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _packed(module: Any) -> tuple[str, int, int, bool] | None:
    """Type, rows, columns of a packed weight, and whether there is a bias: nothing is unpacked."""
    own = module.__dict__
    packed = child(module, _PACKED)
    rows, columns = own.get("out_features"), own.get("in_features")
    if packed is None or not isinstance(rows, int) or not isinstance(columns, int):
        return None
    bias = getattr(getattr(packed, _PACKED, None), "bias", None)
    return str(getattr(packed, "dtype", "")), rows, columns, bias is not None and bias() is not None


def _packed_bytes(module: Any) -> Iterator[tuple[str, int]]:
    found = _packed(module)
    if found is not None and found[0] in _PACKED_BYTES:
        dtype, rows, columns, bias = found
        yield f"packed ({dtype.removeprefix('torch.')})", rows * columns * _PACKED_BYTES[dtype]
        if bias:
            yield "float32", rows * _BIAS_BYTES
