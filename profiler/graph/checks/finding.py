"""What a rule says, what it is asked, and how it is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import onnx_ir as ir

__all__ = ["RULES", "CheckedModel", "GraphFinding", "Severity", "opset", "place", "rule"]

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
    """A model and what is asked of it: a target by name ("": none), static shapes."""

    model: ir.Model
    target: str = ""
    static: bool = False


_Rule = Callable[[CheckedModel], Iterator[GraphFinding]]
RULES: dict[str, _Rule] = {}


def rule(check: _Rule) -> _Rule:
    """Register a rule under the name of its function."""
    RULES[check.__name__] = check
    return check


def opset(model: ir.Model) -> int:
    """The version of the ONNX operators that the model is made of, 0 where it says none."""
    versions = model.opset_imports
    return versions.get("", versions.get("ai.onnx", 0))


def place(node: ir.Node) -> str:
    """What to call a node: its name, else what it writes."""
    written = next((output.name for output in node.outputs if output.name), "")
    return node.name or f"{node.op_type} that writes {written!r}"
