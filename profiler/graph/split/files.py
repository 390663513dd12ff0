"""`graph split`: a model's file, or all of a folder → files whose operations are in parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.model_file import external_files, model_files, read_model
from profiler.graph.output_file import output_folder, refuse_over_input, write_model
from profiler.graph.random_inputs import random_inputs, refuse_unknown_sizes
from profiler.graph.split.model import OPERATION_TYPES, SplitResult, split_model
from profiler.graph.split.portions import Target
from profiler.graph.verification import OutputDifference, verify

__all__ = ["SplitFile", "split_files"]


@dataclass(frozen=True, slots=True)
class SplitFile:
    """What became of the model in `source`: it was written to `out` where operations were split,
    and `differences` tell how far each output differs."""

    source: Path
    out: Path
    result: SplitResult
    differences: tuple[OutputDifference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The split as a JSON object."""
        return {"model": str(self.source), "out": str(self.out)} | {
            "split": [asdict(operation) for operation in self.result.split],
            "whole": [asdict(operation) for operation in self.result.whole],
            "small": self.result.small,
            "differences": [asdict(difference) for difference in self.differences],
        }


@dataclass(frozen=True, slots=True)
class _Split:
    """A model that was split and is not written yet."""

    source: Path
    model: ir.Model
    inputs: Mapping[str, Any]
    data: set[Path]
    result: SplitResult

    def write(self, out: Path) -> SplitFile:
        def check(written: Path) -> tuple[OutputDifference, ...]:
            what = f"{out}: the split model"
            return tuple(verify(self.source, written, self.inputs, what=what))

        differences = write_model(
            self.model,
            out,
            sources=[self.source, *self.data],
            check=check,
            external=bool(self.data),
        )
        return SplitFile(self.source, out, self.result, differences)


def split_files(
    source: Path,
    out: Path,
    target: Target,
    *,
    op_types: Collection[str] = OPERATION_TYPES,
    nodes: Collection[str] = (),
    sizes: Mapping[str, int] | None = None,
) -> list[SplitFile]:
    """Split the model in the file `source` into the file `out`, or the models of a folder into a
    copy of it, `out`: written once the outputs are those of the model for random inputs.

    Arguments are those of `split_model`; `sizes` are those of the inputs, too. Models of a folder
    of which nothing was split are copied. Raises InputError where a model cannot be read or run,
    none has a dimension that `sizes` names, nothing was split, or one of the `nodes` was not, and
    OutputError where `out` cannot be written, is an input, or would compute something else.
    """
    if nodes and source.is_dir():
        raise InputError("nodes are named in one model: give its file instead of the folder")
    asked: dict[str, Any] = {"op_types": op_types, "nodes": nodes, "sizes": sizes}
    paths = model_files(source)
    refuse_unknown_sizes(paths, sizes or {})
    found = [_split(path, out, target, **asked) for path in paths]
    results = [one.result for one in found]
    if not any(result.split for result in results) or (nodes and results[0].whole):
        raise InputError(_refusal(source, results, target))
    if not source.is_dir():
        return [found[0].write(out)]
    return _write_folder(source, out, found)


def _split(path: Path, out: Path, target: Target, **asked: Any) -> _Split:
    model = read_model(path)
    data = external_files(model)
    refuse_over_input([out] if not out.is_dir() else [], [path, *data])
    try:
        inputs = random_inputs(model, asked["sizes"])
        result = split_model(model, target, **asked)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return _Split(path, model, inputs, data, result)


def _write_folder(source: Path, out: Path, found: list[_Split]) -> list[SplitFile]:
    kept = {file for one in found if not one.result.split for file in one.data}
    written = [one for one in found if one.result.split]
    without = {file for one in written for file in (one.source, *one.data)} - kept
    for one in written:
        data = one.source.with_name(one.source.name + ".data")
        if data.resolve() in {file.resolve() for file in kept}:
            raise InputError(f"{data} holds weights of several models: split them one by one")
    results = []
    with output_folder(source, out, without) as copy:
        for one in found:
            relative = one.source.relative_to(source)
            if one.result.split:
                file = one.write(copy / relative)
            else:
                file = SplitFile(one.source, out / relative, one.result)
            results.append(replace(file, out=out / relative))
    return results


def _refusal(source: Path, results: list[SplitResult], target: Target) -> str:
    """Why nothing is written."""
    reasons = [f"{whole.node}: {whole.reason}" for result in results for whole in result.whole]
    if reasons:
        more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        return f"{source} was not split: {reasons[0]}{more}: name other operations or sizes"
    if any(result.small for result in results):
        limit = f"{target.max_bytes:,}"
        return f"{source}: no operation has more than {limit} bytes: give a smaller --max-bytes"
    kinds = ", ".join(OPERATION_TYPES)
    return (
        f"{source} has no operation of the types asked for that can be split: give some of {kinds}"
    )
