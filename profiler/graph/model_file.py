"""A path → an `onnx_ir.Model`: external data is mapped, not loaded; a fault is one sentence.

read_model(path)        the model, whole: what its tensors refer to is there
read_graph(path)        the model alone: its tensors may lack their data
data_faults(model)      what of its tensors' data is missing, cut or outside its folder
model_files(path)       the ONNX files of a folder
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.infer import quiet
from profiler.graph.values import nodes

__all__ = [
    "DataFault",
    "all_tensors",
    "data_faults",
    "external_files",
    "model_files",
    "read_graph",
    "read_model",
]

_MOST_GRAPH_BYTES = (1 << 31) - 1  # protobuf's limit of one message
_MOST_VERSION = 1 << 31
_MOST_BYTES = 1 << 50  # of one tensor: what claims more is damaged
_MOST_LETTERS = 200  # of a name or reason in a sentence
_TYPED_DATA = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")


@dataclass(frozen=True, slots=True)
class DataFault:
    """Data of a tensor that cannot be used: which tensor, and why, with what to do about it."""

    tensor: str
    reason: str
    recommendation: str


def model_files(path: Path) -> list[Path]:
    """The ONNX files at `path`: itself, or all below the folder, by name.

    Raises InputError where there is none.
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
    """The model in the file, the data of its tensors mapped where external.

    Raises InputError where it is no ONNX model, or data of a tensor is missing, cut, or outside
    the model's folder.
    """
    model = read_graph(path)
    for fault in data_faults(model):
        name = _short(fault.tensor)
        raise InputError(f"{path}: tensor {name!r} {fault.reason}: {fault.recommendation}")
    return model


def read_graph(path: Path) -> ir.Model:
    """The model in the file; whether the data of its tensors is there is not looked at.

    Raises InputError where the file is missing, no ONNX model, larger than protobuf allows, or has
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
    except Exception as error:  # protobuf's DecodeError has no stable home
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
    except Exception as error:  # onnx_ir says ValueError, TypeError, KeyError, … of what is odd
        raise InputError(_not_onnx(path, error)) from error
    for tensor in all_tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            tensor.base_dir = path.parent.absolute()
    return model


def _check_form(model: ir.Model) -> None:
    """Raise ValueError where names are bytes, which protobuf gives for a damaged string, types are
    none of ONNX's, or versions are more than ONNX's C++ code takes."""
    if not all(0 <= version < _MOST_VERSION for version in model.opset_imports.values()):
        raise ValueError("it is of an impossible opset")
    for tensor in all_tensors(model):
        tensor.dtype
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
    """The beginning of a text that comes from a model."""
    found = " ".join(str(text)[: _MOST_LETTERS + 1].split())
    return found if len(found) <= _MOST_LETTERS else f"{found[:_MOST_LETTERS]}…"


def all_tensors(model: ir.Model) -> Iterator[Any]:
    """Every tensor: initializers and attributes, subgraphs and functions included."""
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
    """The files, inside the model's folder or not, that hold external data of its tensors."""
    tensors = (tensor for tensor in all_tensors(model) if isinstance(tensor, ir.ExternalTensor))
    return {Path(tensor.path) for tensor in tensors}


def data_faults(model: ir.Model) -> list[DataFault]:
    """What of the tensors' data cannot be used; none of it is read."""
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
    """The fault of a tensor whose dims or type nothing can have."""
    recommendation = "export the model again"
    if tensor.dtype == ir.DataType.UNDEFINED:
        return DataFault(tensor.name or "", "has no element type", recommendation)
    if any(not isinstance(dim, int) or dim < 0 for dim in tensor.shape):
        return DataFault(tensor.name or "", f"has impossible dims {tensor.shape}", recommendation)
    return None


def _inner_fault(tensor: Any) -> DataFault | None:
    """The fault of a tensor whose data stands in the model's own file."""
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
    """How many numbers hold the data of a tensor without raw data: complex ones are two each, of
    less than 8 bits several are one."""
    size = math.prod(tensor.shape.numpy())
    if tensor.dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return 2 * size
    return -(-size * min(int(tensor.dtype.bitwidth), 8) // 8)


def _external_fault(
    tensor: ir.ExternalTensor, sizes: dict[str, int | DataFault]
) -> DataFault | None:
    """The fault of a tensor whose data lies in another file; `sizes` keeps what was found there."""
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
