"""Findings as a frame with their sentences, as files and SQL have them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from profiler.analysis.findings.columns import FINDINGS
from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.table import findings_table
from profiler.report.sentences.findings.words import words
from profiler.table.columns import Column

__all__ = ["WORDED_FINDINGS", "findings_frame"]

_WORDS: tuple[Column, ...] = (
    Column("title", pl.String(), "", "what was found, in one sentence"),
    Column("hazard", pl.String(), "", "what misleads, or breaks, when one follows it blindly"),
    Column("remedy", pl.String(), "", "what to do"),
)
WORDED_FINDINGS: tuple[Column, ...] = (*FINDINGS, *_WORDS)


def findings_frame(findings: Sequence[Finding]) -> pl.DataFrame:
    """One row a finding (`WORDED_FINDINGS`), in their order."""
    said = [words(finding) for finding in findings]
    return findings_table(findings).with_columns(
        pl.Series(column.name, [str(getattr(each, column.name)) for each in said], column.dtype)
        for column in _WORDS
    )
