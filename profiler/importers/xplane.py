"""Import XLA profiles (xplane.pb): modules and operations on TPUs and GPUs.

    import_trace(Path("host.xplane.pb"), Path("traces"))

On TPUs each executed module is a call. GPU traces have no such line; a call there is the work of
one module on a device until its first operation repeats. Host lines without launches are kept only
for the longest gaps. Sources: openxla/xla, xplane.proto and xplane_schema.h.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from math import prod
from pathlib import Path

import numpy as np

from profiler.errors import InputError
from profiler.importers.foreign_run import ForeignRunBuilder, component, stages
from profiler.importers.formats import XPLANE, is_xplane_view, newest_profile
from profiler.importers.importer import head_of, only_path
from profiler.importers.xplane_planes import (
    COMPILED,
    FRAME,
    DeviceWork,
    Event,
    Line,
    Plane,
    Space,
    activities,
    read_space,
    read_view,
)
from profiler.kineto.operators import queue
from profiler.trace.columns import CommandBuilder
from profiler.trace.events import (
    NO_ITERATION,
    NO_STEP,
    ROOT_DEVICE,
    RUN_STAGE,
    UNKNOWN,
    Category,
    DropKind,
    DropReason,
    Track,
)
from profiler.trace.health import check
from profiler.trace.manifest_fields import (
    CallsFrom,
    ClockName,
    Clocks,
    Device,
    HealthAction,
    HealthNote,
    HealthRule,
    Recording,
    Shortened,
    quantity,
)
from profiler.trace.runtime_calls import DeviceRows, host_calls

# --- Module, tensors, work and category of an XLA operation, from its name and statistics.
#
# Source of the statistics: openxla/xla, xla/tsl/profiler/utils/xplane_schema.h.


_TYPES = {  # name → as `shapes` has it, bits
    **{f"s{bits}": (f"int{bits}", bits) for bits in (4, 8, 16, 32, 64)},
    **{f"u{bits}": (f"uint{bits}", bits) for bits in (4, 8, 16, 32, 64)},
    "f64": ("double", 64),
    "f32": ("float", 32),
    "f16": ("half", 16),
    "bf16": ("bfloat16", 16),
    "pred": ("bool", 8),
    "f8e4m3fn": ("float8e4m3fn", 8),
    "f8e5m2": ("float8e5m2", 8),
    "c64": ("complex64", 64),
    "c128": ("complex128", 128),
}
_TENSOR = re.compile(r"\b([a-z]+\d*[a-z\d]*)\[([\d,]*)\]")
_HLO = re.compile(r"%?\S+ = (.*)", re.DOTALL)
_OPCODE = re.compile(r"(?<=[\s)}\]])[a-z][\w-]*\(")
_WRAPPER = re.compile(r"^(?:\w+\()+|\)+$")
_FUNCTIONS = re.compile(
    r"^(?:p?jit|xla_call|pmap|shard_map)\(|^(?:while|body|cond|branch_\d+_fun)$"
)
_COLLECTIVES = (
    *("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-permute"),
    *("collective-broadcast", "send", "recv", "ragged-all-to-all"),
)
_CONTAINERS = frozenset({"while", "conditional", "call"})
_SIZE = re.compile(r"\bsize:(\d+)")
_LINE_KIND = re.compile(r"\((Memcpy|Memset)(\w*)\)")
_KERNEL_DESCRIPTOR = ".kd"  # of the code object of an AMD GPU
_LARGEST = 1 << 60
_LONGEST_HLO = 1 << 14
_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Operation:
    """The name and the work of a command; `suffix` is appended to its line's name to get its track.
    `contains`: it only contains others of its line."""

    layer: str
    op_type: str
    module: str
    kernel: str
    category: Category
    suffix: str
    shapes: str = ""
    flops: int = UNKNOWN
    bytes_read: int = UNKNOWN
    bytes_written: int = UNKNOWN
    contains: bool = False


def on_tpu(event: Event) -> Operation:
    """The operation of an event of `XLA Ops`. `copy-done` and the like wait for what another
    operation started."""
    stats = event.stats
    return _tpu_operation(
        event.name,
        event.text,
        str(stats.get("hlo_category", "")),
        str(stats.get("tf_op", "")),
        _count(stats.get("flops")),
        _count(stats.get("bytes_accessed")),
    )


@lru_cache(maxsize=4096)
def _tpu_operation(
    name: str, text: str, stated: str, path: str, flops: int, moved: int
) -> Operation:
    module, op = _path(path)
    category, suffix = _category(stated or name)
    layer, op_type = name or stated or "operation", op or stated or name
    if category == "sync" or stated == "copy-start":  # the copy that it starts runs after it
        return Operation(layer, op_type, module, "", category, suffix)
    shapes, result = _shapes(text)
    written = result if 0 <= result <= moved else UNKNOWN
    return Operation(
        layer,
        op_type,
        module,
        "",
        category,
        suffix,
        shapes=shapes,
        flops=flops,
        bytes_read=moved - written if written >= 0 else moved,
        bytes_written=written,
        contains=stated in _CONTAINERS,
    )


def on_gpu(event: Event, line: str) -> Operation:
    """The operation of a stream's event: a kernel, named after the operation that launched it, or a
    copy."""
    kernel = event.name.removesuffix(_KERNEL_DESCRIPTOR)
    module, op = _path(str(event.stats.get("tf_op", "")))
    copied = _LINE_KIND.search(line)
    size = _SIZE.search(str(event.stats.get("memcpy_details", "")))
    moved = _count(int(size[1][:18])) if size else UNKNOWN
    if copied or event.stats.get("memcpy_details") or kernel.startswith(("Memcpy", "Memset")):
        kind = "gpu_memset" if "emset" in (copied[1] if copied else kernel) else "gpu_memcpy"
        ends = copied[2].replace("2", "to") if copied else kernel.rpartition(" ")[2]
        suffix, category = queue(kind, f"Memcpy {ends.replace('2', 'to')}")
        return Operation(
            kernel, kernel, module, kernel, category, suffix, bytes_read=moved, bytes_written=moved
        )
    suffix, category = queue("kernel", kernel)
    layer = str(event.stats.get("hlo_op", "")) or kernel
    # `input_transpose_fusion` of `input_transpose_fusion.1`
    op_type = op or (re.sub(r"[._]\d+$", "", layer) if layer != kernel else kernel)
    return Operation(layer, op_type, module, kernel, category, suffix)


def _path(tf_op: str) -> tuple[str, str]:
    """The module and the operation in a path such as `jit(f)/jit(main)/Encoder/layers_0/dot:`. The
    module is between the compiled functions and the primitive."""
    if "/" not in tf_op:
        return "", ""
    *parts, op = tf_op.rstrip(":").partition(":")[0].split("/")
    named = [part for part in parts if part and not _FUNCTIONS.match(part)]
    modules = [_WRAPPER.sub("", part) for part in named]
    return ".".join(filter(None, modules)), op


def _category(text: str) -> tuple[Category, str]:
    if text.endswith("-done"):
        return "sync", " sync"
    kind = text.removesuffix("-start").removesuffix(" fusion")
    if kind.startswith(_COLLECTIVES):
        return "collective", " collectives"
    if kind in ("infeed", "outfeed", "host-send", "host-recv"):
        return "dma", " memcpy"
    if text == "copy-start":
        return "other", ""
    if kind == "copy":
        return "copy", " copy"
    return "compute", ""


def _shapes(hlo: str) -> tuple[str, int]:
    """Operands and results of an instruction, as `shapes` has them, and bytes of the results; ""
    and `UNKNOWN` if a type is not known."""
    found = _HLO.match(hlo[:_LONGEST_HLO])
    opcode = _OPCODE.search(found[1]) if found is not None else None
    if found is None or opcode is None:
        return "", UNKNOWN
    results = _TENSOR.findall(found[1][: opcode.start()])
    operands = _TENSOR.findall(_within(found[1][opcode.end() :]))
    if not results or not operands or not {name for name, _ in results + operands} <= set(_TYPES):
        return "", UNKNOWN
    size = sum(
        prod(int(dim[:_DIGITS]) for dim in dims.split(",") if dim) * _TYPES[name][1] // 8
        for name, dims in results
    )
    before, behind = (
        " ".join(f"{_TYPES[name][0]}[{dims}]" for name, dims in tensors)
        for tensors in (operands, results)
    )
    return f"{before} -> {behind}", size


def _within(text: str) -> str:
    """The text up to the closing parenthesis."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return text[:at]
    return text


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < _LARGEST else UNKNOWN


# --- What XLA's profiler recorded → a bundle.
#
# On TPUs each module that ran is a call, with the operations in it. On GPUs no line tells when one
# ran: a call there is what a device ran of one module, until its first operation comes again.


_DEVICE = re.compile(r"/device:(TPU|GPU):(\d{1,4})")
_KINDS = {"AMD": "rocm", "Nvidia": "cuda"}
_STREAM = re.compile(r"Stream #\d+")
_FINGERPRINT = re.compile(r"\(\d+\)$")
_HOST = "/host:CPU"
_MODULES, _OPS, _ASYNC = "XLA Modules", "XLA Ops", "Async XLA Ops"
_ONLY = "run"


@dataclass(slots=True)
class _Work:
    """A command that has no call yet: `module` is its XLA module, "" for none. If it was shortened,
    it was recorded as `recorded_ns` long."""

    track: Track
    operation: Operation
    start_ns: int
    end_ns: int
    correlation: int
    module: str
    recorded_ns: int = UNKNOWN


@dataclass(slots=True)
class _Range:
    """A future call; `works` is what ran in it."""

    submodule: str
    device: str
    start_ns: int
    end_ns: int
    works: list[_Work] = field(default_factory=list)
    traced: bool = True


@dataclass(slots=True)
class _Found:
    """The content of the planes. `launches` are host calls by correlation id, `program` the lines
    of the program's own threads, `others` those of other threads."""

    ranges: list[_Range] = field(default_factory=list)
    outside: list[_Work] = field(default_factory=list)
    launches: dict[int, tuple[Track, str, int, int]] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    program: list[Line] = field(default_factory=list)
    others: list[Line] = field(default_factory=list)
    on_gpus: dict[str, list[_Work]] = field(default_factory=dict)
    health: tuple[HealthNote, ...] = ()
    untimed: int = 0
    guessed: bool = False


def read_run(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read one file, or the newest profile in a folder of logs. Raises InputError if it cannot be
    read, has no device work or is of several hosts."""
    path = only_path(paths, XPLANE.accepts)
    if path.is_dir():
        path, *others = newest_profile(path)
        if others:
            raise InputError(
                f"{paths[0]} has a profile of {len(others) + 1} hosts: give one of their files "
                f"(such as {path})"
            )
    space = (read_view if is_xplane_view(head_of(path)) else read_space)(path)
    found = _Found()
    for plane in space.planes:
        device = _DEVICE.fullmatch(plane.name)
        if device is not None:
            _of_device(plane, device[1] == "TPU", int(device[2]), space.start_ns, found)
        elif plane.name == _HOST:
            _of_host(plane, space.start_ns, found)
    _of_gpus(found, space.start_ns)
    if not any(one.works for one in found.ranges) and not found.outside:
        raise InputError(
            f"{path} holds no operation of a TPU or GPU: record while the accelerator works "
            "(jax.profiler.trace), and give that .xplane.pb"
        )
    return _run(path, space, found)


def _of_device(plane: Plane, tpu: bool, number: int, start_ns: int, found: _Found) -> None:
    kind = "tpu" if tpu else _KINDS.get(str(plane.stats.get("device_vendor", "")), "gpu")
    device, stats = f"{kind}:{number}", plane.stats
    found.devices[device] = Device(
        hardware=str(stats.get("device_type_string") or stats.get("device_vendor") or "")[:200],
        memory_bytes=quantity(stats.get("memory_size")),
        compute_units=quantity(stats.get("core_count")),
    )
    lines = list(plane.lines())
    on_device = [one for one in lines if tpu or _STREAM.match(one.name)]
    untimed = sum(line.untimed for line in on_device)
    found.untimed += sum(line.untimed + line.aggregates for line in lines) - untimed
    if untimed:
        total = untimed + sum(len(line.events) for line in on_device)
        rule, action, share = HealthRule.NO_TIME, HealthAction.SET_ASIDE, untimed / total
        found.health += (
            HealthNote(
                rule=rule, device=device, count=untimed, total=total, share=share, action=action
            ),
        )
    if tpu:
        _of_tpu(device, {line.name: line for line in lines}, start_ns, found)
        return
    found.on_gpus[device] = [
        _work(device, line, event, on_gpu(event, line.name), start_ns)
        for line in lines
        if _STREAM.match(line.name)
        for event in line.events
    ]


def _of_gpus(found: _Found, start_ns: int) -> None:
    """Check the work of GPUs, and make calls of it."""
    notes, kept = _checked([*chain(*found.on_gpus.values())], found, start_ns)
    found.health += notes
    for device, works in found.on_gpus.items():
        there = [one for one in works if id(one) in kept]
        there.sort(key=lambda work: work.start_ns)
        ranges, outside = _by_module(device, there)
        found.ranges += ranges
        found.outside += outside
        found.guessed |= bool(ranges)


def _checked(
    works: Sequence[_Work], found: _Found, start_ns: int
) -> tuple[tuple[HealthNote, ...], set[int]]:
    """Correct the times of works. Return the notes, and the ids of the works that are kept."""
    tracks, names = dict[Track, int](), dict[str, int]()
    named = dict.fromkeys(one.track.device for one in works)
    devices, calls = {name: at for at, name in enumerate(named)}, found.launches.values()
    rows = [
        (
            *(one.start_ns - start_ns, one.end_ns - start_ns, devices[one.track.device]),
            tracks.setdefault(one.track, len(tracks)),
            *(UNKNOWN, one.correlation),
            names.setdefault(one.operation.kernel or one.operation.layer, len(names))
            if one.operation.category in ("compute", "collective")
            else -1,
        )
        for one in works
    ]
    start, end, device, stream, process, correlation, kernel = (
        np.array(rows, dtype=np.int64).reshape(-1, 7).T
    )
    apis = list(dict.fromkeys(name for _, name, _, _ in calls))
    api = {name: at for at, name in enumerate(apis)}
    threads = dict.fromkeys(track for track, _, _, _ in calls)
    thread = {track: at for at, track in enumerate(threads)}
    called = [
        (api[name], begin - start_ns, end - start_ns, 0, thread[track], number)
        for number, (track, name, begin, end) in found.launches.items()
    ]
    checked = check(
        DeviceRows(
            start,
            end,
            device,
            stream,
            process,
            correlation,
            kernel,
            exempt=np.zeros(len(works), dtype=np.bool_),
            devices=tuple(devices),
            streams=tuple(track.name for track in tracks),
            kernels=tuple(names),
        ),
        *host_calls(apis, *np.array(called, dtype=np.int64).reshape(-1, 6).T),
    )
    times = (checked.start + start_ns, checked.end + start_ns, checked.recorded)
    for one, *put_right in zip(works, *(column.tolist() for column in times), strict=True):
        one.start_ns, one.end_ns, one.recorded_ns = put_right
    kept = zip(works, checked.kept.tolist(), strict=True)
    return checked.notes, {id(one) for one, there in kept if there}


def _sound(works: Sequence[_Work], found: _Found, start_ns: int) -> list[_Work]:
    """The works of a line of a TPU, which run one after another, with corrected times. Some take
    less time than the clock tells; none has a launch."""
    notes, kept = _checked([one for one in works if one.end_ns > one.start_ns], found, start_ns)
    found.health += tuple(one for one in notes if one.rule is not HealthRule.DEVICE_ONLY)
    return [one for one in works if id(one) in kept or one.end_ns == one.start_ns]


def _of_tpu(device: str, lines: Mapping[str, Line], start_ns: int, found: _Found) -> None:
    """Add the modules of a TPU as calls with their operations, without operations that only contain
    others."""
    modules, ops, flights = (lines.get(one, Line(one, ())) for one in (_MODULES, _OPS, _ASYNC))
    passes = [
        _work(device, modules, event, Operation(event.name, "", "", "", "compute", ""), start_ns)
        for event in modules.events
    ]
    ranges = [
        _Range(_submodule(w.operation.layer), device, w.start_ns, w.end_ns, traced=bool(ops.events))
        for w in _sound(passes, found, start_ns)
    ]
    ranges.sort(key=lambda one: one.start_ns)
    works = [
        _work(device, ops, event, operation, start_ns)
        for event in ops.events
        if not (operation := on_tpu(event)).contains
    ]
    works = _sound(works, found, start_ns)
    works += [
        _work(device, flights, event, _in_flight(event), start_ns) for event in flights.events
    ]
    begins = [one.start_ns for one in ranges]
    for work in works:
        at = bisect_right(begins, work.start_ns) - 1
        inside = at >= 0 and work.start_ns < max(ranges[at].end_ns, ranges[at].start_ns + 1)
        (ranges[at].works if inside else found.outside).append(work)
    found.ranges += ranges


def _in_flight(event: Event) -> Operation:
    """The operation of an event that was started and not yet waited for. It is concurrent with
    other work, and never counts as busy."""
    name = str(event.stats.get("hlo_category", "")) or event.name
    return replace(
        on_tpu(event),
        layer=f"{event.name} ({event.stats.get('hlo_op', name)})",
        op_type=event.name,
        category="sync",
        suffix="",
        shapes="",
        flops=UNKNOWN,
        contains=False,
    )


def _by_module(device: str, works: Sequence[_Work]) -> tuple[list[_Range], list[_Work]]:
    """Calls made of successive work of one module, cut when its first operation repeats after
    another; and work without a module."""
    ranges: list[_Range] = []
    outside: list[_Work] = []
    before = ("", "")
    for work in works:
        if not work.module:
            outside.append(work)
            continue
        now = (work.module, work.operation.layer)
        first = ranges[-1].works[0] if ranges else None
        again = first is not None and now == (first.module, first.operation.layer) != before
        if first is None or again or first.module != work.module:
            name = _submodule(work.module)
            ranges.append(_Range(name, device, work.start_ns, work.end_ns))
        ranges[-1].works.append(work)
        ranges[-1].end_ns = max(ranges[-1].end_ns, work.end_ns)
        before = now
    return ranges, outside


def _of_host(plane: Plane, start_ns: int, found: _Found) -> None:
    """Add the host calls that launched work, the first per correlation id, and sort lines into the
    program's threads and others."""
    for line in plane.lines():
        if any(event.name.startswith((FRAME, COMPILED)) for event in line.events):
            found.program.append(line)
        else:
            found.others.append(line)
        for event in line.events:
            number = event.stats.get("correlation_id")
            if isinstance(number, int) and number > 0 and number not in found.launches:
                track = Track(ROOT_DEVICE, line.name or "host", "host")
                found.launches[number] = (track, event.name, *_times(event, start_ns))


def _work(device: str, line: Line, event: Event, operation: Operation, start_ns: int) -> _Work:
    stream = _STREAM.match(line.name)  # `Stream #17(Kernel)`, `stream 17` of other producers
    name = stream[0].lower().replace("#", "") if stream else line.name
    track = Track(device, f"{name}{operation.suffix}", operation.category)
    number = event.stats.get("correlation_id")
    return _Work(
        track,
        operation,
        *_times(event, start_ns),
        number if isinstance(number, int) else 0,
        str(event.stats.get("hlo_module", "")),
    )


def _times(event: Event, start_ns: int) -> tuple[int, int]:
    end = event.start_ps + event.duration_ps
    return start_ns + event.start_ps // 1000, start_ns + end // 1000


def _submodule(module: str) -> str:
    """The submodule's name of an XLA module: `jit_forward(243)` → `jit_forward`, or the component
    in the function's name."""
    name = _FINGERPRINT.sub("", module)
    plain = name.removeprefix("jit_").removeprefix("pjit_")
    return component(plain) or name or _ONLY


_ENDINGS = re.compile(r"(?:\.xplane)?\.pb$|(?:\.trace)?\.json(?:\.gz)?$")


def _run(path: Path, space: Space, found: _Found) -> ForeignRunBuilder:
    ranges = sorted(found.ranges, key=lambda one: (one.start_ns, one.device))
    outside = found.outside
    if not ranges:  # nothing names what devices worked for: all that one did is a call
        for device, works in sorted(_by_device(outside).items()):
            times = min(one.start_ns for one in works), max(one.end_ns for one in works)
            ranges.append(_Range(_ONLY, device, *times, works))
        ranges.sort(key=lambda one: one.start_ns)
        outside = []
    labels = stages([one.submodule for one in ranges], [NO_ITERATION] * len(ranges))
    name = _ENDINGS.sub("", path.name)
    clocks = Clocks(clock=ClockName.REALTIME if space.start_ns else None, base_ns=space.start_ns)
    run = ForeignRunBuilder("xplane", name, path, clocks=clocks)
    for one, label in zip(ranges, labels, strict=True):
        _add_call(run, one, label, found)
    for work in outside:
        _add(run.host, work, found)
    run.begin_ns = min((work.start_ns for work in outside), default=None)
    run.end_ns = max((work.end_ns for work in outside), default=0)
    works = [*outside, *(work for one in ranges for work in one.works)]
    run.capability(
        timeline=True,
        launches=any(work.correlation in found.launches for work in works),
        shapes=any(work.operation.shapes for work in works),
        bytes=any(work.operation.bytes_read >= 0 for work in works),
    )
    run.devices |= found.devices
    run.drop(DropKind.TRUNCATED_FILE, UNKNOWN if space.cut else 0, "events", DropReason.ENTRIES_CUT)
    run.drop(DropKind.DROPPED_EVENTS, space.damaged, "planes", DropReason.DAMAGED)
    run.drop(DropKind.DROPPED_EVENTS, found.untimed, "events", DropReason.NO_TIME)
    run.health = found.health
    run.shortened = [
        Shortened(
            device=one.track.device,
            track=one.track.name,
            start_ns=one.start_ns,
            duration_ns=one.end_ns - one.start_ns,
            recorded_ns=one.recorded_ns,
        )
        for one in works
        if one.recorded_ns >= 0
    ]
    guessed = CallsFrom.MODULE_PERIOD if found.guessed else None
    run.recording = Recording(calls_from=guessed if found.ranges else CallsFrom.NOTHING)
    run.host_activities = activities(
        found.program, found.others, space.start_ns, _worked(works, found)
    )
    return run


def _by_device(works: Iterable[_Work]) -> dict[str, list[_Work]]:
    found: dict[str, list[_Work]] = {}
    for work in works:
        found.setdefault(work.track.device, []).append(work)
    return found


def _worked(works: Sequence[_Work], found: _Found) -> Iterator[DeviceWork]:
    """Yield what each device did, but waiting."""
    for own in _by_device(one for one in works if one.operation.category != "sync").values():
        start = np.array([work.start_ns for work in own], dtype=np.int64)
        end = np.array([work.end_ns for work in own], dtype=np.int64)
        launches = [found.launches.get(work.correlation) for work in own]
        yield DeviceWork(start, end, [one[0].name if one else "" for one in launches])


def _add_call(
    run: ForeignRunBuilder, one: _Range, label: tuple[str, int, int], found: _Found
) -> None:
    stage, step, iteration = label
    builder = CommandBuilder()
    begins = [
        found.launches[w.correlation][2] for w in one.works if w.correlation in found.launches
    ]
    for work in one.works:
        _add(builder, work, found)
    start = min((*begins, one.start_ns))
    run.call(
        *(one.submodule, start, max(one.end_ns, start) - start, builder.build()),
        device=one.device,
        traced=one.traced,
        stage=stage or RUN_STAGE,
        step=step if step >= 0 else NO_STEP,
        iteration=iteration,
    )


def _add(builder: CommandBuilder, work: _Work, found: _Found) -> None:
    """Add the command, and the host call that launched it."""
    one = work.operation
    row = builder.add(
        work.track,
        one.layer,
        one.op_type,
        work.start_ns,
        work.end_ns - work.start_ns,
        shapes=one.shapes,
        kernel=one.kernel,
        module=one.module,
        bytes_read=one.bytes_read,
        bytes_written=one.bytes_written,
        flops=one.flops,
    )
    launch = found.launches.get(work.correlation) if work.correlation else None
    if launch is not None:
        track, name, start, end = launch
        builder.link(builder.add(track, name, name, start, end - start), row)
