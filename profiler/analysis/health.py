"""Results of a check of the recording's events against each other, and what was done about them.

The notes are the manifest's (`RunInfo.health`), which the importer wrote. Reports use corrected
times; what could not be corrected makes a device's figures unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import polars as pl

from profiler.analysis.context import Inputs
from profiler.analysis.document import Fact
from profiler.analysis.question import Table
from profiler.analysis.table_text import Sentences
from profiler.run.columns import DATA_ONLY, FLOAT64, INT64, NS, STRING, Column, col, schema
from profiler.run.run import Run
from profiler.text import Said, count, counted, duration, filled, number, percent, said, sentence
from profiler.trace.events import ROOT_DEVICE, DropReason
from profiler.trace.manifest import RunInfo
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
    HealthRule.OUT_OF_ORDER: ShareOf.LAUNCHES,
    HealthRule.SHARED_NUMBERS: ShareOf.NOTHING,
    HealthRule.GAP: ShareOf.RECORDING,
    HealthRule.MISSING_PART: ShareOf.RECORDING,
    HealthRule.TOO_LONG: ShareOf.LAUNCHES,
    HealthRule.DRIFT: ShareOf.NOTHING,
}
"""Shares of all other rules are of rows."""

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


SHORTENED: tuple[Column, ...] = (
    col("device", STRING, "device that ran it"),
    col("track", STRING, "its queue"),
    col("start_ns", NS, "begin, on the run's clock"),
    col("duration_ns", NS, "its length as corrected"),
    col("recorded_ns", NS, "its length as the file has it"),
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


def _shortened(of: Inputs) -> pl.DataFrame:
    names = [column.name for column in SHORTENED]
    rows = [tuple(getattr(one, name) for name in names) for one in of.run.info.shortened]
    return pl.DataFrame(rows, schema=schema(SHORTENED), orient="row")


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
    Table(
        name="shortened",
        row="one command whose recorded length a check corrected",
        section="provenance",
        columns=SHORTENED,
        make=_shortened,
        title="Corrected lengths",
        about="The table has both lengths, whichever of them the analysis uses: see "
        "[trust.md](trust.md#uncorrected-figures).",
        rank=("-recorded_ns",),
    ),
)


# --- The sentence about a note.


_LONGEST_NAME = 60  # characters of a kernel's name
_TWICE = 2  # times as much: no share of a whole
_DOUBTFUL = 0.05  # of the launches: if more lack their work, findings are doubtful
_FEW = 0.01  # of a device's rows: so few do not change its busy time as printed


class _Sentence(NamedTuple):
    """Label and text of a rule's notes; some actions have another text."""

    label: str
    text: str
    of_action: Mapping[HealthAction, str] = {}


_SENTENCES: dict[HealthRule, _Sentence] = {
    HealthRule.OVERRUN: _Sentence(
        "Corrected",
        "{kernels} on {where} recorded as running past the next one's start by {excess} in all "
        "({share}): lengths are doubtful unless launches overlap on purpose; {worst}",
        {
            HealthAction.SHORTENED: "{kernels} on {where} recorded as running past the next one's "
            "start, {excess} too long in all ({share}); {worst}; shortened"
        },
    ),
    HealthRule.OUTLIVED: _Sentence(
        "Corrected",
        "the end of {kernels} on {where} is up to {excess} behind a synchronization that waited "
        "for it: the device's clock is late, or lengths or times of the host are wrong",
        {
            HealthAction.SHORTENED: "{kernels} on {where} recorded as running past the return of a "
            "synchronization, {excess} too long in all; {worst}; shortened",
            HealthAction.SET_ASIDE: "{kernels} on {where} recorded as beginning after the return "
            "of a synchronization that waited for them: set aside",
        },
    ),
    HealthRule.CLOCK: _Sentence(
        "Clock",
        "{count} of {total} kernels on {device} began before their launch, and no single shift of "
        "its clock explains that: set aside",
        {
            HealthAction.SHIFTED: "{device} ran {ahead} ahead of the host ({count} of {total} "
            "kernels began before their launch); shifted by {shift}, exact to about 25 µs"
        },
    ),
    HealthRule.NO_TIME: _Sentence(
        "Set aside", "{kernels} without a time (0) on {device}; {effect}"
    ),
    HealthRule.NEGATIVE: _Sentence(
        "Set aside", "{kernels} on {device} with an end ahead of the start; {effect}"
    ),
    HealthRule.UNFINISHED: _Sentence(
        "Set aside", "{kernels} on {device} began and never ended; {effect}"
    ),
    HealthRule.TWICE: _Sentence(
        "Set aside", "{kernels} on {device} recorded twice: one of each is kept"
    ),
    HealthRule.NOT_NESTED: _Sentence(
        "Set aside",
        "{nodes} on {device} recorded as ending after their session.run, or while a later one of "
        "their thread runs ({worst}); {effect}",
        {
            HealthAction.SHORTENED: "{count} of {total} runs of a session recorded as running past "
            "the start of the next one on their thread: they end with their last node"
        },
    ),
    HealthRule.RANGE: _Sentence(
        "Set aside",
        "{ranges} of the host recorded as ending after the recording did ({worst}): left out",
        {
            HealthAction.SHORTENED: "{ranges} of the host recorded as ending after the recording "
            "did; {worst}; shortened to the usual length of the name"
        },
    ),
    HealthRule.NO_LENGTH: _Sentence(
        "Set aside", "{kernels} on {device} recorded with a length of 0; {effect}"
    ),
    HealthRule.TOO_SHORT: _Sentence(
        "Uncertain",
        "{count} of {total} kernels on {where} take {usual} or less, as no kernel does: lengths "
        "are wrong, perhaps by their unit, and what is made of them is not known",
    ),
    HealthRule.LATE_CLOCK: _Sentence(
        "Clock",
        "no kernel on {device} begins earlier than {least} after its launch, though the device was "
        "idle {count} times: its clock may be late, and what it waited for is not known",
    ),
    HealthRule.LOST: _Sentence(
        "Lost",
        "{count} of {total} launches on {device} have no kernel in the trace{calls}; other times "
        "of calls are lower bounds, findings doubtful (the profiler's buffers: profile fewer "
        "steps)",
    ),
    HealthRule.UNLAUNCHED: _Sentence(
        "Lost",
        "{count} of {total} kernels on {device} have no launch in the trace, though other work of "
        "that time has one: calls, steps and what {device} waited for lack what the host did",
    ),
    HealthRule.OPERATORS: _Sentence(
        "Lost",
        "{count} of {total} kernels and copies name an operator that is not in the trace: what is "
        "said of operators, shapes and modules lacks some",
    ),
    HealthRule.REPLAYS: _Sentence(
        "Lost",
        "replays of graphs on {device} lack {count} of {total} kernels and copies that other "
        "replays have; times of calls are lower bounds",
    ),
    HealthRule.HOST_ONLY: _Sentence(
        "No GPU work",
        "{launches} on {hardware}, no kernel recorded: these are times of the host that launches. "
        "Record kernels (torch: ProfilerActivity.CUDA, nsys: --trace=cuda, rocprofv3: "
        "--kernel-trace), which may need permission",
        {
            HealthAction.SET_ASIDE: "no kernel has a time that can be: these are times of the host "
            "that launches"
        },
    ),
    HealthRule.HOST_TIMES: _Sentence(
        "No GPU work",
        "{nodes} of {provider} have host times only: those of the host that launches. What "
        "{device} did is not in the profile; record kernels with nsys or rocprofv3",
    ),
    HealthRule.ELSEWHERE: _Sentence(
        "Uncertain",
        "{count} of {total} rows name another device than the file lists them under ({device}): "
        "busy times of both are not known",
    ),
    HealthRule.SHARED_NUMBERS: _Sentence(
        "Merged",
        "{total} processes share launch numbers (merged ranks), and their launches fit no device: "
        "give each rank's file",
        {
            HealthAction.REKEYED: "{total} processes share launch numbers (merged ranks): the work "
            "of each device was given to the process whose launches fit it"
        },
    ),
    HealthRule.REUSED_NUMBERS: _Sentence(
        "Uncertain",
        "{count} of {total} launches have the number of an earlier one of their process: their "
        "work may belong to another call",
    ),
    HealthRule.OUT_OF_ORDER: _Sentence(
        "Clock",
        "{count} of {total} launches have lower numbers than earlier ones: a clock was set back, "
        "or two recordings are mixed; end to end and idle times are not known",
    ),
    HealthRule.BEFORE: _Sentence(
        "Before",
        "{commands}, {time} on {device}, were launched before the recording began; they are in no "
        "call, nor in busy time",
    ),
    HealthRule.DEVICE_ONLY: _Sentence(
        "Device only",
        "{kernels} and no launch of one: busy times are known, not what devices waited for",
    ),
    HealthRule.LATE: _Sentence(
        "Late",
        "{launches} ran before the recording of devices began, or its first kernels are "
        "lost{calls}",
    ),
    HealthRule.CUT: _Sentence("Cut", "{launches} had not run when the recording ended{calls}"),
    HealthRule.BEYOND_PEERS: _Sentence(
        "Uncertain",
        "{kernels} on {device} took more than 50 times as long as others of their kind; {worst}",
    ),
    HealthRule.GAP: _Sentence(
        "Gap",
        "{time} were not recorded between parts of the file",
        {HealthAction.LEFT_OUT: "{time} were not recorded between parts of the file; left out"},
    ),
    HealthRule.MISSING_PART: _Sentence(
        "Lost",
        "nothing was recorded for {time}, in which the program made {count} of its {total} calls "
        "of the runtime: the step or call across it is no single one, and sums are too small",
    ),
    HealthRule.TOO_LONG: _Sentence(
        "Uncertain",
        "19 of 20 of the {count} launches take the host {usual} or more, which is far too long: "
        "the file's unit of time is probably wrong, and all times with it",
    ),
    HealthRule.DRIFT: _Sentence(
        "Drift",
        "the clock of {device} gains or loses {rate} µs a second against the host's: what {device} "
        "waited for is not known",
        {
            HealthAction.SHIFTED: "the clock of {device} gains or loses {rate} µs a second against "
            "the host's, and {count} of {total} kernels began before their launch: shifted by "
            "{shift}, which is right at one moment only; what {device} waited for is not known"
        },
    ),
    HealthRule.FRONT_END: _Sentence(
        "Beside",
        "{name} recorded {operators} and launched nothing: a front end or loader, in no submodule",
    ),
    HealthRule.NO_JSON: _Sentence(
        "Text",
        "skipped {count} of {total} events, which cannot be read; the first begins at byte "
        "{at_byte}",
    ),
    HealthRule.BROKEN_OFF: _Sentence(
        "Text",
        "read {events}; the file breaks off at byte {at_byte}: what followed is missing",
        {HealthAction.LEFT_OUT: "{name} breaks off: what followed is missing"},
    ),
}


def sentence_of(note: HealthNote) -> str:
    """Return the sentence about a note; about a file of a job, with its rank in front."""
    text = filled(_template(note), _values(note))
    if note.device and note.rule in (HealthRule.NO_JSON, HealthRule.BROKEN_OFF):
        return said("{rank}: {text}", rank=note.device, text=text)
    return text


def _template(note: HealthNote) -> Said:
    rule, of_host = note.rule, note.device == ROOT_DEVICE
    if rule is HealthRule.UNFINISHED and of_host:
        return said("{events} of the host began and never ended; they are in no figure")
    if rule is HealthRule.NO_TIME and (of_host or note.worst_ns):
        of_device = said("{kernels} on {device} {time} away from all else; {effect}")
        of_events = said("{events} of the host without a time (0); they are in no figure")
        return of_events if of_host else of_device
    if rule is HealthRule.LOST and note.share <= _DOUBTFUL:
        return said(
            "{count} of {total} launches on {device} have no kernel in the trace; times of calls "
            "are lower bounds (the profiler's buffers: profile fewer steps)"
        )
    if rule is HealthRule.DRIFT and not note.share:
        return said(
            "the clock of {device} runs at another rate than the host's, and {count} of {total} "
            "kernels began before their launch: shifted by {shift}, which is right at one moment "
            "only; what {device} waited for is not known"
        )
    if rule is HealthRule.DRIFT and ":" not in note.device:  # a rank
        return said(
            "the clock of {device} gains or loses {rate} µs a second against the job's: put right "
            "by {count} collectives"
        )
    known = _SENTENCES[rule]
    return Said(known.of_action.get(note.action, known.text))


def _values(note: HealthNote) -> dict[str, str]:
    """Return the values that sentences name."""
    where = note.device or said("several devices")
    if note.device and note.stream:
        where = said("{device} {stream}", device=note.device, stream=note.stream)
    launches = said("{count} launches", count=count(note.count))
    if note.count == 1:
        launches = said("1 launch")
    nouns = ("kernel", "command", "event", "node", "operator", "range")
    clock = note.rule is HealthRule.CLOCK
    lost_calls = said(", {calls} no work at all: not in medians", calls=counted(note.calls, "call"))
    aside = said("busy time and idle causes there are not known")
    return {
        **{f"{noun}s": counted(note.count, noun) for noun in nouns},
        "launches": launches,
        "count": count(note.count),
        "total": count(note.total),
        "at_byte": count(note.at_byte),
        "device": where if note.rule is HealthRule.LOST else note.device,
        "where": where,
        "share": _of_time(note),
        "worst": _worst(note),
        "excess": duration(note.excess_ns),
        "time": duration(note.worst_ns if note.rule is HealthRule.NO_TIME else note.excess_ns),
        "least": duration(note.worst_ns),
        "usual": duration(note.usual_ns),
        "ahead": _apart(note.worst_ns),
        "shift": _apart(note.excess_ns) if clock else duration(note.excess_ns),
        "rate": number(abs(note.share) * 1e6),
        "effect": aside if note.share > _FEW else said("in no figure"),
        "calls": lost_calls if note.calls else "",  # that medians leave out
        "name": note.worst,
        "provider": note.worst,
        "hardware": note.worst or said("a GPU"),
    }


def _of_time(note: HealthNote) -> Said:
    if note.share >= _TWICE:
        return said("{share} × the device time left", share=number(note.share))
    return said("{share} of the device time left", share=percent(note.share))


def _worst(note: HealthNote) -> Said:
    name = note.worst if len(note.worst) <= _LONGEST_NAME else f"{note.worst[:_LONGEST_NAME]}…"
    length, usual = duration(note.worst_ns), duration(note.usual_ns)
    if not note.usual_ns:
        return said("worst: {name} {length}", name=name, length=length)
    template = said("worst: {name} {length}, others of its kind {usual}")
    return said(template, name=name, length=length, usual=usual)


def _apart(time_ns: int) -> str:
    """Return how far two clocks are apart; notes store no more than `LARGEST`."""
    return duration(time_ns) if time_ns < LARGEST else said("over {time}", time=duration(LARGEST))


SENTENCES: Sentences = {
    HealthRule: {
        HealthRule.OVERRUN: "runs past the next launch's work",
        HealthRule.OUTLIVED: "runs past a synchronization",
        HealthRule.CLOCK: "begins before its launch",
        HealthRule.NO_TIME: "has no time",
        HealthRule.NEGATIVE: "ends before its start",
        HealthRule.UNFINISHED: "never ended",
        HealthRule.RANGE: "range that is too long",
        HealthRule.NO_LENGTH: "has no length",
        HealthRule.TOO_SHORT: "shorter than any kernel",
        HealthRule.LATE_CLOCK: "begins long after its launch",
        HealthRule.UNLAUNCHED: "its launch was not recorded",
        HealthRule.TWICE: "recorded twice",
        HealthRule.NOT_NESTED: "ends after its session.run",
        HealthRule.LOST: "launched, but not recorded",
        HealthRule.OPERATORS: "its operator was not recorded",
        HealthRule.REPLAYS: "missing in a replay of a graph",
        HealthRule.HOST_ONLY: "no work of a device recorded",
        HealthRule.HOST_TIMES: "has times of the host alone",
        HealthRule.ELSEWHERE: "names another device",
        HealthRule.SHARED_NUMBERS: "launch numbers of several processes",
        HealthRule.REUSED_NUMBERS: "launch numbers used again",
        HealthRule.OUT_OF_ORDER: "launch numbers that fall",
        HealthRule.BEFORE: "launched before the recording",
        HealthRule.DEVICE_ONLY: "no launch recorded",
        HealthRule.LATE: "launched before devices were recorded",
        HealthRule.CUT: "had not run at the recording's end",
        HealthRule.BEYOND_PEERS: "far longer than others of its kernel",
        HealthRule.GAP: "nothing recorded",
        HealthRule.MISSING_PART: "calls of the runtime that are not in the file",
        HealthRule.TOO_LONG: "longer than any launch takes",
        HealthRule.DRIFT: "clock gains or loses",
        HealthRule.FRONT_END: "launched nothing",
        HealthRule.NO_JSON: "cannot be read as JSON",
        HealthRule.BROKEN_OFF: "text of the file breaks off",
    },
    ShareOf: {
        ShareOf.DEVICE_TIME: "device time left",
        ShareOf.ROWS: "rows",
        ShareOf.LAUNCHES: "launches",
        ShareOf.RECORDING: "time of the recording",
        ShareOf.NOTHING: "nothing",
    },
    HealthAction: {
        HealthAction.SHORTENED: "shortened",
        HealthAction.SHIFTED: "shifted",
        HealthAction.SET_ASIDE: "set aside",
        HealthAction.REKEYED: "given to its process",
        HealthAction.LEFT_OUT: "left out",
        HealthAction.NOTED: "noted",
    },
}


# --- What the first screen says about the check, and which devices' busy time is not known.


_MOST_LINES = 2
_CONTRADICT = (HealthRule.DRIFT, HealthRule.LATE_CLOCK)  # two clocks
_CORRECTED = (HealthRule.OVERRUN, HealthRule.OUTLIVED)  # unless only noted
_DOUBTED = (*_CORRECTED, HealthRule.BEYOND_PEERS)
_WORTH = 0.05  # of the device's time, or of the launches: harmless notes are shown from here on
_DAMAGED = {
    **dict.fromkeys((HealthRule.OVERRUN, HealthRule.OUTLIVED, HealthRule.BEYOND_PEERS), 0.25),
    **dict.fromkeys((HealthRule.NO_TIME, HealthRule.NO_LENGTH, HealthRule.TOO_SHORT), 0.05),
    **dict.fromkeys((HealthRule.NEGATIVE, HealthRule.UNFINISHED, HealthRule.NOT_NESTED), 0.05),
    **dict.fromkeys((HealthRule.UNLAUNCHED, HealthRule.ELSEWHERE), 0.05),
    **dict.fromkeys((HealthRule.MISSING_PART, HealthRule.TOO_LONG), 0.0),
    **dict.fromkeys((HealthRule.REUSED_NUMBERS, HealthRule.OUT_OF_ORDER), 0.05),
    HealthRule.LOST: _DOUBTFUL,
    HealthRule.BROKEN_OFF: -1.0,
}
_INCOMPLETE = {  # a file that is cut looks fast, however little is missing
    **dict.fromkeys((HealthRule.HOST_ONLY, HealthRule.BROKEN_OFF), -1.0),
    **dict.fromkeys((HealthRule.REPLAYS, HealthRule.NO_JSON), _DOUBTFUL),
}


def health_facts(notes: tuple[HealthNote, ...]) -> Iterator[Fact]:
    """Yield what the first screen says about the check: at most two notes, of different rules,
    damage first, then the larger share."""
    always = (HealthRule.DRIFT, HealthRule.LATE_CLOCK, HealthRule.LATE, HealthRule.FRONT_END)
    shown = [
        one
        for one in notes
        if one.rule.damage or one.rule in always or one.share >= _WORTH or one.calls
    ]
    shown.sort(key=lambda one: (not one.rule.damage, -abs(one.share)))
    worst = {(one.rule, one.action): one for one in reversed(shown)}  # of all devices
    lines = [one for one in shown if worst[one.rule, one.action] is one][:_MOST_LINES]
    more = len(shown) - len(lines)
    for note in lines:
        label, text = Said(_SENTENCES[note.rule].label), sentence_of(note)
        if note.rule in _CORRECTED and note.action is not HealthAction.SHORTENED:
            noted = note.action is HealthAction.NOTED
            label = said("Uncertain") if noted else said("Set aside")
        elif note.action is HealthAction.SHORTENED:
            label = said("Corrected")
        if more and note is lines[-1]:
            text = said("{note} (and {more} more: table health)", note=text, more=count(more))
        wrong = note.rule.damage or note.rule in _CONTRADICT
        yield Fact(label, text, alert=wrong, remark=not wrong)
    if shown:
        yield Fact(said("See"), "docs/trust.md")


def as_recorded_facts(run: Run) -> Iterator[Fact]:
    """The first screen's line that lengths are those of the file, if any was restored."""
    rows = run.commands.filter(pl.col("recorded_ns") == pl.col("duration_ns"))
    if len(rows):
        corrected = sum(one.duration_ns for one in run.info.shortened)
        excess = int(rows["recorded_ns"].sum()) - corrected
        value = said(
            "{commands} with the lengths of the file, {excess} too long in all: figures are not "
            "corrected",
            commands=counted(len(rows), "command"),
            excess=duration(excess),
        )
        yield Fact(said("As recorded"), value, alert=True)


def is_sound(notes: tuple[HealthNote, ...]) -> bool:
    """Whether no rule of the check counted anything. Front ends, and traces of devices alone, are
    no damage."""
    return all(note.rule in (HealthRule.DEVICE_ONLY, HealthRule.FRONT_END) for note in notes)


def notes_of(info: RunInfo) -> tuple[HealthNote, ...]:
    """The notes of a run's check, and one for each file that its importer found to be cut."""
    cut = [drop for drop in info.drops if drop.detail.code == DropReason.ENTRIES_CUT]
    rule, action = HealthRule.BROKEN_OFF, HealthAction.LEFT_OUT
    return (*info.health, *(HealthNote(rule=rule, action=action, worst=one.where) for one in cut))


def is_damaged(notes: tuple[HealthNote, ...]) -> bool:
    """Whether so much of the recording is wrong that its headline must say so."""
    return any(
        note.share > _DAMAGED.get(note.rule, float("inf"))
        or (_is_unexplained(note) and note.share > _DOUBTFUL)
        or _is_unpaired(note)
        for note in notes
    )


def _is_unexplained(note: HealthNote) -> bool:
    """Whether work began before its launch and no clock explains it: launches belong to other
    work."""
    return note.rule is HealthRule.CLOCK and note.action is HealthAction.SET_ASIDE


def _is_unpaired(note: HealthNote) -> bool:
    """Whether launches of several processes have the same numbers and fit no device."""
    return note.rule is HealthRule.SHARED_NUMBERS and note.action is HealthAction.NOTED


def worst_damage(notes: tuple[HealthNote, ...]) -> HealthNote | None:
    """The worst damage of a recording whose times are useless, so that gates treat them as missing.
    None if its times can be used."""
    for note in sorted(notes, key=lambda one: -one.share):
        missing = note.share > _INCOMPLETE.get(note.rule, float("inf"))
        if missing or is_damaged((note,)) or busy_unknown((note,)):
            return note
    return None


def is_host_only(notes: tuple[HealthNote, ...]) -> bool:
    """Whether work was launched on a device and none of it recorded."""
    return any(note.rule in (HealthRule.HOST_ONLY, HealthRule.HOST_TIMES) for note in notes)


def launches_alone(notes: tuple[HealthNote, ...]) -> str | None:
    """Which launches were recorded, if no work was; None if some was, or none of its times can
    be."""
    for note in notes:
        if note.rule is HealthRule.HOST_ONLY and note.action is HealthAction.NOTED:
            return filled(said("{launches} on {hardware}, no kernel recorded"), _values(note))
    return None


def lacks_work(notes: tuple[HealthNote, ...]) -> bool:
    """Whether some work of devices is set aside or lost, so that sums of it are lower bounds."""
    return any(
        note.share > _FEW
        and (note.action is HealthAction.SET_ASIDE or note.rule is HealthRule.LOST)
        and note.rule is not HealthRule.TWICE
        for note in notes
    )


def busy_unknown(notes: tuple[HealthNote, ...]) -> set[str]:
    """The devices whose busy time is not known: some of their work has no time, or so much of it is
    lost, or overlaps, that findings are doubtful."""
    return {
        device
        for note in notes
        for device in note.device.split(", ")
        if (
            note.action is HealthAction.SET_ASIDE
            and note.rule is not HealthRule.TWICE
            and note.share > _FEW
        )
        or note.rule in (HealthRule.TOO_SHORT, HealthRule.OUT_OF_ORDER)
        or (note.rule is HealthRule.ELSEWHERE and note.share > _FEW)
        or (note.rule is HealthRule.LOST and note.share > _DOUBTFUL)
        or (note.rule in _DOUBTED and note.action is HealthAction.NOTED and is_damaged((note,)))
    }


def calls_unknown(notes: tuple[HealthNote, ...]) -> bool:
    """Whether so many launches share a number that work may be in others' calls: what devices did
    is known, not for which call."""
    return any(
        _is_unpaired(note) or (note.rule is HealthRule.REUSED_NUMBERS and note.share > _DOUBTFUL)
        for note in notes
    )
