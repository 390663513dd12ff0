"""`graph annotate`: a model's file, or those of a folder → files with what a run measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from profiler.errors import InputError
from profiler.graph.annotate import Annotation, MeasuredCommand, annotate_model
from profiler.graph.executed import executed_nodes
from profiler.graph.metadata import LAYER, MEASURED, PREFIX
from profiler.graph.model_file import external_files, read_graph, read_model
from profiler.graph.output_file import output_folder, write_model
from profiler.graph.values import DATA_ERRORS
from profiler.graph.values import nodes as all_nodes
from profiler.plugins import plain_text

__all__ = ["AnnotatedFile", "Measurement", "annotate_file", "annotate_folder"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a run measured of the submodule that a model is, and how its nodes were executed.

    `layer_of` gives a node's layer by name and op type. `optimized` is the graph that was
    executed, as ONNX Runtime writes it, None where that is not known. `about` are texts that the
    model's own metadata gets: run, submodule, devices.
    """

    commands: Sequence[MeasuredCommand]
    layer_of: Callable[[str, str], str]
    optimized: Path | None = None
    about: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class AnnotatedFile:
    """What became of the model in `source`: `out` has the time that `annotation` tells of."""

    source: Path
    out: Path
    annotation: Annotation

    def to_json(self) -> dict[str, Any]:
        """The annotation as a JSON object."""
        found = self.annotation
        return {
            "model": str(self.source),
            "out": str(self.out),
            "total_ns": found.total_ns,
            "at_nodes_ns": found.at_nodes_ns,
            "at_layers_ns": found.at_layers_ns,
            "nowhere_ns": found.nowhere_ns,
            "fused_nodes": found.fused,
            "nodes": [
                {
                    "node": node.node,
                    "op_type": node.op_type,
                    "layer": node.layer,
                    "role": node.role,
                    "duration_ns": node.duration_ns,
                    "share": node.share,
                }
                for node in found.nodes
            ],
            "unplaced": [
                {"layer": layer, "op_type": op_type, "duration_ns": duration}
                for layer, op_type, duration in found.unplaced
            ],
        }


def annotate_file(source: Path, out: Path, measurement: Measurement) -> AnnotatedFile:
    """Write the model in `source` with what was measured to `out`.

    External data stays where it is when `out` lies in the folder of `source`, else `out`.data gets
    a copy of it. Raises InputError where the model cannot be read or none of its layers was
    measured, OutputError where `out` is an input or cannot be written.
    """
    beside = out.parent.resolve() == source.parent.resolve()
    return _annotate(source, out, measurement, references=beside)


def annotate_folder(
    source: Path, out: Path, measured: Mapping[Path, Measurement]
) -> list[AnnotatedFile]:
    """Copy the folder `source` to `out`, with the models in `measured` annotated. Raises as
    `annotate_file`, and where `out` is there already."""
    results = []
    with output_folder(source, out, list(measured)) as copy:
        for path, measurement in measured.items():
            relative = path.relative_to(source)
            found = _annotate(path, copy / relative, measurement, references=True)
            results.append(replace(found, out=out / relative))
    return results


def _annotate(
    source: Path, out: Path, measurement: Measurement, *, references: bool
) -> AnnotatedFile:
    """As `annotate_file`; with `references` the data lies beside `out` as it does for `source`."""
    model = read_graph(source) if references else read_model(source)
    executed, values = None, frozenset[str]()
    if measurement.optimized is not None:
        executed, values = executed_nodes(measurement.optimized, measurement.layer_of)
    annotation = annotate_model(model, measurement.commands, measurement.layer_of, executed, values)
    if not annotation.at_nodes_ns and not annotation.at_layers_ns:
        raise InputError(_nothing_placed(source, annotation))
    for name, text in {**(measurement.about or {}), "placed": annotation.placed}.items():
        model.metadata_props[PREFIX + name] = plain_text(text)
    write_model(
        model,
        out,
        sources=[source, *external_files(model)],
        check=lambda written: _check_same(source, written, out),
        references=references,
    )
    return AnnotatedFile(source, out, annotation)


def _nothing_placed(source: Path, annotation: Annotation) -> str:
    if not annotation.total_ns:
        return f"{source}: the run has no operator times of it: record it with --ops all"
    layer = annotation.unplaced[0][0]
    return (
        f"{source} has none of the layers that the run measured, such as {layer!r}: give the model "
        "that was run"
    )


def _check_same(source: Path, written: Path, out: Path) -> None:
    """Raise InputError where the written model is another than that in `source`, beside what was
    measured."""
    before, after = read_graph(source), read_graph(written)
    same = before.ir_version == after.ir_version and before.opset_imports == after.opset_imports
    pairs = zip(all_nodes(before), all_nodes(after), strict=False)
    same = same and _count(before) == _count(after) and all(_same_node(*pair) for pair in pairs)
    if not same or not _same_weights(before, after):
        raise InputError(f"{out} would be another model than {source}: report this as a fault")


def _count(model: ir.Model) -> int:
    return sum(1 for _ in all_nodes(model))


def _same_node(one: ir.Node, other: ir.Node) -> bool:
    def told(node: ir.Node) -> tuple[object, ...]:
        kept = {
            key: value
            for key, value in node.metadata_props.items()
            if key not in MEASURED and key != LAYER
        }
        inputs = [value.name if value is not None else None for value in node.inputs]
        outputs = [value.name for value in node.outputs]
        attributes = sorted(node.attributes)
        return node.op_identifier(), node.name, inputs, outputs, attributes, kept

    return told(one) == told(other)


def _same_weights(one: ir.Model, other: ir.Model) -> bool:
    """Whether initializers are of the same names, types and dims; data in the file is compared."""
    for before, after in zip(one.graphs(), other.graphs(), strict=False):
        if list(before.initializers) != list(after.initializers):
            return False
        for name, value in before.initializers.items():
            if not _same_tensor(value.const_value, after.initializers[name].const_value):
                return False
    return True


def _same_tensor(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if isinstance(one, ir.ExternalTensor) or isinstance(other, ir.ExternalTensor):
        return bool(one.nbytes == other.nbytes)
    try:
        return bool(one.tobytes() == other.tobytes())
    except DATA_ERRORS:
        return True  # strings have no bytes; a fault of the source stays
