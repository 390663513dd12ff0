"""What is said of what was compiled while the run went on."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.analysis.findings.codes import CompiledIn
from profiler.analysis.findings.finding import Finding
from profiler.report.sentences.findings.words import RuleWords, Words, number, texts
from profiler.text import counted, joined, said

__all__ = ["WORDS"]

_LONGEST = 120  # characters of a reason in a title


def _compilation(found: Finding) -> Words:
    return Words(
        title=joined("; ", _title(found)),
        caveat=said(
            "Each process compiles once for each shape: totals and shares of this run include it; "
            "steady figures (medians of steady calls) leave out the calls that compiled."
        ),
        recommendation=joined(" ", _advice(found)),
    )


def _title(found: Finding) -> Iterator[str]:
    given, where = texts(found), found.evidence["compiled_in"]
    if where == CompiledIn.FIRST_CALL:
        yield said(
            "First call of {submodule}: {call}, of which {compiling} compiling",
            submodule=given["submodule"],
            call=given["compiling_call_ns"],
            compiling=given["compiling_call_compile_ns"],
        )
    elif where == CompiledIn.LATER_CALL:
        yield said(
            "A later call of {submodule}: {call}, of which {compiling} compiling",
            submodule=given["submodule"],
            call=given["compiling_call_ns"],
            compiling=given["compiling_call_compile_ns"],
        )
    else:
        yield said("Compiling outside of calls: {compiling}", compiling=given["compile_ns"])
    recompiles, breaks = (int(number(found, name)) for name in ("recompiles", "graph_breaks"))
    if recompiles:
        times, reason = counted(recompiles, "recompile"), given["recompile_reason"]
        yield said("{times}: {reason}", times=times, reason=_short(reason))
    if breaks:
        times, reason = counted(breaks, "graph break"), given["graph_break_reason"]
        yield said("{times}: {reason}", times=times, reason=_short(reason))


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


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


WORDS: RuleWords = {"compilation": _compilation}
