"""The rule about what was compiled while the run went on."""

from __future__ import annotations

import polars as pl

from profiler.analysis.findings.codes import CompiledIn
from profiler.analysis.findings.finding import Finding, Where
from profiler.analysis.findings.measures import MATERIAL, end_to_end_ns, share
from profiler.analysis.result import Analysis
from profiler.text import Value

__all__ = ["compilation", "compiled_in"]

_TAKEN = pl.col("duration_ns") + pl.col("forgotten_ns")
_MOST_CALLS = 8  # that a finding names


def compilation(analysis: Analysis) -> tuple[Finding, ...]:
    """A submodule's calls waited for torch.compile: for at least 1 % of the run, or anew, or for
    graphs that broke."""
    total, found = end_to_end_ns(analysis), []
    by_submodule = analysis.compilations.group_by("submodule", maintain_order=True)
    for (submodule,), rows in by_submodule:
        compile_ns = int(rows.select(_TAKEN.sum()).item())
        recompiled = rows.drop_nulls("recompile_reason")
        broken = rows.filter(pl.col("graph_breaks") > 0)
        material = share(compile_ns, total) >= MATERIAL
        if not material and recompiled.is_empty() and broken.is_empty():
            continue
        evidence: dict[str, Value] = {
            "compilations": len(rows) + int(rows["forgotten"].sum()),
            "compile_ns": compile_ns,
            "compile_share": share(compile_ns, total),
            **_evidence(analysis, rows),
            "recompiles": len(recompiled),
            "graph_breaks": int(broken["graph_breaks"].sum()),
        }
        if len(recompiled):
            evidence["recompile_reason"] = _commonest(recompiled["recompile_reason"])
        if len(broken):
            evidence["graph_break_reason"] = _commonest(broken["graph_break_reason"])
        calls = rows["call"].filter(rows["call"] >= 0).unique(maintain_order=True)
        named = tuple(calls.head(_MOST_CALLS).to_list())
        where = Where(submodule=None if submodule is None else str(submodule), calls=named)
        found.append(Finding("compilation", evidence, where, cost_ns=compile_ns))
    return tuple(found)


def compiled_in(analysis: Analysis, call: int) -> int:
    """How long a call waited for compilations, in ns."""
    rows = analysis.compilations.filter(pl.col("call") == call)
    return int(rows.select(_TAKEN.sum()).item())


def _evidence(analysis: Analysis, rows: pl.DataFrame) -> dict[str, Value]:
    """The call that compiled for longest: whether it is its submodule's first, and how long it
    took as its caller saw it."""
    taken = rows.group_by("call", maintain_order=True).agg(_TAKEN.sum().alias("taken"))
    call, compiled_ns = taken.sort("taken", descending=True, maintain_order=True).row(0)
    known = analysis.calls.filter(pl.col("call") == call)
    if known.is_empty():
        return {"compiled_in": CompiledIn.OUTSIDE_CALLS}
    of_submodule = analysis.calls.filter(pl.col("submodule") == known["submodule"][0])
    first = of_submodule.sort("start_ns", "call")["call"][0] == call
    return {
        "compiled_in": CompiledIn.FIRST_CALL if first else CompiledIn.LATER_CALL,
        "compiling_call_ns": int(known["duration_ns"][0]),
        "compiling_call_compile_ns": int(compiled_ns),
    }


def _commonest(texts: pl.Series) -> str:
    """The text that stands there most often, of several the first."""
    counts = texts.to_frame("text").group_by("text", maintain_order=True).len()
    return str(counts.sort("len", descending=True, maintain_order=True)["text"][0])
