"""Missing data: what ran but is not in the trace, and which results a report lacks for it.

The codes of missing data are an open set (`Importer.capabilities`). A code of another package
is shown as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import polars as pl
from msgspec.structs import replace

from profiler.analysis.commands import is_accelerator
from profiler.analysis.context import Inputs
from profiler.analysis.document import Fact, Part
from profiler.analysis.finding_text import rules
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis
from profiler.analysis.table_text import Sentences, label, worded_note
from profiler.run.columns import BOOL, DATA_ONLY, INT64, STRING, Column, col, schema
from profiler.text import (
    NoteCode,
    Said,
    count,
    counted,
    duration,
    joined,
    notes_text,
    said,
    sentence_of,
)
from profiler.trace.events import GRAPH_CAPTURE, Drop, DropKind, DropReason
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import Apart, CallsFrom, PartOfRun, Parts, RelatedBy, WhyApart

# --- The columns of what was executed but is not in the trace.


DROPS: tuple[Column, ...] = (
    col("kind", STRING, ", ".join(f"`{kind}`" for kind in DropKind)),
    col(
        "has_missing_time",
        BOOL,
        "whether time of the run is missing from the report because of it",
        importance=DATA_ONLY,
    ),
    col("where", STRING, "file or part in which it was dropped"),
    col("count", INT64, "how much; -1 if unknown"),
    col("unit", STRING, "what `count` counts"),
    col(
        "detail",
        STRING,
        "what happened: a list of one object, with a `DropReason` as `code` and its values",
        codes=DropReason,
    ),
)


# --- The table of what was executed but is not in the trace.


def _drops(of: Inputs) -> pl.DataFrame:
    rows = [
        (
            *(one.kind, one.kind.has_missing_time, one.where, one.count, one.unit),
            notes_text([one.detail]),
        )
        for one in of.run.drops
    ]
    return pl.DataFrame(rows, schema=schema(DROPS), orient="row")


TABLES = (
    Table(
        name="drops",
        row="one thing that was executed but is not in the trace",
        section="provenance",
        columns=DROPS,
        make=_drops,
        title="What the trace lacks",
        about="The table is empty if nothing was dropped. `analysis.drops` has the same rows "
        "as objects.",
    ),
)


# --- What a producer's files contain, and what a report lacks if they do not, in words.
#
# The codes are an open set (`Importer.capabilities`): those of other packages stand for
# themselves.


_MEANINGS = {
    "timeline": said("when each command ran, and where"),
    "averages": said("how long each command takes, on average"),
    "launches": said("which launch of the host each command of a device had"),
    "shapes": said("shapes of operators, and with them FLOPs, efficiency and the roofline"),
    "bytes": said("bytes that copies and operators moved"),
    "memory": said("the allocator's memory over time"),
    "cycles": said("cycles of the device's units"),
    "metrics": said("the device's counters over time"),
    "stages": said("how long each stage of a request took, and nothing below"),
    "requests": said("requests of a server: how long each waited for what, and computed"),
    GRAPH_CAPTURE: said("kernels of a graph's capture, to name those of its replays"),
}

CONSEQUENCES: Mapping[str, tuple[str, str]] = {
    # code → the section that lacks it, and what it says
    "timeline": (
        "idle",
        said(
            "The trace does not say when its commands ran: idle time, the critical path and use "
            "over time are unknown."
        ),
    ),
    "shapes": (
        "shapes",
        said("The trace has no shapes of operators: no FLOPs, no efficiency, no roofline."),
    ),
    "launches": (
        "idle",
        said(
            "The trace has no launches: whether devices waited for the host within calls is not "
            "known."
        ),
    ),
    "memory": ("memory", said("The trace has no allocations: memory over time is unknown.")),
}

_ADVICE: Mapping[tuple[str, str], str] = {  # code and producer → how to record it
    ("shapes", "kineto"): said("Record with record_shapes=True."),
    ("memory", "kineto"): said("Record with profile_memory=True."),
    ("launches", "kineto"): said("Also record with ProfilerActivity.CPU."),
    ("shapes", "nsys"): said("Record with torch.autograd.profiler.emit_nvtx(record_shapes=True)."),
    ("launches", "rocprofv3"): said("Also record with --hip-trace."),
    ("timeline", "tensorrt"): said("Give the file that --exportTimes writes as well."),
    ("shapes", "tensorrt"): said("Give the file that --exportLayerInfo writes as well."),
}


_NEEDED = {"timeline": said("start times")}  # codes that are not readers' words


def unchecked(analysis: Analysis) -> dict[str, tuple[set[str], str]]:
    """Return, by code of missing data, the rules that could not be checked, each once, and how to
    record that data, "" if unknown."""
    producer = analysis.inputs.run.info.producer
    found: dict[str, tuple[set[str], str]] = {}
    seen = {finding.rule for finding in analysis.findings}  # these were
    for code in _lacking(analysis):
        some = {rule.name for rule in rules().values() if code in rule.needs} - seen
        if some:
            found[code] = some, _advice(code, producer, analysis)
        seen |= some
    return found


def _advice(code: str, producer: str, analysis: Analysis) -> str:
    recording = analysis.run.recording
    if code == "memory" and recording is not None and recording.profile_memory:
        return said("profile_memory was on, but the file holds no memory events.")
    if (code, producer) == ("shapes", "kineto") and "launches" in _lacking(analysis):
        return said("Record with ProfilerActivity.CPU, too, and record_shapes=True.")
    if (code, producer) == ("shapes", "kineto") and analysis.operators.is_empty():
        return said("Also record with torch.profiler: only Python's functions were recorded.")
    return _ADVICE.get((code, producer), "")


def unchecked_lines(analysis: Analysis) -> Iterator[Said]:
    """Yield what unchecked rules need, and how to record it: `"5 need shapes: Record with
    record_shapes=True"`."""
    for code, (some, advice) in unchecked(analysis).items():
        given = {"number": len(some), "what": said(_NEEDED.get(code, code))}
        text = said("{number} need {what}", **given)
        if len(some) == 1:
            text = said("{number} needs {what}", **given)
        how = advice.changed(lambda one: one.rstrip(".")) if isinstance(advice, Said) else advice
        yield said("{text}: {how}", text=text, how=how or said("not in this file"))


def unchecked_text(analysis: Analysis) -> Said | None:
    """Return the `unchecked_lines` as one text; None if all rules could be checked."""
    parts = list(unchecked_lines(analysis))
    return joined("; ", parts) if parts else None


def recorded(codes: Collection[str]) -> list[str]:
    """Return what files with these `codes` contain, in the order of `_MEANINGS`; codes without a
    meaning come last."""
    known = [meaning for code, meaning in _MEANINGS.items() if code in codes]
    return known + sorted(set(codes) - _MEANINGS.keys())


def not_recorded(codes: Collection[str]) -> list[str]:
    """Return what other producers record and this one never does. Left out: captures of graphs
    (torch only), averages (of profiles without times), requests and stages (of servers)."""
    lacking = _MEANINGS.keys() - set(codes) - {GRAPH_CAPTURE, "averages", "requests", "stages"}
    return [meaning for code, meaning in _MEANINGS.items() if code in lacking]


# --- What reports say about data that is not in the trace.


_WITHOUT_ADVICE: dict[NoteCode, Said] = {
    DropReason.CUT_OR_DAMAGED: said("the file is cut or damaged at byte {at} of {size}"),
    DropReason.CUT_SHORT: said("the file ends at byte {at} of {size}"),
    DropReason.LARGER_THAN_RECORDED: said(
        "the file has {size} bytes and the manifest recorded {recorded}"
    ),
    DropReason.GZIP_CUT: said("the .gz file ends early ({error})"),
    DropReason.NOT_THERE: said("the file {file} is named in the manifest but is missing"),
}


def what_happened(drop: Drop) -> Said:
    """Return the sentence about a drop without advice, for callers that give advice themselves."""
    return worded_note(drop.detail, _WITHOUT_ADVICE.get(drop.detail.code))


_ADVISING: frozenset[NoteCode] = frozenset(
    (
        *(DropReason.ERROR, DropReason.CUT_OR_DAMAGED, DropReason.CUT_SHORT),
        *(DropReason.GZIP_CUT, DropReason.LARGER_THAN_RECORDED, DropReason.COPY_DIFFERS),
        *(DropReason.NOT_THERE, DropReason.CALLS_NOT_THERE, DropReason.CALLS_TWICE),
        *(DropReason.BAD_COMPRESSED, DropReason.HOST_NOT_WRITTEN),
        *(DropReason.KILLED_BEFORE_READ, DropReason.NOT_RECORDED, DropReason.PROFILE_FULL),
        *(DropReason.NO_SESSION_RUN, DropReason.SIZE_REACHED, DropReason.BUFFERS_FULL),
        *(DropReason.SESSION_UNREADABLE, DropReason.AGGREGATE_DIFFERS),
        *(DropReason.CLOSED_ON_OTHER_THREAD, DropReason.LAYERS_DIFFER),
        *(DropReason.CLOCK_UNALIGNED, DropReason.NO_PIPELINE_NAMED),
        *(DropReason.PIPELINE_GUESSED, DropReason.ENTRIES_CUT),
        *(DropReason.PIPELINE_GUESSED_OF, DropReason.UNITS_ONLY, DropReason.ONE_COLUMN),
        *(DropReason.STEPS_UNKNOWN, DropReason.RATE_UNTOLD),
        *(DropReason.COUNTERS_OF_ANOTHER_RUN, DropReason.ORDER_UNKNOWN),
        *(DropReason.NOT_LABELLED, DropReason.RANKS_NOT_GIVEN, DropReason.RANK_UNALIGNED),
        DropReason.OMITTED,
    )
)
"""Reasons whose sentence says what to do, or is that of another program."""


# --- Sentences about missing data, and about how the calls of an imported run were identified.


SENTENCES: Sentences = {
    DropReason: {
        DropReason.ERROR: "{error}",
        DropReason.CUT_OR_DAMAGED: "the file is cut or damaged at byte {at} of {size}: copy it "
        "again, or record again",
        DropReason.CUT_SHORT: "the file ends at byte {at} of {size}: copy it again",
        DropReason.LARGER_THAN_RECORDED: "the file has {size} bytes and the manifest recorded "
        "{recorded}, so it was changed: copy the original again",
        DropReason.COPY_DIFFERS: "the file has {size} of {recorded} bytes; calls were read from "
        "their own files, so figures are complete: `profile-sd3 merge` rebuilds it",
        DropReason.GZIP_CUT: "the .gz file ends early ({error}), and {unpacked} bytes were "
        "unpacked: copy it again",
        DropReason.NOT_THERE: "the file {file} is named in the manifest but is missing: copy it "
        "back or run again",
        DropReason.CALLS_NOT_THERE: "the files of these calls are missing or cannot be read: copy "
        "them again (calls {calls})",
        DropReason.CALLS_TWICE: "the file contains these calls more than once: give the files of "
        "one run",
        DropReason.OMITTED: "this sample leaves something out on purpose, to stay small: {what}",
        DropReason.CLOCK_UNRELATED_IN_FILE: "no snapshot relates their clock to the trace's, so "
        "they have no place in time",
        DropReason.NO_TIME: "their time is missing, or not in the years 1970 to 2043",
        DropReason.NEVER_RAN: "their time is missing, or they end before they start",
        DropReason.NO_SEQUENCE: "they belong to no packet sequence",
        DropReason.STATE_MISSING: "they need names or times that the file does not contain",
        DropReason.NO_TRACK: "the file does not describe their track",
        DropReason.NO_COUNTER: "these samples of counters have no value or no counter",
        DropReason.UNKNOWN_TYPE: "their type is unknown, or their thread is missing",
        DropReason.NOT_NESTED: "they overlap another one of their track without nesting",
        DropReason.TOO_DEEP: "they are nested more than 512 deep",
        DropReason.DAMAGED: "they are damaged and cannot be read",
        DropReason.BAD_ARGUMENTS: "what they refer to is not in the file",
        DropReason.BAD_DESCRIPTORS: "these descriptions of tracks are damaged or contradict "
        "earlier ones",
        DropReason.BAD_SNAPSHOTS: "these snapshots of clocks contradict earlier ones",
        DropReason.BAD_COMPRESSED: "these compressed packets are damaged: copy the file again",
        DropReason.NO_BEGIN: "they end in the file but start before it",
        DropReason.NO_END: "they start in the file but do not end in it",
        DropReason.NOT_ENDED: "the run did not end: it was killed, or its machine went down",
        DropReason.ENDED_WITH: "the run ended with {failure}",
        DropReason.HOST_NOT_WRITTEN: "the run ended before this file was written, so its time "
        "cannot be accounted for: record again",
        DropReason.KILLED_BEFORE_READ: "the run was killed before the operators of these calls "
        "were read: record again",
        DropReason.CALL_NOT_RETURNED: "the call did not return, so it has no file",
        DropReason.BRANCH_GUESSED: "the branch of guidance is not recorded and was guessed",
        DropReason.STEP_NOT_RETURNED: "the call of step {step} did not return, so it has no file",
        DropReason.NOT_RECORDED: "these calls have no operators, because their recording was "
        "interrupted or is missing: record again",
        DropReason.PROFILER_FAILED: "profile-sd3 failed: {error}",
        DropReason.OPERATORS_UNREADABLE: "their operators could not be read: {error}",
        DropReason.LAYERS_UNREADABLE: "their layers have the names of ONNX nodes, not of modules: "
        "{error}",
        DropReason.PROFILE_FULL: "ONNX Runtime's profile was full: trace fewer calls of this "
        "submodule",
        DropReason.NO_SESSION_RUN: "they have no operators, because they did not run their "
        "session, or ONNX Runtime's profile was full: trace fewer calls of this submodule",
        DropReason.SESSION_NOT_RENEWED: "its profiled session could not be renewed ({error}), so "
        "later calls have no operators",
        DropReason.RUNS_MIXED: "runs of several calls overlapped in one session and cannot be "
        "distinguished",
        DropReason.SIZE_REACHED: "calls from {file} on have no operators, because the run had "
        "reached its {size} bytes: raise --max-size",
        DropReason.PROFILER_IN_USE: "they have no operators, because torch has one profiler per "
        "process, and another thread's call or another profiler was using it",
        DropReason.BUFFERS_FULL: "torch.profiler's buffers were full, so it lost these launches "
        "of device work: record fewer calls",
        DropReason.OPERATORS_NOT_ENDED: "they had not ended when the session was stopped",
        DropReason.NO_SESSION_EVENTS: "they have no operators, because another profiler took "
        "torch's over, or the session ended too early",
        DropReason.SESSION_UNREADABLE: "they have no operators, because torch's trace could not "
        "be written to the temporary folder and read there: check its space",
        DropReason.SESSION_NOT_CUT: "they have no operators, because torch's trace could not be "
        "cut into calls ({error})",
        DropReason.CLOSED_ON_OTHER_THREAD: "they have no operators, because the run was closed on "
        "another thread: close it on the thread that is recorded, on which alone torch stops its "
        "profiler",
        DropReason.THREAD_ENDED: "they have no operators, because the thread that was traced has "
        "ended",
        DropReason.REPORTS_TOO_LONG: "rebel.capture_reports() reported more time than the runtime "
        "call took, so the call is shown as measured on the host",
        DropReason.NO_COMMAND: "the file contains no command",
        DropReason.COUNTERS_UNDOCUMENTED: "what these counters mean is not documented for this "
        "producer",
        DropReason.ARGUMENTS_UNKNOWN: "their Slice Arguments do not have the known form, so bytes "
        "and cycles are unknown",
        DropReason.AGGREGATE_DIFFERS: "the aggregate contains {whole} {what} and its {files} "
        "files {parts}: give the files of one run",
        DropReason.LAYERS_DIFFER: "they share less than half of their layers with the submodule's "
        "first call: check --pipeline, --steps and --skip, or --run",
        DropReason.CLOCK_RESTARTS: "the clock of {device} restarts in each file, so calls are "
        "placed end to end, and the time between them is unknown",
        DropReason.CLOCK_UNALIGNED: "nothing relates the clock of {device} to that of {reference}: "
        "{how}; do not compare times across these devices",
        DropReason.BY_SHARED_CALL: "it is placed by the start of a call that ran on both",
        DropReason.AT_RUN_START: "no order of calls fits it, and its first command is placed at "
        "the run's start",
        DropReason.BY_ORDER: "it is placed by the order of calls, and their distance is unknown",
        DropReason.BY_ORDER_WITHIN: "it is placed by the order of calls, to within "
        "{uncertainty_ns}",
        DropReason.NO_PIPELINE_NAMED: "no pipeline was named, and none that is known fits the "
        "number and layers of the files, so no call is labelled: give --pipeline sd3 --steps N to "
        "`import`, to other commands --import pipeline=sd3 --import steps=N, or a .yaml "
        "description of the pipeline",
        DropReason.PIPELINE_GUESSED: "the pipeline {pipeline} (steps: {steps}) was guessed from "
        "the number and layers of the files: say it with --pipeline to `import`, to other "
        "commands with --import pipeline={pipeline}",
        DropReason.PIPELINE_GUESSED_OF: "the pipeline {pipeline} (steps: {steps}) was guessed "
        "from the number and layers of the files, and {others} would fit as well: say it with "
        "--pipeline to `import`, to other commands with --import pipeline={pipeline}",
        DropReason.LAUNCH_TIMES: "the provider {provider} is asynchronous: the recorded times "
        "are those of launches, and the file does not have the device's work",
        DropReason.KERNELS_BY_END: "this version of ONNX Runtime recorded when kernels ended, and "
        "their starts are computed from that",
        DropReason.KERNELS_OF_NO_RUN: "the file does not say which session.run, or which device, "
        "these kernels belong to",
        DropReason.NODES_OF_NO_RUN: "these nodes lie in no session.run of the file, so they "
        "are left out",
        DropReason.ENTRIES_CUT: "the file is cut, and its whole part was read: copy it again, or "
        "record again",
        DropReason.LAID_END_TO_END: "start times are not in this format: order and durations "
        "(averages over inferences) are real, gaps are not, and all of it is shown as one call",
        DropReason.TIMELINES_APART: "they were recorded one by one, so each is a pipeline call of "
        "its own, placed after the one before",
        DropReason.LAYERS_UNLIKE_TOTAL: "layers take {layers_ns} together, but the file's own "
        "total is {total_ns}",
        DropReason.SHARES_OF_CYCLES: "nodes have cycles and no times, so each was given its share "
        "of the accelerator's time, in the order of the file; threads that worked at the same "
        "time are not distinguished",
        DropReason.EXECUTIONS_IN_ORDER: "the file does not say when executions started, so they "
        "are placed one after another",
        DropReason.UNITS_ONLY: "a summary lists only the costliest of {nodes} nodes: also give "
        "the profile as CSV. Its threads last from their first to their last cycle; they worked "
        "for {used} of the time",
        DropReason.UNIT_USED: "{name} {share}",
        DropReason.ONE_COLUMN: "one of {measurements} measurements in the file is shown: choose "
        "another one by --import device=…, runtime=… and precision=…",
        DropReason.MEDIAN_LATENCY: "the call is as long as the median latency of all inferences, "
        "and its layers are those of the last one",
        DropReason.STEPS_UNKNOWN: "each component was measured once: how often a pipeline calls "
        "it is not known, so this is no end-to-end time; for a diffusion model give --import "
        "steps=N and --import guidance=SCALE",
        DropReason.STEPS_GIVEN: "each component was measured once, and the pipeline is made of "
        "these times, with {steps} steps and {passes} passes per step; time between them is "
        "unknown",
        DropReason.EVERY_NTH: "one of {rate} requests was recorded, so concurrency and use of "
        "models are those of the recorded ones",
        DropReason.RATE_UNTOLD: "the server may have recorded only one of several requests, and "
        "the file does not say of how many: if so, give --import rate=N, because concurrency and "
        "use of models are those of the recorded ones",
        DropReason.REQUESTS_INCOMPLETE: "requests are left out if their record, or that of a part "
        "or caller, is incomplete: {requests}",
        DropReason.REQUESTS_NOT_COMPUTED: "requests for which no model computed, such as those "
        "answered from the response cache, are left out: {requests}",
        DropReason.REQUESTS_IN_ORDER: "the file does not say when requests started, so they are "
        "placed one after another",
        DropReason.STAGES_OVERLAP: "stages take longer together than the request, so they ran "
        "concurrently; when each started is not recorded",
        DropReason.NO_STAGE_TIMES: "the file has no time of any of their stages",
        DropReason.WITHOUT_OPERATIONS: "the file has times of stages and none of operations",
        DropReason.BEGIN_BY_NAME: "only the files' names say when each session started, to within "
        "{within_ns}: calls of different sessions may be off by that",
        DropReason.COUNTERS_OF_ANOTHER_RUN: "hardware counters are of another run than the trace "
        "beside them: import their file alone to see them",
        DropReason.TOLD_IN_ANOTHER_FORM: "it was not read, because a file with more about the "
        "same run is beside it",
        DropReason.ORDER_UNKNOWN: "no call is labelled, because the order of calls is unknown on "
        "devices without a common clock: import the numbered files",
        DropReason.FLOWS_BETWEEN_CALLS: "dependencies between runtime calls cannot be shown; "
        "those within a call are kept",
        DropReason.NOT_LABELLED: "no call is labelled ({found}): {advice}",
        DropReason.FILES_FOUND: "files: {files}",
        DropReason.CALLS_IN_FILE: "runtime calls in one file: {calls}",
        DropReason.FILES_SKIPPED: "skipped before them: {skipped}",
        DropReason.FILES_MISSING: "missing between them: {numbers}",
        DropReason.MORE_FILES_MISSING: "missing between them: {numbers} and {more} more",
        DropReason.PERHAPS_AGGREGATE: "perhaps an aggregate alone",
        DropReason.PIPELINE_MAKES: "calls of {pipeline} (steps: {steps}): {calls}",
        DropReason.RUN_MADE: "profiled runtime calls of {run}: {calls}",
        DropReason.OTHER_NUMBERS: "the numbers missing between the files are not those of runtime "
        "calls that were not profiled",
        DropReason.FITTING: "what would fit: {options}",
        DropReason.CHECK_OPTIONS: "check --pipeline and --steps",
        DropReason.COPY_OR_DESCRIBE: "copy them, or leave unprofiled submodules out of a .yaml "
        "description with allow_gaps: true",
        DropReason.NOTHING_PROFILED: "none of its submodules had activate_profiler",
        DropReason.SKIP_EARLIER: "--skip {files}, where the runtimes were called so often before "
        "it",
        DropReason.RANKS_NOT_GIVEN: "{given} of the job's {size} ranks were given: figures are of "
        "these; give all to see the others",
        DropReason.RANK_UNALIGNED: "fewer than three collectives relate the clock of rank {rank} "
        "to that of rank {reference}, so it has a timeline of its own: do not compare times "
        "across these ranks",
        DropReason.COPY_ALL: "copy all files, and give the run in which they were written",
    },
    CallsFrom: {
        CallsFrom.ANNOTATIONS: "the trace has no ranges of modules: a call is a range that its "
        "script named",
        CallsFrom.PROFILER_STEPS: "the trace has no ranges of modules: a call is a step of "
        "torch.profiler's schedule",
        CallsFrom.OPERATORS: "from operators; with_stack=True records ranges of modules",
        CallsFrom.GRAPH_LAUNCHES: "the trace has no ranges of modules: a call is the launch of a "
        "graph",
        CallsFrom.CAPTURED_OPERATORS: "a call is the launch of a graph, named after the operators "
        "of its capture: the trace has no ranges of modules",
        CallsFrom.KERNEL_PERIOD: "from the period of the kernels: the trace has no ranges of "
        "modules; with_stack=True records them",
        CallsFrom.MODULE_PERIOD: "by the compiled module of each kernel: a call begins where the "
        "module's first operation comes again",
        CallsFrom.NOTHING: "nothing in the trace tells one call from another, so all of it counts "
        "as one and the report is by kernel: with_stack=True records modules",
    },
}


# --- What a foreign trace lacks, stated once in the section that needs it.


def missing_parts(section: str, analysis: Analysis) -> Iterator[Part]:
    """A line for each capability that the section needs and the run's producer lacks; below
    findings, one line about all that rules need. Nothing for captured runs, whose producer states
    no capabilities."""
    producer = analysis.inputs.run.info.producer
    lacking = _lacking(analysis)
    for code in lacking:
        where, sentence = CONSEQUENCES[code]
        if where == section:
            advice = _advice(code, producer, analysis)
            lead = joined(" ", filter(None, (sentence, advice)))
            yield Part(lead=lead, always=True)
    if section == "findings" and analysis.findings:
        rest = unchecked_text(analysis)
        if rest is not None:
            yield Part(
                lead=said("Rules that could not be checked: {rest}.", rest=rest), always=True
            )


def _lacking(analysis: Analysis) -> list[str]:
    """Return the codes of data that sections need and the run's producer does not record."""
    capabilities, calls = analysis.inputs.run.info.capabilities, analysis.inputs.run.calls
    if not capabilities:
        return []
    lacking = [code for code in CONSEQUENCES if code not in capabilities]
    if not any(map(is_accelerator, calls["device"].cast(pl.String).unique())):
        lacking = [code for code in lacking if code not in ("launches", "memory")]  # of the host
    if "timeline" in lacking and "launches" in lacking:
        lacking.remove("launches")  # causes of waits need them too
    return lacking


# --- What is said of the files of several recorders that are one run, and of those beside it.


_NAMED_FILES = 4  # files that are left out


def part_rows(parts: Parts) -> Iterator[tuple[str, str]]:
    """A row for each part: its file, what relates its clock, what of it is left out."""
    for part in parts.parts:
        told = {"producer": part.producer, "clock": _clock(part), "twice": _twice(part)}
        yield _files(part), said("{producer}: {clock}{twice}", **told)
    for apart in parts.apart:
        yield apart.files[0], _why(apart, parts)
    for one in parts.left_out:
        yield one.file, said("not read: {what}", what=one.what)


def beside(info: RunInfo) -> Iterator[str]:
    """A line for each file of the folder that is not in the run, and one for those that are no
    trace."""
    if info.parts is None:
        return
    for apart in info.parts.apart:
        yield f"{apart.files[0]}: {_why(apart, info.parts)}"
    for drop in info.drops:
        if drop.detail.code is DropReason.ERROR:
            yield f"{drop.where}: {worded_note(drop.detail)}"
    left_out = info.parts.left_out
    if left_out:
        more = f" and {len(left_out) - _NAMED_FILES} more" if len(left_out) > _NAMED_FILES else ""
        named = ", ".join(f"{one.file} ({one.what})" for one in left_out[:_NAMED_FILES])
        yield f"not read: {named}{more}"


def _why(apart: Apart, parts: Parts) -> str:
    """Why files are not of the run, and what would make them so."""
    file = parts.parts[0].files[0]
    if apart.why is WhyApart.ANOTHER_TIME:
        return said(
            "recorded at another time than {file}, so it is a run of its own: give it alone to see "
            "it",
            file=file,
        )
    return said(
        "neither a clock nor three events in common relate it to {file}, so it is a run of its "
        "own: give it alone to see it, or record ranges of the same names in both "
        "(record_function, NVTX, roctx)",
        file=file,
    )


def _files(part: PartOfRun) -> str:
    if len(part.files) == 1:
        return part.files[0]
    return said("{file} and {more} more", file=part.files[0], more=count(len(part.files) - 1))


def _clock(part: PartOfRun) -> str:
    if part.related_by is RelatedBy.REFERENCE:
        return said("its clock is the run's")
    if part.related_by is RelatedBy.EPOCH:
        return said("its clock counts from 1970 as well")
    if part.related_by is RelatedBy.LOCAL_TIME:
        return said(
            "moved by {offset}, by the local time in its name, which tells it to within {within}",
            offset=duration(part.offset_ns),
            within=duration(part.within_ns or 0),
        )
    return said(
        "moved by {offset}, by {pairs} events in common, which then differ by {residual} in the "
        "median and {worst} at most",
        offset=duration(part.offset_ns),
        pairs=count(part.pairs),
        residual=duration(part.residual_ns or 0),
        worst=duration(part.worst_ns or 0),
    )


def _twice(part: PartOfRun) -> str:
    if not part.twice:
        return ""
    return said(
        "; of its {commands} commands of devices {twice} are in another part, too, and count once",
        commands=count(part.commands),
        twice=count(part.twice),
    )


# --- Key figures: what was lost, and what tells the calls of an import.


def calls_from_facts(analysis: Analysis) -> Iterator[Fact]:
    """What tells the calls of an import whose trace has no modules; nothing if modules do."""
    recording = analysis.run.recording
    source = recording.calls_from if recording else None
    if source is None:
        return
    value = said("named")
    if source.guessed:
        value = said("guessed")
    elif source is CallsFrom.NOTHING:
        value = said("none")
    yield Fact(said("Calls"), value, label(source))


def drops_fact(analysis: Analysis) -> Fact:
    """How much that was executed is not in the trace; "Uncertain" if all of it is, but not
    surely."""
    if not analysis.drops:
        return Fact(said("Lost"), said("no events"), said("no loss was detected"))
    kinds = joined(", ", map(label, sorted({drop.kind for drop in analysis.drops})))
    missing = any(drop.kind.has_missing_time for drop in analysis.drops)
    name = said("Lost data") if missing else said("Uncertain")
    number = counted(len(analysis.drops), "record")
    return Fact(name, number, kinds, alert=missing, remark=not missing)


def worst_drop_fact(analysis: Analysis) -> Fact:
    """How many drops there are, the worst of them, and whether time is missing."""
    fact, drops = drops_fact(analysis), analysis.drops
    if not drops:
        return fact
    worst = next((drop for drop in drops if drop.kind.has_missing_time), drops[0])
    what = label(worst.kind)
    note = worded_note(worst.detail)
    if worst.kind.has_missing_time:
        what = said("{kind} in {where}", kind=what, where=worst.where)
        if worst.detail.code != DropReason.RANKS_NOT_GIVEN:
            note = said("{what}; the figures lack part of the run", what=note)
    elif worst.detail.code not in _ADVISING:
        note = said("{what}; nothing needs to be done", what=note)
    if len(drops) > 1:
        what = said("{first} and {more} more", first=what, more=count(len(drops) - 1))
    return replace(fact, value=what, note=note)


def missing_lines(drops: Sequence[Drop]) -> Iterator[str]:
    """What was executed and is not in the trace, or not surely: a sentence that says which of the
    two, then one a drop; nothing without drops."""
    if any(drop.kind.has_missing_time for drop in drops):
        yield said("This report does not cover everything that was executed.")
    elif drops:
        yield said(
            "No loss was detected, but some of what was executed is doubtful or not broken down."
        )
    for drop in drops:
        line = "{kind} in {where}: {number} {unit}. {detail}"
        yield said(line, kind=label(drop.kind), **_extent(drop)).changed(_capital)


def missing_rows(drops: Iterable[Drop]) -> Iterator[tuple[str, str]]:
    """The kind of each drop, and where it is, how much and why."""
    for drop in drops:
        text = said("{where}: {number} {unit}. {detail}", **_extent(drop))
        yield label(drop.kind), text.changed(lambda one: one.removesuffix("."))


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _extent(drop: Drop) -> dict[str, str]:
    number = count(drop.count) if drop.count >= 0 else said("an unknown number of")
    unit = drop.unit.removesuffix("s") if drop.count == 1 else drop.unit
    return {"where": drop.where, "number": number, "unit": unit, "detail": in_full(drop)}


def in_full(drop: Drop) -> str:
    """Return whole sentences: what happened, and what the reader must do about it, if anything."""
    happened = sentence_of(worded_note(drop.detail))
    missing, reason = drop.kind.has_missing_time, drop.detail.code
    if reason in _ADVISING:
        return happened
    if drop.kind is DropKind.ABORTED_RUN:
        rest = said("Record again for what came after that.")
    elif reason is DropReason.PROFILER_FAILED:
        rest = said("Please report this message.")
    elif missing:
        rest = said("Figures leave these out; record again if they are many.")
    else:
        rest = said("Nothing needs to be done.")
    return joined(" ", [happened, rest])
