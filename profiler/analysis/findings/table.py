"""Findings as a frame, one row each."""

from __future__ import annotations

import json
from collections.abc import Sequence

import polars as pl

from profiler.analysis.findings.columns import FINDINGS
from profiler.analysis.findings.finding import Finding
from profiler.table.columns import schema

__all__ = ["findings_table"]


def findings_table(findings: Sequence[Finding]) -> pl.DataFrame:
    """One row a finding (`FINDINGS`), in their order."""
    rows = [
        (
            finding.rule,
            finding.severity,
            finding.title,
            finding.cost_ns,
            json.dumps(dict(finding.evidence), ensure_ascii=False),
            finding.hazard,
            finding.remedy,
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
