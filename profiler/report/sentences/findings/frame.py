"""Findings with their sentences, as files, SQL and JSON have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from profiler.analysis.findings.columns import FINDINGS
from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.table import findings_table
from profiler.files import plain
from profiler.report.sentences.findings.words import words
from profiler.report.sentences.worded_tables import WordedTable
from profiler.run.columns import Column
from profiler.text import plain_value

__all__ = ["WORDED", "findings_frame"]

_WORDS: tuple[Column, ...] = (
    Column("title", pl.String(), "", "what was found, in one sentence"),
    Column("caveat", pl.String(), "", "what misleads, or breaks, when one follows it blindly"),
    Column("recommendation", pl.String(), "", "what to do"),
)


def findings_frame(findings: Sequence[Finding]) -> pl.DataFrame:
    """One row a finding (the columns of `WORDED`), in their order."""
    said = [words(finding) for finding in findings]
    return findings_table(findings).with_columns(
        pl.Series(column.name, [str(getattr(each, column.name)) for each in said], column.dtype)
        for column in _WORDS
    )


def _row(finding: Finding) -> dict[str, Any]:
    """Codes and values, and the sentences that people read."""
    said = plain(words(finding))
    values = plain(replace(finding, evidence={}, effect=None))
    values.pop("effect")  # replayed by now: `evidence` and `cost_ns` have what it comes to
    return {
        "rule": finding.rule,
        **said,
        **values,
        "evidence": {n: plain_value(value) for n, value in finding.evidence.items()},
    }


WORDED = WordedTable(
    table="findings",
    columns=(*FINDINGS, *_WORDS),
    frame=lambda analysis: findings_frame(analysis.findings),
    rows=lambda analysis: [_row(each) for each in analysis.findings],
)
