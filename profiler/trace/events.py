"""The vocabulary of a run: stages, calls, commands, tracks, devices, lost data.

A run is one profiled execution of a pipeline. The pipeline goes through stages, and in each it
invokes submodules. One invocation is a call. The work of a call on the tracks of a device is
its commands. All commands of one call that share a layer are one operator.

Times are int64 nanoseconds on one clock per run (CLOCK_REALTIME epoch). This module uses only
the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, get_args

from profiler.text import Note, NoteCode

# --- Why something is not, or not fully, in a trace: codes, whose values a `Drop` has as a note.


class DropReason(NoteCode):
    """Why data is missing or doubtful; the comments list the values beside the code."""

    # Reading a file
    ERROR = "error"  # (error: what was raised)
    CUT_OR_DAMAGED = "cut_or_damaged"  # (at, size)
    CUT_SHORT = "cut_short"  # (at, size): between two packets
    LARGER_THAN_RECORDED = "larger_than_recorded"  # (size, recorded)
    COPY_DIFFERS = "copy_differs"  # (size, recorded)
    GZIP_CUT = "gzip_cut"  # (error, unpacked)
    NOT_THERE = "not_there"  # (file)
    CALLS_NOT_THERE = "calls_not_there"  # (calls: numbers)
    CALLS_TWICE = "calls_twice"
    OMITTED = "omitted"  # (what): on purpose
    # Events of a file
    CLOCK_UNRELATED_IN_FILE = "clock_unrelated_in_file"
    NO_TIME = "no_time"
    NO_SEQUENCE = "no_sequence"
    STATE_MISSING = "state_missing"
    NO_TRACK = "no_track"
    NO_COUNTER = "no_counter"
    UNKNOWN_TYPE = "unknown_type"
    NOT_NESTED = "not_nested"
    TOO_DEEP = "too_deep"
    DAMAGED = "damaged"
    BAD_ARGUMENTS = "bad_arguments"
    BAD_DESCRIPTORS = "bad_descriptors"
    BAD_SNAPSHOTS = "bad_snapshots"
    BAD_COMPRESSED = "bad_compressed"
    NO_BEGIN = "no_begin"
    NO_END = "no_end"
    # A run's end
    NOT_ENDED = "not_ended"
    ENDED_WITH = "ended_with"  # (failure)
    HOST_NOT_WRITTEN = "host_not_written"
    KILLED_BEFORE_READ = "killed_before_read"
    CALL_NOT_RETURNED = "call_not_returned"
    STEP_NOT_RETURNED = "step_not_returned"  # (step)
    BRANCH_GUESSED = "branch_guessed"
    # Operators that were not recorded
    NOT_RECORDED = "not_recorded"
    PROFILER_FAILED = "profiler_failed"  # (error)
    OPERATORS_UNREADABLE = "operators_unreadable"  # (error)
    LAYERS_UNREADABLE = "layers_unreadable"  # (error)
    PROFILE_FULL = "profile_full"
    NO_SESSION_RUN = "no_session_run"
    SESSION_NOT_RENEWED = "session_not_renewed"  # (error)
    RUNS_MIXED = "runs_mixed"
    SIZE_REACHED = "size_reached"  # (size, file: the first without)
    PROFILER_IN_USE = "profiler_in_use"
    BUFFERS_FULL = "buffers_full"
    OPERATORS_NOT_ENDED = "operators_not_ended"
    NO_SESSION_EVENTS = "no_session_events"
    SESSION_UNREADABLE = "session_unreadable"
    SESSION_NOT_CUT = "session_not_cut"  # (error)
    CLOSED_ON_OTHER_THREAD = "closed_on_other_thread"
    THREAD_ENDED = "thread_ended"
    REPORTS_TOO_LONG = "reports_too_long"
    # Imports
    NEVER_RAN = "never_ran"  # without a time, or of a negative duration
    NO_COMMAND = "no_command"
    COUNTERS_UNDOCUMENTED = "counters_undocumented"
    ARGUMENTS_UNKNOWN = "arguments_unknown"
    FLOWS_BETWEEN_CALLS = "flows_between_calls"
    AGGREGATE_DIFFERS = "aggregate_differs"  # (whole, parts, what, files)
    LAYERS_DIFFER = "layers_differ"
    CLOCK_RESTARTS = "clock_restarts"  # (device)
    CLOCK_UNALIGNED = "clock_unaligned"  # (device, reference, how: one of the next)
    BY_SHARED_CALL = "by_shared_call"
    AT_RUN_START = "at_run_start"
    BY_ORDER = "by_order"
    BY_ORDER_WITHIN = "by_order_within"  # (uncertainty_ns)
    NO_PIPELINE_NAMED = "no_pipeline_named"
    PIPELINE_GUESSED = "pipeline_guessed"  # (pipeline, steps)
    PIPELINE_GUESSED_OF = "pipeline_guessed_of"  # (pipeline, steps, others)
    ORDER_UNKNOWN = "order_unknown"
    LAUNCH_TIMES = "launch_times"  # (provider)
    KERNELS_BY_END = "kernels_by_end"
    KERNELS_OF_NO_RUN = "kernels_of_no_run"
    NODES_OF_NO_RUN = "nodes_of_no_run"
    ENTRIES_CUT = "entries_cut"  # what is whole was read
    LAID_END_TO_END = "laid_end_to_end"  # averages, in the order of execution
    TIMELINES_APART = "timelines_apart"  # recorded one by one, each with a clock of its own
    LAYERS_UNLIKE_TOTAL = "layers_unlike_total"  # (layers_ns, total_ns)
    SHARES_OF_CYCLES = "shares_of_cycles"
    EXECUTIONS_IN_ORDER = "executions_in_order"  # without a clock
    UNITS_ONLY = "units_only"  # (nodes, used): the latter notes UNIT_USED
    UNIT_USED = "unit_used"  # (name, share): of the execution's time
    ONE_COLUMN = "one_column"  # (measurements): of a table of measurements
    MEDIAN_LATENCY = "median_latency"
    STEPS_UNKNOWN = "steps_unknown"
    STEPS_GIVEN = "steps_given"  # (steps, passes)
    EVERY_NTH = "every_nth"  # (rate): requests that were recorded
    RATE_UNTOLD = "rate_untold"
    REQUESTS_INCOMPLETE = "requests_incomplete"  # (requests: the first of them)
    REQUESTS_NOT_COMPUTED = "requests_not_computed"  # (requests: the first of them)
    REQUESTS_IN_ORDER = "requests_in_order"  # without a clock
    STAGES_OVERLAP = "stages_overlap"  # a request is shorter than its stages together
    NO_STAGE_TIMES = "no_stage_times"  # of a request
    WITHOUT_OPERATIONS = "without_operations"  # times of stages alone
    BEGIN_BY_NAME = "begin_by_name"  # (within_ns)
    COUNTERS_OF_ANOTHER_RUN = "counters_of_another_run"
    TOLD_IN_ANOTHER_FORM = "told_in_another_form"
    NOT_LABELLED = "not_labelled"  # (found: notes; advice: a note)
    FILES_FOUND = "files_found"  # (files)
    CALLS_IN_FILE = "calls_in_file"  # (calls)
    FILES_SKIPPED = "files_skipped"  # (skipped)
    FILES_MISSING = "files_missing"  # (numbers)
    MORE_FILES_MISSING = "more_files_missing"  # (numbers: the first; more)
    PERHAPS_AGGREGATE = "perhaps_aggregate"
    PIPELINE_MAKES = "pipeline_makes"  # (pipeline, steps, calls)
    RUN_MADE = "run_made"  # (run, calls)
    OTHER_NUMBERS = "other_numbers"
    FITTING = "fitting"  # (options)
    CHECK_OPTIONS = "check_options"
    COPY_OR_DESCRIBE = "copy_or_describe"
    NOTHING_PROFILED = "nothing_profiled"
    SKIP_EARLIER = "skip_earlier"  # (files)
    COPY_ALL = "copy_all"
    RANKS_NOT_GIVEN = "ranks_not_given"  # (given, size)
    RANK_UNALIGNED = "rank_unaligned"  # (rank, reference)


# --- The vocabulary of a profiled run, as values. Standard library only.


Branch = Literal["prompt", "negative_prompt", "cond", "uncond", "batched", "skip_layers"]
"""For whom a call works: an encoder for one of the prompts; the denoiser for the prompt (`cond`),
the negative prompt (`uncond`), both at once (`batched`), or, in skip-layer guidance, once more for
the prompt with some of its layers left out (`skip_layers`)."""
Category = Literal["host", "compute", "dma", "copy", "collective", "sync", "other"]
Role = Literal[
    "attention",
    "qkv_projection",
    "mlp",
    "router",
    "norm",
    "modulation",
    "embedding",
    "convolution",
    "resample",
    "rope",
    "residual",
    "adapter",
    "sampling",
    "random",
    "optimizer",
    "data_movement",
    "collective",
    "matmul",
    "elementwise",
    "other",
]
"""What an operator is for. `matmul` and `elementwise` are of what is known to compute that, and not
for what."""
SpanKind = Literal["pipeline", "stage", "step", "profiler"]
"""`profiler` is work of our own: what recording itself took, on the thread that ran the pipeline or
beside it. No stage holds it."""

STAGES: tuple[str, ...] = ("encode", "denoise", "decode")  # of diffusion pipelines
BRANCHES: tuple[str, ...] = get_args(Branch)
CATEGORIES: tuple[str, ...] = get_args(Category)
ROLES: tuple[str, ...] = get_args(Role)

ROOT_DEVICE = "cpu:0"  # where the pipeline itself, and so all host work, runs
PIPELINE_TRACK = "Pipeline"  # pipeline, stage and step spans, nested
PROFILER_TRACK = "Profiler"  # profiling overhead: spans of kind `profiler`
CALLS_TRACK = "Calls"  # one span per call, on each device
HOST_TRACK = "Host"  # host work outside every call

GRAPH_CAPTURE = "graph_capture"  # capability: graphs of launches were captured, none replayed
RUN_STAGE = "run"  # the only stage of a pipeline that is not diffusion

NO_STEP = -1  # the step of everything outside `denoise`
NO_ITERATION = -1  # the iteration of everything outside of loops
NO_CALL = -1  # the call of a command that belongs to none: host work of the pipeline itself
NO_RANK = -1  # in a run of one process; in a job, for what belongs to no process
NO_PIPELINE = -1  # outside of pipeline calls, or not recorded
UNKNOWN = -1  # bytes, FLOPs or an end that was not measured; null in tables

_OF_FILE_NAME = 100  # bytes of a submodule's or a branch's name
_NO_FILE_NAME = re.compile(r"[^\w.+-]")  # a submodule's name may come from a foreign trace


OF_PIPELINE = "@"  # between submodule and pipeline, if several pipelines have the name


def component_of(submodule: str) -> str:
    """The name of a submodule in its own pipeline: `unet` of `unet@refiner`."""
    return submodule.partition(OF_PIPELINE)[0]


CPU_DEVICE = r"^(?:rank\d+/)?cpu\b"
"""Names of devices that are hosts themselves, as a pattern."""
_OF_RANK = re.compile(r"rank(\d{1,9})/")


def device_of_rank(rank: int, device: str) -> str:
    """The name of a rank's device in a job of several processes: `rank3/cuda:0`."""
    return f"rank{rank}/{device}"


def rank_of_device(device: str) -> int:
    """The rank in the name of a device, `NO_RANK` if it has none."""
    found = _OF_RANK.match(device)
    return int(found[1]) if found else NO_RANK


def device_kind(device: str) -> str:
    """The kind of a device: `cuda` of `cuda:1` and of `rank3/cuda:0`."""
    return _OF_RANK.sub("", device, count=1).partition(":")[0]


@dataclass(frozen=True, slots=True)
class Track:
    """A queue of a device, under its producer's own name.

    `category` says what the track does (`CATEGORIES`).
    """

    device: str
    name: str
    category: str


@dataclass(frozen=True, slots=True)
class Call:
    """One invocation of a submodule; one `.pb` file.

    `index` counts the calls of a run from 0 in the order in which they returned; `step` is the
    denoising step from the scheduler, `NO_STEP` outside `denoise`; `branch` is one of `BRANCHES`,
    "" if the notion does not apply (VAE). `ops_traced`: whether its commands were recorded.
    `input_shapes` maps input names to "dtype[d0,d1,…]". `pipeline` is the number of the pipeline
    call that it belongs to: pipeline calls of a run count from 0 in the order in which they
    started, nested ones have the number of the outer one; `NO_PIPELINE` outside of any. `iteration`
    is the pass, from 0, of a loop that is not denoising (a token, a training or profiler step);
    `NO_ITERATION` if there is none. `device_lag_ns` and `device_duration_ns` are its time on its
    device's queue, as the device itself noted before and after the call: from `start_ns` to its
    start, and its length; `UNKNOWN` if not noted.
    """

    index: int
    submodule: str
    stage: str
    branch: str
    step: int
    device: str
    start_ns: int
    duration_ns: int
    ops_traced: bool
    input_shapes: Mapping[str, str] = field(default_factory=dict)
    pipeline: int = NO_PIPELINE
    iteration: int = NO_ITERATION
    device_lag_ns: int = UNKNOWN
    device_duration_ns: int = UNKNOWN

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns

    @property
    def file_name(self) -> str:
        """`000_text_encoder.prompt.pb`, `006_transformer.step000.pb`, `034_vae.decode.pb`."""
        if self.stage == "denoise":
            branch = "" if self.branch in ("", "batched", "cond") else f".{self.branch}"
            label = f"step{self.step:03d}{branch}"
        else:
            label = self.branch or self.stage
        name = f"{_for_a_file(self.submodule)}.{_for_a_file(label)}".rstrip(".")
        return f"{self.index:03d}_{name}.pb"


def _for_a_file(name: str) -> str:
    """`name` made safe and short enough to be part of a file's name (255 bytes)."""
    safe = _NO_FILE_NAME.sub("_", name)
    return safe.encode()[:_OF_FILE_NAME].decode(errors="ignore")


@dataclass(frozen=True, slots=True)
class Span:
    """A pipeline, stage or step: a range around calls and host work. The spans of one pipeline call
    nest; `pipeline` is its number, as in `Call`. Spans of kind `profiler` are profiling overhead,
    which encloses nothing; `pipeline` is the call that waited for it, `NO_PIPELINE` if none did."""

    kind: SpanKind
    name: str
    stage: str
    step: int
    start_ns: int
    duration_ns: int
    pipeline: int = NO_PIPELINE


class DropKind(StrEnum):
    """All kinds of missing or doubtful data."""

    TRUNCATED_FILE = "truncated_file"  # cut or damaged; read up to its last whole packet
    MISSING_FILE = "missing_file"
    CHANGED_FILE = "changed_file"  # its size is not what the manifest says
    DAMAGED_COPY = "damaged_copy"  # merged.pb, of calls that were read from their own files
    DROPPED_EVENTS = "dropped_events"  # the producer's buffer was full, or nothing places them
    UNCLOSED_SLICE = "unclosed_slice"  # started and never ended
    ABORTED_RUN = "aborted_run"
    UNTRACED_CALL = "untraced_call"  # a call that should have operators has none
    UNLABELLED_CALL = "unlabelled_call"  # of an import: it fits no description
    DOUBTFUL_LABEL = "doubtful_label"  # its description fits badly, was guessed, or names no module
    AGGREGATE_MISMATCH = "aggregate_mismatch"  # of an import: two records of a run disagree
    UNALIGNED_CLOCK = "unaligned_clock"  # nothing relates a device's clock to the run's
    MISSING_RANK = "missing_rank"  # of an import: processes of the job of which no trace was given
    ESTIMATED_TIMES = "estimated_times"  # averages, or an order in place of starts

    @property
    def has_missing_time(self) -> bool:
        """Whether time of the run is missing from the report. For other kinds it is there, but not
        broken down, or its name or moment is doubtful."""
        return self in _TIME_MISSING


_TIME_MISSING = frozenset(
    {
        DropKind.TRUNCATED_FILE,
        DropKind.MISSING_FILE,
        DropKind.CHANGED_FILE,
        DropKind.DROPPED_EVENTS,
        DropKind.UNCLOSED_SLICE,
        DropKind.ABORTED_RUN,
        DropKind.MISSING_RANK,
    }
)


@dataclass(frozen=True, slots=True)
class Drop:
    """Something that was executed but is not, or not fully, in the trace.

    `count` counts what was lost (events, bytes or calls: `unit` says which), `UNKNOWN` if not
    known. `detail` says why (`DropReason`).
    """

    kind: DropKind
    where: str
    count: int
    unit: str
    detail: Note
