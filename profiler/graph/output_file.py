"""A model → a file that appears under its final name only when it was verified.

The model is written into a folder beside its final name, with external data where its source has
it or its size asks for it; `check` is called with its path there; then it is renamed. An output is
never written over what it was made from.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import onnx_ir as ir

from profiler.errors import InputError, OutputError, ProfilerError
from profiler.files import not_writable, same_file, scratch_folder
from profiler.graph.model_file import all_tensors, external_files

__all__ = ["output_folder", "refuse_over_input", "save_model", "write_model"]

_Checked = TypeVar("_Checked")
_INLINE_BYTES = 1 << 30  # of all tensors: more goes to external data
_SMALL_BYTES = 1024  # a tensor up to this stays in the graph: shapes are read there


def write_model(
    model: ir.Model,
    out: Path,
    *,
    sources: Iterable[Path],
    check: Callable[[Path], _Checked],
    external: bool = False,
    references: bool = False,
) -> _Checked:
    """Write `model` to `out` (and `out`.data) once `check` has passed; returns what `check` does.

    `sources` are the files that the model was made from. `check` gets the path of the written
    model; what it raises leaves nothing behind. `external` is that of `save_model`. With
    `references` external data is not copied: it lies beside `out` where the model says. Raises
    OutputError where `out` is one of the sources, or cannot be written.
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
            for file in (
                written.with_name(data.name),
                written,
            ):  # the model last
                if file.exists():
                    file.replace(out.with_name(file.name))
    except OSError as error:
        raise not_writable(out, error) from error
    return result


def refuse_over_input(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raise OutputError where one of `outputs` is a folder or one of the `inputs`."""
    sources = list(inputs)
    for out in outputs:
        if out.is_dir():
            raise OutputError(f"{out} is a folder: give the name of a file to write")
        if any(same_file(out, source) for source in sources):
            raise OutputError(f"{out} is an input, which is never written over: give another name")


def save_model(model: ir.Model, path: Path, *, external: bool = False) -> None:
    """Write `model` to `path` as it is, unverified, with `path`.data where it has external data or
    more than 1 GiB of weights, or `external` asks for it. Raises InputError where it holds what
    cannot be written."""
    tensors = [tensor for tensor in all_tensors(model) if tensor.dtype != ir.DataType.STRING]
    outside = any(
        isinstance(tensor, ir.ExternalTensor) or (external and tensor.nbytes > _SMALL_BYTES)
        for tensor in tensors
    )
    large = sum(tensor.nbytes for tensor in tensors) > _INLINE_BYTES
    _save(model, path, path.name + ".data" if outside or large else None)


def _save(model: ir.Model, path: Path, data: str | None) -> None:
    """Write `model`, with external data into the file `data` beside it, None: as it refers to
    it. Raises InputError."""
    try:
        ir.save(model, path, external_data=data, size_threshold_bytes=_SMALL_BYTES)
    except (ir.serde.SerdeError, ValueError, TypeError) as error:
        cause = error.__cause__ or error
        raise InputError(
            f"the model holds what ONNX cannot write ({cause}): export it again"
        ) from error


@contextmanager
def output_folder(source: Path, out: Path, without: Collection[Path]) -> Iterator[Path]:
    """A copy of the folder `source`, without the files `without`, to write models into.

    It becomes `out` when the block ends; an error leaves nothing, and says `out` where it names
    the copy. Raises OutputError where `out` is there and not an empty folder, or lies in `source`.
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
            copy.replace(out)  # takes the place of an empty folder
    except (OSError, shutil.Error) as error:
        raise OutputError(f"cannot write {out} ({getattr(error, 'strerror', error)})") from error
