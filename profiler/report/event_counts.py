"""How many commands ran, under their producer's word: a key figure of the report."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from profiler.analysis.recorded_times import times_recorded
from profiler.analysis.result import Analysis
from profiler.report.model import Fact
from profiler.report.nouns import noun_of
from profiler.text import Noun, count, counted, joined, said
from profiler.trace.manifest import RunInfo

__all__ = ["events_fact"]

_HEADED = {  # all that was recorded
    Noun.KERNELS: said("Events"),
    Noun.NODES: said("Nodes + host"),
    Noun.OPERATORS: said("Operators + host"),
    Noun.COMMANDS: said("Commands"),
}
_HEADED_OWN = {  # what devices executed
    Noun.KERNELS: said("Kernels"),
    Noun.NODES: said("Nodes"),
    Noun.OPERATORS: said("Operators run"),
}


def events_fact(analysis: Analysis) -> Fact:
    """What ran on devices, and beside it on their host; of a selection, all of the run at once."""
    run = analysis.run
    untraced = run.calls - run.traced_calls
    notes = [counted(run.calls, "call")]
    notes += [said("{number} without commands", number=count(untraced))] if untraced else []
    noun = noun_of(analysis)
    if run.selection or noun == Noun.COMMANDS:
        return Fact(_HEADED[noun], count(run.commands), joined(", ", notes))
    return _of_devices(analysis, noun, notes)


def _of_devices(analysis: Analysis, noun: Noun, notes: Sequence[str]) -> Fact:
    """How many kernels, nodes or operators ran, and what else was recorded beside them."""
    category = pl.col("category").cast(pl.String)
    copied, waited = category.is_in(("dma", "copy")), category == "sync"
    if noun != Noun.KERNELS:  # copies are nodes of their own, and a CPU's waits its own
        copied = waited = pl.lit(value=False)
    numbers = analysis.kinds.table.select(
        own=pl.col("commands").filter(~pl.col("host") & ~copied & ~waited).sum(),
        copies=pl.col("commands").filter(~pl.col("host") & copied).sum(),
        host=pl.col("commands").filter("host").sum(),
    ).row(0, named=True)
    label, others = _HEADED_OWN[noun], list(notes)
    if noun == Noun.KERNELS:
        one = numbers["copies"] == 1
        copies = said("{number} copies and fills", number=count(numbers["copies"]))
        info = analysis.inputs.run.info
        if numbers["copies"] or times_recorded(info):  # averages are of layers alone
            others.append(said("1 copy or fill") if one else copies)
        others.append(_launches(numbers["host"], info))
    elif numbers["host"]:
        others.append(said("beside {number} of the host", number=count(numbers["host"])))
    return Fact(label, count(numbers["own"]), joined(", ", others))


def _launches(number: int, info: RunInfo) -> str:
    """What the host did, as far as anybody recorded it."""
    if not number and info.capabilities and "launches" not in info.capabilities:
        return said("launches not recorded")
    if number == 1:
        return said("1 launch or other host command")
    return said("{number} launches and other host commands", number=count(number))
