"""What a check of the recording's events against each other found, and what was done about it.

The notes are the manifest's (`RunInfo.health`), which the importer wrote. Figures of a report are
of corrected times; what could not be put right makes those of a device not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import polars as pl

from profiler.analysis.context import Inputs
from profiler.analysis.document import Fact
from profiler.analysis.question import Table
from profiler.analysis.table_text import Sentences
from profiler.run.columns import DATA_ONLY, FLOAT64, INT64, NS, STRING, Column, col, schema
from profiler.text import Said, count, counted, duration, number, percent, said, sentence
from profiler.trace.events import ROOT_DEVICE
from profiler.trace.manifest_fields import LARGEST, HealthAction, HealthNote, HealthRule


class ShareOf(StrEnum):
    """What a share of the health table is a part of."""

    DEVICE_TIME = "device_time"  # that is left after correction; may exceed it
    ROWS = "rows"
    LAUNCHES = "launches"
    RECORDING = "recording"  # its time
    NOTHING = "nothing"


_SHARE_OF = {
    HealthRule.OVERRUN: ShareOf.DEVICE_TIME,
    HealthRule.OUTLIVED: ShareOf.DEVICE_TIME,
    HealthRule.BEFORE: ShareOf.DEVICE_TIME,
    HealthRule.LOST: ShareOf.LAUNCHES,
    HealthRule.HOST_ONLY: ShareOf.LAUNCHES,
    HealthRule.LATE: ShareOf.LAUNCHES,
    HealthRule.CUT: ShareOf.LAUNCHES,
    HealthRule.REUSED_NUMBERS: ShareOf.LAUNCHES,
    HealthRule.SHARED_NUMBERS: ShareOf.NOTHING,
    HealthRule.GAP: ShareOf.RECORDING,
    HealthRule.MISSING_PART: ShareOf.RECORDING,
    HealthRule.TOO_LONG: ShareOf.LAUNCHES,
    HealthRule.DRIFT: ShareOf.NOTHING,
}
"""Of the other rules: of rows."""

HEALTH: tuple[Column, ...] = (
    col("rule", STRING, "what was counted", codes=HealthRule),
    col(
        "device",
        STRING,
        "device on which; several are joined with commas, empty if on no known one",
    ),
    col("stream", STRING, "its stream, empty if on several", importance=2),
    col("count", INT64, "rows or launches that break the rule"),
    col("total", INT64, "rows of the device, or launches of the process", importance=3),
    col("calls", INT64, "calls that have no work at all because of it", hide_if_zero=True),
    col("excess_ns", NS, "by how much times were wrong in all", importance=1),
    col("share", FLOAT64, "part of what share_of names", True, importance=4),
    col("share_of", STRING, "what share is a part of", codes=ShareOf, importance=4),
    col("drift_ppm", FLOAT64, "µs a second by which a clock gains or loses", True, importance=5),
    col("worst", STRING, "name of the row that is most wrong", importance=5),
    col("worst_ns", NS, "its length as recorded; of a clock, how far it is ahead", importance=6),
    col("usual_ns", NS, "length of others of its kernel", importance=7),
    col("at_byte", INT64, "where in the file's text it begins", importance=8, hide_if_zero=True),
    col("action", STRING, "what was done about it", codes=HealthAction),
    col("sentence", STRING, "all of this in a sentence", importance=DATA_ONLY),
)


def _health(of: Inputs) -> pl.DataFrame:
    rows = [_row(note) for note in of.run.info.health]
    return pl.DataFrame(rows, schema=schema(HEALTH), orient="row")


def _row(note: HealthNote) -> dict[str, Any]:
    drifts = note.rule is HealthRule.DRIFT
    derived = {
        "share": None if drifts else note.share,
        "share_of": _SHARE_OF.get(note.rule, ShareOf.ROWS),
        "drift_ppm": note.share * 1e6 if drifts and note.share else None,
        "sentence": str(sentence(sentence_of(note))),
    }
    return {one.name: derived.get(one.name, getattr(note, one.name, None)) for one in HEALTH}


TABLES = (
    Table(
        name="health",
        row="one thing that events of the recording cannot be",
        section="provenance",
        columns=HEALTH,
        make=_health,
        title="What the check of the recording counted",
        about="The table is empty if nothing was counted, and for runs that were not checked.",
    ),
)


# --- What is said of a note, in one sentence.


_LONGEST_NAME = 60  # characters of a kernel's name
_TWICE = 2  # times as much: no share of a whole
_DOUBTFUL = 0.05  # of the launches: without their work findings are doubtful
_FEW = 0.01  # of a device's rows: without these its busy time is known as well as it is printed


def _where(note: HealthNote) -> str:
    if note.device and note.stream:
        return said("{device} {stream}", device=note.device, stream=note.stream)
    return note.device or said("several devices")


def _kernels(note: HealthNote) -> Said:
    return counted(note.count, "kernel")


def _of_time(note: HealthNote) -> Said:
    if note.share >= _TWICE:
        return said("{share} × the device time left", share=number(note.share))
    return said("{share} of the device time left", share=percent(note.share))


def _worst(note: HealthNote) -> Said:
    name = note.worst if len(note.worst) <= _LONGEST_NAME else f"{note.worst[:_LONGEST_NAME]}…"
    length, usual = duration(note.worst_ns), duration(note.usual_ns)
    if not note.usual_ns:
        return said("worst: {name} {length}", name=name, length=length)
    return said(
        "worst: {name} {length}, others of its kind {usual}",
        name=name,
        length=length,
        usual=usual,
    )


def _overrun(note: HealthNote) -> Said:
    given = {"kernels": _kernels(note), "where": _where(note), "worst": _worst(note)}
    given |= {"excess": duration(note.excess_ns), "share": _of_time(note)}
    if note.action is HealthAction.SHORTENED:
        return said(
            "{kernels} on {where} recorded as running past the next one's start, {excess} too long "
            "in all ({share}); {worst}; shortened",
            **given,
        )
    return said(
        "{kernels} on {where} recorded as running past the next one's start by {excess} in all "
        "({share}): lengths are doubtful unless launches overlap on purpose; {worst}",
        **given,
    )


def _outlived(note: HealthNote) -> Said:
    given = {"kernels": _kernels(note), "where": _where(note), "excess": duration(note.excess_ns)}
    if note.action is HealthAction.SHORTENED:
        return said(
            "{kernels} on {where} recorded as running past the return of a synchronization, "
            "{excess} too long in all; {worst}; shortened",
            worst=_worst(note),
            **given,
        )
    if note.action is HealthAction.SET_ASIDE:
        return said(
            "{kernels} on {where} recorded as beginning after the return of a synchronization that "
            "waited for them: set aside",
            **given,
        )
    return said(
        "the end of {kernels} on {where} is up to {excess} behind a synchronization that waited "
        "for it: the device's clock is late, or lengths or times of the host are wrong",
        **given,
    )


def _clock(note: HealthNote) -> Said:
    given = {"device": note.device, "count": count(note.count), "total": count(note.total)}
    if note.action is HealthAction.SHIFTED:
        return said(
            "{device} ran {ahead} ahead of the host ({count} of {total} kernels began before their "
            "launch); shifted by {shift}, exact to about 25 µs",
            ahead=_apart(note.worst_ns),
            shift=_apart(note.excess_ns),
            **given,
        )
    return said(
        "{count} of {total} kernels on {device} began before their launch, and no single shift of "
        "its clock explains that: set aside",
        **given,
    )


def _apart(time_ns: int) -> str:
    """How far two clocks are apart, which a note may not hold."""
    return duration(time_ns) if time_ns < LARGEST else said("over {time}", time=duration(LARGEST))


def _late_clock(note: HealthNote) -> Said:
    return said(
        "no kernel on {device} begins earlier than {least} after its launch, though the device "
        "was idle {count} times: its clock may be late, and what it waited for is not known",
        device=note.device,
        least=duration(note.worst_ns),
        count=count(note.count),
    )


def _no_length(note: HealthNote) -> Said:
    return said(
        "{kernels} on {device} recorded with a length of 0; {effect}",
        kernels=_kernels(note),
        device=note.device,
        effect=_without(note),
    )


def _unlaunched(note: HealthNote) -> Said:
    return said(
        "{count} of {total} kernels on {device} have no launch in the trace, though other work of "
        "that time has one: calls, steps and what {device} waited for lack what the host did",
        count=count(note.count),
        total=count(note.total),
        device=note.device,
    )


def _without(note: HealthNote) -> Said:
    """What it means for figures of a device that some of its rows were set aside."""
    if note.share > _FEW:
        return said("busy time and idle causes there are not known")
    return said("in no figure")


def _too_short(note: HealthNote) -> Said:
    return said(
        "half of the {kernels} on {device} take {usual} or less, as no kernel does: lengths are "
        "wrong, perhaps by their unit, and what is made of them is not known",
        kernels=_kernels(note),
        device=note.device,
        usual=duration(max(note.usual_ns, 1)),
    )


def _no_time(note: HealthNote) -> Said:
    if note.device == ROOT_DEVICE:
        return said(
            "{events} of the host without a time (0); they are in no figure",
            events=counted(note.count, "event"),
        )
    if note.worst_ns:
        return said(
            "{kernels} on {device} {time} away from all else; {effect}",
            kernels=_kernels(note),
            device=note.device,
            time=duration(note.worst_ns),
            effect=_without(note),
        )
    return said(
        "{kernels} without a time (0) on {device}; {effect}",
        kernels=_kernels(note),
        device=note.device,
        effect=_without(note),
    )


def _negative(note: HealthNote) -> Said:
    return said(
        "{kernels} on {device} with an end ahead of the start; {effect}",
        kernels=_kernels(note),
        device=note.device,
        effect=_without(note),
    )


def _unfinished(note: HealthNote) -> Said:
    if note.device == ROOT_DEVICE:
        return said(
            "{events} of the host began and never ended; they are in no figure",
            events=counted(note.count, "event"),
        )
    return said(
        "{kernels} on {device} began and never ended; {effect}",
        kernels=_kernels(note),
        device=note.device,
        effect=_without(note),
    )


def _twice(note: HealthNote) -> Said:
    return said(
        "{kernels} on {device} recorded twice: one of each is kept",
        kernels=_kernels(note),
        device=note.device,
    )


def _lost(note: HealthNote) -> Said:
    given = {"count": count(note.count), "total": count(note.total), "device": _where(note)}
    if note.share <= _DOUBTFUL:
        return said(
            "{count} of {total} launches on {device} have no kernel in the trace; times of calls "
            "are lower bounds (the profiler's buffers: profile fewer steps)",
            **given,
        )
    return said(
        "{count} of {total} launches on {device} have no kernel in the trace{calls}; other times "
        "of calls are lower bounds, findings doubtful (the profiler's buffers: profile fewer "
        "steps)",
        calls=_workless(note),
        **given,
    )


def _operators(note: HealthNote) -> Said:
    return said(
        "{count} of {total} kernels and copies name an operator that is not in the trace: what is "
        "said of operators, shapes and modules lacks some",
        count=count(note.count),
        total=count(note.total),
    )


def _replays(note: HealthNote) -> Said:
    return said(
        "replays of graphs on {device} lack {count} of {total} kernels and copies that other "
        "replays have; times of calls are lower bounds",
        device=note.device,
        count=count(note.count),
        total=count(note.total),
    )


def _workless(note: HealthNote) -> str:
    """The calls that medians leave out."""
    if not note.calls:
        return ""
    return said(", {calls} no work at all: not in medians", calls=counted(note.calls, "call"))


def _device_only(note: HealthNote) -> Said:
    return said(
        "{kernels} and no launch of one: busy times are known, not what devices waited for",
        kernels=_kernels(note),
    )


def _late(note: HealthNote) -> Said:
    return said(
        "{launches} ran before the recording of devices began, or its first kernels are lost"
        "{calls}",
        launches=_launches(note),
        calls=_workless(note),
    )


def _host_only(note: HealthNote) -> Said:
    if note.action is HealthAction.SET_ASIDE:
        return said("no kernel has a time that can be: these are times of the host that launches")
    return said(
        "{launches} on {hardware}, no kernel recorded: these are times of the host that launches. "
        "Record with ProfilerActivity.CUDA; CUPTI and roctracer need permission",
        launches=_launches(note),
        hardware=note.worst or said("a GPU"),
    )


def _host_times(note: HealthNote) -> Said:
    return said(
        "{nodes} of {provider} have host times only: those of the host that launches. What "
        "{device} did is not in the profile; record kernels with nsys or rocprofv3",
        nodes=counted(note.count, "node"),
        provider=note.worst,
        device=note.device,
    )


def _launches(note: HealthNote) -> Said:
    if note.count == 1:
        return said("1 launch")
    return said("{count} launches", count=count(note.count))


def _shared(note: HealthNote) -> Said:
    if note.action is HealthAction.REKEYED:
        return said(
            "{total} processes share launch numbers (merged ranks): the work of each device was "
            "given to the process whose launches fit it",
            total=count(note.total),
        )
    return said(
        "{total} processes share launch numbers (merged ranks), and their launches fit no device: "
        "give each rank's file",
        total=count(note.total),
    )


def _reused(note: HealthNote) -> Said:
    return said(
        "{count} of {total} launches have the number of an earlier one of their process: their "
        "work may belong to another call",
        count=count(note.count),
        total=count(note.total),
    )


def _before(note: HealthNote) -> Said:
    return said(
        "{kernels}, {time} on {device}, were launched before the recording began; they are in no "
        "call, nor in busy time",
        kernels=_kernels(note),
        time=duration(note.excess_ns),
        device=note.device,
    )


def _cut(note: HealthNote) -> Said:
    return said(
        "{launches} had not run when the recording ended{calls}",
        launches=_launches(note),
        calls=_workless(note),
    )


def _beyond(note: HealthNote) -> Said:
    return said(
        "{kernels} on {device} took more than 50 times as long as others of their kind; {worst}",
        kernels=_kernels(note),
        device=note.device,
        worst=_worst(note),
    )


def _gap(note: HealthNote) -> Said:
    time = duration(note.excess_ns)
    if note.action is HealthAction.LEFT_OUT:
        return said("{time} were not recorded between parts of the file; left out", time=time)
    return said("{time} were not recorded between parts of the file", time=time)


def _drift(note: HealthNote) -> Said:
    given = {"device": note.device, "rate": number(abs(note.share) * 1e6)}
    if not note.share:
        return said(
            "the clock of {device} runs at another rate than the host's, and {count} of {total} "
            "kernels began before their launch: shifted by {shift}, which is right at one moment "
            "only; what {device} waited for is not known",
            count=count(note.count),
            total=count(note.total),
            shift=duration(note.excess_ns),
            device=note.device,
        )
    if note.action is HealthAction.SHIFTED:
        return said(
            "the clock of {device} gains or loses {rate} µs a second against the host's, and "
            "{count} of {total} kernels began before their launch: shifted by {shift}, which is "
            "right at one moment only; what {device} waited for is not known",
            count=count(note.count),
            total=count(note.total),
            shift=duration(note.excess_ns),
            **given,
        )
    return said(
        "the clock of {device} gains or loses {rate} µs a second against the host's: what "
        "{device} waited for is not known",
        **given,
    )


def _missing_part(note: HealthNote) -> Said:
    return said(
        "nothing was recorded for {time}, in which the program made {count} of its {total} calls "
        "of the runtime: the step or call across it is no single one, and sums are too small",
        time=duration(note.excess_ns),
        count=count(note.count),
        total=count(note.total),
    )


def _too_long(note: HealthNote) -> Said:
    return said(
        "19 of 20 of the {count} launches take the host {usual} or more, which is far too long: "
        "the file's unit of time is probably wrong, and all times with it",
        count=count(note.count),
        usual=duration(note.usual_ns),
    )


def _front_end(note: HealthNote) -> Said:
    return said(
        "{name} recorded {operators} and launched nothing: a front end or loader, in no submodule",
        name=note.worst,
        operators=counted(note.count, "operator"),
    )


def _no_json(note: HealthNote) -> Said:
    text = said(
        "skipped {count} of {total} events, whose text is no JSON; the first begins at byte "
        "{at_byte}",
        count=count(note.count),
        total=count(note.total),
        at_byte=count(note.at_byte),
    )
    return _of_rank(note, text)


def _broken_off(note: HealthNote) -> Said:
    text = said(
        "read {events}; the file breaks off at byte {at_byte}: what followed is missing",
        events=counted(note.count, "event"),
        at_byte=count(note.at_byte),
    )
    return _of_rank(note, text)


def _of_rank(note: HealthNote, text: Said) -> Said:
    """What is said of a file, with the rank whose file it is if a job has several."""
    return said("{rank}: {text}", rank=note.device, text=text) if note.device else text


_SENTENCES: dict[HealthRule, tuple[Said, Callable[[HealthNote], Said]]] = {
    HealthRule.OVERRUN: (said("Corrected"), _overrun),
    HealthRule.OUTLIVED: (said("Corrected"), _outlived),
    HealthRule.CLOCK: (said("Clock"), _clock),
    HealthRule.NO_TIME: (said("Set aside"), _no_time),
    HealthRule.NEGATIVE: (said("Set aside"), _negative),
    HealthRule.UNFINISHED: (said("Set aside"), _unfinished),
    HealthRule.TWICE: (said("Set aside"), _twice),
    HealthRule.NO_LENGTH: (said("Set aside"), _no_length),
    HealthRule.TOO_SHORT: (said("Uncertain"), _too_short),
    HealthRule.LATE_CLOCK: (said("Clock"), _late_clock),
    HealthRule.LOST: (said("Lost"), _lost),
    HealthRule.UNLAUNCHED: (said("Lost"), _unlaunched),
    HealthRule.OPERATORS: (said("Lost"), _operators),
    HealthRule.REPLAYS: (said("Lost"), _replays),
    HealthRule.HOST_ONLY: (said("No GPU work"), _host_only),
    HealthRule.HOST_TIMES: (said("No GPU work"), _host_times),
    HealthRule.SHARED_NUMBERS: (said("Merged"), _shared),
    HealthRule.REUSED_NUMBERS: (said("Uncertain"), _reused),
    HealthRule.BEFORE: (said("Before"), _before),
    HealthRule.DEVICE_ONLY: (said("Device only"), _device_only),
    HealthRule.LATE: (said("Late"), _late),
    HealthRule.CUT: (said("Cut"), _cut),
    HealthRule.BEYOND_PEERS: (said("Uncertain"), _beyond),
    HealthRule.GAP: (said("Gap"), _gap),
    HealthRule.MISSING_PART: (said("Lost"), _missing_part),
    HealthRule.TOO_LONG: (said("Uncertain"), _too_long),
    HealthRule.DRIFT: (said("Drift"), _drift),
    HealthRule.FRONT_END: (said("Beside"), _front_end),
    HealthRule.NO_JSON: (said("Text"), _no_json),
    HealthRule.BROKEN_OFF: (said("Text"), _broken_off),
}

SENTENCES: Sentences = {
    HealthRule: {
        HealthRule.OVERRUN: said("runs past the next launch's work"),
        HealthRule.OUTLIVED: said("runs past a synchronization"),
        HealthRule.CLOCK: said("begins before its launch"),
        HealthRule.NO_TIME: said("has no time"),
        HealthRule.NEGATIVE: said("ends before its start"),
        HealthRule.UNFINISHED: said("never ended"),
        HealthRule.NO_LENGTH: said("has no length"),
        HealthRule.TOO_SHORT: said("shorter than any kernel"),
        HealthRule.LATE_CLOCK: said("begins long after its launch"),
        HealthRule.UNLAUNCHED: said("its launch was not recorded"),
        HealthRule.TWICE: said("recorded twice"),
        HealthRule.LOST: said("launched, but not recorded"),
        HealthRule.OPERATORS: said("its operator was not recorded"),
        HealthRule.REPLAYS: said("missing in a replay of a graph"),
        HealthRule.HOST_ONLY: said("no work of a device recorded"),
        HealthRule.HOST_TIMES: said("has times of the host alone"),
        HealthRule.SHARED_NUMBERS: said("launch numbers of several processes"),
        HealthRule.REUSED_NUMBERS: said("launch numbers used again"),
        HealthRule.BEFORE: said("launched before the recording"),
        HealthRule.DEVICE_ONLY: said("no launch recorded"),
        HealthRule.LATE: said("launched before devices were recorded"),
        HealthRule.CUT: said("had not run at the recording's end"),
        HealthRule.BEYOND_PEERS: said("far longer than others of its kernel"),
        HealthRule.GAP: said("nothing recorded"),
        HealthRule.MISSING_PART: said("calls of the runtime that are not in the file"),
        HealthRule.TOO_LONG: said("longer than any launch takes"),
        HealthRule.DRIFT: said("clock gains or loses"),
        HealthRule.FRONT_END: said("launched nothing"),
        HealthRule.NO_JSON: said("cannot be read as JSON"),
        HealthRule.BROKEN_OFF: said("text of the file breaks off"),
    },
    ShareOf: {
        ShareOf.DEVICE_TIME: said("device time left"),
        ShareOf.ROWS: said("rows"),
        ShareOf.LAUNCHES: said("launches"),
        ShareOf.RECORDING: said("time of the recording"),
        ShareOf.NOTHING: said("nothing"),
    },
    HealthAction: {
        HealthAction.SHORTENED: said("shortened"),
        HealthAction.SHIFTED: said("shifted"),
        HealthAction.SET_ASIDE: said("set aside"),
        HealthAction.REKEYED: said("given to its process"),
        HealthAction.LEFT_OUT: said("left out"),
        HealthAction.NOTED: said("noted"),
    },
}


def sentence_of(note: HealthNote) -> Said:
    """What a note says."""
    return _SENTENCES[note.rule][1](note)


# --- What the first screen says of it, and of which devices busy time is not known.


_MOST_LINES = 2
_CONTRADICT = (HealthRule.DRIFT, HealthRule.LATE_CLOCK)  # two clocks
_CORRECTED = (HealthRule.OVERRUN, HealthRule.OUTLIVED)  # unless only noted
_DOUBTED = (*_CORRECTED, HealthRule.BEYOND_PEERS)
_WORTH = 0.05  # of the device's time, or of the launches: what is no damage is shown from here on
_DAMAGED = {
    HealthRule.OVERRUN: 0.25,
    HealthRule.LOST: _DOUBTFUL,
    HealthRule.NO_TIME: 0.05,
    HealthRule.NEGATIVE: 0.05,
    HealthRule.UNFINISHED: 0.05,
    HealthRule.NO_LENGTH: 0.05,
    HealthRule.TOO_SHORT: 0.05,
    HealthRule.UNLAUNCHED: 0.05,
    HealthRule.MISSING_PART: 0.0,
    HealthRule.TOO_LONG: 0.0,
    HealthRule.OUTLIVED: 0.25,
    HealthRule.BEYOND_PEERS: 0.25,
    HealthRule.BROKEN_OFF: -1.0,
}
_INCOMPLETE = {  # a file that is cut looks fast, however little is missing
    **dict.fromkeys((HealthRule.HOST_ONLY, HealthRule.BROKEN_OFF), -1.0),
    **dict.fromkeys((HealthRule.REPLAYS, HealthRule.NO_JSON), _DOUBTFUL),
}


def health_facts(notes: tuple[HealthNote, ...]) -> Iterator[Fact]:
    """What the first screen says of a check, damage first and then the larger: at most two
    lines."""
    always = (HealthRule.DRIFT, HealthRule.LATE_CLOCK, HealthRule.LATE, HealthRule.FRONT_END)
    shown = [
        one
        for one in notes
        if one.rule.damage or one.rule in always or one.share >= _WORTH or one.calls
    ]
    shown.sort(key=lambda one: (not one.rule.damage, -abs(one.share)))
    more = len(shown) - _MOST_LINES
    for note in shown[:_MOST_LINES]:
        label, text = _SENTENCES[note.rule][0], sentence_of(note)
        if note.rule in _CORRECTED and note.action is not HealthAction.SHORTENED:
            noted = note.action is HealthAction.NOTED
            label = said("Uncertain") if noted else said("Set aside")
        if more > 0 and note is shown[_MOST_LINES - 1]:
            text = said("{note} (and {more} more: table health)", note=text, more=count(more))
        wrong = note.rule.damage or note.rule in _CONTRADICT
        yield Fact(label, text, alert=wrong, remark=not wrong)
    if shown:
        yield Fact(said("See"), "docs/trust.md")


def is_sound(notes: tuple[HealthNote, ...]) -> bool:
    """Whether no rule of the check counted anything. Front ends, and traces of devices alone, are
    no damage."""
    return all(note.rule in (HealthRule.DEVICE_ONLY, HealthRule.FRONT_END) for note in notes)


def is_damaged(notes: tuple[HealthNote, ...]) -> bool:
    """Whether so much of the recording is wrong that its headline has to say so."""
    return any(
        note.share > _DAMAGED.get(note.rule, float("inf"))
        or (_is_unexplained(note) and note.share > _DOUBTFUL)
        for note in notes
    )


def _is_unexplained(note: HealthNote) -> bool:
    """Whether work began before its launch and no clock explains it: launches are of other work."""
    return note.rule is HealthRule.CLOCK and note.action is HealthAction.SET_ASIDE


def worst_damage(notes: tuple[HealthNote, ...]) -> HealthNote | None:
    """The worst damage of a recording whose times are useless: gates take them as missing. None if
    its times can be used."""
    for note in sorted(notes, key=lambda one: -one.share):
        missing = note.share > _INCOMPLETE.get(note.rule, float("inf"))
        if missing or is_damaged((note,)) or busy_unknown((note,)):
            return note
    return None


def is_host_only(notes: tuple[HealthNote, ...]) -> bool:
    """Whether work was launched on a device and none of it recorded."""
    return any(note.rule in (HealthRule.HOST_ONLY, HealthRule.HOST_TIMES) for note in notes)


def lacks_work(notes: tuple[HealthNote, ...]) -> bool:
    """Whether some work of devices is set aside or lost, so that sums of it are lower bounds."""
    return any(
        note.share > _FEW
        and (note.action is HealthAction.SET_ASIDE or note.rule is HealthRule.LOST)
        and note.rule is not HealthRule.TWICE
        for note in notes
    )


def busy_unknown(notes: tuple[HealthNote, ...]) -> set[str]:
    """The devices whose busy time is not known: some of their work has no time, or so much of it
    is lost, or overlaps, that findings are doubtful."""
    return {
        device
        for note in notes
        for device in note.device.split(", ")
        if (
            note.action is HealthAction.SET_ASIDE
            and note.rule is not HealthRule.TWICE
            and note.share > _FEW
        )
        or note.rule is HealthRule.TOO_SHORT
        or (note.rule is HealthRule.LOST and note.share > _DOUBTFUL)
        or (note.rule in _DOUBTED and note.action is HealthAction.NOTED and is_damaged((note,)))
    }
