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

LARGEST = (1 << 53) - 1
Count = Annotated[int, Meta(ge=0, le=LARGEST)]  # also bytes and nanoseconds
_Whole = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Real = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
_Factor = Annotated[float, Meta(ge=1e-3, le=1e3)]  # values beyond are no measurement
Time = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Told = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]  # -1: not known
Number = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]  # of a call or rank
NumberOrNone = Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]
Setting = bool | _Whole | Real | str | None
"""A value of one of a pipeline's own keyword arguments."""


class Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the manifest. Unknown keys are refused; fields with their default are not
    written."""

    def as_json(self) -> dict[str, Any]:
        """The known values by key, as in the JSON; nested structs are mappings, too."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values


class Hardware(Fields, frozen=True, kw_only=True):
    """The machine: CPU model, cores that the process may use, memory, operating system."""

    cpu: str = ""
    cores: Count | None = None
    memory_bytes: Count | None = None
    system: str = ""


class Device(Fields, frozen=True, kw_only=True):
    """`cores` are processor numbers of a CPU device, `pinned` whether its threads stay there,
    `shared_with` other devices on the same cores. `weight_bytes` is the most that was loaded there
    at once. `aligned` is False if nothing relates the device's clock to the run's."""

    hardware: str = ""
    cores: tuple[Count, ...] = ()
    pinned: bool | None = None
    shared_with: tuple[str, ...] = ()
    provider: str = ""
    memory_bytes: Count | None = None
    compute_units: Count | None = None
    weight_bytes: Count | None = None
    aligned: bool | None = None


class OverheadRatio(Fields, frozen=True, kw_only=True):
    """`factor` converts traced operator times into untraced ones; `low` and `high` are its 95 %
    interval."""

    factor: _Factor
    low: Real | None = None
    high: Real | None = None


class Submodule(Fields, frozen=True, kw_only=True):
    """`model` is the model's folder and file, or its class. `modules` maps a module's path to its
    class, "" for the submodule itself. `runtime_calls` are pairs of the number of a runtime call
    and the index of the call that made it, -1 for none; `workloads` are runtime instance, workload
    and index of each call that was found in a file of several."""

    device: str = ""
    activate_profiler: bool | None = None
    model: str = ""
    profiled_sessions: Count | None = None
    weight_bytes: Count | None = None
    shared_weight_bytes: Count | None = None
    overhead_ratio: OverheadRatio | None = None
    modules: dict[str, str] = field(default_factory=dict)
    runtime_calls: tuple[tuple[Count, NumberOrNone], ...] = ()
    writes_shards: bool | None = None
    comp_cycle: Count | None = None
    workloads: tuple[tuple[Told, Told, NumberOrNone], ...] = ()


class StepsFrom(StrEnum):
    """How the steps of an imported run were determined."""

    SCHEDULER = "scheduler"
    CALL_ORDER = "call_order"


class CallsFrom(StrEnum):
    """How the calls of an imported run without module ranges were determined."""

    ANNOTATIONS = "annotations"  # ranges that the script named
    PROFILER_STEPS = "profiler_steps"
    OPERATORS = "operators"  # guessed: embeddings, compiled regions, convolutions
    GRAPH_LAUNCHES = "graph_launches"
    CAPTURED_OPERATORS = "captured_operators"  # launches of graphs, guessed from their captures
    KERNEL_PERIOD = "kernel_period"  # guessed: the same kernels again
    MODULE_PERIOD = "module_period"  # guessed: the first operation of a compiled module again
    NOTHING = "nothing"  # the whole file is one call: a report of kernels

    @property
    def guessed(self) -> bool:
        """Whether the calls were inferred, because the trace does not name them."""
        return self in (
            CallsFrom.OPERATORS,
            CallsFrom.CAPTURED_OPERATORS,
            CallsFrom.KERNEL_PERIOD,
            CallsFrom.MODULE_PERIOD,
        )


class Graphs(Fields, frozen=True, kw_only=True):
    """Replays of CUDA or HIP graphs: how many there are, of how many kernels, and how many of these
    have operators from a capture's trace. `captures` counts the captured graphs in the given
    traces. If none fits a replay, `best` is the largest share of its kernels that one has.
    `uncompared` counts replays without a capture that were not compared with all captures, for lack
    of time. `captured` counts launches that this trace itself captured."""

    replays: Count = 0
    kernels: Count = 0
    joined: Count = 0
    captures: Count = 0
    best: Real | None = None
    uncompared: Count = 0
    captured: Count = 0


class Recording(Fields, frozen=True, kw_only=True):
    """How the run was recorded, as far as an importer knows. `source` is the imported file;
    `calls_from`, `steps_from` and `described_as` say where calls, steps and labels come from;
    `names_kept_whole` counts names that could not be parsed; `nvtx_domains` are those, besides the
    default one, whose ranges say what ran; `commands_of` are the files whose commands were kept if
    the bundle is an excerpt."""

    source: str = ""
    files: Count | None = None
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
    steps: Count | None = None
    labelled: bool | None = None
    names_kept_whole: Count | None = None
    nvtx_domains: tuple[str, ...] = ()
    commands_of: tuple[str, ...] = ()


class ActivityKind(StrEnum):
    """The kind of what the host did."""

    FUNCTION = "function"  # a Python function, or a module's call
    OPERATOR = "operator"
    RUNTIME_CALL = "runtime_call"
    RANGE = "range"  # named by the user or the profiler


class HostActivity(Fields, frozen=True, kw_only=True):
    """What the host did on `thread` from `start_ns` for `duration_ns`, on the run's clock; kept
    only for times when a device was idle. `repeated` is what it called most often meanwhile,
    `times` how often."""

    name: str
    kind: ActivityKind
    thread: str
    start_ns: Time
    duration_ns: Count
    repeated: str = ""
    times: Count = 0


class Warmup(Fields, frozen=True, kw_only=True):
    """What ran before the run and is not part of it."""

    runs: Count | None = None
    duration_ns: Count | None = None
    calls: Count | None = None


class AttributedTo(StrEnum):
    """To what operator time was attributed."""

    MODULES = "modules"  # by their paths
    CALLS = "calls"


class Attribution(Fields, frozen=True, kw_only=True):
    """How much operator time was attributed. An importer also counts commands, those outside calls
    and those without a known launch."""

    to: AttributedTo = AttributedTo.MODULES
    attributed_ns: Count = 0
    total_ns: Count = 0
    share: Real | None = None
    commands: Count | None = None
    commands_outside_calls: Count | None = None
    launch_unknown: Count | None = None


EMPTY_NS = 60_000_000_000
"""A device that is idle for longer is between two recordings (`HealthRule.GAP`)."""


class HealthRule(StrEnum):
    """Events that a correct recording cannot contain, and other doubts about it."""

    OVERRUN = "overrun"  # work still runs when the next launch's work on its stream starts
    LOST = "lost_work"  # launches without work
    UNLAUNCHED = "lost_launches"  # work without a launch, amid work with one
    OPERATORS = "lost_operators"  # operators that device work names, but the file lacks
    REPLAYS = "incomplete_replays"  # replays of graphs without some work of other replays
    HOST_ONLY = "host_only"  # no device work at all
    HOST_TIMES = "host_times"  # nodes have host times: when the device ran is not recorded
    CLOCK = "clock"  # work starts before its launch
    LATE_CLOCK = "late_clock"  # no work starts soon after its launch on an idle device
    NO_TIME = "no_time"
    NEGATIVE = "negative_length"
    UNFINISHED = "unfinished"  # started and never ended
    NO_LENGTH = "no_length"  # kernels of length 0, though the clock is fine enough
    TOO_SHORT = "too_short"  # kernels that take less time than any does
    TWICE = "twice"
    NOT_NESTED = "not_nested"  # nodes that end after their run, or after one that they lie in
    RANGE = "range_too_long"  # of the host: past the end of the recording
    ELSEWHERE = "elsewhere"  # work that names another device than it is listed under
    SHARED_NUMBERS = "shared_launch_numbers"  # by several processes
    REUSED_NUMBERS = "reused_launch_numbers"  # by one
    OUT_OF_ORDER = "launches_out_of_order"  # by their numbers
    OUTLIVED = "outlived_synchronization"
    BEFORE = "before"  # launched before the recording started
    DEVICE_ONLY = "device_only"  # no launches at all
    LATE = "late"  # launched before devices were recorded
    CUT = "cut"  # had not run when the recording ended
    BEYOND_PEERS = "beyond_peers"  # far longer than others of its kernel
    MISSING_PART = "missing_part"  # runtime calls during a time without any event
    TOO_LONG = "too_long"  # nearly all launch calls take too long
    GAP = "gap"  # between two recordings in one file
    DRIFT = "drift"  # of a device's clock
    FRONT_END = "front_end"  # a process with operators that launched nothing, beside one that did
    NO_JSON = "no_json"  # events whose text is not valid JSON
    BROKEN_OFF = "broken_off"  # the file's text ends early

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
    """What was done about the rows that a rule found."""

    SHORTENED = "shortened"
    SHIFTED = "shifted"
    SET_ASIDE = "set_aside"
    REKEYED = "rekeyed"  # assigned to the process whose launches fit
    LEFT_OUT = "left_out"  # the unrecorded time does not count
    NOTED = "noted"  # nothing was changed


class HealthNote(Fields, frozen=True, kw_only=True):
    """What a rule found on `device` ("" if unknown, "cuda:0, cuda:1" if on one of these): `count`
    of `total` rows or launches, in `calls` calls that lost all work. `excess_ns` is by how much
    times were wrong in total; `share` is its share of the device's time, or the count's of the
    total. `worst` names the row that is most wrong: it was recorded as `worst_ns` long, others of
    its kernel are `usual_ns`. `at_byte` is where the damage starts in the file's unpacked text."""

    rule: HealthRule
    device: str = ""
    stream: str = ""
    count: Count = 0
    total: Count = 0
    calls: Count = 0
    excess_ns: Count = 0
    share: Real = 0.0
    worst: str = ""
    worst_ns: Count = 0
    usual_ns: Count = 0
    at_byte: Count = 0
    action: HealthAction = HealthAction.NOTED

    @property
    def unrelated(self) -> bool:
        """Whether device times cannot be compared with host times, so that it is not known what the
        device waited for."""
        late = self.rule is HealthRule.OUTLIVED and self.action is HealthAction.NOTED
        return late or self.rule in (HealthRule.DRIFT, HealthRule.LATE_CLOCK)


class Shortened(Fields, frozen=True, kw_only=True):
    """A command that a check made shorter: the file has `recorded_ns`, the bundle `duration_ns`,
    because traces have no column for both."""

    device: str
    track: str
    start_ns: Time
    duration_ns: Count
    recorded_ns: Count


class Occupancy(Fields, frozen=True, kw_only=True):
    """How a kernel filled a device's processors, as estimated by its producer from the launch:
    means over its executions, weighted by time. `occupancy_share` is the share of the warps that
    fit; unknown values are None."""

    device: str
    kernel: str
    occupancy_share: Real | None = None
    blocks_per_sm: Real | None = None
    warps_per_sm: Real | None = None


class Uncaptured(Fields, frozen=True, kw_only=True):
    """A module or session that ran outside captured calls: how often, and its total time."""

    name: str
    calls: Count = 0
    duration_ns: Count = 0


class Coverage(Fields, frozen=True, kw_only=True):
    """How much of the host time of modules and sessions is in captured calls, measured in
    `pipelines` pipeline calls; `share` is that of the captured time. `uncaptured` is in order of
    time."""

    pipelines: Count = 0
    captured_ns: Count = 0
    uncaptured_ns: Count = 0
    share: Real | None = None
    uncaptured: tuple[Uncaptured, ...] = ()


def quantity(value: object) -> int | None:
    """A size, count or time from a foreign file; None if the manifest cannot hold it."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= LARGEST else None


def setting(value: bool | float) -> Setting:
    """A pipeline's argument as the manifest can hold it: as text if the number is too large."""
    if isinstance(value, bool):
        return value
    number = int(value) if isinstance(value, int) else float(value)
    return number if -LARGEST <= number <= LARGEST else str(number)


def stated(fields: Fields | None) -> Mapping[str, Any]:
    """The known values by key, as in the JSON; nested structs are mappings, too."""
    return {} if fields is None else fields.as_json()


# --- Calls in which a diffusers step cache skipped blocks.


class CachedCall(Fields, frozen=True, kw_only=True):
    """The call of index `call`, made with a step cache, `cache`, that could skip `blocks` blocks;
    `skipped` are the paths of those that it did. `without_uncond`: the unconditional half of the
    batch was skipped. `residual_ratio` is what FirstBlockCache compared with its threshold."""

    call: Number
    cache: str
    blocks: Count = 0
    skipped: tuple[str, ...] = ()
    without_uncond: bool = False
    residual_ratio: Real | None = None


# --- Clocks: which one the timestamps are of, and how others were aligned with it.


class ClockName(StrEnum):
    """The clock of the timestamps."""

    REALTIME = "CLOCK_REALTIME"
    BOOTTIME = "CLOCK_BOOTTIME"  # since the machine's start
    LOCAL_TIME = "local_time"  # CLOCK_REALTIME in an unknown time zone
    DEVICE = "device"  # the clock of `Clocks.reference`


class PlacedBy(StrEnum):
    """How a device's clock was aligned with the run's."""

    OWN_CLOCK = "own_clock"
    SHARED_CALL = "shared_call"
    CALL_ORDER = "call_order"
    RUN_START = "run_start"
    END_TO_END = "end_to_end"


class DeviceClock(Fields, frozen=True, kw_only=True):
    """How a device's clock was aligned: `offset_ns` was added to its times, and is known to within
    `uncertainty_ns`."""

    placed_by: PlacedBy
    offset_ns: Time = 0
    uncertainty_ns: Count | None = None


class Clocks(Fields, frozen=True, kw_only=True):
    """The run's clock: add `monotonic_offset_ns` to CLOCK_MONOTONIC, or `base_ns` to the imported
    file's times. Its error is at most `within_ns`, if known."""

    clock: ClockName | None = None
    reference: str = ""
    monotonic_offset_ns: Time | None = None
    base_ns: Time | None = None
    within_ns: Count | None = None
    aligned: bool | None = None
    devices: dict[str, DeviceClock] = field(default_factory=dict)


# --- Code that was compiled during the run.
#
# Texts are from the user's program and its compiler: bounded here, escaped when shown.


LONGEST_NAME = 200  # characters
LONGEST_REASON = 500

_Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
_Reason = Annotated[str, Meta(max_length=LONGEST_REASON)]


class GraphBreak(Fields, frozen=True, kw_only=True):
    """Why the compiler ended a graph early, `times` times; `place` is the line of the program, ""
    if the compiler does not say."""

    reason: _Reason
    place: _Name = ""
    times: Count = 1


class Compilation(Fields, frozen=True, kw_only=True):
    """One compilation of `function`, from `start_ns` on the run's clock for `duration_ns`, in the
    call of index `call`, -1 in a pipeline call outside of every call.

    `id` is the compiler's own. `recompile_reason` says why earlier compiled code could not be used,
    "" for a first compilation. `failure` says why compiling failed: the code then runs uncompiled.
    `forgotten` counts earlier compilations of which the compiler kept only the time, `forgotten_ns`
    in total.
    """

    id: _Name = ""
    function: _Name = ""
    call: NumberOrNone = -1
    start_ns: Time
    duration_ns: Count
    recompile_reason: _Reason = ""
    failure: _Reason = ""
    graph_breaks: tuple[GraphBreak, ...] = ()
    forgotten: Count = 0
    forgotten_ns: Count = 0


# --- The profiling overhead: how it was determined, or why it is not known.


class CallCounts(Fields, frozen=True, kw_only=True):
    """The calls of a submodule that could be compared."""

    traced_calls: Count = 0
    untraced_calls: Count = 0


class MeasuredCost(CallCounts, frozen=True, kw_only=True):
    """The profiling overhead per call of a submodule, from its traced and untraced calls."""

    traced_median_ns: Real | None = None
    untraced_median_ns: Real | None = None
    call_ns: Real | None = None
    call_low_ns: Real | None = None
    call_high_ns: Real | None = None
    event_ns: Real | None = None


class ShareOf(StrEnum):
    """The whole of which `Overhead.share` is a share."""

    END_TO_END = "end_to_end"
    CALLS = "calls"  # all of it lies outside of pipeline calls
    BOTH = "end_to_end_and_calls"


class WhyUnknown(StrEnum):
    """Why the profiling overhead is not known."""

    NOT_TOLD = "not_told"  # the imported trace does not say
    NOT_MEASURED = "not_measured"  # nothing measures this backend's cost per event
    TOO_BUSY = "too_busy"  # the machine was too busy to measure
    IMPLAUSIBLE = "implausible"  # the estimate exceeds all that ran


class UnknownCost(Fields, frozen=True, kw_only=True):
    """A cost that is not known; `event_ns` is the estimate that was implausible."""

    why: WhyUnknown
    backend: str = ""
    event_ns: Real | None = None


class CostMethod(StrEnum):
    """How the untraced time of a run was determined."""

    MEASURED = "measured"  # by comparison with the run's own untraced calls
    ESTIMATED = "estimated"  # number of recorded events times the cost of one
    BOTH = "both"  # some submodules measured, some estimated


class Overhead(Fields, frozen=True, kw_only=True):
    """The profiling overhead, as far as known; `docs/file-format.md` describes each field."""

    traced_ns: Count | None = None
    untraced_ns: _Whole | None = None
    untraced_low_ns: _Whole | None = None
    untraced_high_ns: _Whole | None = None
    method: CostMethod | None = None
    hooks_ns: Count | None = None
    operator_events: Count | None = None
    measured: dict[str, MeasuredCost] = field(default_factory=dict)
    too_few: dict[str, CallCounts] = field(default_factory=dict)
    estimated_by: tuple[str, ...] = ()
    unknown: tuple[UnknownCost, ...] = ()
    estimated_events: Count | None = None
    operator_event_ns: Real | None = None
    operator_event_low_ns: Real | None = None
    operator_event_high_ns: Real | None = None
    noisy: bool = False
    operators_ns: _Whole | None = None
    operators_low_ns: _Whole | None = None
    operators_high_ns: _Whole | None = None
    new_sessions_ns: _Whole | None = None
    share: Real | None = None
    share_of: ShareOf | None = None
    writing_ns: Count | None = None
    backpressure_ns: Count | None = None
    conversion_ns: Count | None = None

    def __post_init__(self) -> None:
        """Raise negative lower bounds to 0: no run and no recording takes less."""
        for name in ("untraced_low_ns", "operators_low_ns", "operator_event_low_ns"):
            value = getattr(self, name)
            if value is not None and value < 0:
                msgspec.structs.force_setattr(self, name, 0)


# --- A run from the files of several recorders: their clocks, and what they recorded twice.


class RelatedBy(StrEnum):
    """What relates the clock of some files to the run's."""

    REFERENCE = "reference"  # it is the run's clock
    EPOCH = "epoch"  # both count from 1970
    LOCAL_TIME = "local_time"  # the start's local time in a file's name
    EVENTS = "events"  # events that both recorded


class WhyApart(StrEnum):
    """Why files beside a run are not part of it."""

    ANOTHER_TIME = "another_time"  # both count from 1970, and do not overlap
    UNRELATED = "unrelated"  # no common clock, and fewer than three common events


class PartOfRun(Fields, frozen=True, kw_only=True):
    """The `files` of one recorder, read by the importer `producer`. `offset_ns` was added to their
    times. If it comes from events, there are `pairs` of them, which then differ by `residual_ns`
    (median) and `worst_ns` (maximum); if from a file name, it is known to `within_ns`. `twice` of
    its device `commands` are in another part, too, and were left out; `calls` counts the calls that
    were kept."""

    files: tuple[str, ...]
    producer: str
    related_by: RelatedBy
    offset_ns: Time = 0
    pairs: Count = 0
    residual_ns: Count | None = None
    worst_ns: Count | None = None
    within_ns: Count | None = None
    commands: Count = 0
    twice: Count = 0
    calls: Count = 0


class Apart(Fields, frozen=True, kw_only=True):
    """Files that are another run, or whose clock cannot be related to this run's."""

    files: tuple[str, ...]
    producer: str
    why: WhyApart


class LeftOut(Fields, frozen=True, kw_only=True):
    """A file that was not read, and what it is or seems to be."""

    file: str
    what: str


class Parts(Fields, frozen=True, kw_only=True):
    """The parts of a run, first the one with the run's clock, and the files beside it."""

    parts: tuple[PartOfRun, ...] = ()
    apart: tuple[Apart, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


# --- A job of several processes: ranks, their clocks, collectives.


class MatchedBy(StrEnum):
    """How the same collective was recognized on several ranks."""

    SEQUENCE = "sequence"  # process group and number
    GROUP_ORDER = "group_order"  # process group, and order within it
    STREAM_ORDER = "stream_order"  # order on a stream, if the ends agree


class Rank(Fields, frozen=True, kw_only=True):
    """One process of a job. `source` is its file; `local_rank` counts the processes on its machine,
    and `machine` is equal for those that share a clock. `offset_ns`, and `drift_ppm` µs per second
    since the job's start, were added to its times. They come from `pairs` collectives; `left_out`
    more were over 1 ms off. The ends of the collectives then differ by `residual_ns` (median) and
    `worst_ns` (maximum). `aligned` is False if too few collectives relate its clock to others.
    `begin_ns` and `end_ns` are known if its trace covers only a part of the time."""

    rank: Number
    source: str = ""
    local_rank: Number | None = None
    machine: str = ""
    offset_ns: Time = 0
    drift_ppm: Real = 0.0
    pairs: Count = 0
    left_out: Count = 0
    residual_ns: Count | None = None
    worst_ns: Count | None = None
    aligned: bool | None = None
    begin_ns: Time | None = None
    end_ns: Time | None = None


class Collective(Fields, frozen=True, kw_only=True):
    """One collective: its kind, process group and number of ranks in the group, the bytes that a
    rank sent and received, and the start of its command on each recorded rank."""

    kind: str
    group: str = ""
    size: Count | None = None
    sent_bytes: Count | None = None
    received_bytes: Count | None = None
    members: tuple[tuple[Number, Time], ...] = ()


class Job(Fields, frozen=True, kw_only=True):
    """A job of `world_size` processes, of which some or all were imported; `reference` is the rank
    on whose clock all times are, `name` what the launcher calls the job."""

    world_size: Count
    name: str = ""
    backend: str = ""
    reference: Number = 0
    matched_by: MatchedBy | None = None
    ranks: tuple[Rank, ...] = ()
    collectives: tuple[Collective, ...] = ()


# --- How submodules and pipeline calls were set up: read from the objects that ran, for comparison
# with another run.


_Share = Annotated[float, Meta(ge=0, le=1)]
Parameters = dict[str, Setting]


class WeightType(Fields, frozen=True, kw_only=True):
    """Weights of one element type: their bytes as stored, and the share of the submodule's
    bytes."""

    bytes: Count
    share: _Share


class Attention(Fields, frozen=True, kw_only=True):
    """How attention is computed. `backends` are the diffusers dispatcher backends of the
    processors, or its default if they name none; `processors` counts their classes;
    `implementations` are those of transformers models; `sdpa` are torch's enabled kernels."""

    backends: tuple[str, ...] = ()
    processors: dict[str, Count] = field(default_factory=dict)
    implementations: tuple[str, ...] = ()
    sdpa: tuple[str, ...] = ()


class StepCache(Fields, frozen=True, kw_only=True):
    """A diffusers cache that lets steps skip blocks, and its configuration."""

    name: str
    parameters: Parameters = field(default_factory=dict)


class OffloadKind(StrEnum):
    """How weights come to the device that needs them."""

    MODEL = "model"  # the whole submodule before its call
    SEQUENTIAL = "sequential"  # each layer before it runs
    GROUP = "group"  # blocks or leaves in groups
    DEVICE_MAP = "device_map"  # parts lie on several devices


class Offload(Fields, frozen=True, kw_only=True):
    """Weights that are not kept where they are needed. `device_map` counts modules by device."""

    kind: OffloadKind
    execution_device: str = ""
    device_map: dict[str, Count] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=dict)


class Compiled(Fields, frozen=True, kw_only=True):
    """torch.compile of the whole submodule, or of `modules` modules in it. `mode` is known if the
    compiler's options match one."""

    whole: bool = False
    modules: Count = 0
    backend: str = ""
    mode: str = ""
    dynamic: bool | None = None
    fullgraph: bool | None = None


class Adapter(Fields, frozen=True, kw_only=True):
    """A LoRA or another peft adapter on `modules` modules: its distinct ranks and scaling factors.
    An adapter `fused` into the weights computes nothing."""

    kind: str = ""
    modules: Count = 0
    active: bool = False
    fused: bool = False
    ranks: tuple[Count, ...] = ()
    scalings: tuple[Real, ...] = ()


class SubmoduleSettings(Fields, frozen=True, kw_only=True):
    """How a submodule was set up from the pipeline call `since` on, -1 for the start.

    `weights` are by type of elements; `inputs` are types of a session's inputs by name; `providers`
    are ONNX Runtime's, in order, with their options.
    """

    since: NumberOrNone = -1
    weights: dict[str, WeightType] = field(default_factory=dict)
    attention: Attention | None = None
    cache: StepCache | None = None
    offload: Offload | None = None
    compiled: Compiled | None = None
    adapters: dict[str, Adapter] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    providers: dict[str, dict[str, str]] = field(default_factory=dict)


class Scheduler(Fields, frozen=True, kw_only=True):
    """A scheduler's class, and the configuration that differs from the class's default."""

    name: str
    config: Parameters = field(default_factory=dict)


class Generation(Fields, frozen=True, kw_only=True):
    """What some equal pipeline calls generated, and how; `pipelines` are their numbers.

    `steps` is how many the scheduler took, `scheduled_steps` how many it was set to. `width` and
    `height` are in pixels, `frames` a video's, `batch` images or videos of the result.

    For a script's own loop, `pipelines` is empty, `batch` counts the latents that the scheduler
    steps, and `denoiser_passes` is how often each latent goes through the denoiser in a step: twice
    with classifier-free guidance. Its scale is not known then.
    """

    pipelines: tuple[NumberOrNone, ...] = ()
    scheduler: Scheduler | None = None
    steps: Count | None = None
    scheduled_steps: Count | None = None
    guidance_scale: Real | None = None
    true_cfg_scale: Real | None = None
    width: Count | None = None
    height: Count | None = None
    frames: Count | None = None
    batch: Count | None = None
    denoiser_passes: Count | None = None
