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
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis
from profiler.analysis.table_text import Sentences, label, worded_note
from profiler.run.columns import BOOL, DATA_ONLY, INT64, STRING, Column, col, schema
from profiler.text import NoteCode, Said, count, counted, duration, joined, notes_text, said
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

CONSEQUENCES: Mapping[str, tuple[str, str, str]] = {
    # code → the section that lacks it, what it says, and what no rule can find without it
    "timeline": (
        "idle",
        said(
            "The trace does not say when its commands ran: idle time, the critical path and use "
            "over time are unknown."
        ),
        said("idle time"),
    ),
    "shapes": (
        "shapes",
        said("The trace has no shapes of operators: no FLOPs, no efficiency, no roofline."),
        said("FLOPs and the roofline"),
    ),
    "launches": (
        "idle",
        said(
            "The trace has no launches: whether devices waited for the host within calls is not "
            "known."
        ),
        said("launches"),
    ),
    "memory": (
        "memory",
        said("The trace has no allocations: memory over time is unknown."),
        said("memory over time"),
    ),
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
RULES_THAT_NEED: Mapping[str, frozenset[str]] = {
    "timeline": frozenset(
        (
            *("cpu_fallback", "host_between_steps", "host_bound", "idle_device", "idle_gaps"),
            *("exposed_collectives", "scheduler_sync", "straggler", "transfers_exposed"),
        )
    ),
    "shapes": frozenset(
        (
            *("elementwise_chains", "launch_bound", "norm_chains", "single_precision"),
            "slow_products",
        )
    ),
    "launches": frozenset(("blocking_copies", "host_bound", "idle_gaps", "scheduler_sync")),
    "memory": frozenset(("decode_peak", "little_headroom")),
}
"""By code: the rules that find nothing, or hardly anything, without such data."""


def unchecked(analysis: Analysis) -> dict[str, tuple[frozenset[str], str]]:
    """Return, by code of missing data, the rules that could not be checked, each once, and how to
    record that data, "" if unknown."""
    producer = analysis.inputs.run.info.producer
    found: dict[str, tuple[frozenset[str], str]] = {}
    seen = frozenset(finding.rule for finding in analysis.findings)  # these were
    for code in _lacking(analysis):
        some = RULES_THAT_NEED[code] - seen
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
    DropReason.CUT_SHORT: said("ends at byte {at} of {size}"),
    DropReason.LARGER_THAN_RECORDED: said("has {size} bytes where the manifest knows {recorded}"),
    DropReason.NOT_THERE: said("{file} is named in the manifest but is not there"),
}


def what_happened(drop: Drop) -> Said:
    """Return the sentence about a drop without advice, for callers that give advice themselves."""
    return worded_note(drop.detail, _WITHOUT_ADVICE.get(drop.detail.code))


# --- Sentences about missing data, and about how the calls of an imported run were identified.


SENTENCES: Sentences = {
    DropReason: {
        DropReason.ERROR: "{error}",
        DropReason.CUT_OR_DAMAGED: "cut or damaged at byte {at} of {size}",
        DropReason.CUT_SHORT: "ends at byte {at} of {size}: copy it again",
        DropReason.LARGER_THAN_RECORDED: "has {size} bytes where the manifest knows {recorded}: "
        "not as it was recorded",
        DropReason.COPY_DIFFERS: "has {size} of {recorded} bytes; calls were read from their own "
        "files: `profile-sd3 merge` rebuilds it",
        DropReason.GZIP_CUT: "the .gz file ends early ({error}): {unpacked} bytes were unpacked",
        DropReason.NOT_THERE: "{file} is named in the manifest but is not there: copy it back or "
        "run again",
        DropReason.CALLS_NOT_THERE: "no readable file of call {calls}",
        DropReason.CALLS_TWICE: "calls that stand more than once in the file: give the files of "
        "one run",
        DropReason.OMITTED: "left out to keep the sample small: {what}",
        DropReason.CLOCK_UNRELATED_IN_FILE: "on a clock that no snapshot relates to the trace's",
        DropReason.NO_TIME: "without time, or before the epoch",
        DropReason.NEVER_RAN: "without a time, or ended before they began",
        DropReason.NO_SEQUENCE: "of no packet sequence",
        DropReason.STATE_MISSING: "need interned data or times that are not in the file",
        DropReason.NO_TRACK: "on tracks that cannot be found",
        DropReason.NO_COUNTER: "counter samples without value or counter",
        DropReason.UNKNOWN_TYPE: "of no known type, or without their thread",
        DropReason.NOT_NESTED: "overlap another one of their track without nesting",
        DropReason.TOO_DEEP: "nested more than 512 deep",
        DropReason.DAMAGED: "damaged",
        DropReason.BAD_ARGUMENTS: "arguments that cannot be resolved",
        DropReason.BAD_DESCRIPTORS: "track descriptors that are damaged or contradict earlier ones",
        DropReason.BAD_SNAPSHOTS: "clock snapshots that contradict earlier ones",
        DropReason.BAD_COMPRESSED: "damaged compressed packets",
        DropReason.NO_BEGIN: "end without a begin in the file",
        DropReason.NO_END: "begun, never ended",
        DropReason.NOT_ENDED: "the run did not end: it was killed, or its machine went down",
        DropReason.ENDED_WITH: "the run ended with {failure}",
        DropReason.HOST_NOT_WRITTEN: "the run ended before it was written: accounting is not "
        "possible",
        DropReason.KILLED_BEFORE_READ: "the run was killed before what was traced of them was read",
        DropReason.CALL_NOT_RETURNED: "the call did not return, so it has no file",
        DropReason.BRANCH_GUESSED: "the branch of guidance is not recorded: it is a guess",
        DropReason.STEP_NOT_RETURNED: "the call of step {step} did not return, so it has no file",
        DropReason.NOT_RECORDED: "no operators: what was recorded of the calls was interrupted or "
        "is not there",
        DropReason.PROFILER_FAILED: "profile-sd3 failed: {error}",
        DropReason.OPERATORS_UNREADABLE: "operators could not be read: {error}",
        DropReason.LAYERS_UNREADABLE: "their layers are called after ONNX nodes, not after "
        "modules: {error}",
        DropReason.PROFILE_FULL: "ONNX Runtime's profile was full: trace fewer calls of this "
        "submodule",
        DropReason.NO_SESSION_RUN: "no operator events: the call did not run its session, or ONNX "
        "Runtime's profile was full",
        DropReason.SESSION_NOT_RENEWED: "its profiled session could not be renewed, and later "
        "calls were not traced ({error})",
        DropReason.RUNS_MIXED: "runs of several calls overlapped in one session and cannot be "
        "told apart",
        DropReason.SIZE_REACHED: "no operators from {file} on: the run had written the {size} "
        "bytes that it may (--max-size)",
        DropReason.PROFILER_IN_USE: "no operators: torch has one profiler a process, and another "
        "thread's call or another profiler was using it",
        DropReason.BUFFERS_FULL: "launches of device work that torch.profiler did not record: its "
        "buffers were full",
        DropReason.OPERATORS_NOT_ENDED: "operators that had not ended when the session was stopped",
        DropReason.NO_SESSION_EVENTS: "no operators: another profiler took torch's over, or the "
        "session ended too early",
        DropReason.SESSION_UNREADABLE: "no operators: torch's trace could not be written and read "
        "in the temporary folder",
        DropReason.SESSION_NOT_CUT: "no operators: torch's trace could not be cut into calls "
        "({error})",
        DropReason.CLOSED_ON_OTHER_THREAD: "no operators: the run was closed on another thread "
        "while this one was being traced, and torch stops its profiler on the thread that it "
        "records",
        DropReason.THREAD_ENDED: "no operators: the thread that was being traced has ended",
        DropReason.REPORTS_TOO_LONG: "rebel.capture_reports() told of more time than the runtime "
        "call took, so the call is shown as measured on the host",
        DropReason.NO_COMMAND: "the file holds no command",
        DropReason.COUNTERS_UNDOCUMENTED: "counters are not documented for this producer",
        DropReason.ARGUMENTS_UNKNOWN: "their Slice Arguments are not of the known form: bytes and "
        "cycles are unknown",
        DropReason.AGGREGATE_DIFFERS: "the aggregate holds {whole} {what}, its {files} files "
        "{parts}",
        DropReason.LAYERS_DIFFER: "they share less than half of their layers with the submodule's "
        "first call: check --pipeline, --steps and --skip, or --run",
        DropReason.CLOCK_RESTARTS: "the clock of {device} restarts in each file: calls are placed "
        "end to end, and the time between them is unknown",
        DropReason.CLOCK_UNALIGNED: "the clock of {device} is unaligned, nothing relates it to "
        "that of {reference}: {how}, so times do not compare across devices",
        DropReason.BY_SHARED_CALL: "it is placed by the begin of a call that ran on both",
        DropReason.AT_RUN_START: "no order of calls fits it, and its first command is placed at "
        "the run's start",
        DropReason.BY_ORDER: "it is placed by the order of calls, how far apart they were is "
        "unknown",
        DropReason.BY_ORDER_WITHIN: "it is placed by the order of calls, to within "
        "{uncertainty_ns}",
        DropReason.NO_PIPELINE_NAMED: "no pipeline was named, and none that is known fits the "
        "number and layers of the files, so no call is labelled: give --pipeline sd3 --steps N to "
        "`import`, to other commands --import pipeline=sd3 --import steps=N, or a .yaml "
        "description of the pipeline",
        DropReason.PIPELINE_GUESSED: "{pipeline} (steps: {steps}) was guessed from the number and "
        "layers of the files: say it with --pipeline to `import`, to other commands with --import "
        "pipeline={pipeline}",
        DropReason.PIPELINE_GUESSED_OF: "{pipeline} (steps: {steps}) was guessed from the number "
        "and layers of the files, and {others} would fit as well: say it with --pipeline to "
        "`import`, to other commands with --import pipeline={pipeline}",
        DropReason.LAUNCH_TIMES: "{provider} is asynchronous: the recorded times are those of "
        "launches, and the file does not have the device's work",
        DropReason.KERNELS_BY_END: "this version of ONNX Runtime wrote when kernels ended: their "
        "begins are computed from that",
        DropReason.KERNELS_OF_NO_RUN: "kernels that no session.run, or no device, can be told "
        "for: left out",
        DropReason.ENTRIES_CUT: "the file is cut: its whole part was read",
        DropReason.LAID_END_TO_END: "start times are not in this format: durations, averages over "
        "inferences, and their order are real, gaps are not; it is shown as one call",
        DropReason.TIMELINES_APART: "recorded one by one: each is a pipeline call of its own, "
        "laid behind the one before",
        DropReason.LAYERS_UNLIKE_TOTAL: "layers take {layers_ns} together, and the file's own "
        "total is {total_ns}",
        DropReason.SHARES_OF_CYCLES: "nodes have cycles and no times: each was given its share of "
        "the accelerator's time, in the order of the file; threads that worked at the same time "
        "are not distinguished",
        DropReason.EXECUTIONS_IN_ORDER: "the file does not say when executions began: they are "
        "laid one after another",
        DropReason.UNITS_ONLY: "a summary lists only the costliest of {nodes} nodes: also give "
        "the profile as CSV. Its threads last from their first to their last cycle; they worked "
        "for {used} of the time",
        DropReason.UNIT_USED: "{name} {share}",
        DropReason.ONE_COLUMN: "one of {measurements} measurements in the file: choose by "
        "--import device=…, runtime=… and precision=…",
        DropReason.MEDIAN_LATENCY: "the call is as long as the median latency of all inferences, "
        "its layers are those of the last one",
        DropReason.STEPS_UNKNOWN: "each component was measured once: how often a pipeline calls "
        "it is not known, so this is no end-to-end time; for a diffusion model give --import "
        "steps=N and --import guidance=SCALE",
        DropReason.STEPS_GIVEN: "each component was measured once, and the pipeline is made of "
        "these times, with {steps} steps and {passes} passes a step; what lies between them is "
        "not in it",
        DropReason.EVERY_NTH: "one of {rate} requests was recorded: concurrency and use of models "
        "are those of what was recorded",
        DropReason.RATE_UNTOLD: "a server records one of so many requests, and the file does not "
        "tell how many: concurrency and use of models are those of what was recorded (--import "
        "rate=N says it)",
        DropReason.REQUESTS_INCOMPLETE: "requests whose record, or that of a part or caller, is "
        "not whole are left out: {requests}",
        DropReason.REQUESTS_NOT_COMPUTED: "requests for which no model computed, such as those "
        "answered from the response cache, are left out: {requests}",
        DropReason.REQUESTS_IN_ORDER: "the file does not say when requests began: they are laid "
        "one after another",
        DropReason.STAGES_OVERLAP: "stages take longer together than the request, so they ran "
        "side by side; when each began is not told",
        DropReason.NO_STAGE_TIMES: "nothing tells how long a stage of these took: left out",
        DropReason.WITHOUT_OPERATIONS: "the file has times of stages and none of operations",
        DropReason.BEGIN_BY_NAME: "files' names tell to within {within_ns} when each session "
        "began, and nothing else relates their clocks: calls of different sessions may be off by "
        "that",
        DropReason.COUNTERS_OF_ANOTHER_RUN: "hardware counters are another run than the trace "
        "beside them: import the file alone",
        DropReason.TOLD_IN_ANOTHER_FORM: "left out: a file that tells more of the same run lies "
        "beside it",
        DropReason.ORDER_UNKNOWN: "no call is labelled, because the order of calls is unknown on "
        "devices without a common clock: import the numbered files",
        DropReason.FLOWS_BETWEEN_CALLS: "dependencies between runtime calls have no place: those "
        "within a call are kept",
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
        DropReason.RANKS_NOT_GIVEN: "traces of {given} of the job's {size} ranks were given: give "
        "all to see what the others did, and whom they kept waiting",
        DropReason.RANK_UNALIGNED: "fewer than three collectives relate the clock of rank {rank} "
        "to that of rank {reference}: it has a timeline of its own, so times do not compare "
        "across ranks",
        DropReason.COPY_ALL: "copy all files, and give the run in which they were written",
    },
    CallsFrom: {
        CallsFrom.ANNOTATIONS: "the trace has no ranges of modules: a call is a range that its "
        "script named",
        CallsFrom.PROFILER_STEPS: "the trace has no ranges of modules: a call is a step of "
        "torch.profiler's schedule",
        CallsFrom.OPERATORS: "from operators (embeddings, convolutions, products, compiled "
        "regions): the trace has no ranges of modules; with_stack=True records them",
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
        where, sentence, _ = CONSEQUENCES[code]
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
        yield one.file, said("not read: it is or looks like {what}", what=one.what)


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
    note = _extent(worst)["detail"]
    if worst.kind.has_missing_time:
        what = said("{kind} in {where}", kind=what, where=worst.where)
        note = said("{what}; not everything that ran is in the figures", what=note)
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
            "Everything that was executed is here, but some of it is doubtful or not broken down."
        )
    for drop in drops:
        yield said(
            "{kind} in {where}: {number} {unit}. {detail}", kind=label(drop.kind), **_extent(drop)
        )


def missing_rows(drops: Iterable[Drop]) -> Iterator[tuple[str, str]]:
    """The kind of each drop, and where it is, how much and why."""
    for drop in drops:
        yield label(drop.kind), said("{where}: {number} {unit}. {detail}", **_extent(drop))


def _extent(drop: Drop) -> dict[str, str]:
    number = count(drop.count) if drop.count >= 0 else said("unknown")
    detail = worded_note(drop.detail)
    return {"where": drop.where, "number": number, "unit": drop.unit, "detail": detail}
