"""Read, write and annotate ONNX models, with inferred shapes and random inputs.

    read_model(path)        the model with the data of its tensors
    read_graph(path)        the graph alone: its tensors may lack their data
    data_faults(model)      tensor data that is missing, cut or outside its folder
    model_files(path)       the ONNX files of a folder

External data is mapped, not loaded. Output appears only after verification, and never over its
input. Node metadata has the prefix `profile_sd3.`: `layer`, `command_index`, `operation`,
`category`, and the measured values that `docs/graph-annotate.md` lists.
"""

from __future__ import annotations

import ast
import logging
import math
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from profiler.errors import InputError, OutputError, ProfilerError
from profiler.files import not_writable, same_file, scratch_folder

# --- Infer types and shapes of values that lack them.


def infer_types(model: ir.Model) -> None:
    """Infer types and shapes if values of the main graph have no type."""
    if any(output.dtype is None for node in model.graph for output in node.outputs):
        infer_shapes(model)


def infer_shapes(model: ir.Model) -> None:
    """Add types and shapes to the values of `model`; what cannot be inferred, such as of custom
    operations, stays open."""
    from onnx_ir.passes.common import ShapeInferencePass

    with quiet():
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress onnx_ir's warnings on stderr: faults of a model are reported as findings."""
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


# --- The keys of our node metadata, and a node's layer from metadata or name.
#
# `graph split` writes:
#
# `profile_sd3.layer`          module path of the operation that a node is a part of, else its name
# `profile_sd3.command_index`  which of its operation's commands it is, from 0
# `profile_sd3.operation`      name of the node that was split
# `profile_sd3.category`       `copy` on nodes that only hand data to parts or gather theirs
#
# `graph annotate` adds measured values: the keys in `MEASURED`, see `docs/graph-annotate.md`.


PREFIX = "profile_sd3."
LAYER = f"{PREFIX}layer"
COMMAND_INDEX = f"{PREFIX}command_index"
OPERATION = f"{PREFIX}operation"
CATEGORY = f"{PREFIX}category"
MEASURED = tuple(
    f"{PREFIX}{name}"
    for name in (
        *("time", "share", "calls", "bytes_read", "bytes_written", "role"),
        *("executed_as", "stands_for", "counted_at", "executed", "layer_time"),
    )
)

_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASS_HIERARCHY = "pkg.torch.onnx.class_hierarchy"
_NO_MODULE = "_empty_nn_module_stack"  # torch's mark on nodes from its export passes


def layer_of(node: ir.Node) -> str:
    """Return the layer of a node: from our metadata, else its module path, else its name, else its
    op type."""
    return path_of(node) or node.name or node.op_type


def path_of(node: ir.Node) -> str:
    """Return the layer in a node's metadata, else its module path; "" if neither is known."""
    return node.metadata_props.get(LAYER) or _module_path(node) or _path_in_name(node)


def operation_of(node: ir.Node) -> str:
    """Return the name of the operation that a node is, or is a part of; "" without a name."""
    return node.metadata_props.get(OPERATION) or node.name or ""


def _module_path(node: ir.Node) -> str:
    """The path in the metadata of torch's exporter; for an empty path the class of the model."""
    scopes = _strings(node.metadata_props.get(_NAME_SCOPES, ""))
    if len(scopes) < 2 or scopes[0].startswith(_NO_MODULE) or scopes[-2].startswith(_NO_MODULE):
        return ""
    classes = _strings(node.metadata_props.get(_CLASS_HIERARCHY, ""))
    root = classes[0].rsplit(".", 1)[-1] if classes and scopes[0] == "" else ""
    return scopes[-2] or root


def _path_in_name(node: ir.Node) -> str:
    """Return the path in a node's name as the TorchScript exporter writes it:
    `/encoder/layers.0/mlp/fc1/MatMul_1`."""
    path, slash, operation = (node.name or "").rpartition("/")
    if not slash or not path.startswith("/"):
        return ""
    fits = re.fullmatch(rf"{re.escape(node.op_type)}(_\d+)?", operation)
    return path[1:].replace("/", ".") if fits else ""


def _strings(text: str) -> list[str]:
    """Parse a Python list of strings as the exporter prints it; anything else is an empty list."""
    try:
        value = ast.literal_eval(text) if len(text) < 1 << 16 else ()
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [v for v in value if isinstance(v, str)] if isinstance(value, (list, tuple)) else []


def module_scopes(node: ir.Node) -> list[tuple[str, str]]:
    """Return path and class of the modules around a node, from the model itself ("") to the
    innermost, from the metadata of torch's exporter; empty without it."""
    scopes = _strings(node.metadata_props.get(_NAME_SCOPES, ""))
    classes = _strings(node.metadata_props.get(_CLASS_HIERARCHY, ""))
    if not scopes or scopes[0] != "" or len(scopes) != len(classes):
        return []
    return list(zip(scopes[:-1], classes[:-1], strict=True))


def write_path(node: ir.Node, scopes: list[tuple[str, str]]) -> None:
    """Leave the modules `scopes` (see `module_scopes`) on a node, as torch's exporter does."""
    paths = [*(path for path, _ in scopes), node.name or ""]
    classes = [*(name for _, name in scopes), node.op_type]
    node.metadata_props[_NAME_SCOPES] = repr(paths)
    node.metadata_props[_CLASS_HIERARCHY] = repr(classes)


# --- The values of a graph: constants, sizes, or data; and the nodes of a model.


_SIZES = {"Shape", "Size"}
_RANDOM = {
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    *("Bernoulli", "Multinomial", "Dropout"),
}
# Errors of onnx_ir if data of a tensor is missing, or does not fit its dims and type.
DATA_ERRORS = (OSError, ValueError, TypeError, AssertionError)
_MAX_CONSTANT_BYTES = 1 << 16  # larger constants are not read to understand a graph


class Kind(Enum):
    """The origin of a value: constants of the model, sizes of tensors, or input data."""

    CONSTANT = 0
    SIZE = 1
    DATA = 2


def nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield every node, including those of subgraphs and functions."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def all_values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value of the main graph and of subgraphs: inputs, initializers, outputs of nodes."""
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs


def producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that writes `value`, if its op type is one of `op_types` of ONNX (any if empty)."""
    node = None if value is None else value.producer()
    if node is None or (op_types and (node.op_type not in op_types or node.domain)):
        return None
    return node


def is_settled(node: ir.Node) -> bool:
    """Whether the attributes of `node` are its own: in a function they may refer to those of the
    call."""
    return not any(attribute.is_ref() for attribute in node.attributes.values())


def only_node(uses: Iterable[Any], *op_types: str) -> ir.Node | None:
    """Return the first node among a value's uses that has one of `op_types`."""
    return next((use.node for use in uses if use.node.op_type in op_types), None)


def constant_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The constant tensor of `value`, without reading it; None if it is computed or an input."""
    if value is None or value.is_graph_input():
        return None
    return ir.convenience.get_const_tensor(value)


def constant(value: ir.Value | None, most_bytes: int = _MAX_CONSTANT_BYTES) -> Any:
    """Return the constant array of `value`; None if it is computed, an input, or larger."""
    tensor = constant_tensor(value)
    try:
        small = tensor is not None and tensor.nbytes <= most_bytes
        return tensor.numpy() if tensor is not None and small else None
    except DATA_ERRORS:
        return None


def is_constant(value: ir.Value | None) -> bool:
    """Whether `value` is an initializer or the output of a Constant, and no input overrides it."""
    return constant_tensor(value) is not None


def add_initializer(graph: ir.Graph, tensor: ir.TensorProtocol) -> ir.Value:
    """Register `tensor` under its name as an initializer of `graph`; return its value."""
    shape, dtype = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
    value = ir.Value(name=tensor.name, type=dtype, shape=shape, const_value=tensor)
    graph.register_initializer(value)
    return value


def scalar(value: ir.Value | None) -> float | None:
    """Return the constant number of `value`, None if it is anything else."""
    array = constant(value)
    if array is None or array.size != 1 or array.dtype.kind not in "fiu":
        return None
    return float(np.asarray(array).reshape(-1)[0])


def kinds(model: ir.Model) -> dict[ir.Value, Kind]:
    """Return the origin of each value of the main graph, without subgraphs and functions. Nodes
    with subgraphs, or random numbers, yield data."""
    graph = model.graph
    found: dict[ir.Value, Kind] = dict.fromkeys(graph.initializers.values(), Kind.CONSTANT)
    found |= dict.fromkeys(graph.inputs, Kind.DATA)
    for node in graph:
        sources = [found.get(value, Kind.DATA) for value in node.inputs if value is not None]
        if node.op_type in _RANDOM or any(
            attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
            for attribute in node.attributes.values()
        ):
            kind = Kind.DATA
        elif node.op_type in _SIZES and not node.domain:
            kind = Kind.SIZE
        else:
            kind = max(sources, key=lambda source: source.value, default=Kind.CONSTANT)
        found |= dict.fromkeys(node.outputs, kind)
    return found


# --- A path → an `onnx_ir.Model`: external data is mapped, not loaded; a fault is one sentence.


_MOST_GRAPH_BYTES = (1 << 31) - 1  # protobuf's limit for a message
_MOST_VERSION = 1 << 31
_MOST_BYTES = 1 << 50  # of one tensor: a larger one is damaged
_MAX_NAME_LETTERS = 200  # of a name or reason in a sentence
_TYPED_DATA = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")


@dataclass(frozen=True, slots=True)
class DataFault:
    """A tensor whose data cannot be used: which one, why, and what to do about it."""

    tensor: str
    reason: str
    recommendation: str


def model_files(path: Path) -> list[Path]:
    """The ONNX files at `path`: itself, or all below the folder, by name.

    Raises InputError if there is none.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"{path} does not exist: give an ONNX file or a folder of them")
    found = sorted(file for file in path.rglob("*.onnx") if file.is_file())
    if not found:
        raise InputError(f"{path} holds no .onnx file: give an ONNX file or a folder of them")
    return found


def read_model(path: Path) -> ir.Model:
    """Read the model in the file; external data of tensors is mapped.

    Raises InputError if it is no ONNX model, or data of a tensor is missing, cut, or outside the
    model's folder.
    """
    model = read_graph(path)
    for fault in data_faults(model):
        name = _short(fault.tensor)
        raise InputError(f"{path}: tensor {name!r} {fault.reason}: {fault.recommendation}")
    return model


def read_graph(path: Path) -> ir.Model:
    """Read the graph in the file, without checking for the data of its tensors.

    Raises InputError if the file is missing, no ONNX model, larger than protobuf allows, or has
    sparse weights, which the IR does not keep.
    """
    import onnx

    if not path.is_file():
        raise InputError(f"{path} is no file: give an ONNX file")
    size = path.stat().st_size
    if size > _MOST_GRAPH_BYTES:
        raise InputError(
            f"{path} has {size:,} bytes, more than an ONNX file can: export it again with external "
            "data"
        )
    try:
        proto = onnx.load(str(path), format="protobuf", load_external_data=False)
    except Exception as error:  # protobuf's DecodeError has no stable place
        raise InputError(_not_onnx(path, error)) from error
    if not proto.ir_version or not proto.HasField("graph"):
        raise InputError(_not_onnx(path, "it holds no graph"))
    if proto.graph.sparse_initializer:
        raise InputError(
            f"{path} has sparse weights, which are not read: export it with dense ones"
        )
    try:
        with quiet():
            model: ir.Model = ir.from_proto(proto)
        _check_form(model)
    except Exception as error:  # onnx_ir raises all kinds for invalid models
        raise InputError(_not_onnx(path, error)) from error
    for tensor in all_tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            tensor.base_dir = path.parent.absolute()
    return model


def _check_form(model: ir.Model) -> None:
    """Raise ValueError if names are bytes (protobuf's result for a damaged string), types are
    unknown to ONNX, or versions exceed what ONNX's C++ code accepts."""
    if not all(0 <= version < _MOST_VERSION for version in model.opset_imports.values()):
        raise ValueError("it is of an impossible opset")
    for tensor in all_tensors(model):
        tensor.dtype  # noqa: B018 - an unknown one raises
    for node in nodes(model):
        values = [value for value in (*node.inputs, *node.outputs) if value is not None]
        names = (node.op_type, node.domain, node.name, *(value.name for value in values))
        if not all(isinstance(name, (str, NoneType)) for name in names):
            raise ValueError("its names are no text")


def _not_onnx(path: Path, reason: object) -> str:
    while isinstance(reason, Exception) and (reason.__cause__ or reason.__context__):
        reason = reason.__cause__ or reason.__context__  # onnx_ir says the place around it first
    return (
        f"{path} is not a readable ONNX model ({_short(reason)}): give another file, or export or "
        "copy it again"
    )


def _short(text: object) -> str:
    """Shorten a text from a model."""
    found = " ".join(str(text)[: _MAX_NAME_LETTERS + 1].split())
    return found if len(found) <= _MAX_NAME_LETTERS else f"{found[:_MAX_NAME_LETTERS]}…"


def all_tensors(model: ir.Model) -> Iterator[Any]:
    """Yield every tensor: initializers and attributes, including subgraphs and functions."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value
    for node in nodes(model):
        for attribute in node.attributes.values():
            if attribute.is_ref():
                continue
            if attribute.type == ir.AttributeType.TENSOR:
                yield attribute.value
            elif attribute.type == ir.AttributeType.TENSORS:
                yield from attribute.value


def external_files(model: ir.Model) -> set[Path]:
    """Return the files with external data of its tensors, inside the model's folder or not."""
    tensors = (tensor for tensor in all_tensors(model) if isinstance(tensor, ir.ExternalTensor))
    return {Path(tensor.path) for tensor in tensors}


def data_faults(model: ir.Model) -> list[DataFault]:
    """Return the tensors whose data cannot be used, without reading data."""
    sizes: dict[str, int | DataFault] = {}
    found = []
    for tensor in all_tensors(model):
        fault = _form_fault(tensor)
        if fault is None and isinstance(tensor, ir.ExternalTensor):
            fault = _external_fault(tensor, sizes)
        elif fault is None:
            fault = _inner_fault(tensor)
        if fault is not None:
            found.append(fault)
    return found


def _form_fault(tensor: Any) -> DataFault | None:
    """Return the fault of a tensor with impossible dims or type."""
    recommendation = "export the model again"
    if tensor.dtype == ir.DataType.UNDEFINED:
        return DataFault(tensor.name or "", "has no element type", recommendation)
    if any(not isinstance(dim, int) or dim < 0 for dim in tensor.shape):
        return DataFault(tensor.name or "", f"has impossible dims {tensor.shape}", recommendation)
    return None


def _inner_fault(tensor: Any) -> DataFault | None:
    """Return the fault of a tensor whose data is in the model's own file."""
    if not isinstance(tensor, ir.TensorProtoTensor):
        return None
    name, recommendation = tensor.name or "", "export or copy the model again"
    if tensor.raw.HasField("raw_data"):
        size = len(tensor.raw.raw_data)
        reason = f"has {size:,} bytes of data where its dims ask for {tensor.nbytes:,}"
        return None if size == tensor.nbytes else DataFault(name, reason, recommendation)
    count = sum(len(getattr(tensor.raw, field)) for field in _TYPED_DATA)
    asked = _entries(tensor)
    reason = f"has {count:,} entries of data where its dims ask for {asked:,}"
    return None if count == asked else DataFault(name, reason, recommendation)


def _entries(tensor: ir.TensorProtoTensor) -> int:
    """Count the numbers that store a tensor without raw data: two per complex element, and one for
    several elements of less than 8 bits."""
    size = math.prod(tensor.shape.numpy())
    if tensor.dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return 2 * size
    return -(-size * min(int(tensor.dtype.bitwidth), 8) // 8)


def _external_fault(
    tensor: ir.ExternalTensor, sizes: dict[str, int | DataFault]
) -> DataFault | None:
    """The fault of a tensor whose data is in another file; `sizes` caches the files' sizes."""
    name = tensor.name or ""
    location = os.fspath(tensor.location)
    if not location:
        return DataFault(name, "names no file of its external data", "export the model again")
    if location not in sizes:
        sizes[location] = _file_size(Path(tensor.base_dir), location)
    size = sizes[location]
    if isinstance(size, DataFault):
        return DataFault(name, size.reason, size.recommendation)
    offset = tensor.offset or 0
    length = tensor.nbytes if tensor.length is None else tensor.length
    if offset < 0 or length != tensor.nbytes or length > _MOST_BYTES:
        return DataFault(
            name,
            f"has {length:,} bytes at {offset:,} of {_short(location)} where its dims ask for "
            f"{tensor.nbytes:,}",
            "export or copy the model again",
        )
    if offset + length > size:
        return DataFault(
            name,
            f"needs {_short(location)} up to byte {offset + length:,}, but the file ends at "
            f"{size:,}",
            "copy the file again, whole",
        )
    return None


def _file_size(folder: Path, location: str) -> int | DataFault:
    """The size of a file of external data, in bytes, or why it cannot be used."""
    path, said = folder / location, _short(location)
    try:
        root, real = folder.resolve(), path.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a zero byte
        return DataFault(
            "", f"lies in {said!r}, no usable path ({_short(error)})", "export it again"
        )
    if Path(location).is_absolute() or not real.is_relative_to(root) or ".." in path.parts:
        recommendation = "only files inside the model's folder are read: copy it there"
        return DataFault("", f"lies in {said}, outside the model's folder", recommendation)
    try:
        status = real.stat()
    except OSError:
        return DataFault("", f"needs {said}, which is missing", f"copy it to {folder}")
    if not real.is_file():
        return DataFault("", f"lies in {said}, which is no file", f"copy the file to {folder}")
    if status.st_nlink > 1:
        recommendation = "copy it, for such files are not read: one could lead anywhere"
        return DataFault("", f"lies in {said}, a file with several hard links", recommendation)
    return status.st_size


# --- Write a model to a file that gets its final name only after verification.
#
# The model is written into a folder beside its final name, with external data if its source has it
# or its size requires it; `check` is called with its path there; then it is renamed. An output
# never overwrites what it was made from.


_Checked = TypeVar("_Checked")
_INLINE_BYTES = 1 << 30  # of all tensors: above, external data is used
_MAX_INLINE_BYTES = 1024  # tensors up to this stay in the graph, where shapes are read


def write_model(
    model: ir.Model,
    out: Path,
    *,
    sources: Iterable[Path],
    check: Callable[[Path], _Checked],
    external: bool = False,
    references: bool = False,
) -> _Checked:
    """Write `model` to `out` (and `out`.data) if `check` passes; return the result of `check`.

    `sources` are the files that the model was made from. `check` gets the path of the written
    model; if it raises, nothing is left. `external` as in `save_model`. With `references` external
    data is not copied: it is beside `out` as the model says. Raises OutputError if `out` is one of
    the sources, or cannot be written.
    """
    data = out.with_name(out.name + ".data")
    written_files = (out,) if references else (out, data)
    refuse_over_input(written_files, (*sources, *external_files(model)))
    try:
        with scratch_folder(out) as folder:
            written = folder / out.name
            if references:
                _save(model, written, None)
            else:
                save_model(model, written, external=external)
            result = check(written)
            for file in (written.with_name(data.name), written):  # the model last
                if file.exists():
                    file.replace(out.with_name(file.name))
    except OSError as error:
        raise not_writable(out, error) from error
    return result


def refuse_over_input(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raise OutputError if one of `outputs` is a folder, a device or a pipe, over which no file
    is renamed, or one of the `inputs`."""
    sources = list(inputs)
    for out in outputs:
        if out.is_dir():
            raise OutputError(f"{out} is a folder: give the name of a file to write")
        if out.exists() and not out.is_file():
            raise OutputError(f"{out} is no file: give the name of a file to write")
        if any(same_file(out, source) for source in sources):
            raise OutputError(f"{out} is an input, which is never written over: give another name")


def save_model(model: ir.Model, path: Path, *, external: bool = False) -> None:
    """Write `model` to `path` without verification, with `path`.data if it has external data or
    more than 1 GiB of weights, or with `external`. Raises InputError if it cannot be written."""
    tensors = [tensor for tensor in all_tensors(model) if tensor.dtype != ir.DataType.STRING]
    outside = any(
        isinstance(tensor, ir.ExternalTensor) or (external and tensor.nbytes > _MAX_INLINE_BYTES)
        for tensor in tensors
    )
    large = sum(tensor.nbytes for tensor in tensors) > _INLINE_BYTES
    _save(model, path, path.name + ".data" if outside or large else None)


def _save(model: ir.Model, path: Path, data: str | None) -> None:
    """Write `model`, with external data into the file `data` beside it; None keeps its references.
    Raises InputError."""
    try:
        ir.save(model, path, external_data=data, size_threshold_bytes=_MAX_INLINE_BYTES)
    except (ir.serde.SerdeError, ValueError, TypeError) as error:
        cause = error.__cause__ or error
        raise InputError(
            f"the model holds what ONNX cannot write ({cause}): export it again"
        ) from error


@contextmanager
def output_folder(source: Path, out: Path, without: Collection[Path]) -> Iterator[Path]:
    """Yield a copy of the folder `source`, without the files `without`, to write models into.

    It becomes `out` when the block ends; an error leaves nothing, and names `out` instead of the
    copy. Raises OutputError if `out` exists and is not an empty folder, or is inside `source`.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise OutputError(f"{out} exists already: give a folder that does not, or an empty one")
    if out.resolve().is_relative_to(source.resolve()):
        raise OutputError(f"{out} lies in the input {source}: give a folder outside it")
    left_out = {file.resolve() for file in without}

    def ignore(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if (Path(folder) / name).resolve() in left_out]

    try:
        with scratch_folder(out) as folder:
            copy = folder / out.name
            shutil.copytree(source, copy, ignore=ignore)
            try:
                yield copy
            except ProfilerError as error:
                raise type(error)(str(error).replace(str(copy), str(out))) from error
            copy.replace(out)  # may replace an empty folder
    except (OSError, shutil.Error) as error:
        raise OutputError(f"cannot write {out} ({getattr(error, 'strerror', error)})") from error
