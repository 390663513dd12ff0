"""Compare two ONNX graphs: nodes that differ and, after a run of both, their times.

    graphs = compare_graphs(Path("sd3-onnx"), Path("sd3-slim"))
    times = compare_times(graphs, repeats=10)
    times.comparison.metrics

`measured` adds the recorded time of each node to the findings of `graph check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import polars as pl

from profiler.capture.onnxruntime.sessions import ModelPair, profile_in_turn, submodule_name
from profiler.compare.operations import (
    GraphPair,
    GraphSide,
    PlainNode,
    converted_name,
    node_table,
    nodes_of,
)
from profiler.errors import InputError
from profiler.graph.check import CheckResult, GraphFinding
from profiler.graph.model import (
    CATEGORY,
    external_files,
    infer_types,
    layer_of,
    model_files,
    module_scopes,
    read_model,
)
from profiler.graph.shapes import input_shape, random_inputs, refuse_unknown_sizes, static_shapes
from profiler.run.run import Run
from profiler.tools.sources import load

if TYPE_CHECKING:
    from profiler.compare.compare import Comparison


# --- Findings of `graph check` with measured times: how long each named node took in a run.
#
# measured(results, load("qnn_profile.csv"))


_NO_WORK = ("host", "sync")


@dataclass(frozen=True, slots=True)
class MeasuredFinding:
    """A finding with the time of its node: mean ns per call that has it, its share of all measured
    time, and the layer that ran it; None if no layer of the run names the node."""

    finding: GraphFinding
    ns: int | None
    share: float | None
    layer: str | None

    def to_json(self) -> dict[str, Any]:
        """The finding and its measured time as a JSON object."""
        return {
            **self.finding.to_json(),
            "measured_ns": self.ns,
            "measured_share": self.share,
            "measured_layer": self.layer,
        }


def measured(result: CheckResult, run: Run) -> tuple[MeasuredFinding, ...]:
    """Return the findings of one model in the order of `result`, those of a rule by time; matched
    by node names as the run's producer writes them."""
    times = _by_node(run)
    total = sum(ns for ns, _ in {layer: (ns, layer) for ns, layer in times.values()}.values())
    found = [_measured(finding, times, total) for finding in result.findings]
    return tuple(_ordered(found))


def _by_node(run: Run) -> dict[str, tuple[int, str]]:
    """Map node names to the mean time per call of the layer that ran the node, and the layer."""
    layers = (
        run.commands.lazy()
        .filter(~pl.col("category").cast(pl.String).is_in(_NO_WORK))
        .filter(pl.col("call") >= 0)
        .group_by(pl.col("layer").cast(pl.String))
        .agg(total=pl.col("duration_ns").clip(0).sum(), calls=pl.col("call").n_unique())
        .collect()
    )
    found: dict[str, tuple[int, str]] = {}
    for layer, total, calls in layers.sort("layer").iter_rows():
        mean = round(total / calls)
        for node in nodes_of(layer, run.info.producer):
            known = found.get(node)
            if known is None or known[0] < mean:
                found[node] = (mean, layer)
    return found


def _measured(
    finding: GraphFinding, times: dict[str, tuple[int, str]], total: int
) -> MeasuredFinding:
    names = (finding.node, converted_name(finding.node))
    ns, layer = next((times[name] for name in names if name in times), (None, None))
    share = ns / total if ns is not None and total else None
    return MeasuredFinding(finding, ns, share, layer)


def _ordered(found: Sequence[MeasuredFinding]) -> Iterable[MeasuredFinding]:
    place = {
        (one.finding.severity, one.finding.rule): n for n, one in reversed([*enumerate(found)])
    }
    return sorted(
        found, key=lambda one: (place[one.finding.severity, one.finding.rule], -(one.ns or 0))
    )


# --- The inventory of a model's file as plain values: nodes with layers and shapes, sizes, weights.
#
# Used to compute roles and FLOPs of graphs; `graph compare` shows them.


@dataclass(frozen=True, slots=True)
class GraphInventory:
    """The inventory of a model: nodes in the graph's order, including subgraphs; bytes on disk,
    data files included, and of the weights; `classes` by module path, "" for the model itself;
    `inputs` are "dtype[d0,d1,…]" by name, with the sizes for which shapes were inferred."""

    path: Path
    nodes: tuple[PlainNode, ...]
    file_bytes: int
    weight_bytes: int
    classes: Mapping[str, str]
    inputs: Mapping[str, str]


def inventory(path: Path, sizes: Mapping[str, int] | None = None) -> GraphInventory:
    """Read the inventory of the model in the file. `sizes` are those of symbolic dimensions, by
    default 2 for a batch and 8 for others. Raises InputError if it cannot be read."""
    model = read_model(path)
    files = [path, *external_files(model)]
    infer_types(model)
    given = {str(value.name): input_shape(value, sizes or {}) for value in model.graph.inputs}
    shapes = static_shapes(model, given)
    weights = [
        value.const_value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None and value.const_value.dtype != ir.DataType.STRING
    ]
    return GraphInventory(
        path=path,
        nodes=tuple(_node(node, shapes) for node in model.graph.all_nodes()),
        file_bytes=sum(file.stat().st_size for file in files if file.is_file()),
        weight_bytes=sum(tensor.nbytes for tensor in weights),
        classes=_classes(model),
        inputs={
            str(value.name): _described(value, shapes.get(str(value.name)))
            for value in model.graph.inputs
        },
    )


def _node(node: ir.Node, shapes: Mapping[str, tuple[int, ...]]) -> PlainNode:
    """Return a node with its shapes as ONNX Runtime's profile has them, "" if one is not known:
    `float32[2,77,64] float32[64] -> float32[2,77,64]`."""
    sides = [
        [_described(value, shapes.get(value.name or "")) for value in values if value is not None]
        for values in (node.inputs, node.outputs)
    ]
    known = all(text for side in sides for text in side)
    return PlainNode(
        layer=layer_of(node),
        op_type=node.op_type,
        type=f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
        category="copy" if node.metadata_props.get(CATEGORY) == "copy" else "compute",
        shapes=" -> ".join(" ".join(side) for side in sides) if known else "",
    )


def _described(value: ir.Value, shape: tuple[int, ...] | None) -> str:
    """Format a type and shape: `float32[2,77,64]`, "" if one is not known."""
    dtype = value.dtype or (value.const_value.dtype if value.const_value is not None else None)
    if dtype is None or shape is None:
        return ""
    name = {"FLOAT": "float32", "DOUBLE": "float64"}.get(dtype.name, dtype.name.lower())
    return f"{name}[{','.join(str(dim) for dim in shape)}]"


def _classes(model: ir.Model) -> dict[str, str]:
    """The class of each module path on the nodes, "" for the model itself."""
    found: dict[str, str] = {}
    for node in model.graph.all_nodes():
        for path, name in module_scopes(node):
            found.setdefault(path, name.rpartition(".")[2])
    return found


# --- Compare two graphs, or folders of them: their nodes and, after a run of both, their times.
#
# graphs = compare_graphs(Path("sd3-onnx"), Path("sd3-slim"))
# times = compare_times(graphs, repeats=10)
# times.comparison.metrics


@dataclass(frozen=True, slots=True)
class GraphComparison:
    """The nodes of both sides: one of `pairs` per model; `only_in` names the models of folders that
    only "base" or "new" has; `sizes` are the given sizes of symbolic dimensions."""

    pairs: tuple[GraphPair, ...]
    only_in: Mapping[str, tuple[str, ...]]
    sizes: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Both sides of each model, and models of one side only, as a JSON object."""
        return {
            "graphs": [pair.to_json() for pair in self.pairs],
            "only_in": {side: list(names) for side, names in self.only_in.items()},
        }


@dataclass(frozen=True, slots=True)
class TimeComparison:
    """The times of both sides: their bundles, and their comparison as by `profile-sd3 diff`, with
    one submodule per model."""

    base: Path
    new: Path
    comparison: Comparison


def compare_graphs(
    base: Path,
    new: Path,
    *,
    sizes: Mapping[str, int] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> GraphComparison:
    """Compare the nodes of two ONNX files, or of the files of the same names in two folders.

    `sizes` gives symbolic dimensions of inputs a number, for FLOPs and bytes; `say` gets progress
    texts. Raises InputError if a model cannot be read, none has the same name, or no model has a
    dimension that `sizes` names.
    """
    found, only_in = _pairs(base, new)
    refuse_unknown_sizes([path for _, *both in found for path in both], sizes or {})
    pairs = []
    for name, *both in found:
        say(f"reading graphs of {name}")
        pairs.append(GraphPair(name, *(_side(name, path, sizes or {}) for path in both)))
    return GraphComparison(tuple(pairs), only_in, dict(sizes or {}))


def compare_times(
    graphs: GraphComparison,
    *,
    repeats: int = 10,
    out: Path = Path("traces"),
    on_run: Callable[[], None] = lambda: None,
) -> TimeComparison:
    """Run both models of each pair in turn on the same random inputs, and compare their times.

    Each model is called `2 · repeats + 2` times: the first call with traced operators and the first
    without are separate, `repeats` calls have traced operators and `repeats` do not; `on_run` is
    called after each. Bundles are written below `out`. Raises InputError if ONNX Runtime rejects a
    model or its inputs; then no bundle is left.
    """
    from profiler.compare.compare import compare
    from profiler.compare.measure import measure

    asked = [
        ModelPair(
            pair.submodule,
            Path(pair.base.path),
            Path(pair.new.path),
            _inputs(Path(pair.base.path), graphs.sizes),
        )
        for pair in graphs.pairs
    ]
    titles = ("graph-base", "graph-new")
    bundles = profile_in_turn(asked, out, titles, repeats=repeats, on_run=on_run)
    base, new = ([measure(load(bundle))] for bundle in bundles)
    return TimeComparison(*bundles, compare(base, new))


def _pairs(
    base: Path, new: Path
) -> tuple[list[tuple[str, Path, Path]], dict[str, tuple[str, ...]]]:
    """Name and models of each pair, and the names that only one side has."""
    files = model_files(base), model_files(new)
    if base.is_dir() != new.is_dir():
        raise InputError(f"{base} and {new} are a file and a folder: give two of a kind")
    if base.is_file():
        name = base.parent.name if base.stem == "model" and base.parent.name else base.stem
        return [(submodule_name(name), base, new)], {"base": (), "new": ()}
    named = [
        {path.relative_to(side): path for path in found}
        for side, found in zip((base, new), files, strict=True)
    ]
    both = [key for key in named[0] if key in named[1]]
    if not both:
        raise InputError(f"{base} and {new} have no model of the same name: give two models")
    pairs = [(submodule_name(_part(key)), named[0][key], named[1][key]) for key in both]
    alone = [tuple(str(key) for key in side if key not in both) for side in named]
    return pairs, {"base": alone[0], "new": alone[1]}


def _part(relative: Path) -> str:
    """Name a model by its path: `vae_decoder` for `vae_decoder/model.onnx`, `unet.lora` for
    `unet/lora.onnx`."""
    folder = ".".join(relative.parent.parts)
    if relative.stem == "model" and folder:
        return folder
    return ".".join(relative.with_suffix("").parts)


def _side(name: str, path: Path, sizes: Mapping[str, int]) -> GraphSide:
    try:
        found = inventory(path, sizes)
    except InputError as error:
        raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
    return GraphSide(
        path=str(path),
        file_bytes=found.file_bytes,
        weight_bytes=found.weight_bytes,
        inputs=found.inputs,
        nodes=node_table(name, found.nodes, found.classes),
    )


def _inputs(path: Path, sizes: Mapping[str, int]) -> Callable[[], dict[str, Any]]:
    """Return a function that makes the inputs for both models of a pair."""

    def made() -> dict[str, Any]:
        try:
            return random_inputs(read_model(path), sizes)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    return made
