"""The table of findings."""

from __future__ import annotations

from profiler.analysis.assembly import assembled
from profiler.analysis.findings.columns import FINDINGS
from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.rules import find
from profiler.analysis.findings.table import findings_table
from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.replay.shared_gains import replay_gains
from profiler.analysis.table import Table

__all__ = ["TABLES", "found"]

_READS = (
    "device_transitions",
    "cache_use",
    "calls",
    "compilations",
    "devices",
    "fusions",
    "gaps",
    "partitioning",
    "ranks",
    "guidance",
    "idle",
    "redundant_work",
    "memory",
    "memory_devices",
    "operators",
    "roofline",
    "roofline_roles",
    "step_operators",
    "step_outliers",
    "steps",
    "cpu_fallback",
    "submodules",
)


@shared
def found(of: Inputs) -> tuple[Finding, ...]:
    """What the rules find in the tables that they read, worst first."""
    return find(assembled(of, _READS), lambda: replay_gains(of))


TABLES = (
    Table(
        name="findings",
        row="one finding: what stands out, and what to do",
        section="findings",
        columns=FINDINGS,
        make=lambda of: findings_table(found(of)),
        title="Findings",
        about="The worst come first; the table is empty where no rule found evidence. "
        "`analysis.findings` has the same findings as objects, and so does JSON: see "
        "[findings](json.md#findings). CSV, Parquet and SQL also have the sentences of reports: "
        "`title`, `caveat` and `recommendation`. [findings.md](findings.md) describes the rules.",
        reads=_READS,
    ),
)
