"""What the report in the terminal says of a run before its tables: lines of name and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiler.analysis.result import Accounting, Analysis, RunSummary
from profiler.events import Loss
from profiler.messages import Said, said
from profiler.report.facts import attributed_to
from profiler.report.headline import asynchronous, at_once
from profiler.report.layout import shorten
from profiler.report.tracing_cost import how_known, share_of
from profiler.report.units import count, duration, percent
from profiler.trace.manifest_fields import Attribution, Device, Overhead, Warmup, stated

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
    settings = {**stated(run.recording), **run.settings}
    if settings:
        yield Line("settings", _pairs(settings))
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
    known, machine = run.devices.get(device, Device()), run.hardware
    hardware = known.hardware or (machine.cpu if device == "cpu:0" else "")
    cores = _cores(known.cores)
    if not cores and machine.cores and device == "cpu:0":
        cores = _number(machine.cores, "core")
    shared = f"shared with {', '.join(known.shared_with)}" if known.shared_with else ""
    return f"{device}  " + ", ".join(filter(None, (hardware, cores, shared)))


def _cores(cores: Sequence[int]) -> str:
    """`"cores 0-3, 8"`."""
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


def _warmup(warmup: Warmup) -> str:
    runs, took = warmup.runs, warmup.duration_ns
    parts = [_number(runs, "run") if runs else "", duration(took) if took else ""]
    return ", ".join([*filter(None, parts), "not in this run"])


def _overhead(overhead: Overhead) -> str:
    """What tracing cost, as far as the producer measured it."""
    share, hooks = overhead.share, overhead.hooks_ns
    events, each = overhead.operator_events, overhead.operator_event_ns
    parts = []
    if share is not None:
        parts.append(f"{percent(share)} of {share_of(overhead)}, {how_known(overhead)}")
    elif hooks is not None:
        parts.append(
            ", ".join(filter(None, ["share not known", how_known(overhead, stated=False)]))
        )
    if hooks is not None:
        parts.append(f"hooks {duration(hooks)}")
    total: float | None = overhead.operators_ns
    if events and total is not None and overhead.measured:
        parts.append(f"{count(events)} operator events: {duration(total)}")
    elif events and each is not None:
        total = events * each if total is None else total
        parts.append(f"{count(events)} operator events at {duration(each)}: {duration(total)}")
    if not parts:
        return "not measured"
    if waited := overhead.backpressure_ns:
        parts.append(f"pipelines waited {duration(waited)} for files to be written")
    if overhead.conversion_ns is not None:
        parts.append(f"after the run {duration(overhead.conversion_ns)} to write it")
    return ", ".join(parts)


def _attribution(attribution: Mapping[str, Attribution]) -> str:
    known = {name: part.share for name, part in attribution.items() if part.share is not None}
    if not known:
        return "not measured"
    if len({percent(share) for share in known.values()}) == 1 and len(known) > 1:
        named = f"{percent(next(iter(known.values())))} in each submodule"
    else:
        named = ", ".join(f"{name} {percent(share)}" for name, share in known.items())
    return f"to {attributed_to(attribution)}, of operator time: {named}"


def _number(number: int, noun: str, plural: str = "") -> str:
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def accounting_lines(account: Accounting) -> Iterator[Line]:
    """Why there is no accounting, whose time it is of, and what its residual is made of, where
    there is any."""
    if not account.possible:
        yield Line("accounting", f"not possible: {account.why_not}", alert=True)
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
