"""Module paths, layers, shapes and training phases of a Kineto trace, from its Python frames.

Paths number the instances of a class under their parent, so layers of two runs can be compared:
`CLIPTextTransformer.CLIPEncoder.CLIPEncoderLayer_3`. In a module with children or a compiled
one, the operator follows (`.../aten::_flash_attention_forward`). Shapes are texts such as

    in: bfloat16[2,77,64] bfloat16[64]                   inputs
    float32[2,24,4096,64] -> float32[2,24,4096,1]        with the result of some operators
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profiler.kineto.arguments import Args
from profiler.kineto.events import Bools, Ranges
from profiler.kineto.operators import (
    has_mark,
    has_out,
    has_result,
    is_list_copy,
    is_shape,
    listed_type,
    may_have_out,
    result_of,
    text_mark,
)
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s

# --- The Python frames of a Kineto trace that tell how a pipeline is built.
#
# With `with_stack=True` torch.profiler records each Python frame as `file.py(line): function` and
# each `nn.Module.__call__` as `nn.Module: Class_k`, if k numbers the instances of a class
# (torch/csrc/autograd/profiler_python.cpp). A class keeps its numbers through the whole trace.


PYTHON = "python_function"
_MODULE = "nn.Module: "
_FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
_INSTANCE = re.compile(r"(?P<name>.+)_(?P<number>\d+)")
PROCESSOR = re.compile(r"(processing|feature_extraction|tokenization)_\w+\.py")
"""In names of frames that prepare a model's inputs, or make something of its outputs."""
_BUILTIN = re.compile(r"<built-in (?:function|method) (\w+)(?: of (?!type object)(\w+))?.*>")


class Kind(IntEnum):
    """The role of a frame in a pipeline."""

    OTHER = 0
    MODULE = 1  # an nn.Module was called
    PIPELINE = 2  # a pipeline's __call__
    STEP = 3  # a noise scheduler's step
    ENCODE_PROMPT = 4
    AUTOENCODER = 5  # encode or decode of an autoencoder, which is no nn.Module.__call__
    COMPILED = 6  # torch.compile runs what it has compiled


class Frame(Struct, frozen=True):
    """A recorded frame: `folder/stem.py(line): function`, with "/" in paths on every system."""

    folder: str
    stem: str
    function: str


class Frames(Struct, frozen=True, eq=False):
    """The Python frames of a trace: `rows` int64 [n] and the `Kind` of each, int8 [n].

    `modules` are the nn.Module ranges, `instances` their names without prefix ("Linear_3").
    """

    trace: KinetoTrace
    rows: Int64s
    kinds: npt.NDArray[np.int8]
    modules: Ranges
    instances: tuple[str, ...]

    @classmethod
    def of(cls, trace: KinetoTrace) -> Frames:
        rows = trace.rows_of(PYTHON)
        kinds = trace.events.named(rows, _kind).astype(np.int8)
        modules = trace.ranges(rows[kinds == Kind.MODULE])
        instances = tuple(name[len(_MODULE) :] for name in trace.events.names_of(modules.row))
        return cls(trace, rows, kinds, modules, instances)

    def of_kind(self, kind: Kind) -> Ranges:
        """The frames of one kind, nested; `row` is the row in the trace."""
        return self.trace.ranges(self.rows[self.kinds == kind])

    def outermost(self, among: Bools) -> Ranges:
        """The frames chosen by a mask over `rows` that are in no other chosen one."""
        trace, rows = self.trace, self.rows[among]
        return Ranges.outermost_of(
            rows, trace.thread[rows], trace.start_ns[rows], trace.end_ns[rows]
        )

    def name(self, row: int) -> str:
        """The recorded name of the event in `row`."""
        return self.trace.events.name_of(row)


def class_of(instance: str) -> tuple[str, int]:
    """Class and number of a module instance: "T5Block_3" → ("T5Block", 3)."""
    match = _INSTANCE.fullmatch(instance)
    return (match["name"], int(match["number"])) if match else (instance, 0)


def parse_frame(name: str) -> Frame | None:
    """The parts of a recorded frame; None for builtins and modules."""
    match = _FRAME.fullmatch(name)
    if match is None or name.startswith(("<", _MODULE)):
        return None
    folder, _, file = match["file"].replace("\\", "/").rpartition("/")
    return Frame(folder, file.removesuffix(".py"), match["function"])


def plain_name(name: str) -> str:
    """A frame's name without line numbers and addresses, which differ from run to run."""
    match = _BUILTIN.fullmatch(name)
    if match:
        return f"{match[2]}.{match[1]}" if match[2] else match[1]
    frame = parse_frame(name)
    if frame is None:
        return name
    folder = frame.folder.rpartition("site-packages/")[2]
    return f"{folder}/{frame.stem}.py: {frame.function}".lstrip("/")


def _kind(name: str) -> Kind:
    if name.startswith(_MODULE):
        return Kind.MODULE
    frame = parse_frame(name)
    if frame is None:
        return Kind.OTHER
    folder, stem = frame.folder, frame.stem
    place = f"{folder.rpartition('/')[2]}/{stem}"
    # not a learning-rate scheduler, not the profiler's own `step`
    scheduler = "schedul" in stem and "lr_schedul" not in stem and "optim" not in folder
    known = {
        "__call__": Kind.PIPELINE if "pipeline" in place else None,
        "step": Kind.STEP if scheduler else None,
        "encode_prompt": Kind.ENCODE_PROMPT,
        **dict.fromkeys(
            ("encode", "decode"),
            Kind.AUTOENCODER if "autoencoder" in place or "vae" in place else None,
        ),
        "compile_wrapper": Kind.COMPILED,
    }
    compiled = Kind.COMPILED if "torch/_inductor" in folder else Kind.OTHER
    return known.get(frame.function) or compiled


# --- Categories of runtime calls, and the ranges around events.


RUNTIME = (
    "cuda_runtime",
    "cuda_driver",
    "xpu_runtime",
    "xpu_driver",
    "privateuse1_runtime",
    "privateuse1_driver",
    "mtia_runtime",
)


def innermost_at(trace: KinetoTrace, ranges: Ranges, origin: Int64s) -> Int64s:
    """Index of the innermost range around the start of each event, -1 for event -1."""
    found = np.full(len(origin), -1, dtype=np.int64)
    known = origin >= 0
    rows = origin[known]
    found[known] = ranges.innermost(trace.thread[rows], trace.start_ns[rows])
    return found


def values_at(values: Int64s, indices: Int64s) -> Int64s:
    """`values` at these indices, -1 for index -1."""
    return np.append(values, -1)[indices]


# --- Layers of a Kineto trace: module paths, operators and kernels under readable, stable names.
#
# A module's path joins the classes of the modules around it below the call, each numbered among the
# instances of its class under the same parent:
# `CLIPTextTransformer.CLIPEncoder.CLIPEncoderLayer_3`. The trace's own numbers
# (`CLIPEncoderLayer_15`) count through all submodules and depend on what else was recorded; these
# do not, so that two runs can be compared layer by layer.
#
# - A command launched in a module without children has the module's path.
# - In a module with children, or one that torch.compile compiled, the launching operator follows
#   (`…CLIPAttention_0/aten::_flash_attention_forward`): it does several things of its own.
# - Directly in the submodule, and so in all of a submodule compiled as one, the operator stands
#   alone (`aten::mm`); if no operator is known, the kernel.


class ModulePaths:
    """The path of each module range below its call, "" for the submodule itself.

    `roots` are the indices of the module ranges that are submodules as a whole. An autoencoder's
    method has none: every module in it has a path.
    """

    def __init__(self, frames: Frames, roots: Iterable[int]) -> None:
        self._frames = frames
        self._roots = frozenset(roots)
        self._parent = _parents(frames, self._roots)
        self._labels = _labels(frames)
        self._whole = _leaves(frames)
        self._paths: dict[int, str] = {}

    def path(self, module: int) -> str:
        """The path of the module range with this index, "" for -1."""
        if module in self._paths:
            return self._paths[module]
        chain = []
        while module >= 0 and module not in self._paths and module not in self._roots:
            chain.append(module)
            module = self._parent[module]
        path = self._paths.get(module, "")
        for index in reversed(chain):
            path = f"{path}.{self._label(index)}" if path else self._label(index)
            self._paths[index] = path
        return path

    def layer(self, module: int, operator: str) -> str:
        """The layer of a command launched by `operator` in this module range (-1 for none)."""
        path, whole = self.place(module)
        return operator if not path else path if whole else f"{path}/{operator}"

    def place(self, module: int) -> tuple[str, bool]:
        """The path of a module range, and whether the module is one operation."""
        path = self.path(module)
        return path, bool(path) and self._frames.instances[module] in self._whole

    def _label(self, module: int) -> str:
        parent = self._parent[module]
        above = self._frames.instances[parent] if parent >= 0 else ""
        return self._labels[above, self._frames.instances[module]]


def _parents(frames: Frames, roots: frozenset[int]) -> list[int]:
    """The range to which each module's path is appended, -1 for none: the range around it. For a
    module outside any, such as a recomputed forward, the range around the same instance in a
    submodule."""
    parents: list[int] = frames.modules.parent.tolist()
    below = np.zeros(len(parents) + 1, dtype=np.bool_)  # whether it is in a submodule
    home: dict[str, int] = {}
    for index, (instance, parent) in enumerate(zip(frames.instances, parents, strict=True)):
        below[index] = index in roots or below[parent]
        if below[index] and index not in roots:
            home.setdefault(instance, parent)
    return [
        parent if parent >= 0 or index in roots else home.get(instance, -1)
        for index, (instance, parent) in enumerate(zip(frames.instances, parents, strict=True))
    ]


def _labels(frames: Frames) -> dict[tuple[str, str], str]:
    """(parent instance, instance) → class, numbered if the parent has several of the class."""
    siblings: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    pairs = set()
    for instance, parent in zip(frames.instances, frames.modules.parent.tolist(), strict=True):
        above = frames.instances[parent] if parent >= 0 else ""
        name, number = class_of(instance)
        siblings[above, name].add(number)
        pairs.add((above, instance))
    ranks = {
        key: {number: rank for rank, number in enumerate(sorted(numbers))}
        for key, numbers in siblings.items()
    }
    labels = {}
    for above, instance in pairs:
        name, number = class_of(instance)
        rank = ranks[above, name]
        labels[above, instance] = f"{name}_{rank[number]}" if len(rank) > 1 else name
    return labels


def _leaves(frames: Frames) -> set[str]:
    """Instances that are one operation: no module and no compiled code runs in them."""
    compiled = frames.of_kind(Kind.COMPILED)
    around = frames.modules.innermost(compiled.thread, compiled.start_ns)
    composed = {index for index in frames.modules.parent.tolist() if index >= 0}
    composed.update(index for index in np.unique(around).tolist() if index >= 0)
    return set(frames.instances) - {frames.instances[index] for index in composed}


# --- What a command's shapes say: the tensors of its operator, with what its arguments and its
# kernel tell of them.
#
#     in: bfloat16[2,77,64] bfloat16[64]                   inputs
#     float32[2,24,4096,64] -> float32[2,24,4096,1]        of some operators the result
#     in: bits16[2,24,4096,64] bits16[2,24,333,64]         a list, by the kernel that copied it
#     in: tensor[2,77,64] tensor[2,77,64]                  a list whose type nobody tells
#     in: float16[2,5,4,8] float16[2,3,4,8] … causal       attention
#     in: bfloat16[24,128] float32[24] over 24,128         a generated kernel and its elements


_DTYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "long int": "int64",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
}
_LIST = "TensorList"
_UNKNOWN = "tensor"


def input_dims(args: Args | None) -> list[list[int]]:
    """Shapes of an operator's tensor inputs; empty if shapes were not recorded."""
    if args is None or not bytes(args.dims):
        return []
    found: list[list[int]] = []
    try:
        _collect(msgspec.json.decode(args.dims), found)
    except msgspec.DecodeError:
        return []
    return found


def _collect(dims: object, found: list[list[int]]) -> None:
    """Add the shapes in nested lists to `found`: tensor lists contain lists of shapes."""
    if not isinstance(dims, list) or not dims:
        return
    if all(isinstance(size, int) for size in dims):
        found.append(dims)
        return
    for entry in dims:
        _collect(entry, found)


class ShapeTexts:
    """Makes the text of each operator's shapes, once per distinct operator."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bytes, bytes, bytes], str] = {}

    def of(self, operator: str, args: Args, kernel: str) -> str:
        """The text of the shapes of an operator that launched `kernel`, "" if shapes were not
        recorded."""
        asked = has_result(operator) or has_mark(operator)
        values = bytes(args.values) if asked else b""
        listed = listed_type(kernel) if is_list_copy(operator) else ""
        named = operator if asked or may_have_out(operator) else ""
        key = (named, listed, values, bytes(args.dims), bytes(args.types))
        text = self._known.get(key)
        if text is None:
            text = self._known[key] = _text(operator, args, _dtype(listed) if listed else _UNKNOWN)
        return text


def _text(operator: str, args: Args, listed: str) -> str:
    if not bytes(args.dims) or not bytes(args.types):
        return ""
    try:
        dims, types = msgspec.json.decode(args.dims), msgspec.json.decode(args.types)
    except msgspec.DecodeError:
        return ""
    if not isinstance(dims, list) or not isinstance(types, list):
        return ""
    read = dims[:-1] if has_out(operator, dims) else dims
    inputs = _inputs(read, types, listed)
    if not inputs:
        return ""
    if read is not dims:  # an `out` without elements gets the size that it needs
        result = dims[-1] if all(dims[-1]) else None
    else:
        result = result_of(operator, dims, types, args.values)
    if result is not None:
        return f"{inputs} -> {_dtype(str(types[0]))}[{','.join(map(str, result))}]"
    return f"in: {inputs}" + (text_mark(operator, types, args.values) if has_mark(operator) else "")


def _inputs(dims: Sequence[Any], types: Sequence[Any], listed: str) -> str:
    """Tensor inputs as "bfloat16[2,77,64] …"; those in a list have the type `listed`."""
    inputs: list[str] = []
    for shape, kind in zip(dims, types, strict=False):
        if isinstance(shape, list):
            many = str(kind) == _LIST
            tensors = shape if many else [shape]
            name = listed if many else _dtype(str(kind))
            inputs += (f"{name}[{','.join(map(str, one))}]" for one in tensors if is_shape(one))
    return " ".join(inputs)


def _dtype(name: str) -> str:
    name = name.removeprefix("c10::")
    return _DTYPES.get(name.lower(), name.lower())


# --- Training: which phase launched what, and of which forward operator a backward one is.
#
# Autograd gives an operator's backward the sequence number of the forward one, and the thread of
# the forward (`Fwd thread id`, which no forward operator has). Several forward operators may share
# a number, nested or in turn: the backward is the last one's. What else autograd's own threads
# launch (sums of gradients) is backward, too. Optimizers are ranges that torch names.


FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
_OPTIMIZER = "Optimizer."
_ENGINE = "autograd::"


class Training(Struct, frozen=True, eq=False):
    """The training phase of each launch in `phases`, "" for none. `backward` is the row of the
    outermost backward operator around it, `forward` that of the forward operator to which that
    belongs; int64, -1 for none."""

    phases: tuple[str, ...]
    backward: Int64s
    forward: Int64s


def training_of(trace: KinetoTrace, origin: Int64s) -> Training | None:
    """The training phases of the launches in the rows `origin` (-1 for unknown); None if nothing
    trains."""
    rows = trace.rows_of("cpu_op")
    kinds, index = trace.events.args.alike(rows)
    if not any(one.forward_thread for one in kinds):
        return None
    numbered = _numbers(trace, rows) >= 0
    threads = np.array([one.forward_thread not in (None, 0) for one in kinds], dtype=np.bool_)
    behind = numbered & threads[index]
    behind |= trace.events.named(rows, lambda name: name.startswith(_ENGINE))
    if not behind.any():
        return None
    forwards = rows[numbered & ~behind]
    steps = trace.rows_named(lambda name: name.startswith(_OPTIMIZER), "user_annotation")
    optimizing = _found(trace, steps, origin) >= 0
    backward = _found(trace, rows[behind], origin)
    forward = _found(trace, forwards, origin) >= 0
    own = np.setdiff1d(trace.thread[rows[behind]], trace.thread[forwards])
    beside = (origin >= 0) & np.isin(trace.thread[origin], own)
    phases = np.select(
        [optimizing, (backward >= 0) | beside, forward], [OPTIMIZER, BACKWARD, FORWARD], default=""
    )
    return Training(tuple(phases.tolist()), backward, _forward(trace, forwards, backward))


def _found(trace: KinetoTrace, rows: Int64s, origin: Int64s) -> Int64s:
    """The row of the outermost of some ranges around each launch, -1 for none."""
    outer = trace.ranges(rows).outermost()
    return values_at(outer.row, innermost_at(trace, outer, origin))


def _forward(trace: KinetoTrace, forwards: Int64s, backward: Int64s) -> Int64s:
    """For each backward operator, the row of the last forward operator with its sequence number
    that started before it; -1 for none."""
    by_number: dict[int, list[int]] = {}
    forwards = forwards[np.argsort(trace.start_ns[forwards], kind="stable")]
    for number, row in zip(_numbers(trace, forwards).tolist(), forwards.tolist(), strict=True):
        by_number.setdefault(number, []).append(row)
    known: dict[int, int] = {-1: -1}
    backwards = np.unique(backward[backward >= 0])
    for number, row in zip(_numbers(trace, backwards).tolist(), backwards.tolist(), strict=True):
        begin = trace.start_ns[row]
        found = by_number.get(number, [])
        known[row] = next((one for one in reversed(found) if trace.start_ns[one] < begin), -1)
    return np.array([known[row] for row in backward.tolist()], dtype=np.int64)


def _numbers(trace: KinetoTrace, rows: Int64s) -> Int64s:
    """The sequence numbers of some events, -1 for none."""
    numbers = trace.events.args.integers("sequence", rows)
    return np.maximum(numbers, -1)
