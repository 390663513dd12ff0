"""What every report says before its tables: one sentence, key figures, and what ran.

Plain text throughout; whoever shows it escapes it for where it goes. Everything that comes from a
manifest is taken as it is found: a wrong type is shown, never trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from profiler.analysis.result import Accounting, Analysis
from profiler.report.units import count, counted, duration, percent, size

__all__ = [
    "Fact",
    "Group",
    "asynchronous",
    "at_once",
    "attributed_to",
    "details",
    "headline",
    "how_known",
    "key_facts",
    "named_value",
    "share_of",
]

_NAMED = 4  # names that the headline lists
_RESIDUAL_LIMIT = 0.01
_ENTRIES = 12  # of a mapping within a mapping; of a longer one, such as modules, their number


@dataclass(frozen=True, slots=True)
class Fact:
    """A key figure: `value` under `label`, explained by `note`; `alert` where it is bad news."""

    label: str
    value: str
    note: str = ""
    alert: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Pairs of name and value under a title."""

    title: str
    rows: tuple[tuple[str, str], ...]


def headline(analysis: Analysis, span_ns: int) -> str:
    """`"28 steps in 2.31 s: transformer 92 %, text encoders 5.0 %, vae 3.0 %"`.

    `span_ns` lasts from the first event of the run to its last; it stands in for the end-to-end
    time where the run has no pipeline span. Shares are of the sum of the pipeline calls' times.
    """
    account = analysis.accounting
    total = account.end_to_end_ns or span_ns
    late = {name: busy_ns for name, _, busy_ns in asynchronous(analysis)}
    shares = _grouped(
        (part.submodule, max(part.wall_ns, late.get(part.submodule, 0)) / total)
        for part in account.submodules
        if total
    )
    if not shares:
        busy = [(row["device"], row["busy_ns"]) for row in analysis.devices.iter_rows(named=True)]
        shares = sorted(((name, ns / total) for name, ns in busy if total), key=lambda p: -p[1])
    named = [f"{name} {percent(share)}" for name, share in shares[:_NAMED]]
    rest = ["…"] if len(shares) > _NAMED else []
    return (
        f"{_what(analysis)} in {_passed(account, total)}"
        + (": " if named else "")
        + ", ".join([*named, *rest])
    )


def _passed(account: Accounting, total: int) -> str:
    """`"1.60 s"`, or `"1.60 s (3.10 s in sum)"` where pipeline calls ran at the same time."""
    if account.overlapping and account.told_apart:
        return f"{duration(account.wall_ns)} ({duration(total)} in sum)"
    return duration(total)


def at_once(account: Accounting) -> str:
    """How many pipeline calls ran at the same time as another, and what the times are of."""
    which = f"{count(account.overlapping)} of {counted(account.pipelines, 'pipeline call')}"
    what = f"{which} ran at the same time as another"
    if not account.told_apart:
        return f"{what}; the run does not tell what belongs to which: they are taken for one"
    times = f"{duration(account.wall_ns)} passed, {duration(account.end_to_end_ns)} in sum"
    return f"{what}: {times}; times and shares are of the sum"


def asynchronous(analysis: Analysis) -> list[tuple[str, int, int]]:
    """Submodules whose calls return before their device is done: name, time in calls, device
    time, in ns. For these the wall time of a call says little."""
    rows = analysis.submodules.select("submodule", "total_ns", "busy_ns").rows()
    return [row for row in rows if row[2] > 1.02 * row[1]]


def _grouped(shares: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Several text encoders as one, the largest share first."""
    found = list(shares)
    encoders = [share for name, share in found if name.startswith("text_encoder")]
    if len(encoders) > 1:
        found = [part for part in found if not part[0].startswith("text_encoder")]
        found.append(("text encoders", sum(encoders)))
    return sorted(found, key=lambda part: -part[1])


def _what(analysis: Analysis) -> str:
    account = analysis.accounting
    parts = []
    if account.pipelines > 1:
        parts.append(counted(account.pipelines, "pipeline call"))
    if account.steps:
        parts.append(counted(account.steps, "step"))
    if not parts and analysis.run.calls:
        parts.append(counted(analysis.run.calls, "call"))
    if not parts:
        parts.append(counted(analysis.run.commands, "command"))
    return ", ".join(parts)


def key_facts(analysis: Analysis, span_ns: int) -> tuple[Fact, ...]:
    """The figures that qualify everything else in the report."""
    return (
        _end_to_end(analysis, span_ns),
        *_steps(analysis),
        _commands(analysis),
        _cost(analysis.run.overhead),
        *_attributed(analysis.run.attribution),
        *_asynchronous(analysis),
        _residual(analysis),
        _losses(analysis),
    )


def _end_to_end(analysis: Analysis, span_ns: int) -> Fact:
    account = analysis.accounting
    if account.end_to_end_ns:
        pipelines = counted(account.pipelines, "pipeline call")
        if account.overlapping and account.told_apart:
            pipelines += f", {count(account.overlapping)} at the same time"
            pipelines += f": {duration(account.wall_ns)} passed"
        return Fact("End to end", duration(account.end_to_end_ns), pipelines)
    return Fact("First to last event", duration(span_ns), "the run has no pipeline span")


def _steps(analysis: Analysis) -> Iterator[Fact]:
    steps = analysis.step_summary
    if steps.count:
        spread = f"{duration(steps.min_ns)} to {duration(steps.max_ns)}"
        found = f", {counted(len(steps.outliers), 'outlier')}" if steps.outliers else ""
        yield Fact("Median step", duration(steps.median_ns), spread + found)


def _commands(analysis: Analysis) -> Fact:
    run = analysis.run
    untraced = run.calls - run.traced_calls
    note = counted(run.calls, "call") + (
        f", {count(untraced)} without commands" if untraced else ""
    )
    return Fact("Commands", count(run.commands), note)


def _cost(overhead: Mapping[str, Any]) -> Fact:
    share = _real(overhead, "share")
    if share is None:
        if _real(overhead, "hooks_ns") is None:
            return Fact("Cost of tracing", "not measured", "by the producer of this run")
        return Fact("Cost of tracing", "not known", how_known(overhead, stated=False))
    event = _real(overhead, "operator_event_ns")
    note = f"of {share_of(overhead)}, {how_known(overhead)}" + (
        f", {duration(event)} a recorded operator" if event else ""
    )
    return Fact("Cost of tracing", percent(share), note)


def share_of(overhead: Mapping[str, Any]) -> str:
    """What the share of tracing is of: `"end to end"`, or `"the time in calls"`."""
    return str(overhead.get("share_of") or "end to end")


def how_known(overhead: Mapping[str, Any], *, stated: bool = True) -> str:
    """How the cost of tracing is known: `"estimated"`, or `"measured: transformer 5.2 ms a call
    (4.9 ms to 5.6 ms), else estimated"`, with 95 % intervals where there are, and where too few
    calls could be compared. `stated`: a cost is stated."""
    measured = overhead.get("measured")
    found = [
        f"{name} {duration(cost)} a call{_interval(known)}"
        for name, known in (measured.items() if isinstance(measured, Mapping) else ())
        if isinstance(known, Mapping) and (cost := _real(known, "call_ns")) is not None
    ]
    parts = [f"measured: {', '.join(found)}"] if found else []
    if stated and (not found or _real(overhead, "estimated_events")):
        parts.append(("else " if found else "") + "estimated" + _spread(overhead))
    return ", ".join([*parts, *_too_few(overhead)])


def _spread(overhead: Mapping[str, Any]) -> str:
    """How far apart the estimates of a noisy machine lie."""
    low, high = _real(overhead, "operator_event_low_ns"), _real(overhead, "operator_event_high_ns")
    if low is None or high is None or overhead.get("noisy") is not True:
        return ""
    return f" (noisy: {duration(low)} to {duration(high)} an event)"


def _too_few(overhead: Mapping[str, Any]) -> Iterator[str]:
    few = overhead.get("too_few")
    counts = [
        f"{name} {count(int(_real(of, 'traced_calls') or 0))} traced and "
        f"{count(int(_real(of, 'untraced_calls') or 0))} untraced"
        for name, of in (few.items() if isinstance(few, Mapping) else ())
        if isinstance(of, Mapping)
    ]
    if counts:
        yield f"too few calls to measure it ({', '.join(counts)})"


def _interval(known: Mapping[str, Any]) -> str:
    low, high = _real(known, "call_low_ns"), _real(known, "call_high_ns")
    return "" if low is None or high is None else f" ({duration(low)} to {duration(high)})"


def _asynchronous(analysis: Analysis) -> Iterator[Fact]:
    for name, total_ns, busy_ns in asynchronous(analysis):
        note = f"of device time, {duration(total_ns)} in its calls: they return before it is done"
        yield Fact(name, duration(busy_ns), note)


def _attributed(attribution: Mapping[str, Any]) -> Iterator[Fact]:
    parts = [part for part in attribution.values() if isinstance(part, Mapping)]
    total = sum(_real(part, "total_ns") or 0.0 for part in parts)
    if total:
        share = sum(_real(part, "attributed_ns") or 0.0 for part in parts) / total
        note = f"of operator time, to {attributed_to(attribution)}"
        yield Fact("Attributed", percent(share), note)


def attributed_to(attribution: Mapping[str, Any]) -> str:
    """What operators were attributed to: module paths by capture, calls by importers."""
    targets = {str(p.get("to", "")) for p in attribution.values() if isinstance(p, Mapping)}
    return " and ".join(sorted(targets - {""})) or "module paths"


def _residual(analysis: Analysis) -> Fact:
    account = analysis.accounting
    if not account.possible:
        return Fact("Unaccounted", "unknown", account.why_not)
    bad = account.residual_share > _RESIDUAL_LIMIT
    note = "of end to end is in no stage" + (", more than 1 %" if bad else "")
    return Fact("Unaccounted", percent(account.residual_share), note, alert=bad)


def _losses(analysis: Analysis) -> Fact:
    if not analysis.losses:
        return Fact("Lost", "nothing", "all that was executed is here")
    kinds = sorted({loss.kind.replace("_", " ") for loss in analysis.losses})
    return Fact("Lost", counted(len(analysis.losses), "record"), ", ".join(kinds), alert=True)


def details(analysis: Analysis) -> tuple[Group, ...]:
    """What ran, on what, with which versions and settings; empty groups are left out."""
    run = analysis.run
    head = {
        "run": run.run_id,
        "model": run.model,
        "pipeline": run.pipeline,
        "producer": run.producer,
        "started": run.started.replace("T", " ").replace("+00:00", " UTC"),
        "command line": " ".join(run.command_line),
    }
    groups = (
        Group("Run", _pairs({name: value for name, value in head.items() if value})),
        Group("Settings", _pairs(run.settings)),
        Group("Devices", _nested(run.devices)),
        Group("Submodules", _nested(run.submodules)),
        Group("Hardware", _pairs(run.hardware)),
        Group("Versions", _pairs(run.versions)),
        Group("Cost of tracing", _pairs(run.overhead)),
        Group("Attribution", _nested(run.attribution)),
        Group("Warm-up, not in this run", _pairs(run.warmup)),
    )
    return tuple(group for group in groups if group.rows)


def _pairs(mapping: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(named_value(str(key), value) for key, value in mapping.items())


def _nested(mapping: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    rows = []
    for name, value in mapping.items():
        pairs = _pairs(value) if isinstance(value, Mapping) else (("", str(value)),)
        rows.append(
            (str(name), ", ".join(" ".join(filter(None, pair)) for pair in pairs if pair[1]))
        )
    return tuple(rows)


def named_value(key: str, value: Any) -> tuple[str, str]:
    """A key without its unit, and its value with it: `("hooks", "1.43 ms")`."""
    for suffix, text in (("_ns", duration), ("_bytes", size), ("share", percent)):
        if key.endswith(suffix) and _is_number(value):
            name = key.removesuffix(suffix) if suffix.startswith("_") else key
            return name.replace("_", " "), text(value)
    if isinstance(value, Mapping) and len(value) > _ENTRIES:
        return key.replace("_", " "), count(len(value))
    return key.replace("_", " "), _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(" ".join(named_value(str(key), part)) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(part) for part in value)
    return str(value)


def _real(mapping: Mapping[str, Any], key: str) -> float | None:
    value = mapping.get(key)
    return float(value) if _is_number(value) else None


def _is_number(value: Any) -> TypeGuard[float]:
    """A finite number: JSON readers accept NaN and Infinity."""
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    return numeric and abs(value) < float("inf")
