"""Compilations during a run: their table, the finding and its wording."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import polars as pl
from msgspec import structs

from profiler.analysis.context import Inputs
from profiler.analysis.finding_text import (
    MATERIAL,
    Rule,
    Words,
    end_to_end_ns,
    number,
    share,
    texts,
)
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, Finding, Where
from profiler.analysis.table_text import Sentences
from profiler.run.columns import DATA_ONLY, INT32, INT64, NS, STEP, STRING, Column, col, schema
from profiler.text import Value, counted, filled, joined, said
from profiler.trace.events import NO_CALL, NO_STEP
from profiler.trace.manifest_fields import Compilation, GraphBreak

# --- The columns of compilations.


COMPILATIONS: tuple[Column, ...] = (
    col("compilation", STRING, "the compiler's own number for the frame and its version"),
    col("call", INT32, "the call in which it started; -1 in a pipeline call outside of calls"),
    col("submodule", STRING, "submodule of the call", True),
    col("step", STEP, "denoising step of the call; -1 outside denoise"),
    col("function", STRING, "what was compiled, by its name in the program"),
    col("start_ns", NS, "begin, on the run's clock", importance=3),
    col("duration_ns", NS, "how long it took"),
    col(
        "recompile_reason",
        STRING,
        "why earlier compilations could not be used; null for a first compilation",
        True,
    ),
    col("graph_breaks", INT64, "how often it ended a graph before the end of the code"),
    col("graph_break_reason", STRING, "why it ended them, and at which line of the program", True),
    col("failure", STRING, "why the compilation failed, so that the code ran as it is", True),
    col(
        "forgotten",
        INT64,
        "earlier compilations of which the compiler kept only the time",
        importance=DATA_ONLY,
    ),
    col("forgotten_ns", NS, "total time of these earlier compilations", importance=DATA_ONLY),
)


# --- The table of compilations.


def _compilations(of: Inputs) -> pl.DataFrame:
    """Return the compilations of the selected calls; those of no call only if nothing is
    selected."""
    calls = of.calls.select("call", pl.col("submodule").cast(pl.String), "step").rows()
    known = {call: (submodule, step) for call, submodule, step in calls}
    if not of.selection:
        known[NO_CALL] = (None, NO_STEP)
    rows = [_row(one, *known[one.call]) for one in of.run.info.compilations if one.call in known]
    return pl.DataFrame(rows, schema=schema(COMPILATIONS))


def _row(one: Compilation, submodule: str | None, step: int) -> dict[str, object]:
    return structs.asdict(one) | {
        "compilation": one.id,
        "submodule": submodule,
        "step": step,
        "recompile_reason": one.recompile_reason or None,
        "graph_breaks": sum(each.times for each in one.graph_breaks),
        "graph_break_reason": "; ".join(map(_said, one.graph_breaks)) or None,
        "failure": one.failure or None,
    }


def _said(graph_break: GraphBreak) -> str:
    """The source line of a graph break and the compiler's reason."""
    return ": ".join(filter(None, (graph_break.place, graph_break.reason)))


TABLES = (
    Table(
        name="compilations",
        row="one compilation that the run waited for",
        section="calls",
        columns=COMPILATIONS,
        make=_compilations,
        title="Compilations",
        about="Rows are in order of their begin. The table is empty if nothing was compiled, "
        "and for imports. A call that compiled is not a steady call: see `first` of "
        "[calls](#calls). The time that a call spent on compilation is the sum of `duration_ns` "
        "and `forgotten_ns` of its rows. Reasons are quoted from the compiler.",
    ),
)


# --- Words of the evidence of findings: closed sets.


class CompiledIn(StrEnum):
    """Which call of a submodule compiled for longest."""

    FIRST_CALL = "first_call"
    LATER_CALL = "later_call"
    OUTSIDE_CALLS = "outside_calls"


SENTENCES: Sentences = {
    CompiledIn: {
        CompiledIn.FIRST_CALL: "the first call",
        CompiledIn.LATER_CALL: "a later call",
        CompiledIn.OUTSIDE_CALLS: "outside of calls",
    }
}


# --- The rule about what was compiled while the run went on.


_TAKEN = pl.col("duration_ns") + pl.col("forgotten_ns")
_MOST_CALLS = 8  # that a finding names


def compilation(analysis: Analysis) -> Iterator[Finding]:
    """A submodule's calls waited for torch.compile: for at least 1 % of the run, or again, or for
    graphs that broke."""
    total = end_to_end_ns(analysis)
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
        yield Finding("compilation", evidence, where, cost_ns=compile_ns)


def compiled_in(analysis: Analysis, call: int) -> int:
    """How long a call waited for compilations, in ns."""
    rows = analysis.compilations.filter(pl.col("call") == call)
    return int(rows.select(_TAKEN.sum()).item())


def _evidence(analysis: Analysis, rows: pl.DataFrame) -> dict[str, Value]:
    """Return which call compiled for longest: whether it is its submodule's first, and how long it
    took for its caller."""
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
    """The most frequent text, of several the first."""
    counts = texts.to_frame("text").group_by("text", maintain_order=True).len()
    return str(counts.sort("len", descending=True, maintain_order=True)["text"][0])


_LONGEST = 120  # characters of a reason in a title


def _compilation(found: Finding) -> Words:
    return Words(
        title=joined("; ", _title(found)),
        caveat="Each process compiles once for each shape: totals and shares of this run include "
        "it; steady figures (medians of steady calls) leave out the calls that compiled.",
        recommendation=joined(" ", _advice(found)),
    )


_TITLES = {
    CompiledIn.FIRST_CALL: said(
        "First call of {submodule}: {compiling_call_ns}, of which {compiling_call_compile_ns} "
        "compiling"
    ),
    CompiledIn.LATER_CALL: said(
        "A later call of {submodule}: {compiling_call_ns}, of which {compiling_call_compile_ns} "
        "compiling"
    ),
    CompiledIn.OUTSIDE_CALLS: said("Compiling outside of calls: {compile_ns}"),
}


def _title(found: Finding) -> Iterator[str]:
    given = texts(found)
    yield filled(_TITLES[CompiledIn(str(found.evidence["compiled_in"]))], given)
    for name, noun in (("recompile", "recompile"), ("graph_break", "graph break")):
        if times := int(number(found, f"{name}s")):
            reason = given[f"{name}_reason"]
            reason = reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 1]}…"
            yield said("{times}: {reason}", times=counted(times, noun), reason=reason)


def _advice(found: Finding) -> Iterator[str]:
    yield said(
        "Warm up with every shape before measuring or serving, keep the process alive, and keep "
        "the compiler's cache (TORCHINDUCTOR_CACHE_DIR) between processes."
    )
    if number(found, "recompiles"):
        yield said(
            "To avoid recompiles, fix what the reason names (pad shapes, keep types and flags), "
            "or compile with dynamic=True."
        )
    if number(found, "graph_breaks"):
        yield said(
            "To avoid graph breaks, change the line that the reason names, or compile the parts "
            "around it; fullgraph=True makes a break an error."
        )


RULES = (
    Rule(
        compilation,
        _compilation,
        "Warm up with every shape; keep the compiler's cache between processes",
        section="time",
    ),
)
