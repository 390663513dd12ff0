"""Figures of a report that contradict each other; there are none unless the report is wrong.

    analysis.contradictions

Whatever a trace holds, a share lies between 0 and 1, a device is not busy for longer than the run
lasts, and a part is not longer than the whole. Each analysis ends with these comparisons, over the
tables that it has made anyhow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.context import Inputs
from profiler.analysis.document import Fact
from profiler.analysis.end_to_end import accounting
from profiler.analysis.question import Table, table_named, tables
from profiler.analysis.replay import TOLERANCE
from profiler.analysis.result import Analysis
from profiler.analysis.table_text import Sentences
from profiler.run.columns import DATA_ONLY, FLOAT64, INT64, STRING, Column, col, schema
from profiler.text import Said, count, duration, number, percent, said, sentence

NAME = "contradictions"


class Check(StrEnum):
    """Conditions that figures of a report must meet."""

    SHARE = "share"
    LENGTH = "length"
    BUSY = "busy"
    IDLE = "idle"
    DEVICE_TIME = "device_time"
    MEDIAN = "median"
    PARTS = "parts"
    TREE = "tree"
    GAIN = "gain"
    EVIDENCE = "evidence"


CONTRADICTIONS: tuple[Column, ...] = (
    col("check", STRING, "what the figures have to be", codes=Check),
    col("row", STRING, "what they are of: the worst row; empty if of the run"),
    col("figure", STRING, "one of them: table.column"),
    col("value", FLOAT64, "its value, in ns if it is a time"),
    col("other", STRING, "what it contradicts: table.column, or a bound"),
    col("other_value", FLOAT64, "that value"),
    col("count", INT64, "rows of the table that contradict it"),
    col("sentence", STRING, "all of this in a sentence", importance=DATA_ONLY),
)

_NEAR = 1e-6  # of a value: rounding
_ROUNDED = 1e-3  # of a share
_Values = npt.NDArray[np.float64] | float
_INSTANTS = frozenset(("start_ns", "begin_ns", "end_ns", "time_ns"))
_MAY_BE_NEGATIVE = frozenset(("headroom_share",))  # memory that there is not
_CITED = {  # by rule: names of evidence that a table has for the same device or submodule
    "idle_gaps": (("gap_ns", "idle", "long_gap_ns"),),
    "little_headroom": (("required_bytes", "memory_devices", "required_bytes"),),
    "transfers_exposed": (("transfer_ns", "idle", "transfer_ns"),),
}

_OF_WAITS = (
    *("host_bound", "idle_gaps", "scheduler_sync"),
    *("blocking_copies", "transfers_exposed"),
)


class Contradiction(Struct, frozen=True):
    """`figure` and `other`, which cannot both be right, of the worst of `count` rows."""

    check: Check
    row: str
    figure: str
    value: float
    other: str
    other_value: float
    count: int = 1


def check_figures(of: Inputs) -> Iterator[Contradiction]:
    """Yield the figures of an analysis that contradict each other."""
    yield from check_times(of)
    for check in (_tree, _findings, _ranges, _overhead):
        yield from check(of)


def check_times(of: Inputs) -> Iterator[Contradiction]:
    """Yield contradictions between times alone, which need only a few tables."""
    for check in (_busy, _device_time, _parts, _medians):
        yield from check(of)


# --- One comparison: no row of a frame has more of one figure than of another.


def _more(
    check: Check,
    rows: pl.Series,
    figure: tuple[str, _Values],
    other: tuple[str, _Values],
    slack: float = 0.0,
) -> Iterator[Contradiction]:
    """The row in which `figure` exceeds `other` most, if any does; values without a figure are NaN.
    NumPy, because a query of Polars takes longer than all of this, and there are dozens."""
    value, bound = np.broadcast_arrays(figure[1], other[1])
    over = value - bound
    count = int(np.count_nonzero(over > np.abs(bound) * _NEAR + slack))
    if count:
        at = int(np.nanargmax(over))
        name, values = str(rows[at] or ""), (float(value[at]), float(bound[at]))
        yield Contradiction(check, name, figure[0], values[0], other[0], values[1], count)


def _differ(
    check: Check, row: str, figure: tuple[str, float | None], other: tuple[str, float | None]
) -> Iterator[Contradiction]:
    """Two values that must be equal, if they differ."""
    value, bound = figure[1], other[1]
    if value is not None and bound is not None and abs(value - bound) > _NEAR * abs(bound) + 1:
        yield Contradiction(check, row, figure[0], value, other[0], bound)


def _column(table: str, frame: pl.DataFrame, name: str) -> tuple[str, _Values]:
    return f"{table}.{name}", _values(frame, name)


def _values(frame: pl.DataFrame, name: str) -> npt.NDArray[np.float64]:
    return frame[name].cast(pl.Float64).to_numpy()


# --- The comparisons.


def _ranges(of: Inputs) -> Iterator[Contradiction]:
    """Check that shares are between 0 and 1, and no time below 0 except in `signed` columns."""
    for table in tables():
        if table.name == NAME:
            continue
        frame, key = of.table(table.name), table.columns[0].name
        if not len(frame):
            continue
        for one in table.columns:
            share = _is_share(one)
            if share or _is_time(one):
                figure = _column(table.name, frame, one.name)
                check = Check.SHARE if share else Check.LENGTH
                yield from _more(check, frame[key], ("0", 0.0), figure)
                if share:
                    yield from _more(check, frame[key], figure, ("1", 1.0))


def _is_share(column: Column) -> bool:
    return column.kind == "share" or column.name.endswith("_share")


def _is_time(column: Column) -> bool:
    return column.unit == "ns" and not column.signed and column.name not in _INSTANTS


def _overhead(of: Inputs) -> Iterator[Contradiction]:
    """Check that times of the profiling overhead are not below 0; differences may have noise."""
    overhead = of.run.info.overhead
    for name in overhead.__struct_fields__:
        value = getattr(overhead, name)
        measured = name.endswith("_ns") and name != "operators_ns"  # a difference, which has noise
        if measured and value is not None and value < 0:
            yield Contradiction(Check.LENGTH, "", "0", 0.0, f"run.overhead.{name}", value)


def _busy(of: Inputs) -> Iterator[Contradiction]:
    """Check that no device is busy for longer than the run, and that it is idle in the rest, except
    for time that was not recorded or is outside of its span."""
    devices, account = of.table("devices"), accounting(of)
    total = account.wall_ns or account.end_to_end_ns
    rows, busy = devices["device"], _column("devices", devices, "busy_ns")
    if total:
        yield from _more(Check.BUSY, rows, busy, ("accounting.wall_ns", float(total)))
    utilization = _column("devices", devices, "utilization")
    other, idle = _column("devices", devices, "idle_share")
    for one in _more(Check.IDLE, rows, utilization, (other, 1 - idle), slack=_ROUNDED):
        rest = 1 - one.other_value
        yield Contradiction(one.check, one.row, one.figure, one.value, other, rest, one.count)
    outside = np.maximum(total - _values(devices, "span_ns"), 0)
    unrecorded = (_values(devices, "unrecorded_ns") + outside) / max(total, 1)
    least = utilization[0], 1 - idle - unrecorded
    for one in _more(Check.IDLE, rows, least, utilization, slack=_ROUNDED):
        known = 1 - one.value
        yield Contradiction(
            one.check, one.row, one.figure, one.other_value, other, known, one.count
        )
    if of.selection:
        return
    waits = of.table("idle").select("device", waiting_share="idle_share")
    for device, one, same in (
        devices.select("device", "idle_share").join(waits, on="device").drop_nulls().iter_rows()
    ):
        if abs(one - same) > _ROUNDED:
            yield Contradiction(Check.IDLE, device, other, one, "idle.idle_share", same)


def _device_time(of: Inputs) -> Iterator[Contradiction]:
    """Check that device time is at most the elapsed and hidden time, and at most the span."""
    for name, key in (("calls", "call"), ("submodules", "submodule"), ("steps", "step")):
        frame = of.table(name)
        busy, span = _column(name, frame, "busy_ns"), _column(name, frame, "span_ns")
        both = _values(frame, "elapsed_ns") + _values(frame, "hidden_ns")
        yield from _more(Check.DEVICE_TIME, frame[key], busy, (f"{name}.elapsed_ns", both))
        yield from _more(Check.DEVICE_TIME, frame[key], busy, span)


def _medians(of: Inputs) -> Iterator[Contradiction]:
    """Check that the shortest call is at most the median, and this at most the longest, and that a
    submodule with calls that took time has a median."""
    frame = of.table("submodules")
    shortest, median, longest = (
        _column("submodules", frame, name) for name in ("min_ns", "median_ns", "max_ns")
    )
    yield from _more(Check.MEDIAN, frame["submodule"], shortest, median)
    yield from _more(Check.MEDIAN, frame["submodule"], median, longest)
    if not np.any(median[1] == 0):
        return
    steady = ~pl.col("first") | pl.col("first").all()
    span = pl.col("span_ns").filter(steady).median().alias("span")
    spans = of.table("calls").group_by("submodule").agg(span)
    without = frame.filter(pl.col("median_ns") == 0).join(spans, on="submodule")
    spent = "calls.span_ns", _values(without, "span")
    yield from _more(Check.MEDIAN, without["submodule"], spent, (median[0], 0.0), slack=1.0)


def _parts(of: Inputs) -> Iterator[Contradiction]:
    """Check that calls, host work and idle time are no more than their stage, step or pipeline
    call, stages and submodules no more than the run, and that calls add up to their submodule."""
    for name, key in (("pipelines", "pipeline"), ("stages", "stage"), ("steps", "step")):
        frame = of.table(name)
        parts = sum(_values(frame, part) for part in ("calls_ns", "host_ns", "idle_ns"))
        inside, elapsed = (f"{name}.calls_ns", parts), _column(name, frame, "elapsed_ns")
        yield from _more(Check.PARTS, frame[key], inside, elapsed)
    account = accounting(of)
    whole = ("accounting.end_to_end_ns", account.end_to_end_ns)
    stages = int(of.table("stages")["elapsed_ns"].drop_nulls().sum())
    of_run = [("", "stages.elapsed_ns", stages)] + [
        (one.submodule, "accounting.submodules.wall_ns", one.wall_ns) for one in account.submodules
    ]
    for row, name, value in of_run:
        if value > whole[1] * (1 + _NEAR):
            yield Contradiction(Check.PARTS, row, name, value, *whole)
    calls = of.table("calls").group_by("submodule").agg(of_calls=pl.col("elapsed_ns").sum())
    submodules = of.table("submodules").select("submodule", "elapsed_ns")
    for row, one, other in submodules.join(calls, on="submodule").iter_rows():
        names = "submodules.elapsed_ns", "calls.elapsed_ns"
        yield from _differ(Check.PARTS, row, (names[0], one), (names[1], other))


def _tree(of: Inputs) -> Iterator[Contradiction]:
    """Check that the root of the module tree takes as long as the run, plus what calls took
    concurrently on further devices."""
    tree, stages = of.table("module_tree"), of.table("stages")
    if len(tree) and not of.selection:
        total, elapsed = accounting(of).end_to_end_ns, int(tree["elapsed_ns"][0])
        in_calls = int(of.table("calls")["elapsed_ns"].sum())
        most = total + max(in_calls - int(stages["calls_ns"].sum() or 0), 0)
        bound = min(max(elapsed, total), most)
        root = ("module_tree.elapsed_ns", elapsed)
        yield from _differ(Check.TREE, "", root, ("accounting.end_to_end_ns", bound))


def _findings(of: Inputs) -> Iterator[Contradiction]:
    """Check that no finding gains more than the run takes, and that its evidence agrees with
    tables."""
    account, frame = accounting(of), of.table("findings")
    if account.end_to_end_ns:
        cost = _column("findings", frame, "cost_ns")
        whole = "accounting.end_to_end_ns", float(account.end_to_end_ns)
        yield from _more(Check.GAIN, frame["rule"], cost, whole)
        yield from _more_than_idle(of, frame, account.end_to_end_ns)
    for found in frame.iter_rows(named=True):
        evidence = json.loads(found["evidence"])
        for name, value in evidence.items():
            if isinstance(value, int | float):
                yield from _possible(found["rule"], name, value)
        for name, table, column in _CITED.get(found["rule"], ()):
            key = table_named(table).columns[0].name
            row = of.table(table).filter(pl.col(key) == found[key])
            if len(row) == 1 and name in evidence:
                one, other = (
                    (f"findings.{name}", evidence[name]),
                    (f"{table}.{column}", row[column][0]),
                )
                yield from _differ(Check.EVIDENCE, found["rule"], one, other)


def _more_than_idle(of: Inputs, frame: pl.DataFrame, total: int) -> Iterator[Contradiction]:
    """Yield findings about waiting that gain more than the time in which their device computed
    nothing, by more than a replay may be off."""
    rows = of.table("idle").select(
        "device", most=pl.sum_horizontal("idle_of_run_ns", "data_ns", "exposed_ns")
    )
    waits = frame.filter(pl.col("rule").is_in(_OF_WAITS)).join(rows, on="device")
    cost, most = _column("findings", waits, "cost_ns"), _values(waits, "most")
    both = cost, ("idle.idle_of_run_ns", most)
    yield from _more(Check.GAIN, waits["rule"], *both, slack=TOLERANCE * total)


def _possible(rule: str, name: str, value: float) -> Iterator[Contradiction]:
    """Yield impossible evidence: a share above 1, or a time below 0."""
    figure = f"findings.{name}"
    if name.endswith("_share") and value > 1 + _NEAR:
        yield Contradiction(Check.SHARE, rule, figure, value, "1", 1.0)
    if name.endswith(("_share", "_ns")) and value < 0 and name not in _MAY_BE_NEGATIVE:
        check = Check.SHARE if name.endswith("_share") else Check.LENGTH
        yield Contradiction(check, rule, "0", 0.0, figure, value)


# --- What reports say about contradictions.


_NAMES = {
    "accounting.end_to_end_ns": said("end to end"),
    "accounting.wall_ns": said("end to end"),
    "0": said("the least possible"),
    "1": said("the most possible"),
}


def _text(figure: str, value: float) -> str:
    """`busy 45.6 ms`."""
    table, _, name = figure.rpartition(".")
    known = {one.name: one for each in tables() if each.name == table for one in each.columns}
    label = known[name].label if name in known else name.removesuffix("_ns").replace("_", " ")
    shown = number(value)
    if figure.endswith("_ns"):
        shown = duration(value)
    elif figure in ("0", "1") or "share" in name or name == "utilization":
        shown = percent(value)
    return said("{name} {value}", name=_NAMES.get(figure, said(label)), value=shown)


def sentence_of(one: Contradiction) -> Said:
    """`cuda:0: busy 45.6 ms and end to end 35.1 ms contradict each other; please report`."""
    both = {"one": _text(one.figure, one.value), "other": _text(one.other, one.other_value)}
    if one.row:
        return said(
            "{row}: {one} and {other} contradict each other; please report", row=one.row, **both
        )
    return said("{one} and {other} contradict each other; please report", **both)


def contradiction_facts(analysis: Analysis) -> Iterator[Fact]:
    """The first screen's line about uncertain figures; nothing if all agree."""
    rows = analysis.frames[NAME].drop("sentence").rows(named=True)
    if rows:
        first = sentence_of(Contradiction(**rows[0]))
        more = said("{count} more in --json", count=count(len(rows) - 1)) if rows[1:] else ""
        yield Fact(said("Uncertain"), first, more, alert=True)


def _contradictions(of: Inputs) -> pl.DataFrame:
    fields = [column.name for column in CONTRADICTIONS[:-1]]
    rows = [
        (*(getattr(one, name) for name in fields), str(sentence(sentence_of(one))))
        for one in check_figures(of)
    ]
    return pl.DataFrame(rows, schema=schema(CONTRADICTIONS), orient="row")


TABLES = (
    Table(
        name=NAME,
        row="two figures of the report that cannot both be right",
        section="provenance",
        columns=CONTRADICTIONS,
        make=_contradictions,
        title="Figures that contradict each other",
        about="The table is empty unless the report itself is wrong: please report it with the "
        "trace. Gates take such figures as missing.",
    ),
)

SENTENCES: Sentences = {
    Check: {
        Check.SHARE: "a share lies between 0 and 1",
        Check.LENGTH: "no time is below 0",
        Check.BUSY: "a device is busy for no longer than the run",
        Check.IDLE: "a device is idle when it is not busy",
        Check.DEVICE_TIME: "device time lies in its call, submodule or step, or is hidden",
        Check.MEDIAN: "a median lies between shortest and longest",
        Check.PARTS: "parts add up to the whole",
        Check.TREE: "the module tree is the run",
        Check.GAIN: "a finding gains no more than the run takes",
        Check.EVIDENCE: "a finding says what its table says",
    }
}
