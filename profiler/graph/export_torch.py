"""Export one part of a pipeline by torch's dynamo exporter: options, weights, repairs.

Module path and class of each node stay as metadata; source text and local paths are removed.
Integer divisions are corrected to round down. LayerNorms without affine parameters get ones and
zeros. Random weights depend only on a seed and the parameter's name.
"""

from __future__ import annotations

import logging
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.model import add_initializer, constant, nodes

# --- Integer divisions that must round down, as in Python: ONNX's Div of integers truncates.
#
# torch's exporter writes Python's `//` of sizes as Div, after sympy has turned `(96 - h) // 2` into
# `48 + (-h) // 2`: for an odd `h` the result is off by one. SD3 crops its position embeddings this
# way, and fails at every image with an odd number of patches.


_PASSING = {"Cast", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"}
_COMBINING = {"Add", "Concat", "Div", "Max", "Mul"}  # non-negative results of non-negative operands
_DEPTH = 32


def round_divisions_down(model: ir.Model) -> int:
    """Make every Div of int64 whose dividend may be negative round down; return how many.

    `a // b` is written as `(a - a mod b) / b`, with ONNX's Mod, whose sign is the divisor's.
    """
    found = [node for node in nodes(model) if _cuts(node)]
    for node in found:
        dividend, divisor = node.inputs
        rest = _beside(node, "Mod", [dividend, divisor], "remainder")
        whole = _beside(node, "Sub", [dividend, rest], "multiple")
        node.replace_input_with(0, whole)
    return len(found)


def _cuts(node: ir.Node) -> bool:
    if node.op_type != "Div" or node.domain or node.outputs[0].dtype != ir.DataType.INT64:
        return False
    return _may_be_negative(node.inputs[0], _DEPTH)


def _may_be_negative(value: ir.Value | None, depth: int) -> bool:
    """Whether a size may be negative, according to its arithmetic; True if that is not known."""
    if value is None or depth == 0:
        return True
    array = constant(value)
    if array is not None:
        return bool((array < 0).any())
    node = value.producer()
    if node is None or node.domain:
        return True
    if node.op_type in _PASSING:
        return _may_be_negative(node.inputs[0], depth - 1)
    if node.op_type in _COMBINING:
        return any(_may_be_negative(entry, depth - 1) for entry in node.inputs)
    return node.op_type not in ("Shape", "Size")


def _beside(node: ir.Node, op_type: str, inputs: list[ir.Value | None], role: str) -> ir.Value:
    """Insert a node before `node`, with its metadata, and return its output."""
    output = ir.Value(
        name=f"{node.outputs[0].name}_{role}",
        type=ir.TensorType(ir.DataType.INT64),
        shape=node.outputs[0].shape,
    )
    made = ir.Node("", op_type, inputs, outputs=[output], name=f"{node.name}_{role}")
    made.metadata_props.update(node.metadata_props)
    assert node.graph is not None
    node.graph.insert_before(node, made)
    return output


# --- LayerNorms without affine parameters get ones and zeros during the export.
#
# Exporters give such a norm no bias, or an unnamed one, which some compilers reject. Ones and zeros
# change nothing in inference.


@contextmanager
def with_affine_layer_norms(module: Any, dtype: Any, *, fix: bool = True) -> Iterator[int]:
    """Within the block every LayerNorm of `module` has scale and bias; yields how many lacked one.

    They are restored afterwards. Changes nothing if `fix` is false.
    """
    import torch

    lacking = [
        (norm, name)
        for norm in module.modules()
        if isinstance(norm, torch.nn.LayerNorm)
        for name in ("weight", "bias")
        if fix and getattr(norm, name) is None
    ]
    for norm, name in lacking:
        fill = torch.ones if name == "weight" else torch.zeros
        given = norm.bias if name == "weight" else norm.weight
        kept = dtype if given is None else given.dtype
        values = fill(norm.normalized_shape, dtype=kept)
        setattr(norm, name, torch.nn.Parameter(values, requires_grad=False))
    try:
        yield len({id(norm) for norm, _ in lacking})
    finally:
        for norm, name in lacking:
            setattr(norm, name, None)


# --- The options of `graph export`: element type, opset, sizes, parts.


DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""The types of `--dtype`, with their names in torch, ONNX and NumPy."""

SIZE_NAMES = ("batch", "height", "width", "sequence")
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class StaticSizes:
    """The fixed sizes of graphs; None is free.

    `batch` counts images, `height` and `width` are pixels of the image, `sequence` counts the
    tokens of the prompt for text encoders that take any number (T5, Qwen2.5-VL).
    """

    batch: int | None = None
    height: int | None = None
    width: int | None = None
    sequence: int | None = None

    def latents(self, scale: int, step: int = 1) -> tuple[int | None, int | None]:
        """Rows and columns of the latents, `scale` pixels each, in patches of `step` of them.

        Raises InputError if the image is not a whole number of patches.
        """
        patch = scale * step
        for name, size in (("height", self.height), ("width", self.width)):
            if size is not None and size % patch:
                raise InputError(
                    f"--static {name}={size} is no multiple of {patch} pixels, which this model "
                    f"asks for: give for instance {name}={-(-size // patch) * patch}"
                )
        rows = None if self.height is None else self.height // scale
        return rows, None if self.width is None else self.width // scale


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options of an export.

    `dtype` is a key of DTYPES, `opset` ONNX's (None: 18, and 22 for bfloat16), `parts` are names of
    submodules (empty: all of the pipeline's), `seed` is for random weights and inputs.
    """

    dtype: str = "fp32"
    opset: int | None = None
    static: StaticSizes = StaticSizes()
    random_weights: bool = False
    seed: int = 0
    layernorm_fix: bool = True
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise InputError(f"--dtype {self.dtype} is not known: give one of {', '.join(DTYPES)}")
        if self.opset is not None and not 15 <= self.opset <= 30:
            raise InputError(f"--opset {self.opset} cannot be exported: give 15 to 30, at best 18")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed} is negative: give 0 or more")

    @property
    def opset_version(self) -> int:
        """The opset of the graphs: Conv takes bfloat16 from 22 on."""
        return self.opset or (22 if self.dtype == "bf16" else 18)

    @property
    def torch_dtype(self) -> Any:
        """The element type in torch."""
        import torch

        return getattr(torch, DTYPES[self.dtype])


def parse_static(text: str) -> StaticSizes:
    """Parse `height=1024,width=1024,batch=1`. Raises InputError for anything else."""
    sizes: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = entry.partition("=")
        if name not in SIZE_NAMES or name in sizes or not (number.isascii() and number.isdigit()):
            raise InputError(
                f"--static {entry} is no size: give for instance --static "
                f"height=1024,width=1024,batch=1 (of {', '.join(SIZE_NAMES)}, each once)"
            )
        sizes[name] = int(number[:9])
    return check_sizes(sizes)


def check_sizes(sizes: Mapping[str, int]) -> StaticSizes:
    """The sizes by name. Raises InputError for one below 1 or beyond 2²⁰."""
    for name, size in sizes.items():
        if not 0 < size <= _MOST:
            raise InputError(f"--static {name}={size} is out of range: give 1 to {_MOST}")
    return StaticSizes(**sizes)


# --- The input of the export of one part: a torch module, its forward with fixed names, its inputs.


Trial = Mapping[str, int]
"""A size for each name of an axis: a graph is traced and verified with these."""


@dataclass(frozen=True, slots=True)
class PartGraph:
    """A part to export.

    forward     arrays by input name → tensors, in the order of `outputs`; this is traced
    inputs      name → axes: a number if the axis is static, else the name of a free one
    draw        (numpy generator, sizes) → torch tensors by input name, in the graph's types
    trials      sizes of the free axes, and further ones for `draw`: the first is traced,
                all are compared
    reference   (sizes, tensors by name) → torch's outputs, None: `forward`
    """

    module: Any
    forward: Callable[..., tuple[Any, ...]]
    inputs: Mapping[str, tuple[int | str, ...]]
    outputs: tuple[str, ...]
    draw: Callable[[Any, Trial], dict[str, Any]]
    trials: tuple[Trial, ...]
    reference: Callable[[Trial, Mapping[str, Any]], tuple[Any, ...]] | None = None
    notes: tuple[str, ...] = field(default=())

    def free_axes(self) -> dict[str, dict[int, str]]:
        """The names of free axes, by input and axis."""
        return {
            name: {i: axis for i, axis in enumerate(axes) if isinstance(axis, str)}
            for name, axes in self.inputs.items()
        }

    def computed(self, sizes: Trial, tensors: Mapping[str, Any]) -> tuple[Any, ...]:
        """Compute torch's outputs for the tensors."""
        if self.reference is not None:
            return self.reference(sizes, tensors)
        return self.forward(**tensors)


def free_sizes(
    trials: Mapping[str, tuple[int, int]], static: Mapping[str, int | None]
) -> tuple[Trial, ...]:
    """Return two sets of sizes, or one if all are static: `trials` has two of each axis, `static`
    overrides them unless None."""
    fixed = {name: size for name, size in static.items() if size is not None}
    both = [{**{name: pair[i] for name, pair in trials.items()}, **fixed} for i in (0, 1)]
    return tuple(both[:1] if both[0] == both[1] else both)


def shapes_of(
    inputs: Mapping[str, tuple[int | str, ...]], sizes: Trial
) -> dict[str, tuple[int, ...]]:
    """The shape of each input under `sizes`."""
    return {
        name: tuple(sizes[axis] if isinstance(axis, str) else axis for axis in axes)
        for name, axes in inputs.items()
    }


# --- Random weights that depend only on a seed and each parameter's name, in memory or in a file.
#
# Matrices keep the variance of their input, norms are about one, biases near zero, so that
# activations of deep models stay finite, also in float16. T5 does not scale its attention but
# initializes its queries smaller; so do these, because otherwise each softmax would select a single
# token, and a rounding error another one.


_CHUNK = 1 << 24  # values drawn at once


def fill_parameters(module: Any, seed: int) -> None:
    """Give the module's parameters their random values, in place.

    T5's queries are not made smaller here: the embedded model ships with weights without it.
    """
    import torch

    with torch.no_grad():
        for name, parameter in module.named_parameters():
            _fill(parameter, name, seed, 1.0)


def map_parameters(module: Any, file: Path, seed: int, dtype: Any) -> int:
    """Give a module whose parameters have no memory yet (device `meta`) random ones in a file.

    The file is mapped: weights larger than memory stay on the disk. They have type `dtype`, except
    those that the class keeps in float32. Returns their bytes.
    """
    import torch

    places, size = [], 0
    for name, parameter in list(module.named_parameters()):
        kept = torch.float32 if _stays_float32(module, name) else dtype
        places.append((name, parameter.shape, kept, size))
        size += -(-parameter.numel() * kept.itemsize // 64) * 64
    storage = torch.UntypedStorage.from_file(str(file), shared=True, nbytes=max(size, 64))
    with torch.no_grad():
        for name, shape, kept, offset in places:
            tensor = torch.empty(0, dtype=kept)
            start = offset // kept.itemsize
            tensor.set_(storage, start, shape, torch.empty(shape, device="meta").stride())
            _fill(tensor, name, seed, _shrink(module, name))
            owner, _, attribute = name.rpartition(".")
            fresh = torch.nn.Parameter(tensor, requires_grad=False)
            setattr(module.get_submodule(owner), attribute, fresh)
    return size


def _stays_float32(module: Any, name: str) -> bool:
    """Whether the module's class keeps a parameter in float32, as T5 does for one matrix."""
    kept = getattr(module, "_keep_in_fp32_modules", None) or ()
    return bool(set(name.split(".")) & set(kept))


def _shrink(module: Any, name: str) -> float:
    """The factor of T5's queries in `T5PreTrainedModel._init_weights`; 1 for other parameters."""
    width = getattr(getattr(module, "config", None), "d_kv", 0)
    return float(width**-0.5) if width and name.endswith("SelfAttention.q.weight") else 1.0


def _fill(tensor: Any, name: str, seed: int, factor: float) -> None:
    import torch

    flat, position = tensor.view(-1), 0
    for values in random_values(tuple(tensor.shape), name, seed):
        flat[position : position + values.size] = torch.from_numpy(factor * values)
        position += values.size


def random_values(shape: tuple[int, ...], name: str, seed: int) -> Iterator[Any]:
    """The values of the parameter `name`, float32, in pieces."""
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    left = int(np.prod(shape, dtype=np.int64))
    while left:
        values = generator.standard_normal(min(left, _CHUNK), dtype=np.float32)
        left -= values.size
        if len(shape) > 1:
            values *= float(np.prod(shape[1:])) ** -0.5
        elif name.endswith("weight"):
            values = 1.0 + 0.1 * values
        else:
            values *= 0.02
        yield values


# --- Export a part from a torch module to `onnx_ir.Model`, by torch's dynamo exporter.
#
# Of the exporter's metadata the module path and class of each node are kept; source text and local
# paths (`pkg.torch.onnx.stack_trace`) are removed. Weights stay torch's until they are written;
# those read through a Transpose are transposed one by one then, so that memory has them once.


KEPT_METADATA = frozenset(
    {
        "namespace",
        "pkg.onnxscript.rewriter.rule_name",
        "pkg.torch.onnx.class_hierarchy",
        "pkg.torch.onnx.name_scopes",
    }
)
"""The node metadata that exported graphs keep."""

_LOUD = ("torch", "transformers", "diffusers", "onnxscript", "onnx_ir")
_ADVICE = ("- ", "Failed to", "##", "(Refer")  # lines of torch's advice on itself, not on the model


def export_graph(graph: PartGraph, tensors: Mapping[str, Any], opset: int, name: str) -> ir.Model:
    """Export the part as a graph of `opset`, traced with `tensors`; the module is unchanged
    afterwards.

    Raises InputError if torch cannot export it.
    """
    import torch

    graph.module.forward = graph.forward
    try:
        with torch.no_grad(), quiet_libraries():
            program = torch.onnx.export(
                graph.module,
                kwargs=dict(tensors),
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                dynamic_shapes=graph.free_axes(),
                opset_version=opset,
                dynamo=True,
                optimize=False,
                verbose=False,
            )
            assert program is not None
            _turn_weights(program.model)
            program.optimize()
    except Exception as error:  # torch.export raises all kinds
        raise InputError(
            f"torch cannot export {name} with opset {opset} ({_reason(error)}): choose another "
            "opset, or leave it out with --parts"
        ) from error
    finally:
        del graph.module.forward
    model: ir.Model = program.model
    _check_opset(model, opset, name)
    round_divisions_down(model)
    _plain_transposes(model)
    _clean(model)
    return model


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Suppress warnings of torch, transformers and diffusers, which the caller cannot act on."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    loggers += [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.startswith(tuple(f"{n}." for n in _LOUD))
    ]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), _no_progress_bars():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Suppress progress bars of libraries that are already imported."""
    bars = [
        sys.modules[f"{name}.utils.logging"]
        for name in ("transformers", "diffusers")
        if f"{name}.utils.logging" in sys.modules
    ]
    shown = [bar for bar in bars if bar.is_progress_bar_enabled()]
    for bar in shown:
        bar.disable_progress_bar()
    try:
        yield
    finally:
        for bar in shown:
            bar.enable_progress_bar()


def _turn_weights(model: ir.Model) -> None:
    """Store weights that are only read through a Transpose as transposed."""
    for node in list(model.graph):
        source = node.inputs[0] if node.op_type == "Transpose" and not node.domain else None
        tensor = None if source is None else source.const_value
        if source is None or tensor is None or len(source.uses()) != 1 or source.is_graph_input():
            continue
        order = node.attributes["perm"].as_ints() if "perm" in node.attributes else None
        axes = tuple(order or reversed(range(len(tensor.shape))))
        turned = _turned(tensor, axes)
        turned.name = f"{source.name}_transposed"
        value = add_initializer(model.graph, turned)
        node.outputs[0].replace_all_uses_with(value, replace_graph_outputs=True)
        model.graph.remove(node, safe=True)
        del model.graph.initializers[source.name or ""]


def _turned(tensor: Any, axes: tuple[int, ...]) -> ir.LazyTensor:
    """Return `tensor` with its axes permuted, computed each time it is read."""

    def made() -> ir.Tensor[Any]:
        array = np.ascontiguousarray(tensor.numpy().transpose(axes))
        return ir.Tensor(array, dtype=tensor.dtype, name=tensor.name)

    shape = ir.Shape([tensor.shape[axis] for axis in axes])
    return ir.LazyTensor(made, dtype=tensor.dtype, shape=shape, name=tensor.name)


def _plain_transposes(model: ir.Model) -> None:
    """Replace an Einsum that only permutes axes by a Transpose: few compilers support Einsum, and
    ONNX has none for bfloat16."""
    for node in nodes(model):
        if node.op_type != "Einsum" or node.domain or len(node.inputs) != 1:
            continue
        before, _, after = node.attributes["equation"].as_string().replace(" ", "").partition("->")
        if before.isalpha() and len(set(before)) == len(before) and sorted(before) == sorted(after):
            node.op_type = "Transpose"
            node.attributes.clear()
            node.attributes["perm"] = ir.AttrInt64s("perm", [before.index(axis) for axis in after])


def _check_opset(model: ir.Model, opset: int, name: str) -> None:
    found = model.opset_imports.get("")
    if found != opset:
        raise InputError(f"torch gives {name} in opset {found}, not {opset}: give --opset {found}")
    other = sorted(domain for domain in model.opset_imports if domain)
    if other:
        raise InputError(
            f"torch gives {name} with operators of {', '.join(other)}, which are not ONNX's: "
            "choose another opset, or leave it out with --parts"
        )


def _clean(model: ir.Model) -> None:
    """Remove metadata that is not in `KEPT_METADATA`, wherever the format allows any."""
    for node in nodes(model):
        kept = {key: node.metadata_props[key] for key in KEPT_METADATA & node.metadata_props.keys()}
        node.metadata_props.clear()
        node.metadata_props.update(sorted(kept.items()))
        node.doc_string = None
        for output in node.outputs:
            output.metadata_props.clear()
    graph = model.graph
    for value in (*graph.inputs, *graph.initializers.values()):
        value.metadata_props.clear()
        value.doc_string = None
    for owner in (graph, model):
        owner.metadata_props.clear()
        owner.doc_string = None


def _reason(error: BaseException) -> str:
    """Return the first line of the innermost error, without torch's advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines()]
    said = next((line for line in lines if line and not line.startswith(_ADVICE)), "")
    return (said or type(error).__name__)[:300]
