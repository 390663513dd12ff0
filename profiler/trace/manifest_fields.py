"""What a manifest may say of a run, field by field: frozen structs with bounds in their types.

What nobody told is None or empty and does not stand in the JSON. Sizes, counts and times are below
2^53: floats and JSON readers hold them exactly, and sums of a thousand fit an int64.
`docs/file-format.md` describes the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

__all__ = [
    "LARGEST",
    "ActivityKind",
    "AttributedTo",
    "Attribution",
    "CallsFrom",
    "Coverage",
    "Device",
    "Fields",
    "Graphs",
    "Hardware",
    "HostActivity",
    "OverheadRatio",
    "Recording",
    "Setting",
    "StepsFrom",
    "Submodule",
    "Uncaptured",
    "Warmup",
    "quantity",
    "setting",
    "stated",
]

LARGEST = (1 << 53) - 1
_Count = Annotated[int, Meta(ge=0, le=LARGEST)]  # also bytes and nanoseconds
_Whole = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
_Real = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
_Factor = Annotated[float, Meta(ge=1e-3, le=1e3)]  # beyond it nothing was measured
_Time = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Told = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]  # -1: not told
_CallIndex = Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]
Setting = bool | _Whole | _Real | str | None
"""A value of one of a pipeline's own keyword arguments."""


class Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the manifest: unknown keys are refused, what has its default is left out."""

    def as_json(self) -> dict[str, Any]:
        """What is told, by key, as in the JSON; nested structs are mappings, too."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told


class Hardware(Fields, frozen=True, kw_only=True):
    """The machine: CPU model, cores that the process may use, memory, operating system."""

    cpu: str = ""
    cores: _Count | None = None
    memory_bytes: _Count | None = None
    system: str = ""


class Device(Fields, frozen=True, kw_only=True):
    """`cores` are processor numbers of a CPU device, `pinned` whether its threads stay there,
    `shared_with` other devices on the same cores. `weight_bytes` is the most that was loaded there
    at once. `aligned` is False where nothing relates the device's clock to the run's."""

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
    is the largest share of a replay's kernels that one of them has where none fits; `uncompared`
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
    commands were kept where the bundle is an excerpt."""

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
    """A size, count or time from a foreign file, where it is one that the manifest can hold."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= LARGEST else None


def setting(value: bool | float) -> Setting:
    """An argument of a pipeline as the manifest can hold it: text where it is no such number."""
    if isinstance(value, bool):
        return value
    number = int(value) if isinstance(value, int) else float(value)
    return number if -LARGEST <= number <= LARGEST else str(number)


def stated(fields: Fields | None) -> Mapping[str, Any]:
    """What is told, by key, as in the JSON; nested structs are mappings, too."""
    return {} if fields is None else fields.as_json()
