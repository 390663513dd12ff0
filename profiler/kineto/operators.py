"""Operator details that torch events lack: result shapes, causal masks, list types.

    result_of("aten::mean", [[2, 24, 4096, 64]], ["c10::BFloat16"], b'["","[-1]","True",""]')
    → (2, 24, 4096, 1)
    is_causal("aten::scaled_dot_product_attention", [None, None, None, None, 0.0, True])  → True

Argument orders follow torch's `native_functions.yaml`, the flash-attention package and aiter.
Results of convolutions, reductions and resamplings are derived.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from profiler.files import decoded
from profiler.grammars.names import KERNEL_PREFIX, UNNAMED_SCOPE, is_collective
from profiler.trace.events import Category

# --- The result of a convolution from input, weight and arguments.
#
# Source: torch's `native_functions.yaml` (order of the arguments), torch.nn.Conv2d (the size).


_CONVOLUTION_ARGUMENTS = {  # positions of stride, padding, dilation and transposed; -1: none
    f"aten::{name}": places
    for places, names in {
        (3, 4, 5, -1): ("conv1d", "conv2d", "conv3d", "cudnn_convolution_relu"),
        (3, 4, 5, 6): ("convolution", "_convolution", "convolution_overrideable"),
        (3, 2, 4, -1): ("cudnn_convolution",),
        (4, 3, 5, -1): (
            *("miopen_convolution", "miopen_depthwise_convolution", "mkldnn_convolution"),
        ),
        (4, 5, -1, -1): ("thnn_conv2d", "_slow_conv2d_forward"),
        (4, 5, 6, -1): ("_conv_depthwise2d", "conv_depthwise3d"),
    }.items()
    for name in names
}


def result_dims(
    operator: str, dims: Sequence[Any], arguments: Sequence[Any]
) -> tuple[int, ...] | None:
    """Dims of the result of `operator`, None if they cannot be derived.

    `dims` are those of its inputs in order, `arguments` the values of non-tensors; a missing one
    has the default: stride and dilation 1, no padding.
    """
    places = _CONVOLUTION_ARGUMENTS.get(operator)
    if places is None or len(dims) < 2:
        return None
    x, weight = dims[0], dims[1]
    rank = len(x) - 2
    steps, pads, holes, transposed = (_at(arguments, place) for place in places)
    if rank < 1 or len(weight) != len(x) or transposed not in (None, False):
        return None
    stride, dilation = _each(steps, 1, rank), _each(holes, 1, rank)
    padding = _padding(pads, weight[2:], dilation, rank)
    if stride is None or dilation is None or padding is None or 0 in stride:
        return None
    sizes = [
        (size + pad - d * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, d in zip(
            x[2:], weight[2:], stride, padding, dilation, strict=True
        )
    ]
    return None if min(sizes) < 1 else (x[0], weight[0], *sizes)


def argument_values(printed: bytes | msgspec.Raw) -> list[Any]:
    """The "Concrete Inputs" of an event, a JSON list of arguments as torch prints them: "[1, 1]",
    "1", "False", "same", "" for a tensor. Raises ValueError or TypeError if it is not a list."""
    return [_value(text) for text in msgspec.json.decode(printed)]


def _value(text: object) -> object:
    try:
        return msgspec.json.decode(str(text).lower())
    except (msgspec.DecodeError, RecursionError):
        return text


def _at(arguments: Sequence[Any], place: int) -> Any:
    value = arguments[place] if 0 <= place < len(arguments) else None
    return None if value == "" else value


def _each(value: Any, default: int, rank: int) -> list[int] | None:
    """The argument as one integer per dimension; None if it is not."""
    values = [default] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values):
        return None
    if len(values) == 1:
        return values * rank
    return values if len(values) == rank else None


def _padding(
    value: Any, kernel: Sequence[int], dilation: list[int] | None, rank: int
) -> list[int] | None:
    """The total padding of both sides in each dimension."""
    if value == "valid":
        return [0] * rank
    if value == "same" and dilation is not None:
        return [d * (size - 1) for d, size in zip(dilation, kernel, strict=True)]
    each = _each(value, 0, rank)
    return None if each is None else [2 * size for size in each]


# --- Whether an attention operator masks causally, from its arguments.
#
# Source: torch's `native_functions.yaml`, the flash-attention package's `flash_attn_interface.py`
# and aiter's `aiter/ops/mha.py` (order of the arguments).


CAUSAL_PLACES = {
    "aten::scaled_dot_product_attention": 5,
    "aten::_scaled_dot_product_attention_math": 5,
    "aten::_scaled_dot_product_flash_attention": 4,
    "aten::_scaled_dot_product_flash_attention_for_cpu": 4,
    "aten::_scaled_dot_product_efficient_attention": 6,
    "aten::_scaled_dot_product_cudnn_attention": 6,
    "aten::_scaled_dot_product_fused_attention_overrideable": 5,
    "aten::_flash_attention_forward": 8,
    "aten::_cudnn_attention_forward": 10,
    "aten::_efficient_attention_forward": 9,  # custom_mask_type: 1 and 2 are causal
    "flash_attn::_flash_attn_forward": 5,
    "aiter::mha_batch_prefill": 12,
}
"""The position of the causal argument, by operator."""


def is_attention(operator: str) -> bool:
    """Whether `is_causal` knows the operator."""
    return operator in CAUSAL_PLACES


def is_causal(operator: str, arguments: Sequence[Any]) -> bool:
    """Whether the operator masks causally; False if unknown. `arguments` are its values from
    `argument_values`."""
    place = CAUSAL_PLACES.get(operator, len(arguments))
    return place < len(arguments) and arguments[place] in (True, 1, 2)


GENERATED = ("triton_poi_", "triton_red_", "triton_per_")
"""Prefixes of names of torch.compile's kernels: pointwise ones, and reductions."""


def has_mark(operator: str) -> bool:
    """Whether `text_mark` may return more than ""."""
    return is_attention(operator) or operator.startswith(GENERATED)


def text_mark(operator: str, types: Sequence[Any], printed: bytes | msgspec.Raw) -> str:
    """The suffix of the operator's shapes: " causal"; " over 3072,6" with the number of elements of
    a generated kernel, and for a reduction the number per result; or "". `types` and `printed` are
    the event's "Input type" and "Concrete Inputs"."""
    try:
        arguments = argument_values(printed)
        if is_attention(operator):
            return " causal" if is_causal(operator, arguments) else ""
    except (ValueError, TypeError):  # DecodeError is a ValueError
        return ""
    sizes = [size for size, kind in zip(arguments, types, strict=False) if kind == "Scalar"]
    known = all(isinstance(size, int) and 0 < size < 1 << 40 for size in sizes)
    return f" over {','.join(map(str, sizes))}" if sizes and known else ""


# --- Events of torch.profiler's Chrome JSON, as far as they are read.


Scalar = int | float | str | None


# --- The collective of an NCCL or RCCL kernel, from keys that only such events have, so they are
# read separately.


class CollectiveArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "name": "Collective name",
        "sent": "In msg nelems",
        "received": "Out msg nelems",
        "size": "Group size",
        "group": "Process Group Name",
        "members": "Process Group Ranks",
        "sequence": "Seq",
    },
):
    """A collective: `sent` and `received` are numbers of elements of `dtype`, `size` that of the
    process group, `members` its ranks as text, cut after thirty."""

    name: Scalar = None
    sent: Scalar = None
    received: Scalar = None
    dtype: Scalar = None
    size: Scalar = None
    group: Scalar = None
    members: Scalar = None
    sequence: Scalar = None


class _Event(msgspec.Struct, gc=False):
    cat: str = ""
    args: CollectiveArgs | None = None


class _Events(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815  the key's own name


def collective_args(data: bytes | bytearray) -> dict[int, CollectiveArgs]:
    """The collectives of the kernels among `traceEvents`, by position; empty if one has such keys
    in another form than Kineto's."""
    try:
        events = decoded(data, _Events, strict=False).traceEvents
    except msgspec.MsgspecError:
        return {}
    return {
        place: event.args
        for place, event in enumerate(events)
        if event.cat.lower() == "kernel" and event.args is not None and event.args.name is not None
    }


# --- The element type of a copied list of tensors, from the name of the copying kernel.
#
# `cat` copies tensors of one type without distinguishing types of the same width: its kernel shows
# only the width, so the type is torch's type of bits (`torch.bits16`). Older kernels name the type,
# and so does a copy per input, by an elementwise kernel without conversion. Source: `Shape.cu` and
# `Copy.cu` of torch's `aten/src/ATen/native/cuda`.


_LISTING_OPERATORS = frozenset(("aten::cat", "aten::_cat", "aten::concat", "aten::stack"))
_OPAQUE = re.compile(r"OpaqueType<(\d{1,2})u?>")
_TYPED = re.compile(r"CatArrayBatchedCopy\w{0,40}<([A-Za-z][\w:]*), ")
_COPY = "direct_copy_kernel_cuda("
_NAMED = re.compile(r"\{lambda\(([A-Za-z][\w:<>]*)\)#1\}")
_CONVERTS = ("gpu_kernel_impl<", "WithCast")
_LONGEST = 1 << 14  # characters of a name


def is_list_copy(operator: str) -> bool:
    """Whether an operator's kernel copies the tensors of a list unchanged."""
    return operator in _LISTING_OPERATORS


@lru_cache(maxsize=1 << 10)
def listed_type(kernel: str) -> str:
    """The element type in the name of a copy kernel: `bits16`, or `BFloat16` if it is named; "" if
    unknown."""
    if len(kernel) > _LONGEST:
        return ""
    opaque = _OPAQUE.search(kernel) if "CatArray" in kernel else None
    if opaque is not None:
        return f"bits{8 * int(opaque[1])}"
    typed = _TYPED.search(kernel)
    if typed is not None:
        return typed[1].removeprefix("c10::")
    _, copies, rest = kernel.partition(_COPY)
    if not copies or any(word in kernel for word in _CONVERTS):
        return ""
    named = _NAMED.search(rest)
    return named[1].removeprefix("c10::") if named else ""


# --- Names in Kineto's events: operators, kernels, copies and their queues, devices.


_NO_OPERATOR = re.compile(
    r"Torch-Compiled Region|TorchDynamo|## Call CompiledFxGraph|CompiledF|Pregraph bytecode"
    r"|AOTDispatcher|ProfilerStep"
)
_COMPILING = re.compile(
    r"(?:torch\._)?dynamo|entire_frame_compile|compile_attempt_\d+|.*\(dynamo_timed\)"
)
_LONGEST_NAME = 120  # characters; names of generated GEMM kernels have several hundred
_DEVICE_NAME = re.compile(r"[a-z][a-z0-9_]{0,15}:\d{1,4}")
_ACCELERATOR = re.compile(r"(?!CPU|GPU)([A-Z]{3,8}) (\d{1,4})")


def is_operator(name: str) -> bool:
    """Whether a CPU range is an operator, not a wrapper of torch.compile or of the profiler."""
    return _NO_OPERATOR.match(name) is None


def is_compiling(name: str) -> bool:
    """Whether a CPU range is torch.compile at work: tracing and generating code. The operators in
    it run on no data. torch records it as an operator."""
    return _COMPILING.fullmatch(name) is not None


_PREFIX = re.compile(KERNEL_PREFIX)
_UNNAMED = re.compile(UNNAMED_SCOPE)


def kernel_name(name: str) -> str:
    """A kernel's name without return type, template arguments and parameters; of CUTLASS that of
    the kernel in its wrapper.

    `void at::native::reduce_kernel<512, 1>(at::native::ReduceOp<float>)` →
    `at::native::reduce_kernel`; `void cutlass::Kernel<cutlass_80_wmma_gemm>(…)` →
    `cutlass_80_wmma_gemm`.
    """
    name = _UNNAMED.sub("", name)
    bare = _PREFIX.sub("", name)
    ends = "(,>" if name[: len(name) - len(bare)].endswith("<") else "("
    depth = 0
    short: list[str] = []
    for character in bare:
        if character in ends and depth == 0 and short:
            break
        depth += character == "<"
        if depth == 0:
            short.append(character)
        depth -= character == ">" and depth > 0
    text = "".join(short).strip() or name
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def copy_name(name: str) -> str:
    """`Memcpy HtoD (Pageable -> Device)` → `Memcpy HtoD`."""
    return name.split("(", maxsplit=1)[0].strip() or "Memcpy"


GRAPH_NODES = ("graph_event_node", "graph_host_node")
"""The nodes of a CUDA graph other than work on its stream: recording an event, or waiting for a
host function."""


def queue(activity: str, name: str) -> tuple[str, Category]:
    """The suffix after the stream in the track's name of device work, and its category.

    `activity` is Kineto's: `kernel`, `gpu_memcpy`, `gpu_memset` or one of `GRAPH_NODES`, which are
    on ` sync`. Copies from and to the host are on ` memcpy` (dma), those on a device or between
    devices and memset on ` copy`, kernels that are collectives on ` collectives` (collective),
    others on the stream itself (compute).
    """
    if activity in GRAPH_NODES:
        return " sync", "sync"
    if activity == "gpu_memcpy":
        ends = copy_name(name).rpartition(" ")[2]  # HtoD, DtoH, DtoD, PtoP
        to_host = ends.startswith("H") != ends.endswith("H")
        return (" memcpy", "dma") if to_host else (" copy", "copy")
    if activity == "gpu_memset":
        return " copy", "copy"
    if is_collective(name):
        return " collectives", "collective"
    return "", "compute"


def device_name(process: str) -> str:
    """The device that a process name means: `rbln:0`, `mtia:9` for `MTIA 9`; "" if none."""
    if _DEVICE_NAME.fullmatch(process):
        return process
    accelerator = _ACCELERATOR.fullmatch(process)
    return ":".join(accelerator.groups()).lower() if accelerator is not None else ""


# --- The result of a reduction, from its input and arguments.
#
# Source: torch's `native_functions.yaml` (overloads, distinguished by their number of arguments,
# and the order of these).


_REDUCTION_ARGUMENTS = {  # operator: number of arguments → positions of dims and keepdim
    "aten::mean": {4: (1, 2)},
    "aten::sum": {4: (1, 2)},
    "aten::amax": {3: (1, 2)},
    "aten::amin": {3: (1, 2)},
    "aten::var": {4: (1, 3)},
    "aten::std": {4: (1, 3)},
    "aten::linalg_vector_norm": {5: (2, 3)},
}
_TYPES = {"aten::mean": 3, "aten::sum": 3, "aten::linalg_vector_norm": 4}  # dims of the result


def reduced_dims(
    operator: str, dims: Sequence[int], arguments: Sequence[Any]
) -> tuple[int, ...] | None:
    """Dims of the result of `operator` for an input with these `dims`, in the input's type; None if
    they cannot be derived, or the type differs. `arguments` are its values from
    `argument_values`."""
    found = _REDUCTION_ARGUMENTS.get(operator, {}).get(len(arguments))
    if found is None or arguments[_TYPES.get(operator, 0)] not in ("", None):
        return None
    chosen, kept = (arguments[place] for place in found)
    rank = len(dims)
    if chosen in ("", None, []):
        chosen = list(range(rank))
    if not isinstance(chosen, list):
        chosen = [chosen]
    if not all(_is_place(place, rank) for place in chosen) or kept not in (True, False):
        return None
    reduced = {place % rank for place in chosen}
    sizes = ((1 if at in reduced else size) for at, size in enumerate(dims))
    return tuple(size for at, size in enumerate(sizes) if kept or at not in reduced)


def _is_place(value: object, rank: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -rank <= value < rank


# --- The result of an upsampling, from its input and arguments.
#
# Source: torch's `native_functions.yaml` (`output_size` follows the input).


_RESAMPLING_OPERATORS = frozenset(
    f"aten::{name}"
    for name in (
        *(f"upsample_nearest{rank}d" for rank in (1, 2, 3)),
        *(f"_upsample_nearest_exact{rank}d" for rank in (1, 2, 3)),
        *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"),
        *("upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
    )
)


def resampled_dims(
    operator: str, dims: Sequence[int], arguments: Sequence[Any]
) -> tuple[int, ...] | None:
    """Dims of the result of `operator` for an input with these `dims`; None if they cannot be
    derived, as for an overload with factors. `arguments` are its values from `argument_values`."""
    sizes = arguments[1] if len(arguments) > 1 else None
    if (
        operator not in _RESAMPLING_OPERATORS
        or not isinstance(sizes, list)
        or len(sizes) != len(dims) - 2
    ):
        return None
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
        return None
    return (*dims[:2], *sizes)


# --- The `out` of an elementwise operator: its last argument, one more than it reads. Torch 1.9
# computes `relu_` so.
#
# Source: torch's `native_functions.yaml` (numbers of arguments).


_ARGUMENTS = {
    f"aten::{name}": arguments
    for arguments, names in {
        1: "neg abs sqrt rsqrt reciprocal exp log sin cos tanh erf floor ceil sign sigmoid silu",
        2: "mul minimum maximum pow remainder fmod clamp_min clamp_max",
        3: "add sub clamp",
    }.items()
    for name in names.split()
}


def may_have_out(operator: str) -> bool:
    """Whether `has_out` knows the operator."""
    return operator in _ARGUMENTS


def has_out(operator: str, dims: Sequence[Any]) -> bool:
    """Whether the last of an operator's arguments, whose dims these are, is its result."""
    return len(dims) == _ARGUMENTS.get(operator, len(dims)) + 1 and is_shape(dims[-1])


# --- The result of a convolution, reduction or resampling, which torch's events lack.


_RESULTS = (_CONVOLUTION_ARGUMENTS, _REDUCTION_ARGUMENTS, _RESAMPLING_OPERATORS)
_REAL = ("float", "double", "half", "bfloat")  # sums of integers are int64


def has_result(operator: str) -> bool:
    """Whether the dims of the operator's result may be derived."""
    return any(operator in one for one in _RESULTS)


def result_of(
    operator: str, dims: Sequence[Any], types: Sequence[Any], values: bytes | msgspec.Raw
) -> tuple[int, ...] | None:
    """Dims of the result, whose type is that of the first input; None if they cannot be derived, or
    the type differs. `dims`, `types` and `values` are the event's, one per argument."""
    kind = str(types[0]).removeprefix("c10::").lower() if types else ""
    if not has_result(operator) or (operator == "aten::sum" and not kind.startswith(_REAL)):
        return None
    try:
        arguments = argument_values(values)
        if operator in _CONVOLUTION_ARGUMENTS:
            return result_dims(operator, dims, arguments)
        find = reduced_dims if operator in _REDUCTION_ARGUMENTS else resampled_dims
        return find(operator, dims[0], arguments) if is_shape(dims[0]) else None
    except (ValueError, TypeError, IndexError, AttributeError):  # DecodeError is a ValueError
        return None


def is_shape(dims: object) -> bool:
    """Whether these are the dims of a tensor with at least one dimension."""
    return isinstance(dims, list) and bool(dims) and all(isinstance(size, int) for size in dims)
