"""What the report in the terminal says of a run before its tables: lines of name and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from profiler.analysis.manifest_numbers import finite_number
from profiler.analysis.result import Accounting, Analysis, RunSummary
from profiler.events import Loss
from profiler.messages import Said, said
from profiler.report.facts import attributed_to
from profiler.report.headline import asynchronous, at_once
from profiler.report.layout import shorten
from profiler.report.sentences.worded import why_not
from profiler.report.tracing_cost import how_known, share_of
from profiler.report.units import count, duration, percent

__all__ = ["RESIDUAL_LIMIT", "Line", "accounting_lines", "describe", "of_all"]

RESIDUAL_LIMIT = 0.01  # the accounting identity promises no more
_VALUE = 48  # characters of one setting


@dataclass(frozen=True, slots=True)
class Line:
    """`text` under `label`, or under the label of the line before; `alert` where it is bad news."""

    label: str
    text: str
    alert: bool = False


def describe(analysis: Analysis) -> Iterator[Line]:
    """What ran, what tracing cost and what was lost."""
    run = analysis.run
    started = run.started.replace("T", " ").replace("+00:00", " UTC")
    yield Line("run", ", ".join(filter(None, (run.run_id, started))))
    if run.model or run.pipeline:
        yield Line("model", ", ".join(filter(None, (run.model, run.pipeline))))
    if run.settings:
        yield Line("settings", _pairs(run.settings))
    for number, name in enumerate(analysis.devices["device"]):
        yield Line("" if number else "devices", _device(run, name))
    if run.versions:
        yield Line("versions", _pairs(run.versions))
    yield Line("traced", _traced(run))
    if run.selection:
        yield Line("selection", _selection(run))
    if run.warmup:
        yield Line("warm-up", _warmup(run.warmup))
    yield Line("overhead", _overhead(run.overhead))
    if run.attribution:
        yield Line("attributed", _attribution(run.attribution))
    for name, total_ns, busy_ns in asynchronous(analysis):
        text = f"{name} returns before its device is done: {duration(total_ns)} in calls"
        yield Line("asynchronous", f"{text}, {duration(busy_ns)} of device time")
    yield from _losses(analysis.losses)


def _losses(losses: tuple[Loss, ...]) -> Iterator[Line]:
    if not losses:
        yield Line("losses", "none")
    for number, loss in enumerate(losses):
        label = "" if number else _number(len(losses), "loss", "losses")
        lost = f" ({_number(loss.count, loss.unit.removesuffix('s'))})" if loss.count >= 0 else ""
        text = f"{loss.kind.replace('_', ' ')}, {loss.where}: {loss.detail}{lost}"
        yield Line(label, text, alert=True)


def _pairs(mapping: Mapping[str, Any]) -> str:
    return ", ".join(f"{_value(key)} {_value(value)}" for key, value in mapping.items())


def _value(value: object) -> str:
    return shorten(" ".join(str(value).split()), _VALUE)


def _device(run: RunSummary, device: str) -> str:
    found = run.devices.get(device)
    known = found if isinstance(found, Mapping) else {}
    hardware = known.get("hardware") or (run.hardware.get("cpu") if device == "cpu:0" else "")
    cores = known.get("cores") or (run.hardware.get("cores") if device == "cpu:0" else None)
    shared = str(known.get("description", "")).partition(", shared with ")
    parts = [str(hardware or ""), _cores(cores), "shared with " + shared[2] if shared[2] else ""]
    return f"{device}  " + ", ".join(filter(None, parts))


def _cores(cores: object) -> str:
    """`"cores 0-3, 8"` from a list of them, `"4 cores"` from a number."""
    if isinstance(cores, int) and cores:
        return _number(cores, "core")
    if not isinstance(cores, (list, tuple)) or not all(isinstance(core, int) for core in cores):
        return ""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    named = ", ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in runs)
    return f"core{'s' if len(cores) > 1 else ''} {named}" if named else ""


def _traced(run: RunSummary) -> str:
    whole = run.traced_calls == run.calls
    traced = "all" if whole else count(run.traced_calls) if run.traced_calls else "none"
    calls = f"{_number(run.calls, 'call')}, {traced} with operators"
    return f"{calls}: {_number(run.commands, 'command')}; producer {run.producer}"


def _selection(run: RunSummary) -> str:
    chosen = run.selection
    fields = {name: getattr(chosen, name) for name in ("stage", "submodule", "device", "step")}
    named = ", ".join(f"{name} {' or '.join(v)}" for name, v in fields.items() if v)
    calls = f"{count(run.selected_calls)} of {_number(run.calls, 'call')}"
    commands = f"{count(run.selected_commands)} of {_number(run.commands, 'command')}"
    return f"{named}: {calls}, {commands}; where the time went is of the whole run"


def _warmup(warmup: Mapping[str, Any]) -> str:
    runs, took = finite_number(warmup, "runs"), finite_number(warmup, "duration_ns")
    parts = [_number(int(runs), "run") if runs else "", duration(took) if took else ""]
    return ", ".join([*filter(None, parts), "not in this run"])


def _overhead(overhead: Mapping[str, Any]) -> str:
    """What tracing cost, as far as the producer measured it."""
    share, hooks = finite_number(overhead, "share"), finite_number(overhead, "hooks_ns")
    events, each = (
        finite_number(overhead, "operator_events"),
        finite_number(overhead, "operator_event_ns"),
    )
    conversion = finite_number(overhead, "conversion_ns")
    parts = []
    if share is not None:
        parts.append(f"{percent(share)} of {share_of(overhead)}, {how_known(overhead)}")
    elif hooks is not None:
        parts.append(
            ", ".join(filter(None, ["share not known", how_known(overhead, stated=False)]))
        )
    if hooks is not None:
        parts.append(f"hooks {duration(hooks)}")
    total = finite_number(overhead, "operators_ns")
    if events and total is not None and overhead.get("measured"):
        parts.append(f"{count(int(events))} operator events: {duration(total)}")
    elif events and each is not None:
        total = events * each if total is None else total
        parts.append(f"{count(int(events))} operator events at {duration(each)}: {duration(total)}")
    if not parts:
        return "not measured"
    if waited := finite_number(overhead, "backpressure_ns"):
        parts.append(f"pipelines waited {duration(waited)} for files to be written")
    if conversion is not None:
        parts.append(f"after the run {duration(conversion)} to write it")
    return ", ".join(parts)


def _attribution(attribution: Mapping[str, Any]) -> str:
    shares = {name: _share(part) for name, part in attribution.items()}
    known = {name: share for name, share in shares.items() if share is not None}
    if not known:
        return "not measured"
    if len({percent(share) for share in known.values()}) == 1 and len(known) > 1:
        named = f"{percent(next(iter(known.values())))} in each submodule"
    else:
        named = ", ".join(f"{name} {percent(share)}" for name, share in known.items())
    return f"to {attributed_to(attribution)}, of operator time: {named}"


def _share(part: object) -> float | None:
    return finite_number(part, "share") if isinstance(part, Mapping) else None


def _number(number: int, noun: str, plural: str = "") -> str:
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def accounting_lines(account: Accounting) -> Iterator[Line]:
    """Why there is no accounting, whose time it is of, and what its residual is made of, where
    there is any."""
    if not account.possible:
        yield Line("accounting", f"not possible: {why_not(account.why_not)}", alert=True)
    if account.overlapping:
        yield Line("at once", at_once(account), alert=not account.told_apart)
    if account.calls_outside:
        calls = _number(account.calls_outside, "call")
        text = f"{calls} in no pipeline call, {duration(account.calls_outside_ns)}"
        yield Line("outside", f"{text}: not in the times above")
    parts = {
        "between stages": account.gap_ns,
        "outside its stage": account.outside_ns,
        "in several stages": account.overlap_ns,
    }
    named = ", ".join(f"{duration(part)} {where}" for where, part in parts.items() if part)
    if account.possible and named:
        bad = account.residual_share > RESIDUAL_LIMIT
        limit = f", more than {percent(RESIDUAL_LIMIT)}" if bad else ""
        share = f"{percent(account.residual_share)} of end to end{limit}"
        yield Line("unaccounted", f"{named}; {share}", alert=bad)


def of_all(shown: int, total: int) -> Said:
    """`"3 of 12"` or `"all 12"`."""
    if shown == total:
        return said("all {total}", total=count(total))
    return said("{shown} of {total}", shown=count(shown), total=count(total))
