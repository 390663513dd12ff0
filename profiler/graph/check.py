"""`graph check`: a model's file → what stops a graph compiler or costs time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from profiler.graph import model_rules, rewrite_rules  # register their rules
from profiler.graph.model import infer_types, read_graph
from profiler.graph.model import nodes as all_nodes
from profiler.graph.model_rules import RULES, CheckedModel, GraphFinding, invalid_node, opset
from profiler.pipelines.onnx_targets import find_target

_REGISTERED = (model_rules, rewrite_rules)
_SEVERITIES = ("error", "warning", "note")
_OF_NAMES = ("missing_data", "duplicate_node_name", "unnamed_node", "unknown_operator")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What was found in one model: errors first, each rule's findings in the order of the graph."""

    path: Path
    opset: int
    node_count: int
    findings: tuple[GraphFinding, ...]

    def count(self, severity: str) -> int:
        """How many findings are of that severity."""
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
    """Check the model in the file; no weight is read but to compare those that seem stored twice.

    `target` names what is to compile or run it (see `checks.targets`), `static` asks for static
    shapes. Raises InputError if the file is no ONNX model, or no target is called so.
    """
    if target:
        find_target(target)
    model = read_graph(path)
    findings = find_faults(model, target=target, static=static)
    count = sum(1 for _ in all_nodes(model))
    return CheckResult(path, opset(model), count, tuple(findings))


def find_faults(model: ir.Model, *, target: str = "", static: bool = False) -> list[GraphFinding]:
    """The findings of all rules on a model, the gravest first; its missing types are inferred."""
    checked = CheckedModel(model, target, static)
    found = list(invalid_node(checked))
    if found:  # other rules rely on what operators have
        rules = [RULES[name] for name in _OF_NAMES]
    else:
        infer_types(model)
        rules = [check for name, check in sorted(RULES.items()) if name != "invalid_node"]
    for check in rules:
        found += check(checked)
    return sorted(found, key=lambda finding: (_SEVERITIES.index(finding.severity), finding.rule))
