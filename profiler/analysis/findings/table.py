"""Findings as a frame, one row each."""

from __future__ import annotations

import json
from collections.abc import Sequence

import polars as pl

from profiler.analysis.findings.columns import FINDINGS
from profiler.analysis.findings.finding import Finding
from profiler.run.columns import schema
from profiler.text import plain_value

__all__ = ["evidence_text", "findings_table"]


def evidence_text(finding: Finding) -> str:
    """The evidence as a JSON object."""
    values = {name: plain_value(value) for name, value in finding.evidence.items()}
    return json.dumps(values, ensure_ascii=False)


def findings_table(findings: Sequence[Finding]) -> pl.DataFrame:
    """One row a finding (`FINDINGS`), in their order."""
    rows = [
        (
            finding.rule,
            finding.severity,
            finding.cost_ns,
            finding.cost_share,
            evidence_text(finding),
            finding.where.submodule,
            finding.where.layer,
            finding.where.device,
            finding.where.pipeline,
            finding.where.step,
            ", ".join(map(str, finding.where.calls)),
        )
        for finding in findings
    ]
    return pl.DataFrame(rows, schema=schema(FINDINGS), orient="row")
