"""`graph annotate`: write measured times onto the nodes of an ONNX model.

    annotated = annotate(Path("sd3-onnx"), Path("traces"), Path("sd3-hot"))
    annotated.models[0].annotation.nodes[0]

The n-th command of a layer and op type is the n-th executed node of these, if the numbers
agree. Otherwise a command is placed at the only node of its layer and op type, or at the layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from profiler.analysis.operators import command_positions
from profiler.analysis.roles import with_roles
from profiler.capture.onnxruntime.onnx_graph import ExportedModel, build_layer_map
from profiler.errors import InputError
from profiler.graph.model import (
    DATA_ERRORS,
    LAYER,
    MEASURED,
    PREFIX,
    external_files,
    model_files,
    output_folder,
    read_graph,
    read_model,
    write_model,
)
from profiler.graph.model import nodes as all_nodes
from profiler.graph.verify import ExecutedNode, Origins, executed_nodes, optimized_graph, origins_of
from profiler.plugins import plain_text
from profiler.run.run import Run
from profiler.tools.sources import load
from profiler.trace.manifest_fields import Submodule

# --- `graph annotate`: write what a run measured onto the nodes of a model.


_Key = tuple[str, str]
_NAMED = 6  # fused nodes named on a node


@dataclass(frozen=True, slots=True)
class MeasuredCommand:
    """A command of every call: the `position`-th, from 0, of the `of` commands of its layer and
    op type. `duration_ns` and bytes are sums over the `calls` that have it; bytes are None if
    unknown."""

    layer: str
    op_type: str
    position: int
    of: int
    calls: int
    duration_ns: int
    bytes_read: int | None = None
    bytes_written: int | None = None
    role: str = ""


@dataclass(frozen=True, slots=True)
class HotNode:
    """A node with its time: `duration_ns` over all calls, `share` of all commands' time."""

    node: str
    op_type: str
    layer: str
    role: str
    duration_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class Annotation:
    """The time placed at nodes, only at layers, or nowhere, in ns over all calls.

    `nodes` are the nodes with time, longest first; `fused` counts nodes whose time another node
    has; `unplaced` are the commands of layers that the model lacks: layer, op type and time.
    """

    at_nodes_ns: int
    at_layers_ns: int
    nowhere_ns: int
    nodes: tuple[HotNode, ...]
    fused: int
    unplaced: tuple[tuple[str, str, int], ...]

    @property
    def total_ns(self) -> int:
        """The time of all commands."""
        return self.at_nodes_ns + self.at_layers_ns + self.nowhere_ns

    @property
    def placed(self) -> str:
        """Say where the time was placed."""
        total = max(self.total_ns, 1)
        parts = (
            (self.at_nodes_ns, "at nodes"),
            (self.at_layers_ns, "at layers alone"),
            (self.nowhere_ns, "nowhere"),
        )
        return ", ".join(f"{100 * part / total:.1f} % {where}" for part, where in parts if part)


@dataclass(slots=True)
class _Sum:
    """The sums measured for one node."""

    duration_ns: int = 0
    bytes_read: int | None = 0
    bytes_written: int | None = 0
    roles: dict[str, int] = field(default_factory=dict)
    calls_of: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    kinds: dict[str, None] = field(default_factory=dict)
    others: dict[ir.Node, None] = field(default_factory=dict)

    def add(self, command: MeasuredCommand, others: Iterable[ir.Node]) -> None:
        self.calls_of[command.op_type][command.of] = command.calls
        self.duration_ns += command.duration_ns
        self.bytes_read = _plus(self.bytes_read, command.bytes_read)
        self.bytes_written = _plus(self.bytes_written, command.bytes_written)
        self.kinds[command.op_type] = None
        self.others |= dict.fromkeys(others)
        if command.role:
            self.roles[command.role] = self.roles.get(command.role, 0) + command.duration_ns

    @property
    def calls(self) -> int:
        """Count its calls: commands with the same position are from different calls."""
        return max((sum(calls.values()) for calls in self.calls_of.values()), default=0)

    @property
    def role(self) -> str:
        return max(self.roles, key=lambda role: self.roles[role], default="")


def annotate_model(
    model: ir.Model,
    measured: Sequence[MeasuredCommand],
    layer_of: Callable[[str, str], str],
    executed: Sequence[ExecutedNode] | None = None,
    values: frozenset[str] = frozenset(),
) -> Annotation:
    """Write what was measured on the nodes of `model`, in place; removes earlier annotations.

    `layer_of` gives the layer of a node, as capture names layers, from its name (or the first value
    it writes, if it has none) and its op type. `executed` are the nodes that were executed, in
    order, and `values` all values of their graph; None if that is not known.
    """
    nodes = list(all_nodes(model))
    for node in nodes:
        for key in MEASURED:
            node.metadata_props.pop(key, None)
    layers = {node: layer_of(_key(node), node.op_type) for node in nodes}
    if executed is None:
        candidates = [(layers[node], node.op_type, Origins(node)) for node in nodes]
    else:
        origins = origins_of(model, executed, values)
        candidates = [
            (node.layer, node.op_type, origin)
            for node, origin in zip(executed, origins, strict=True)
        ]
    return _Placing(measured, layers, candidates, ordered=executed is not None).write()


def _key(node: ir.Node) -> str:
    return node.name or next((value.name for value in node.outputs if value.name), "")


class _Placing:
    """Places commands at nodes."""

    def __init__(
        self,
        measured: Sequence[MeasuredCommand],
        layers: Mapping[ir.Node, str],
        candidates: Sequence[tuple[str, str, Origins]],
        *,
        ordered: bool,
    ) -> None:
        self._layers = layers
        self._known = set(layers.values())
        self._ordered = ordered
        self._total = max(sum(command.duration_ns for command in measured), 1)
        self._groups: dict[_Key, list[Origins]] = defaultdict(list)
        for layer, op_type, origins in candidates:
            self._groups[layer, op_type].append(origins)
        self._sums: dict[ir.Node, _Sum] = {}
        self._of_layers: dict[str, _Sum] = {}
        self._at_layers = 0
        self._nowhere: dict[_Key, int] = defaultdict(int)
        for command in measured:
            self._place(command)

    def _place(self, command: MeasuredCommand) -> None:
        origins = self._origins(command)
        if origins is not None and origins.counted_at is not None:
            found = self._sums.setdefault(origins.counted_at, _Sum())
            found.add(command, origins.others)
        elif command.layer in self._known:
            self._at_layers += command.duration_ns
        else:
            self._nowhere[command.layer, command.op_type] += command.duration_ns
        self._of_layers.setdefault(command.layer, _Sum()).add(command, ())

    def _origins(self, command: MeasuredCommand) -> Origins | None:
        """Return the nodes of a command, None if they are not known."""
        group = self._groups.get((command.layer, command.op_type), [])
        if len(group) == 1:
            return group[0]
        if self._ordered and len(group) == command.of:
            return group[command.position]
        return None

    def write(self) -> Annotation:
        """Write the metadata of all nodes."""
        for node, layer in self._layers.items():
            self._write_layer(node, layer)
        fused: dict[ir.Node, ir.Node] = {}
        for node, found in self._sums.items():
            self._write_node(node, found)
            fused |= {other: node for other in found.others if other not in self._sums}
        for other, node in fused.items():
            other.metadata_props[f"{PREFIX}counted_at"] = plain_text(node.name or node.op_type)
        if self._ordered and self._sums:
            for node in self._layers:
                if node not in self._sums and node not in fused and node.op_type != "Constant":
                    node.metadata_props[f"{PREFIX}executed"] = "no: folded or removed"
        hot = [self._hot(node, found) for node, found in self._sums.items()]
        nowhere = [(*key, duration) for key, duration in self._nowhere.items()]
        return Annotation(
            sum(found.duration_ns for found in self._sums.values()),
            self._at_layers,
            sum(self._nowhere.values()),
            tuple(sorted(hot, key=lambda node: -node.duration_ns)),
            len(fused),
            tuple(sorted(nowhere, key=lambda entry: -entry[2])),
        )

    def _hot(self, node: ir.Node, found: _Sum) -> HotNode:
        share = found.duration_ns / self._total
        name, layer = node.name or "", self._layers[node]
        return HotNode(name, node.op_type, layer, found.role, found.duration_ns, share)

    def _write_layer(self, node: ir.Node, layer: str) -> None:
        found = self._of_layers.get(layer)
        if found is None or not found.calls:
            return
        node.metadata_props.setdefault(LAYER, layer)
        text = f"{_microseconds(found)}, {self._share(found)}: the whole layer"
        node.metadata_props[f"{PREFIX}layer_time"] = text

    def _write_node(self, node: ir.Node, found: _Sum) -> None:
        written = {
            "time": _microseconds(found),
            "share": self._share(found),
            "calls": str(found.calls),
            "bytes_read": _per_call(found.bytes_read, found.calls, "read"),
            "bytes_written": _per_call(found.bytes_written, found.calls, "written"),
            "role": found.role,
        }
        kinds = list(found.kinds)
        if kinds != [node.op_type]:
            written["executed_as"] = ", ".join(kinds)
        if found.others:
            named = [other.name or other.op_type for other in found.others]
            more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
            written["stands_for"] = f"{', '.join(named[:_NAMED])}{more}"
        for name, text in written.items():
            if text:
                node.metadata_props[PREFIX + name] = plain_text(text)

    def _share(self, found: _Sum) -> str:
        return f"{100 * found.duration_ns / self._total:.2f} %"


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _microseconds(found: _Sum) -> str:
    """Format the mean time per call."""
    return f"{found.duration_ns / max(found.calls, 1) / 1000:.1f} µs a call"


def _per_call(total: int | None, calls: int, done: str) -> str:
    """Format bytes per call with their direction: Netron cuts long names."""
    return "" if total is None else f"{round(total / max(calls, 1))} bytes {done} a call"


# --- `graph annotate`: a model's file, or those of a folder → copies with what a run measured.


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a run measured of the submodule of a model, and how its nodes were executed.

    `layer_of` gives a node's layer by name and op type. `optimized` is the executed graph, as ONNX
    Runtime writes it, None if that is not known. `about` are texts for the model's own metadata:
    run, submodule, devices.
    """

    commands: Sequence[MeasuredCommand]
    layer_of: Callable[[str, str], str]
    optimized: Path | None = None
    about: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class AnnotatedFile:
    """The annotated copy `out` of the model in `source`, and its `annotation` from `calls` traced
    calls of `submodule`."""

    source: Path
    out: Path
    annotation: Annotation
    submodule: str = ""
    calls: int = 0

    def to_json(self) -> dict[str, Any]:
        """The submodule and where its time went, as a JSON object."""
        found = self.annotation
        return {
            "submodule": self.submodule,
            "model": str(self.source),
            "out": str(self.out),
            "total_ns": found.total_ns,
            "at_nodes_ns": found.at_nodes_ns,
            "at_layers_ns": found.at_layers_ns,
            "nowhere_ns": found.nowhere_ns,
            "fused_nodes": found.fused,
            "nodes": [asdict(node) for node in found.nodes],
            "unplaced": [
                {"layer": layer, "op_type": op_type, "duration_ns": duration}
                for layer, op_type, duration in found.unplaced
            ],
        }


def annotate_file(source: Path, out: Path, measurement: Measurement) -> AnnotatedFile:
    """Write the model in `source` with what was measured to `out`.

    External data stays where it is if `out` is in the folder of `source`, else it is copied to
    `out`.data. Raises InputError if the model cannot be read or none of its layers was measured,
    OutputError if `out` is an input or cannot be written.
    """
    beside = out.parent.resolve() == source.parent.resolve()
    return _annotate(source, out, measurement, references=beside)


def annotate_folder(
    source: Path, out: Path, measured: Mapping[Path, Measurement]
) -> list[AnnotatedFile]:
    """Copy the folder `source` to `out`, with the models in `measured` annotated. Raises as
    `annotate_file`, and if `out` is there already."""
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
    """Annotate one file, as `annotate_file`; with `references` the external data is beside `out` as
    it is beside `source`."""
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
    """Raise InputError if the written model differs from `source` beyond annotations."""
    before, after = read_graph(source), read_graph(written)
    same = before.ir_version == after.ir_version and before.opset_imports == after.opset_imports
    sides = [*all_nodes(before)], [*all_nodes(after)]
    same = same and len(sides[0]) == len(sides[1]) and all(map(_same_node, *sides))
    if not same or not _same_weights(before, after):
        raise InputError(f"{out} would be another model than {source}: report this as a fault")


def _same_node(one: ir.Node, other: ir.Node) -> bool:
    def key(node: ir.Node) -> tuple[object, ...]:
        kept = {
            key: value
            for key, value in node.metadata_props.items()
            if key not in MEASURED and key != LAYER
        }
        inputs = [value.name if value is not None else None for value in node.inputs]
        outputs = [value.name for value in node.outputs]
        attributes = sorted(node.attributes)
        return node.op_identifier(), node.name, inputs, outputs, attributes, kept

    return key(one) == key(other)


def _same_weights(one: ir.Model, other: ir.Model) -> bool:
    """Whether initializers have the same names, types and dims; inline data is compared."""
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
        return True  # strings have no bytes; the source's own faults are kept


# --- A model, or a folder of them, and a run → copies with what the run measured on the nodes.


_FOLDERS = {"vae_decoder": "vae", "vae_encoder": "vae"}  # parts of a submodule with two graphs


@dataclass(frozen=True, slots=True)
class Annotated:
    """The result of `annotate`: a file per model; `copied` are models of a folder that the run
    lacks, `notes` say what is not known."""

    run_id: str
    models: Sequence[AnnotatedFile]
    copied: Sequence[Path]
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """The results as a JSON object."""
        return {"run": self.run_id, "models": [model.to_json() for model in self.models]}


def annotate(
    model: Path,
    traces: Path,
    out: Path,
    *,
    submodule: str = "",
    runtime: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Annotated:
    """Write `model` to `out` with the time, share, calls, bytes and role that a run measured.

    `model` is an ONNX file or a folder of them, `traces` a bundle, a folder of which the newest is
    taken, or one `.pb`. `submodule` is the run's submodule for a single model, "" to infer it from
    the run or from names. With `runtime` ONNX Runtime optimizes the model once more, without
    running it, so that time of fused nodes is placed at nodes. `say` gets progress texts. Raises
    InputError if a model or the run cannot be read or they do not match, OutputError if `out`
    cannot be written or is an input.
    """
    sources = model_files(model)
    run = with_roles(load(traces))
    named = _submodules(model, sources, run, submodule)
    notes: list[str] = []
    say(f"annotating {model}")
    with ExitStack() as stack:
        measured = {}
        for path, name in named.items():
            optimized = _optimized(stack, path, notes) if runtime else None
            measured[path] = _measurement(path, run, name, optimized)
        if model.is_dir():
            files = annotate_folder(model, out, measured)
        else:
            files = [annotate_file(model, out, measured[sources[0]])]
    models = [
        replace(file, submodule=name, calls=_calls(run, name))
        for file in files
        for name in (named[file.source],)
    ]
    return Annotated(run.run_id, models, [path for path in sources if path not in named], notes)


def _submodules(model: Path, sources: list[Path], run: Run, asked: str) -> dict[Path, str]:
    """Map each model to its submodule of the run; others are left out."""
    known = [str(name) for name in run.calls["submodule"].unique(maintain_order=True)]
    names = ", ".join(known)
    if asked:
        if asked not in known:
            raise InputError(f"the run has no submodule {asked}: give one of {names}")
        if model.is_dir():
            raise InputError("--submodule names one model: give its file instead of the folder")
        return {sources[0]: asked}
    found = _told_by_run(sources, run, known)
    for path in sources:
        called = (_FOLDERS.get(name, name) for name in (path.parent.resolve().name, path.stem))
        name = next((name for name in called if name in known), "")
        if path not in found and name and name not in found.values():
            found[path] = name
    if not found and not model.is_dir() and len(known) == 1:
        return {sources[0]: known[0]}
    if not found:
        raise InputError(f"which submodule {model} is cannot be told: give --submodule {names}")
    return found


def _told_by_run(sources: list[Path], run: Run, known: list[str]) -> dict[Path, str]:
    """Match models to submodules by the model paths recorded in the run."""
    found = {}
    for name in known:
        parts = Path(run.info.submodules.get(name, Submodule()).model).parts
        for path in sources:
            if len(parts) > 1 and path.resolve().parts[-len(parts) :] == parts:
                found[path] = name
    return found


def _optimized(stack: ExitStack, path: Path, notes: list[str]) -> Path | None:
    """Return the graph that ONNX Runtime executes, a file until `stack` ends; None if it cannot
    make one."""
    try:
        return stack.enter_context(optimized_graph(path))
    except InputError as error:
        notes.append(f"{error}: time of fused nodes stays at their layers")
        return None


def _measurement(path: Path, run: Run, submodule: str, optimized: Path | None) -> Measurement:
    rows = command_positions(run, submodule)
    commands = [
        MeasuredCommand(**{**row, "role": row["role"] or ""}) for row in rows.iter_rows(named=True)
    ]
    layers = build_layer_map(ExportedModel(path), optimized)
    return Measurement(
        commands,
        lambda name, op_type: layers.place_of(name, op_type)[0],
        optimized,
        _about(run, submodule, commands),
    )


def _about(run: Run, submodule: str, commands: list[MeasuredCommand]) -> dict[str, str]:
    """Return the texts for the model's own metadata."""
    calls = _calls(run, submodule)
    total_ns = sum(command.duration_ns for command in commands)
    device = run.info.submodules.get(submodule, Submodule()).device
    about = {
        "run": run.run_id,
        "submodule": submodule,
        "device": device,
        "calls": str(calls),
        "time": f"{total_ns / max(calls, 1) / 1000:.1f} µs of operators a call",
    }
    return {name: text for name, text in about.items() if text}


def _calls(run: Run, submodule: str) -> int:
    """The calls whose operators were traced."""
    calls = run.calls["ops_traced"] & (run.calls["submodule"].cast(str) == submodule)
    return int(calls.sum())
