"""`graph check` rules on validity: missing data, names, node order, opsets, shapes.

A finding names its rule, severity and place. Targets list only what public sources say of their
operator sets. Rebellions' compiler is not among them: its documentation names no ONNX opset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import onnx
import onnx_ir as ir

from profiler.graph.model import data_faults, infer_types, nodes, read_graph
from profiler.pipelines.model_folder import find_target

# --- Rules: their findings, their input, and their registration.


_MOST_LETTERS = 1000
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class GraphFinding:
    """One fault of a graph.

    `node` is the name of the node, input or tensor; `evidence` says what is there, `recommendation`
    what to do about it; `fix` whether `--fix` repairs it. `error`: a compiler stops there;
    `warning`: it costs time or stops some; `note`: it may cost time. Names of more than 1000
    letters are cut.
    """

    rule: str
    severity: Severity
    node: str
    evidence: str
    recommendation: str
    fix: bool = False

    def __post_init__(self) -> None:
        for name in ("node", "evidence", "recommendation"):
            text = getattr(self, name)
            if len(text) > _MOST_LETTERS:
                object.__setattr__(self, name, f"{text[:_MOST_LETTERS]}…")

    def to_json(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model to check, the target's name ("" for none) and whether shapes must be static."""

    model: ir.Model
    target: str = ""
    static: bool = False


class Fault(NamedTuple):
    """One fault as a rule yields it, see `GraphFinding`; `severity` None means the rule's."""

    node: str
    evidence: str
    recommendation: str
    fix: bool = False
    severity: Severity | None = None


_Rule = Callable[[CheckedModel], Iterator[GraphFinding]]
RULES: dict[str, _Rule] = {}


def rule(severity: Severity) -> Callable[[Callable[[CheckedModel], Iterator[Fault]]], _Rule]:
    """Return a decorator that registers a rule under its function's name."""

    def registered(check: Callable[[CheckedModel], Iterator[Fault]]) -> _Rule:
        name = check.__name__

        def findings(checked: CheckedModel) -> Iterator[GraphFinding]:
            for node, evidence, recommendation, fix, own in check(checked):
                yield GraphFinding(name, own or severity, node, evidence, recommendation, fix)

        RULES[name] = findings
        return findings

    return registered


def opset(model: ir.Model) -> int:
    """Return the version of the ONNX operators that the model imports, 0 if there is none."""
    versions = model.opset_imports
    return versions.get("", versions.get("ai.onnx", 0))


def place(node: ir.Node) -> str:
    """Name a node: by its name, else by what it writes."""
    written = next((output.name for output in node.outputs if output.name), "")
    return node.name or f"{node.op_type} that writes {written!r}"


# --- Data of tensors that is missing, cut, or outside the model's folder.


@rule("error")
def missing_data(checked: CheckedModel) -> Iterator[Fault]:
    """A tensor's data cannot be used."""
    for fault in data_faults(checked.model):
        evidence = f"the tensor {fault.reason}"
        yield Fault(fault.tensor, evidence, fault.recommendation)


# --- Names of nodes, by which profiles, metadata and converters identify a node.


@rule("error")
def duplicate_node_name(checked: CheckedModel) -> Iterator[Fault]:
    """Several nodes share a name."""
    counts = Counter(node.name for node in nodes(checked.model) if node.name)
    for name, count in counts.items():
        if count > 1:
            yield Fault(
                name,
                f"{count} nodes have this name: ONNX Runtime refuses the model, a profile takes "
                "them for one",
                "name each node differently",
                fix=True,
            )


@rule("note")
def unnamed_node(checked: CheckedModel) -> Iterator[Fault]:
    """A node has no name."""
    for node in nodes(checked.model):
        if not node.name:
            yield Fault(
                place(node),
                f"{node.op_type} has no name, so that a profile cannot tell which node it was",
                "name it after its operation and what it writes",
                fix=True,
            )


# --- Nodes that violate their operator's schema: inputs, outputs or attributes that it lacks.


_TYPES = frozenset(entry.value for entry in ir.DataType if entry != ir.DataType.UNDEFINED)


@rule("error")
def invalid_node(checked: CheckedModel) -> Iterator[Fault]:
    """A node has too few or too many inputs or outputs for its operator, or lacks an attribute."""
    version = opset(checked.model)
    for node in nodes(checked.model):
        wrong = _wrong(node, version)
        if wrong:
            yield Fault(
                place(node),
                f"{node.op_type} of opset {version} {wrong}",
                "export the model again; other rules are looked at once this is repaired",
            )


def _wrong(node: ir.Node, version: int) -> str:
    """Say what is wrong with an ONNX node; "" if nothing is, or it has no schema."""
    version = max(version, 1)
    if node.domain or not onnx.defs.has(node.op_type, max_inclusive_version=version):
        return ""
    schema = onnx.defs.get_schema(node.op_type, max_inclusive_version=version)
    inputs, outputs = len(node.inputs), len(node.outputs)
    if not schema.min_input <= inputs <= schema.max_input:
        return f"takes {schema.min_input} to {schema.max_input} inputs, not {inputs}"
    if not schema.min_output <= outputs <= schema.max_output:
        return f"gives {schema.min_output} to {schema.max_output} outputs, not {outputs}"
    wrong = (_wrong_attribute(node, *entry) for entry in schema.attributes.items())
    return next(filter(None, wrong), "")


def _wrong_attribute(node: ir.Node, name: str, attribute: onnx.defs.OpSchema.Attribute) -> str:
    given = node.attributes.get(name)
    if given is not None and given.is_ref():
        return ""
    if given is None:
        return f"lacks its attribute {name!r}" if attribute.required else ""
    if given.type.value != int(attribute.type.value):
        return f"has a {given.type.name} as its attribute {name!r}"
    if name == "to" and given.value not in _TYPES:
        return f"has the unknown type {given.value} as its attribute 'to'"
    return ""


# --- Operator sets and operators: unsupported by a target, or not defined at all.


_RUNTIME_DOMAINS = ("com.microsoft", "ai.onnx.contrib", "com.ms.internal")


@rule("error")
def unsupported_opset(checked: CheckedModel) -> Iterator[Fault]:
    """The model imports no opset, or one that does not exist; or the target does not support the
    model's opset, or a domain of its operators."""
    version = opset(checked.model)
    latest = onnx.defs.onnx_opset_version()
    if not 1 <= version <= latest and any(not node.domain for node in nodes(checked.model)):
        yield Fault(
            "",
            f"the model is of opset {version}, the latest of ONNX {onnx.__version__} is {latest}"
            if version
            else "the model imports no opset of ONNX, which tells what its operators are",
            f"export it again, with an opset of 1 to {latest}",
        )
    if not checked.target:
        return
    target = find_target(checked.target)
    if not target.lowest <= version <= target.highest:
        nearest = min(max(version, target.lowest), target.highest)
        yield Fault(
            "",
            f"the model is of opset {version}, {target.title} takes {target.lowest} to "
            f"{target.highest} ({target.source})",
            f"export with opset {nearest}, or convert with onnx.version_converter",
        )
    own = {(function.domain, function.name) for function in checked.model.functions.values()}
    for node in nodes(checked.model):
        foreign = node.domain and not node.domain.startswith(target.domains or ("ai.onnx.ml",))
        if foreign and (node.domain, node.op_type) not in own:
            yield Fault(
                place(node),
                f"{node.domain}.{node.op_type} is no ONNX operator, and {target.title} takes those",
                "export without it, or without the optimization that put it in",
            )


@rule("error")
def unknown_operator(checked: CheckedModel) -> Iterator[Fault]:
    """An operator is defined by neither ONNX nor the model."""
    own = {(function.domain, function.name) for function in checked.model.functions.values()}
    for node in nodes(checked.model):
        if (node.domain, node.op_type) in own or node.domain.startswith(_RUNTIME_DOMAINS):
            continue
        version = checked.model.opset_imports.get(node.domain, 0) or opset(checked.model)
        if not _has(node, version):
            where = f"domain {node.domain!r}" if node.domain else f"opset {version} of ONNX"
            yield Fault(
                place(node),
                f"{node.op_type} of {where} has no schema, and the model no function of that name",
                "export without it, with the opset that has it, or with a function that defines it",
            )


def _has(node: ir.Node, version: int) -> bool:
    return bool(
        onnx.defs.has(node.op_type, domain=node.domain, max_inclusive_version=max(version, 1))
    )


# --- The order of nodes: ONNX requires each node behind those whose values it reads.


_Nodes: TypeAlias = "ir.Graph | ir.Function"


@rule("error")
def unsorted_node(checked: CheckedModel) -> Iterator[Fault]:
    """A node reads what a later one writes, or what depends on its own output."""
    model = checked.model
    graphs: list[_Nodes] = [*model.graphs(), *model.functions.values()]
    for graph in graphs:
        number = {node: index for index, node in enumerate(graph)}
        late = {
            node: value
            for node in graph
            for value in _read(node)
            if (writer := value.producer()) is not None and number.get(writer, -1) >= number[node]
        }
        circular = _in_circles(graph) if late else set()
        for node, value in late.items():
            in_circle = node in circular
            yield Fault(
                place(node),
                f"{node.op_type} reads {value.name!r}, which "
                + ("is computed from what it writes" if in_circle else "a later node writes"),
                "export the model again" if in_circle else "put the nodes in order",
                fix=not in_circle,
            )


def _read(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node reads, including its subgraphs."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield from (value for value in current.inputs if value is not None)
        for attribute in current.attributes.values():
            if attribute.is_ref():
                continue
            if attribute.type == ir.AttributeType.GRAPH:
                pending += attribute.as_graph()
            elif attribute.type == ir.AttributeType.GRAPHS:
                pending += [inner for graph in attribute.as_graphs() for inner in graph]


def _in_circles(graph: _Nodes) -> set[ir.Node]:
    """Return the nodes that cannot be sorted: those in cycles and behind them."""
    left = set(graph)
    writers = ((node, value.producer()) for node in graph for value in _read(node))
    sorter: TopologicalSorter[ir.Node] = TopologicalSorter(dict.fromkeys(left, ()))
    for node, writer in writers:
        if writer is not None and writer in left:
            sorter.add(node, writer)
    with suppress(CycleError):  # nodes outside of cycles are sorted nevertheless
        sorter.prepare()
    while ready := sorter.get_ready():
        left.difference_update(ready)
        sorter.done(*ready)
    return left


# --- Static shapes, if they are required.


_OF_DATA = {"NonZero", "Unique", "NonMaxSuppression", "Compress", "StringSplit"}


@rule("error")
def dynamic_shape(checked: CheckedModel) -> Iterator[Fault]:
    """With `static`, or a target that requires fixed sizes: an input's size is not fixed, or a
    node's shape depends on data."""
    target = find_target(checked.target) if checked.target else None
    needed = target is not None and target.fixed_sizes
    if not checked.static and not needed:
        return
    because = (
        f", and {target.title} takes fixed ones ({target.fixed_sizes})" if target and needed else ""
    )
    for value in checked.model.graph.inputs:
        if value.name in checked.model.graph.initializers:
            continue
        named = _dynamic(value)
        if named:
            verb = "is" if len(named) == 1 else "are"
            yield Fault(
                value.name or "",
                f"input of shape {_text(value)}: {', '.join(named)} {verb} not fixed{because}",
                "export it with fixed sizes, or set them by `python -m "
                "onnxruntime.tools.make_dynamic_shape_fixed`",
            )
    for node in nodes(checked.model):
        if node.op_type in _OF_DATA and not node.domain:
            yield Fault(
                place(node),
                f"{node.op_type}: the shape of what it writes depends on data{because}",
                "compute with a mask of fixed shape instead",
            )


def _dynamic(value: ir.Value) -> list[str]:
    if value.shape is None:
        return ["its shape"]
    found = (dim if isinstance(dim, int) else str(dim.value or "?") for dim in value.shape)
    return [str(dim) for dim in found if not isinstance(dim, int) or dim < 0]


def _text(value: ir.Value) -> str:
    if value.shape is None:
        return "unknown"
    return " x ".join(str(d if isinstance(d, int) else d.value or "?") for d in value.shape)


# --- `graph check`: find in a model's file what stops a graph compiler or costs time.


_SEVERITIES = ("error", "warning", "note")
_OF_NAMES = ("missing_data", "duplicate_node_name", "unnamed_node", "unknown_operator")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The findings on one model: errors first, each rule's findings in the order of the graph."""

    path: Path
    opset: int
    node_count: int
    findings: tuple[GraphFinding, ...]

    def count(self, severity: str) -> int:
        """Count the findings of a severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {
            "model": str(self.path),
            "opset": self.opset,
            "nodes": self.node_count,
            **{f"{severity}s": self.count(severity) for severity in _SEVERITIES},
            "findings": [finding.to_json() for finding in self.findings],
        }


def check_model(path: Path, *, target: str = "", static: bool = False) -> CheckResult:
    """Check the model in the file; weights are read only to compare those that seem stored twice.

    `target` is the compiler or runtime (see `checks.targets`), `static` requires static shapes.
    Raises InputError if the file is no ONNX model, or the target is unknown.
    """
    if target:
        find_target(target)
    model = read_graph(path)
    findings = find_faults(model, target=target, static=static)
    count = sum(1 for _ in nodes(model))
    return CheckResult(path, opset(model), count, tuple(findings))


def find_faults(model: ir.Model, *, target: str = "", static: bool = False) -> list[GraphFinding]:
    """Return the findings of all rules on a model, most severe first; infers its missing types."""
    import_module("profiler.graph.rewrite_rules")  # registers its rules
    checked = CheckedModel(model, target, static)
    found = list(invalid_node(checked))
    if found:  # other rules assume valid nodes
        rules = [RULES[name] for name in _OF_NAMES]
    else:
        infer_types(model)
        rules = [check for name, check in sorted(RULES.items()) if name != "invalid_node"]
    for check in rules:
        found += check(checked)
    return sorted(found, key=lambda finding: (_SEVERITIES.index(finding.severity), finding.rule))
