"""Compare summaries that were kept as files: counts and memory exactly, times if that can be.

    found = compare_summaries([read_summary_file(path)], [summarized(source)])
    found.rows          # one row per metric
    check_growth(found, "peak_memory[device=cuda:0]", 0.05).failed

A summary holds medians, not samples. Counts and bytes are compared as they are; times of the same
machine if both sides have the runs that their medians' intervals need.
"""

from __future__ import annotations

import difflib
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import polars as pl

from profiler.analysis.document import Fact, Part, Report, Section
from profiler.analysis.document import Summary as Head
from profiler.analysis.table_text import table
from profiler.errors import InputError
from profiler.fleet.change_points import ratio_interval
from profiler.fleet.compare import bad_quality_text, difference_verdict
from profiler.fleet.dataset import Difference, Why, differences, full_name
from profiler.fleet.text import difference_text, signed, value_text
from profiler.report.terminal_layout import clean
from profiler.run.columns import FLOAT64, STRING, Column, col, schema
from profiler.text import Said, counted, joined, percent, said
from profiler.tools.metrics import DISTINGUISHING, Summary
from profiler.trace.documents import envelope


class SummaryVerdict(StrEnum):
    """The verdict on a metric from the summaries of two sides."""

    SAME = "same"
    MORE = "more"
    LESS = "less"
    SLOWER = "slower"
    FASTER = "faster"
    NO_DIFFERENCE = "no_difference"
    NEEDS_MORE = "needs_more"  # runs, to distinguish times
    NOT_COMPARED = "not_compared"  # times of different machines
    ONLY_IN_BASE = "only_in_base"
    ONLY_IN_NEW = "only_in_new"


ROWS: tuple[Column, ...] = (
    col("metric", STRING, "name of the metric"),
    col("unit", STRING, "of base and new: ns, bytes, ratio, count"),
    col("base", FLOAT64, "median over the baseline's runs", True),
    col("new", FLOAT64, "median over the new runs", True),
    col("change", FLOAT64, "(new - base) / base", True),
    col("low", FLOAT64, "lower end of the interval of a time's change", True),
    col("high", FLOAT64, "upper end of it", True),
    col("verdict", STRING, "what the sides say"),
)
_COUNTED = ("count", "bytes")
_GREW = (SummaryVerdict.MORE.value, SummaryVerdict.SLOWER.value)
_ALONE = (SummaryVerdict.ONLY_IN_BASE.value, SummaryVerdict.ONLY_IN_NEW.value)
_DIFFERS = (*_GREW, SummaryVerdict.LESS.value, SummaryVerdict.FASTER.value, *_ALONE)
_NAMED = 4  # metrics that a sentence names
_MACHINE = ("hardware", "software", "cpu", "cores", "system")
_MISSING = ("drops", "damaged", "contradiction")  # of `quality`: counts are wrong, too


@dataclass(frozen=True, slots=True, eq=False)
class SummaryComparison:
    """A comparison of summaries: a row of `ROWS` per metric of either side, the runs of both, the
    fields in which these differ (`apart`), and the fields for which times are not compared
    (`machines`)."""

    rows: pl.DataFrame
    base: tuple[Summary, ...]
    new: tuple[Summary, ...]
    apart: tuple[Difference, ...]
    machines: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Growth:
    """One metric checked against the `limit`, a ratio: `failed` if it grew by more. `change` is
    None if it was 0."""

    metric: str
    limit: float
    change: float | None
    failed: bool


def compare_summaries(base: Sequence[Summary], new: Sequence[Summary]) -> SummaryComparison:
    """Return how the runs of `new` differ from those of `base`; both have at least one."""
    one, other = base[0].run, new[0].run
    machines = tuple(_machines(base, new))
    apart = tuple(each for each in differences(one, other, ()) if each.why is Why.DIFFERENT)
    sides = [_values(side) for side in (base, new)]
    names = dict.fromkeys((*sides[0], *sides[1]))
    left, right = sides
    rows = [_row(name, left.get(name), right.get(name), bool(machines)) for name in names]
    frame = pl.DataFrame(rows, schema=schema(ROWS), orient="row")
    return SummaryComparison(frame, tuple(base), tuple(new), apart, machines)


def _machines(base: Sequence[Summary], new: Sequence[Summary]) -> Iterator[Difference]:
    """The fields of the machine in which a run differs from the first, or that are not recorded."""
    first = base[0].run
    for field in _MACHINE:
        for run in (each.run for each in (*base, *new)):
            if first[field] is None or run[field] is None:
                yield Difference(field, Why.UNKNOWN, first[field], run[field])
                break
            if run[field] != first[field]:
                yield Difference(field, Why.DIFFERENT, first[field], run[field])
                break


def _values(side: Sequence[Summary]) -> dict[str, tuple[str, list[float]]]:
    """Return unit and values by name; calls are per pipeline call, so that runs with several
    compare."""
    found: dict[str, tuple[str, list[float]]] = {}
    for summary in side:
        pipelines = max(summary.run["pipelines"] or 0, 1)
        for row in summary.metrics:
            value = row.value / pipelines if row.metric == "calls" else row.value
            name = full_name({key: getattr(row, key) for key in (*DISTINGUISHING, "metric")})
            found.setdefault(name, (row.unit, []))[1].append(value)
    return found


_Side = tuple[str, list[float]] | None


def _row(name: str, base: _Side, new: _Side, other_machine: bool) -> tuple[object, ...]:
    left, right = (None if side is None else statistics.median(side[1]) for side in (base, new))
    unit = (base or new or ("", []))[0]
    change = None if left is None or right is None or not left else (right - left) / left
    low = high = None
    if base is None or new is None:
        verdict = SummaryVerdict.ONLY_IN_NEW if base is None else SummaryVerdict.ONLY_IN_BASE
    elif unit in _COUNTED:
        verdict = _counted(base[1], new[1])
    elif other_machine:
        verdict = SummaryVerdict.NOT_COMPARED
    else:
        _, down, up = ratio_interval(new[1], base[1])
        low, high = (None if end is None else end - 1 for end in (down, up))
        verdict = SummaryVerdict(difference_verdict(down, up, 0).value)
    return name, unit, left, right, change, low, high, verdict.value


def _counted(base: Sequence[float], new: Sequence[float]) -> SummaryVerdict:
    """Compare counts and bytes: they differ if the values of both sides do not overlap."""
    if min(new) > max(base):
        return SummaryVerdict.MORE
    if max(new) < min(base):
        return SummaryVerdict.LESS
    equal = {*base} == {*new} and len({*base}) == 1
    return SummaryVerdict.SAME if equal else SummaryVerdict.NO_DIFFERENCE


# --- The gate: whether a count, memory, or a comparable time has grown by more than is allowed.


def gated_metrics(found: SummaryComparison) -> list[str]:
    """Return the metrics that are gated if none is named: all counts and memory that both sides
    have. Raises InputError if there are none."""
    known = pl.col("unit").is_in(_COUNTED) & ~pl.col("verdict").is_in(_ALONE)
    names: list[str] = found.rows.filter(known)["metric"].to_list()
    if not names:
        raise InputError("no count and no memory is in both sides: give runs of one pipeline")
    return names


def check_growth(found: SummaryComparison, name: str, limit: float) -> Growth:
    """Check a metric against `limit`. Raises InputError if that is not possible: the metric is
    unknown or only in one side, a run lacks parts, or a time cannot be compared."""
    for one in (*found.base, *found.new):
        lacking = [part for part in str(one.run["quality"]).split(",") if part in _MISSING]
        if lacking:
            raise InputError(bad_quality_text(str(one.run["run_id"]), ",".join(lacking)))
    rows = found.rows.filter(pl.col("metric") == name)
    if rows.is_empty():
        names = found.rows["metric"].to_list()
        alike = difflib.get_close_matches(name, names, _NAMED, 0.4) or names[:_NAMED]
        raise InputError(
            f"there is no metric {name!r:.80} in these summaries: give one such as "
            f"{', '.join(alike)}"
        )
    row = rows.row(0, named=True)
    verdict, change = SummaryVerdict(row["verdict"]), row["change"]
    if verdict in (SummaryVerdict.ONLY_IN_BASE, SummaryVerdict.ONLY_IN_NEW):
        side = verdict.value.removeprefix("only_in_")
        raise InputError(f"{name} is only in {side}: compare runs that both have it")
    if verdict is SummaryVerdict.NOT_COMPARED:
        raise InputError(f"{name} is a time: {machines_text(found)}")
    if verdict is SummaryVerdict.NEEDS_MORE and (change is None or change > limit):
        raise InputError(
            f"{name} is slower by {signed(change or 0)}, and summaries of so few runs do not show "
            "noise: give six or more runs a side, or compare bundles"
        )
    grew = verdict.value in _GREW
    return Growth(name, limit, change, grew and (change is None or change > limit))


def machines_text(found: SummaryComparison) -> Said:
    """Return why times are not compared."""
    told = [difference_text(each) for each in found.machines if each.why is Why.DIFFERENT]
    unknown = [each.field for each in found.machines if each.why is Why.UNKNOWN]
    if unknown:
        told.append(said("nobody recorded {fields}", fields=", ".join(unknown)))
    return said("times of other machines are not compared ({why})", why=joined("; ", told))


# --- The comparison as text for a terminal and Markdown, and as a document.


def notes_of(found: SummaryComparison) -> list[Said]:
    """Say in what the sides differ, and what is therefore not compared."""
    notes = [
        said("other work: {why}", why=difference_text(each))
        for each in found.apart
        if each.field not in _MACHINE
    ]
    return [*notes, machines_text(found)] if found.machines else notes


def summary_report(found: SummaryComparison, gates: Sequence[Growth], *, top: int) -> Report:
    """Return the report: differing metrics first, `top` rows."""
    differs = pl.col("verdict").is_in(_DIFFERS)
    counted_rows = found.rows.filter(pl.col("unit").is_in(_COUNTED))
    headline = said(
        "{differing} of {all} counts and sizes of memory differ",
        differing=len(counted_rows.filter(differs)),
        all=len(counted_rows),
    )
    ordered = found.rows.sort(~differs, ~pl.col("unit").is_in(_COUNTED), maintain_order=True)
    view = table("summary_metrics", "metrics", _SHOWN, _SHOWN, _written(ordered), shown=top)
    facts = (
        *(
            Fact(said(name), _side_text(side))
            for name, side in (("base", found.base), ("new", found.new))
        ),
        *(Fact(said("note"), note) for note in notes_of(found)),
    )
    section = Section("metrics", said("Metrics"), (Part(table=view),))
    return Report(Head(headline, facts=facts), (section,), tuple(_verdicts(gates)))


def _verdicts(gates: Sequence[Growth]) -> Iterator[Fact]:
    """Yield a line per failed gate, and per passed one, or a single line if many passed."""
    for gate in (gate for gate in gates if gate.failed):
        yield Fact(said("FAILED"), _gate_text(gate), alert=True)
    passed = [gate for gate in gates if not gate.failed]
    if len(passed) <= _NAMED:
        yield from (Fact(said("passed"), _gate_text(gate)) for gate in passed)
    else:
        many = said(
            "{metrics}, limit {limit}",
            metrics=counted(len(passed), "metric"),
            limit=percent(passed[0].limit),
        )
        yield Fact(said("passed"), many)


_SHOWN: tuple[Column, ...] = (
    col("metric", STRING, "name of the metric", kind="layer"),
    col("base", STRING, "the baseline's", kind="figure"),
    col("new", STRING, "the new runs'", kind="figure"),
    col("change", STRING, "new against base", kind="figure"),
    col("verdict", STRING, "what the sides say", kind="text"),
)


def _written(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with values as text, each in its own unit."""
    texts = [
        (
            row["metric"],
            value_text(row["base"], row["unit"]),
            value_text(row["new"], row["unit"]),
            _change_text(row),
            row["verdict"].replace("_", " "),
        )
        for row in rows.iter_rows(named=True)
    ]
    return pl.DataFrame(texts, schema=schema(_SHOWN), orient="row")


def _change_text(row: dict[str, Any]) -> str:
    if row["change"] is not None:
        return signed(row["change"])
    return said("from nothing") if row["base"] == 0 and row["new"] else ""


def _side_text(side: Sequence[Summary]) -> Said:
    first = side[0].run
    commit = f", {first['commit'][:12]}" if first["commit"] else ""
    name = clean(first["run_id"] + commit)
    return said("{runs} ({name})", runs=counted(len(side), "run"), name=name)


def _gate_text(gate: Growth) -> Said:
    change = said("from nothing") if gate.change is None else signed(gate.change)
    text = "{metric}: {change}, limit {limit}"
    return said(text, metric=clean(gate.metric), change=change, limit=percent(gate.limit))


def summary_document(found: SummaryComparison, gates: Sequence[Growth]) -> dict[str, Any]:
    """Return the comparison as plain values."""
    return {
        **envelope("summary_diff"),
        "runs": [
            {
                "side": name,
                "run_id": one.run["run_id"],
                "commit": one.run["commit"],
                "started_ns": one.run["time_ns"],
            }
            for name, side in (("base", found.base), ("new", found.new))
            for one in side
        ],
        "notes": [str(note) for note in notes_of(found)],
        "gates": [asdict(gate) for gate in gates],
        "metrics": found.rows.to_dicts(),
    }
