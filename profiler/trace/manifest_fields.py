"""Fields of the manifest as frozen structs, with bounds in their types.

Missing values are None or empty and are not written. Sizes, counts and times are below 2^53, so
JSON readers represent them exactly, and sums of a thousand fit an int64. `docs/file-format.md`
describes the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from profiler.text import Note, Value
from profiler.trace.events import Drop, DropKind, DropReason

LARGEST = (1 << 53) - 1
_Count = Annotated[int, Meta(ge=0, le=LARGEST)]  # also bytes and nanoseconds
_Whole = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
_Real = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
_Factor = Annotated[float, Meta(ge=1e-3, le=1e3)]  # beyond it nothing was measured
_Time = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Told = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]  # -1: not known
_CallIndex = Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]
Setting = bool | _Whole | _Real | str | None
"""A value of one of a pipeline's own keyword arguments."""


class Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the manifest: unknown keys are refused, what has its default is left out."""

    def as_json(self) -> dict[str, Any]:
        """What is known, by key, as in the JSON; nested structs are mappings, too."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values


class Hardware(Fields, frozen=True, kw_only=True):
    """The machine: CPU model, cores that the process may use, memory, operating system."""

    cpu: str = ""
    cores: _Count | None = None
    memory_bytes: _Count | None = None
    system: str = ""


class Device(Fields, frozen=True, kw_only=True):
    """`cores` are processor numbers of a CPU device, `pinned` whether its threads stay there,
    `shared_with` other devices on the same cores. `weight_bytes` is the most that was loaded there
    at once. `aligned` is False if nothing relates the device's clock to the run's."""

    hardware: str = ""
    cores: tuple[_Count, ...] = ()
    pinned: bool | None = None
    shared_with: tuple[str, ...] = ()
    provider: str = ""
    memory_bytes: _Count | None = None
    compute_units: _Count | None = None
    weight_bytes: _Count | None = None
    aligned: bool | None = None


class OverheadRatio(Fields, frozen=True, kw_only=True):
    """`factor` turns operator times as traced into untraced ones; its 95 % interval."""

    factor: _Factor
    low: _Real | None = None
    high: _Real | None = None


class Submodule(Fields, frozen=True, kw_only=True):
    """`model` is the model's folder and file, or its class. `modules` maps a module's path to its
    class, "" for the submodule itself. `runtime_calls` are pairs of the number of a runtime call
    and the index of the call that made it, -1 for none; `workloads` are runtime instance, workload
    and index of each call that was found in a file of several."""

    device: str = ""
    activate_profiler: bool | None = None
    model: str = ""
    profiled_sessions: _Count | None = None
    weight_bytes: _Count | None = None
    shared_weight_bytes: _Count | None = None
    overhead_ratio: OverheadRatio | None = None
    modules: dict[str, str] = field(default_factory=dict)
    runtime_calls: tuple[tuple[_Count, _CallIndex], ...] = ()
    writes_shards: bool | None = None
    comp_cycle: _Count | None = None
    workloads: tuple[tuple[_Told, _Told, _CallIndex], ...] = ()


class StepsFrom(StrEnum):
    """What tells the steps of an imported run."""

    SCHEDULER = "scheduler"
    CALL_ORDER = "call_order"


class CallsFrom(StrEnum):
    """What tells the calls of an imported run that has no ranges of modules."""

    ANNOTATIONS = "annotations"  # that its script named
    PROFILER_STEPS = "profiler_steps"
    OPERATORS = "operators"  # guessed: embeddings, compiled regions, convolutions
    GRAPH_LAUNCHES = "graph_launches"
    CAPTURED_OPERATORS = "captured_operators"  # launches of graphs, guessed from their captures
    KERNEL_PERIOD = "kernel_period"  # guessed: the same kernels again
    MODULE_PERIOD = "module_period"  # guessed: the first operation of a compiled module again
    NOTHING = "nothing"  # all of it is one: a report of kernels

    @property
    def guessed(self) -> bool:
        """Whether nothing in the trace says that these are calls."""
        return self in (
            CallsFrom.OPERATORS,
            CallsFrom.CAPTURED_OPERATORS,
            CallsFrom.KERNEL_PERIOD,
            CallsFrom.MODULE_PERIOD,
        )


class Graphs(Fields, frozen=True, kw_only=True):
    """Replays of CUDA or HIP graphs: how many there are, of how many kernels, and how many of these
    have operators from a capture's trace. `captures` counts captured graphs that were given, `best`
    is the largest share of a replay's kernels that one of them has if none fits; `uncompared`
    are replays without a capture that were not compared with all, which would have taken too long.
    `captured` counts launches that this trace itself captured."""

    replays: _Count = 0
    kernels: _Count = 0
    joined: _Count = 0
    captures: _Count = 0
    best: _Real | None = None
    uncompared: _Count = 0
    captured: _Count = 0


class Recording(Fields, frozen=True, kw_only=True):
    """How the run was recorded, as far as an importer knows. `source` is the imported file;
    `calls_from`, `steps_from` and `described_as` say where calls, steps and labels come from;
    `names_kept_whole` counts names that could not be taken apart; `nvtx_domains` are those, but the
    default one, whose ranges say what ran; `commands_of` are the files whose
    commands were kept if the bundle is an excerpt."""

    source: str = ""
    files: _Count | None = None
    recorded: str = ""
    with_stack: bool | None = None
    record_shapes: bool | None = None
    profile_memory: bool | None = None
    with_flops: bool | None = None
    with_modules: bool | None = None
    calls_from: CallsFrom | None = None
    graphs: Graphs | None = None
    steps_from: tuple[StepsFrom, ...] = ()
    described_as: str = ""
    steps: _Count | None = None
    labelled: bool | None = None
    names_kept_whole: _Count | None = None
    nvtx_domains: tuple[str, ...] = ()
    commands_of: tuple[str, ...] = ()


class ActivityKind(StrEnum):
    """What the host was in."""

    FUNCTION = "function"  # of Python, a module's call included
    OPERATOR = "operator"
    RUNTIME_CALL = "runtime_call"
    RANGE = "range"  # that the user or the profiler named


class HostActivity(Fields, frozen=True, kw_only=True):
    """What the host was in on `thread` from `start_ns` for `duration_ns`, on the run's clock: kept
    of what was recorded for the times at which a device had nothing to do. `repeated` is what it
    called most often meanwhile, `times` how often."""

    name: str
    kind: ActivityKind
    thread: str
    start_ns: _Time
    duration_ns: _Count
    repeated: str = ""
    times: _Count = 0


class Warmup(Fields, frozen=True, kw_only=True):
    """What ran before the run and is not in it."""

    runs: _Count | None = None
    duration_ns: _Count | None = None
    calls: _Count | None = None


class AttributedTo(StrEnum):
    """What operators were attributed to."""

    MODULES = "modules"  # by their paths
    CALLS = "calls"


class Attribution(Fields, frozen=True, kw_only=True):
    """How much operator time was attributed; an importer also counts commands, those outside calls
    and those whose launch is not known."""

    to: AttributedTo = AttributedTo.MODULES
    attributed_ns: _Count = 0
    total_ns: _Count = 0
    share: _Real | None = None
    commands: _Count | None = None
    commands_outside_calls: _Count | None = None
    launch_unknown: _Count | None = None


class HealthRule(StrEnum):
    """What events of a recording cannot be, if it is right."""

    OVERRUN = "overrun"  # runs past the begin of the next launch's work on its stream
    LOST = "lost_work"  # launches of kernels without any
    UNLAUNCHED = "lost_launches"  # of work, amid those of other work
    OPERATORS = "lost_operators"  # that work of devices names
    REPLAYS = "incomplete_replays"  # of graphs, that lack work which others have
    HOST_ONLY = "host_only"  # all of them
    HOST_TIMES = "host_times"  # of nodes that launch: when their device ran them is not recorded
    CLOCK = "clock"  # work begins before its launch
    LATE_CLOCK = "late_clock"  # no work begins soon after its launch, on a device that is idle
    NO_TIME = "no_time"
    NEGATIVE = "negative_length"
    UNFINISHED = "unfinished"  # began and never ended
    NO_LENGTH = "no_length"  # of a kernel, on a clock that is fine enough for one
    TOO_SHORT = "too_short"  # kernels, in the middle
    TWICE = "twice"
    SHARED_NUMBERS = "shared_launch_numbers"  # by several processes
    REUSED_NUMBERS = "reused_launch_numbers"  # by one
    OUTLIVED = "outlived_synchronization"
    BEFORE = "before"  # launched before the recording began
    DEVICE_ONLY = "device_only"  # no launch of any work
    LATE = "late"  # launched before the recording of devices began
    CUT = "cut"  # had not run when the recording ended
    BEYOND_PEERS = "beyond_peers"  # far longer than others of its kernel
    MISSING_PART = "missing_part"  # calls of the runtime in a time without any event
    TOO_LONG = "too_long"  # nearly all launch calls of the host
    GAP = "gap"  # between two recordings in one file
    DRIFT = "drift"  # of a device's clock
    FRONT_END = "front_end"  # a process with operators that launched nothing, beside one that did
    NO_JSON = "no_json"  # text of events that cannot be read
    BROKEN_OFF = "broken_off"  # the file's text

    @property
    def damage(self) -> bool:
        """Whether figures of the recording are wrong as recorded."""
        return self not in (
            HealthRule.BEFORE,
            HealthRule.DEVICE_ONLY,
            HealthRule.LATE,
            HealthRule.CUT,
            HealthRule.BEYOND_PEERS,
            HealthRule.GAP,
            HealthRule.DRIFT,
            HealthRule.LATE_CLOCK,
            HealthRule.FRONT_END,
        )


class HealthAction(StrEnum):
    """What was done about what a rule counted."""

    SHORTENED = "shortened"
    SHIFTED = "shifted"
    SET_ASIDE = "set_aside"
    REKEYED = "rekeyed"  # by the process whose launches fit
    LEFT_OUT = "left_out"  # time in which nothing was recorded
    NOTED = "noted"  # and nothing else


class HealthNote(Fields, frozen=True, kw_only=True):
    """What a rule counted on `device` ("" if on no known one, "cuda:0, cuda:1" if on one of
    these), of `total` rows or launches, in `calls` of which all work is lost.
    `excess_ns` is by how much times were wrong in all, `share` what that is of the device's time,
    or the count of the total. `worst` names the row that is most wrong, recorded as `worst_ns` long
    where others of its kernel are `usual_ns`. `at_byte` is where in the file's text, unpacked, it
    begins."""

    rule: HealthRule
    device: str = ""
    stream: str = ""
    count: _Count = 0
    total: _Count = 0
    calls: _Count = 0
    excess_ns: _Count = 0
    share: _Real = 0.0
    worst: str = ""
    worst_ns: _Count = 0
    usual_ns: _Count = 0
    at_byte: _Count = 0
    action: HealthAction = HealthAction.NOTED

    @property
    def unrelated(self) -> bool:
        """Whether times of the device are not those of the host: what it waited for is not
        known."""
        late = self.rule is HealthRule.OUTLIVED and self.action is HealthAction.NOTED
        return late or self.rule in (HealthRule.DRIFT, HealthRule.LATE_CLOCK)


class Shortened(Fields, frozen=True, kw_only=True):
    """A command that a check made shorter than the `recorded_ns` of the file: it has `duration_ns`
    in the bundle, whose traces have no column for both."""

    device: str
    track: str
    start_ns: _Time
    duration_ns: _Count
    recorded_ns: _Count


class Occupancy(Fields, frozen=True, kw_only=True):
    """How a kernel filled the processors of a device, as its producer estimates from the launch:
    the means of its executions, by their time. `occupancy_share` is that of the warps that they
    can hold; what is not known is None."""

    device: str
    kernel: str
    occupancy_share: _Real | None = None
    blocks_per_sm: _Real | None = None
    warps_per_sm: _Real | None = None


class Uncaptured(Fields, frozen=True, kw_only=True):
    """A module or session that was executed outside captured calls: how often, and for how long in
    all."""

    name: str
    calls: _Count = 0
    duration_ns: _Count = 0


class Coverage(Fields, frozen=True, kw_only=True):
    """How much of what modules and sessions executed lies in captured calls, on the host's clock,
    in the `pipelines` pipeline calls in which that was measured; `share` is that of the captured
    time. `uncaptured` is in order of time."""

    pipelines: _Count = 0
    captured_ns: _Count = 0
    uncaptured_ns: _Count = 0
    share: _Real | None = None
    uncaptured: tuple[Uncaptured, ...] = ()


def quantity(value: object) -> int | None:
    """A size, count or time from a foreign file, if it is one that the manifest can hold."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= LARGEST else None


def setting(value: bool | float) -> Setting:
    """An argument of a pipeline as the manifest can hold it: text if it is no such number."""
    if isinstance(value, bool):
        return value
    number = int(value) if isinstance(value, int) else float(value)
    return number if -LARGEST <= number <= LARGEST else str(number)


def stated(fields: Fields | None) -> Mapping[str, Any]:
    """What is known, by key, as in the JSON; nested structs are mappings, too."""
    return {} if fields is None else fields.as_json()


# --- What a manifest says of calls that a step cache of diffusers' let skip blocks.
#
# `docs/file-format.md` describes the keys.


_KnownCallIndex = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]


class CachedCall(Fields, frozen=True, kw_only=True):
    """The call of index `call`, made under `cache`, which may skip so many `blocks`: paths of those
    that it skipped. `without_uncond`: the unconditional half of the batch was left out.
    `residual_ratio` is what FirstBlockCache held against its threshold."""

    call: _KnownCallIndex
    cache: str
    blocks: _Count = 0
    skipped: tuple[str, ...] = ()
    without_uncond: bool = False
    residual_ratio: _Real | None = None


# --- What a manifest says of clocks: whose time the timestamps are, and how others were laid onto
# it.
#
# `docs/file-format.md` describes the keys.


class ClockName(StrEnum):
    """Whose time the timestamps are."""

    REALTIME = "CLOCK_REALTIME"
    BOOTTIME = "CLOCK_BOOTTIME"  # since the machine's start
    LOCAL_TIME = "local_time"  # CLOCK_REALTIME, but for a zone that is not known
    DEVICE = "device"  # that of `Clocks.reference`


class PlacedBy(StrEnum):
    """How the clock of a device was laid onto the run's."""

    OWN_CLOCK = "own_clock"
    SHARED_CALL = "shared_call"
    CALL_ORDER = "call_order"
    RUN_START = "run_start"
    END_TO_END = "end_to_end"


class DeviceClock(Fields, frozen=True, kw_only=True):
    """`offset_ns` was added to the device's times, known to within `uncertainty_ns`."""

    placed_by: PlacedBy
    offset_ns: _Time = 0
    uncertainty_ns: _Count | None = None


class Clocks(Fields, frozen=True, kw_only=True):
    """`monotonic_offset_ns` is to be added to CLOCK_MONOTONIC, `base_ns` to the imported file's
    times, to get the run's clock, which is off by `within_ns` at most if that is known."""

    clock: ClockName | None = None
    reference: str = ""
    monotonic_offset_ns: _Time | None = None
    base_ns: _Time | None = None
    within_ns: _Count | None = None
    aligned: bool | None = None
    devices: dict[str, DeviceClock] = field(default_factory=dict)


# --- What a manifest says of code that was compiled while the run went on.
#
# Texts are of the user's program and of its compiler: bounded here, escaped if they are shown.
# `docs/file-format.md` describes the keys.


LONGEST_NAME = 200  # characters
LONGEST_REASON = 500

_Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
_Reason = Annotated[str, Meta(max_length=LONGEST_REASON)]


class GraphBreak(Fields, frozen=True, kw_only=True):
    """Why the compiler ended a graph before the code's end, `times` times; `place` is the line of
    the program, "" if the compiler does not tell."""

    reason: _Reason
    place: _Name = ""
    times: _Count = 1


class Compilation(Fields, frozen=True, kw_only=True):
    """One compilation of `function`, from `start_ns` on the run's clock for `duration_ns`, in the
    call of index `call`, -1 in a pipeline call outside of every call.

    `id` is the compiler's own. `recompile_reason` says why what had been compiled before did not
    do, "" for a first compilation. `failure` says why it came to nothing: the code then runs as it
    is. `forgotten` counts compilations before this one of which the compiler has kept nothing but
    how long they took, `forgotten_ns` together.
    """

    id: _Name = ""
    function: _Name = ""
    call: _CallIndex = -1
    start_ns: _Time
    duration_ns: _Count
    recompile_reason: _Reason = ""
    failure: _Reason = ""
    graph_breaks: tuple[GraphBreak, ...] = ()
    forgotten: _Count = 0
    forgotten_ns: _Count = 0


# --- What was executed but is not in the trace, as the manifest has it: strict about every value.


_CountOrUnknown = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]


class _Detail(Fields, frozen=True, kw_only=True):
    """A note of a drop; its values may be notes again."""

    code: DropReason
    values: dict[str, int | float | str | _Detail | tuple[int | float | str | _Detail, ...]] = (
        field(default_factory=dict)
    )

    def note(self) -> Note:
        """The note that it says. Raises ValueError for a value that is called `code`."""
        if "code" in self.values:
            raise ValueError("a value of a drop's detail is called code")
        return Note(self.code, {name: _value(value) for name, value in self.values.items()})


def _value(value: Any) -> Value:
    if isinstance(value, tuple):
        return tuple(map(_value, value))
    return value.note() if isinstance(value, _Detail) else value


class DropRow(Fields, frozen=True, kw_only=True):
    """One of the manifest's `drops`."""

    kind: DropKind
    where: str
    count: _CountOrUnknown
    unit: str
    detail: _Detail

    def drop(self) -> Drop:
        """The drop that it says."""
        return Drop(self.kind, self.where, self.count, self.unit, self.detail.note())


# --- What a manifest says of the profiling overhead: how it is known, what it was, why it is not
# known.
#
# `docs/file-format.md` describes the keys.


class MeasuredCost(Fields, frozen=True, kw_only=True):
    """What tracing cost a call of a submodule, from its traced and untraced calls."""

    traced_calls: _Count = 0
    untraced_calls: _Count = 0
    traced_median_ns: _Real | None = None
    untraced_median_ns: _Real | None = None
    call_ns: _Real | None = None
    call_low_ns: _Real | None = None
    call_high_ns: _Real | None = None
    event_ns: _Real | None = None


class CallCounts(Fields, frozen=True, kw_only=True):
    """Calls of a submodule that could be compared, too few of either kind."""

    traced_calls: _Count = 0
    untraced_calls: _Count = 0


class ShareOf(StrEnum):
    """What `Overhead.share` is of."""

    END_TO_END = "end_to_end"
    CALLS = "calls"  # all of it lies outside of pipeline calls
    BOTH = "end_to_end_and_calls"


class WhyUnknown(StrEnum):
    """Why the profiling overhead is not known."""

    NOT_TOLD = "not_told"  # an import: the trace does not say
    NOT_MEASURED = "not_measured"  # nothing measures this backend's cost per event
    TOO_BUSY = "too_busy"  # the machine was, so the measurement failed
    IMPLAUSIBLE = "implausible"  # the estimate exceeds all that ran


class UnknownCost(Fields, frozen=True, kw_only=True):
    """A cost that is not known; `event_ns` is the estimate that was implausible."""

    why: WhyUnknown
    backend: str = ""
    event_ns: _Real | None = None


class CostMethod(StrEnum):
    """How it is known what a run would have taken without tracing."""

    MEASURED = "measured"  # by the clock, and by untraced calls of the run itself
    ESTIMATED = "estimated"  # what recorded events cost: how many times what one does
    BOTH = "both"  # of some submodules so, of others so


_LEAST_COSTS = ("untraced_low_ns", "operators_low_ns", "operator_event_low_ns")


class Overhead(Fields, frozen=True, kw_only=True):
    """What tracing cost, as far as it is known; `docs/file-format.md` describes each field."""

    traced_ns: _Count | None = None
    untraced_ns: _Whole | None = None
    untraced_low_ns: _Whole | None = None
    untraced_high_ns: _Whole | None = None
    method: CostMethod | None = None
    hooks_ns: _Count | None = None
    operator_events: _Count | None = None
    measured: dict[str, MeasuredCost] = field(default_factory=dict)
    too_few: dict[str, CallCounts] = field(default_factory=dict)
    estimated_by: tuple[str, ...] = ()
    unknown: tuple[UnknownCost, ...] = ()
    estimated_events: _Count | None = None
    operator_event_ns: _Real | None = None
    operator_event_low_ns: _Real | None = None
    operator_event_high_ns: _Real | None = None
    noisy: bool = False
    operators_ns: _Whole | None = None
    operators_low_ns: _Whole | None = None
    operators_high_ns: _Whole | None = None
    new_sessions_ns: _Whole | None = None
    share: _Real | None = None
    share_of: ShareOf | None = None
    writing_ns: _Count | None = None
    backpressure_ns: _Count | None = None
    conversion_ns: _Count | None = None

    def __post_init__(self) -> None:
        """Intervals end at 0, whatever the noise: no run and no recording takes less."""
        for name in _LEAST_COSTS:
            value = getattr(self, name)
            if value is not None and value < 0:
                msgspec.structs.force_setattr(self, name, 0)


# --- What a manifest says of the files of several recorders that are one run: their clocks, and
# what they recorded twice.


class RelatedBy(StrEnum):
    """What relates the clock of some files to that of the run."""

    REFERENCE = "reference"  # it is the run's
    EPOCH = "epoch"  # both count from 1970
    LOCAL_TIME = "local_time"  # that of the start, which a file's name tells
    EVENTS = "events"  # that both recorded


class WhyApart(StrEnum):
    """Why files that lay beside a run are not of it."""

    ANOTHER_TIME = "another_time"  # both clocks count from 1970
    UNRELATED = "unrelated"  # neither a clock nor three events in common


class PartOfRun(Fields, frozen=True, kw_only=True):
    """The `files` of one recorder, read by the importer `producer`. `offset_ns` was added to their
    times; if events tell it, `pairs` of them do, which then differ by `residual_ns` in the
    median and `worst_ns` at most; if a name does, it is known to `within_ns`. Of its `commands`
    on devices `twice` are in another part as well, and left out here; `calls` are those kept."""

    files: tuple[str, ...]
    producer: str
    related_by: RelatedBy
    offset_ns: _Time = 0
    pairs: _Count = 0
    residual_ns: _Count | None = None
    worst_ns: _Count | None = None
    within_ns: _Count | None = None
    commands: _Count = 0
    twice: _Count = 0
    calls: _Count = 0


class Apart(Fields, frozen=True, kw_only=True):
    """Files that are another run, or whose clock nothing relates to this run's."""

    files: tuple[str, ...]
    producer: str
    why: WhyApart


class LeftOut(Fields, frozen=True, kw_only=True):
    """A file that was not read, and what it is or looks like."""

    file: str
    what: str


class Parts(Fields, frozen=True, kw_only=True):
    """The parts of a run, that whose clock it has first; what lay beside them."""

    parts: tuple[PartOfRun, ...] = ()
    apart: tuple[Apart, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


# --- What a manifest says of a job of several processes: ranks, their clocks, collectives.


_Rank = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]


class MatchedBy(StrEnum):
    """What tells that collectives of several ranks are one and the same."""

    SEQUENCE = "sequence"  # process group and number
    GROUP_ORDER = "group_order"  # process group, and order within it
    STREAM_ORDER = "stream_order"  # order on a stream, if the ends agree


class Rank(Fields, frozen=True, kw_only=True):
    """One process of a job. `source` is its file; `local_rank` counts the processes on its machine,
    and `machine` is equal for those that share a clock. `offset_ns`, and `drift_ppm` µs a second
    from the job's start on, were added to its times; `pairs` collectives tell them, `left_out` were
    more than 1 ms off. The ends of the collectives then differ by `residual_ns` in the median and
    by `worst_ns` at most. `aligned` is False if too few collectives relate its clock to others. Its
    trace begins at `begin_ns` and ends at `end_ns`, if it is known to be recorded for a part of the
    time only."""

    rank: _Rank
    source: str = ""
    local_rank: _Rank | None = None
    machine: str = ""
    offset_ns: _Time = 0
    drift_ppm: _Real = 0.0
    pairs: _Count = 0
    left_out: _Count = 0
    residual_ns: _Count | None = None
    worst_ns: _Count | None = None
    aligned: bool | None = None
    begin_ns: _Time | None = None
    end_ns: _Time | None = None


class Collective(Fields, frozen=True, kw_only=True):
    """One collective: its kind, process group and the number of that group's ranks, the bytes
    that a rank gave and got, and for each rank that was recorded the start of its command."""

    kind: str
    group: str = ""
    size: _Count | None = None
    sent_bytes: _Count | None = None
    received_bytes: _Count | None = None
    members: tuple[tuple[_Rank, _Time], ...] = ()


class Job(Fields, frozen=True, kw_only=True):
    """A job of `world_size` processes, as far as their files were given; `reference` is the rank on
    whose clock all times are, `name` what the launcher calls the job."""

    world_size: _Count
    name: str = ""
    backend: str = ""
    reference: _Rank = 0
    matched_by: MatchedBy | None = None
    ranks: tuple[Rank, ...] = ()
    collectives: tuple[Collective, ...] = ()


# --- What a manifest says of how submodules and pipeline calls were set up: read from the objects
# that ran, for comparison with another run.
#
# What nobody could tell is absent. `docs/file-format.md` describes the keys.


_Share = Annotated[float, Meta(ge=0, le=1)]
_Number = Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]
Parameters = dict[str, Setting]


class WeightType(Fields, frozen=True, kw_only=True):
    """Weights of one type of elements: their bytes as they are stored, and the share of these in
    the submodule's."""

    bytes: _Count
    share: _Share


class Attention(Fields, frozen=True, kw_only=True):
    """What computes attention. `backends` are those of diffusers' dispatcher that the processors
    name, or its own if they name none; `processors` counts their classes; `implementations` are
    those of transformers' models; `sdpa` are torch's kernels that are switched on."""

    backends: tuple[str, ...] = ()
    processors: dict[str, _Count] = field(default_factory=dict)
    implementations: tuple[str, ...] = ()
    sdpa: tuple[str, ...] = ()


class StepCache(Fields, frozen=True, kw_only=True):
    """A cache of diffusers' that lets steps skip blocks, and its configuration."""

    name: str
    parameters: Parameters = field(default_factory=dict)


class OffloadKind(StrEnum):
    """How weights come to the device that needs them."""

    MODEL = "model"  # the whole submodule before its call
    SEQUENTIAL = "sequential"  # each layer before it runs
    GROUP = "group"  # blocks or leaves in groups
    DEVICE_MAP = "device_map"  # parts lie on several devices


class Offload(Fields, frozen=True, kw_only=True):
    """Weights that do not stay where they are needed. `device_map` counts modules by device."""

    kind: OffloadKind
    execution_device: str = ""
    device_map: dict[str, _Count] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=dict)


class Compiled(Fields, frozen=True, kw_only=True):
    """torch.compile: of the whole submodule, or of so many `modules` in it. `mode` is known where
    the compiler's options are those of one."""

    whole: bool = False
    modules: _Count = 0
    backend: str = ""
    mode: str = ""
    dynamic: bool | None = None
    fullgraph: bool | None = None


class Adapter(Fields, frozen=True, kw_only=True):
    """A LoRA or another adapter of peft's on so many `modules`: its ranks and the factors by which
    what it computes is scaled, each value once. `fused` into the weights it computes nothing."""

    kind: str = ""
    modules: _Count = 0
    active: bool = False
    fused: bool = False
    ranks: tuple[_Count, ...] = ()
    scalings: tuple[_Real, ...] = ()


class SubmoduleSettings(Fields, frozen=True, kw_only=True):
    """How a submodule was set up from the pipeline call `since` on, -1 for from the beginning.

    `weights` are by type of elements; `inputs` are types of a session's inputs by name;
    `providers` are ONNX Runtime's, in order, with their options.
    """

    since: _Number = -1
    weights: dict[str, WeightType] = field(default_factory=dict)
    attention: Attention | None = None
    cache: StepCache | None = None
    offload: Offload | None = None
    compiled: Compiled | None = None
    adapters: dict[str, Adapter] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    providers: dict[str, dict[str, str]] = field(default_factory=dict)


class Scheduler(Fields, frozen=True, kw_only=True):
    """A scheduler's class, and what of its configuration is not its class's default."""

    name: str
    config: Parameters = field(default_factory=dict)


class Generation(Fields, frozen=True, kw_only=True):
    """What pipeline calls made, and how: the calls of these numbers, all alike.

    `steps` are those that the scheduler took, `scheduled_steps` what it was set to. `width` and
    `height` are in pixels, `frames` a video's, `batch` images or videos of the result.

    Of a script's own loop `pipelines` is empty, `batch` counts the latents that the scheduler
    steps, and `denoiser_passes` says how often each of them goes through the denoiser in a step:
    twice with classifier-free guidance, whose scale no object tells.
    """

    pipelines: tuple[_Number, ...] = ()
    scheduler: Scheduler | None = None
    steps: _Count | None = None
    scheduled_steps: _Count | None = None
    guidance_scale: _Real | None = None
    true_cfg_scale: _Real | None = None
    width: _Count | None = None
    height: _Count | None = None
    frames: _Count | None = None
    batch: _Count | None = None
    denoiser_passes: _Count | None = None
