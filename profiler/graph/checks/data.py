"""Data of tensors that is missing, cut, or outside the model's folder."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.graph.checks.finding import CheckedModel, GraphFinding, rule
from profiler.graph.model_file import data_faults

__all__ = ["missing_data"]


@rule
def missing_data(checked: CheckedModel) -> Iterator[GraphFinding]:
    """A tensor's data cannot be used."""
    for fault in data_faults(checked.model):
        evidence = f"the tensor {fault.reason}"
        yield GraphFinding("missing_data", "error", fault.tensor, evidence, fault.recommendation)
