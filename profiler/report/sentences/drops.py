"""What is said of that something was executed and is not in the trace."""

from __future__ import annotations

from profiler.report.sentences.worded import Sentences, worded
from profiler.text import NoteCode, Said, said
from profiler.trace.events import Drop, DropKind, DropReason

__all__ = ["SENTENCES", "what_happened"]

SENTENCES: Sentences = {
    DropKind: {
        DropKind.TRUNCATED_FILE: said("truncated file"),
        DropKind.DROPPED_EVENTS: said("dropped events"),
        DropKind.UNTRACED_CALL: said("untraced call"),
        DropKind.UNCLOSED_SLICE: said("unclosed slice"),
        DropKind.MISSING_FILE: said("missing file"),
        DropKind.CHANGED_FILE: said("changed file"),
        DropKind.DAMAGED_COPY: said("damaged copy"),
        DropKind.ABORTED_RUN: said("aborted run"),
        DropKind.UNLABELLED_CALL: said("unlabelled call"),
        DropKind.DOUBTFUL_LABEL: said("doubtful label"),
        DropKind.AGGREGATE_MISMATCH: said("aggregate mismatch"),
        DropKind.UNALIGNED_CLOCK: said("unaligned clock"),
        DropKind.MISSING_RANK: said("missing rank"),
        DropKind.ESTIMATED_TIMES: said("estimated times"),
    },
    DropReason: {
        DropReason.ERROR: said("{error}"),
        DropReason.CUT_OR_DAMAGED: said("cut or damaged at byte {at} of {size}"),
        DropReason.CUT_SHORT: said("ends at byte {at} of {size}: copy it again"),
        DropReason.LARGER_THAN_RECORDED: said(
            "has {size} bytes where the manifest knows {recorded}: not as it was recorded"
        ),
        DropReason.COPY_DIFFERS: said(
            "has {size} of {recorded} bytes; calls were read from their own files: `profile-sd3 "
            "merge` rebuilds it"
        ),
        DropReason.GZIP_CUT: said(
            "the .gz file ends early ({error}): {unpacked} bytes were unpacked"
        ),
        DropReason.NOT_THERE: said(
            "{file} is named in the manifest but is not there: copy it back or run again"
        ),
        DropReason.CALLS_NOT_THERE: said("no readable file of call {calls}"),
        DropReason.CALLS_TWICE: said(
            "calls that stand more than once in the file: give the files of one run"
        ),
        DropReason.OMITTED: said("left out to keep the sample small: {what}"),
        DropReason.CLOCK_UNRELATED_IN_FILE: said(
            "on a clock that no snapshot relates to the trace's"
        ),
        DropReason.NO_TIME: said("without time, or before the epoch"),
        DropReason.NEVER_RAN: said("without a time, or ended before they began"),
        DropReason.NO_SEQUENCE: said("of no packet sequence"),
        DropReason.STATE_MISSING: said("need interned data or times that are not in the file"),
        DropReason.NO_TRACK: said("on tracks that cannot be found"),
        DropReason.NO_COUNTER: said("counter samples without value or counter"),
        DropReason.UNKNOWN_TYPE: said("of no known type, or without their thread"),
        DropReason.NOT_NESTED: said("overlap another one of their track without nesting"),
        DropReason.TOO_DEEP: said("nested more than 512 deep"),
        DropReason.DAMAGED: said("damaged"),
        DropReason.BAD_ARGUMENTS: said("arguments that cannot be resolved"),
        DropReason.BAD_DESCRIPTORS: said(
            "track descriptors that are damaged or contradict earlier ones"
        ),
        DropReason.BAD_SNAPSHOTS: said("clock snapshots that contradict earlier ones"),
        DropReason.BAD_COMPRESSED: said("damaged compressed packets"),
        DropReason.NO_BEGIN: said("end without a begin in the file"),
        DropReason.NO_END: said("begun, never ended"),
        DropReason.NOT_ENDED: said("the run did not end: it was killed, or its machine went down"),
        DropReason.ENDED_WITH: said("the run ended with {failure}"),
        DropReason.HOST_NOT_WRITTEN: said(
            "the run ended before it was written: accounting is not possible"
        ),
        DropReason.KILLED_BEFORE_READ: said(
            "the run was killed before what was traced of them was read"
        ),
        DropReason.CALL_NOT_RETURNED: said("the call did not return, so it has no file"),
        DropReason.STEP_NOT_RETURNED: said(
            "the call of step {step} did not return, so it has no file"
        ),
        DropReason.NOT_RECORDED: said(
            "no operators: what was recorded of the calls was interrupted or is not there"
        ),
        DropReason.PROFILER_FAILED: said("profile-sd3 failed: {error}"),
        DropReason.OPERATORS_UNREADABLE: said("operators could not be read: {error}"),
        DropReason.LAYERS_UNREADABLE: said(
            "their layers are called after ONNX nodes, not after modules: {error}"
        ),
        DropReason.PROFILE_FULL: said(
            "ONNX Runtime's profile was full: trace fewer calls of this submodule"
        ),
        DropReason.NO_SESSION_RUN: said(
            "no operator events: the call did not run its session, or ONNX Runtime's profile was "
            "full"
        ),
        DropReason.SESSION_NOT_RENEWED: said(
            "its profiled session could not be renewed, and later calls were not traced ({error})"
        ),
        DropReason.RUNS_MIXED: said(
            "runs of several calls overlapped in one session and cannot be told apart"
        ),
        DropReason.SIZE_REACHED: said(
            "no operators from {file} on: the run had written the {size} bytes that it may "
            "(--max-size)"
        ),
        DropReason.PROFILER_IN_USE: said(
            "no operators: torch has one profiler a process, and another thread's call or another "
            "profiler was using it"
        ),
        DropReason.BUFFERS_FULL: said(
            "launches of device work that torch.profiler did not record: its buffers were full"
        ),
        DropReason.OPERATORS_NOT_ENDED: said(
            "operators that had not ended when the session was stopped"
        ),
        DropReason.NO_SESSION_EVENTS: said(
            "no operators: another profiler took torch's over, or the session ended too early"
        ),
        DropReason.SESSION_UNREADABLE: said(
            "no operators: torch's trace could not be written and read in the temporary folder"
        ),
        DropReason.SESSION_NOT_CUT: said(
            "no operators: torch's trace could not be cut into calls ({error})"
        ),
        DropReason.CLOSED_ON_OTHER_THREAD: said(
            "no operators: the run was closed on another thread while this one was being traced, "
            "and torch stops its profiler on the thread that it records"
        ),
        DropReason.THREAD_ENDED: said("no operators: the thread that was being traced has ended"),
        DropReason.REPORTS_TOO_LONG: said(
            "rebel.capture_reports() told of more time than the runtime call took, so the call is "
            "shown as measured on the host"
        ),
        DropReason.NO_COMMAND: said("the file holds no command"),
        DropReason.COUNTERS_UNDOCUMENTED: said("counters are not documented for this producer"),
        DropReason.ARGUMENTS_UNKNOWN: said(
            "their Slice Arguments are not of the known form: bytes and cycles are unknown"
        ),
        DropReason.AGGREGATE_DIFFERS: said(
            "the aggregate holds {whole} {what}, its {files} files {parts}"
        ),
        DropReason.LAYERS_DIFFER: said(
            "they share less than half of their layers with the submodule's first call: check "
            "--pipeline, --steps and --skip, or --run"
        ),
        DropReason.CLOCK_RESTARTS: said(
            "the clock of {device} restarts in each file: calls are placed end to end, and the "
            "time between them is unknown"
        ),
        DropReason.CLOCK_UNALIGNED: said(
            "the clock of {device} is unaligned, nothing relates it to that of {reference}: {how}, "
            "so times do not compare across devices"
        ),
        DropReason.BY_SHARED_CALL: said("it is placed by the begin of a call that ran on both"),
        DropReason.AT_RUN_START: said(
            "no order of calls fits it, and its first command is placed at the run's start"
        ),
        DropReason.BY_ORDER: said(
            "it is placed by the order of calls, how far apart they were is unknown"
        ),
        DropReason.BY_ORDER_WITHIN: said(
            "it is placed by the order of calls, to within {uncertainty_ns}"
        ),
        DropReason.NO_PIPELINE_NAMED: said(
            "no pipeline was named, and none that is known fits the number and layers of the "
            "files, so no call is labelled: give --pipeline sd3 --steps N to "
            "`import`, to other commands --import pipeline=sd3 --import steps=N, or a .yaml "
            "description of the pipeline"
        ),
        DropReason.PIPELINE_GUESSED: said(
            "{pipeline} (steps: {steps}) was guessed from the number and layers of the files: say "
            "it with --pipeline to `import`, to other commands with --import pipeline={pipeline}"
        ),
        DropReason.PIPELINE_GUESSED_OF: said(
            "{pipeline} (steps: {steps}) was guessed from the number and layers of the files, and "
            "{others} would fit as well: say it with --pipeline to `import`, to other commands "
            "with --import pipeline={pipeline}"
        ),
        DropReason.LAUNCH_TIMES: said(
            "{provider} is asynchronous: the recorded times are those of launches, and the file "
            "does not have the device's work"
        ),
        DropReason.KERNELS_BY_END: said(
            "this version of ONNX Runtime wrote when kernels ended: their begins are computed from "
            "that"
        ),
        DropReason.KERNELS_OF_NO_RUN: said(
            "kernels that no session.run, or no device, can be told for: left out"
        ),
        DropReason.ENTRIES_CUT: said("the file is cut: its whole part was read"),
        DropReason.LAID_END_TO_END: said(
            "times of layers are averages over inferences, and nobody recorded when each began: "
            "they are one call, laid end to end in the order of execution"
        ),
        DropReason.TIMELINES_APART: said(
            "recorded one by one: each is a pipeline call of its own, laid behind the one before"
        ),
        DropReason.LAYERS_UNLIKE_TOTAL: said(
            "layers take {layers_ns} together, and the file's own total is {total_ns}"
        ),
        DropReason.SHARES_OF_CYCLES: said(
            "nodes have cycles and no times: each was given its share of the accelerator's time, "
            "in the order of the file; threads that worked side by side are not told apart"
        ),
        DropReason.EXECUTIONS_IN_ORDER: said(
            "the file does not say when executions began: they are laid one after another"
        ),
        DropReason.UNITS_ONLY: said(
            "a summary lists only the costliest of {nodes} nodes: also give the profile as CSV. "
            "Its threads last from their first to their last cycle; they worked for {used} of "
            "the time"
        ),
        DropReason.UNIT_USED: said("{name} {share}"),
        DropReason.ONE_COLUMN: said(
            "one of {measurements} measurements in the file: choose by --import device=…, "
            "runtime=… and precision=…"
        ),
        DropReason.MEDIAN_LATENCY: said(
            "the call is as long as the median latency of all inferences, its layers are those of "
            "the last one"
        ),
        DropReason.STEPS_UNKNOWN: said(
            "each component was measured once: how often a pipeline calls it is not told, so this "
            "is no end-to-end time"
        ),
        DropReason.EVERY_NTH: said(
            "one of {rate} requests was recorded: concurrency and use of models are those of what "
            "was recorded"
        ),
        DropReason.RATE_UNTOLD: said(
            "a server records one of so many requests, and the file does not tell how many: "
            "concurrency and use of models are those of what was recorded (--import rate=N says it)"
        ),
        DropReason.REQUESTS_INCOMPLETE: said(
            "requests whose record, or that of a part or caller, is not whole are left out: "
            "{requests}"
        ),
        DropReason.REQUESTS_NOT_COMPUTED: said(
            "requests for which no model computed, such as those answered from the response cache, "
            "are left out: {requests}"
        ),
        DropReason.REQUESTS_IN_ORDER: said(
            "the file does not say when requests began: they are laid one after another"
        ),
        DropReason.STAGES_OVERLAP: said(
            "stages take longer together than the request, so they ran side by side; when each "
            "began is not told"
        ),
        DropReason.NO_STAGE_TIMES: said("nothing tells how long a stage of these took: left out"),
        DropReason.WITHOUT_OPERATIONS: said("the file has times of stages and none of operations"),
        DropReason.BEGIN_BY_NAME: said(
            "files' names tell to within {within_ns} when each session began, and nothing else "
            "relates their clocks: calls of different sessions may be off by that"
        ),
        DropReason.COUNTERS_OF_ANOTHER_RUN: said(
            "hardware counters are another run than the trace beside them: import the file alone"
        ),
        DropReason.TOLD_IN_ANOTHER_FORM: said(
            "left out: a file that tells more of the same run lies beside it"
        ),
        DropReason.ORDER_UNKNOWN: said(
            "no call is labelled, because the order of calls is unknown on devices without a "
            "common clock: import the numbered files"
        ),
        DropReason.FLOWS_BETWEEN_CALLS: said(
            "dependencies between runtime calls have no place: those within a call are kept"
        ),
        DropReason.NOT_LABELLED: said("no call is labelled ({found}): {advice}"),
        DropReason.FILES_FOUND: said("files: {files}"),
        DropReason.CALLS_IN_FILE: said("runtime calls in one file: {calls}"),
        DropReason.FILES_SKIPPED: said("skipped before them: {skipped}"),
        DropReason.FILES_MISSING: said("missing between them: {numbers}"),
        DropReason.MORE_FILES_MISSING: said("missing between them: {numbers} and {more} more"),
        DropReason.PERHAPS_AGGREGATE: said("perhaps an aggregate alone"),
        DropReason.PIPELINE_MAKES: said("calls of {pipeline} (steps: {steps}): {calls}"),
        DropReason.RUN_MADE: said("profiled runtime calls of {run}: {calls}"),
        DropReason.OTHER_NUMBERS: said(
            "the numbers missing between the files are not those of runtime calls that were not "
            "profiled"
        ),
        DropReason.FITTING: said("what would fit: {options}"),
        DropReason.CHECK_OPTIONS: said("check --pipeline and --steps"),
        DropReason.COPY_OR_DESCRIBE: said(
            "copy them, or leave unprofiled submodules out of a .yaml description with "
            "allow_gaps: true"
        ),
        DropReason.NOTHING_PROFILED: said("none of its submodules had activate_profiler"),
        DropReason.SKIP_EARLIER: said(
            "--skip {files}, where the runtimes were called so often before it"
        ),
        DropReason.RANKS_NOT_GIVEN: said(
            "traces of {given} of the job's {size} ranks were given: what the others did, and whom "
            "they kept waiting, is not known"
        ),
        DropReason.RANK_UNALIGNED: said(
            "fewer than three collectives relate the clock of rank {rank} to that of rank "
            "{reference}: it has a timeline of its own, so times do not compare across ranks"
        ),
        DropReason.COPY_ALL: said("copy all files, and give the run in which they were written"),
    },
}

_WITHOUT_ADVICE: dict[NoteCode, Said] = {
    DropReason.CUT_SHORT: said("ends at byte {at} of {size}"),
    DropReason.LARGER_THAN_RECORDED: said("has {size} bytes where the manifest knows {recorded}"),
    DropReason.NOT_THERE: said("{file} is named in the manifest but is not there"),
}


def what_happened(drop: Drop) -> Said:
    """What is said of a drop without what to do about it, for who says that in the same breath."""
    return worded(drop.detail, _WITHOUT_ADVICE.get(drop.detail.code))
