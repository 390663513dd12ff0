"""Check the events of a Kineto trace against each other, with the rules of `trace/health`.

checked_trace(read_kineto(path)).health == (HealthNote(rule="overrun", …),)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from profiler.importers.kineto.launches import DEVICE_WORK, OPERATORS
from profiler.importers.kineto.modules import RUNTIME
from profiler.kineto.arguments import whole
from profiler.kineto.trace_file import KinetoTrace, device_kind, device_name
from profiler.trace.columns import Int32s, Int64s
from profiler.trace.events import ROOT_DEVICE
from profiler.trace.health import check
from profiler.trace.manifest_fields import EMPTY_NS, LARGEST, HealthAction, HealthNote, HealthRule
from profiler.trace.runtime_calls import (
    LEAST_PEERS,
    NO_END,
    Bools,
    DeviceRows,
    elsewhere,
    host_calls,
    timeless,
)

_SIGN = 1 << 31  # of launch numbers
_LARGEST = 1 << 40  # launch number; times _PROCESSES it is still an int64
_SAMPLE, _AHEAD = 64, 32  # calls, and operators that began ahead of each
_LEAST_LOST, _LOST_SHARE = 3, 0.01  # of work with an operator; healthy recordings have none
_NEAR_VALUES = 16  # times as large as there are
_MOST_APART = 0.4  # of the work
_MODULE, _STEP = "nn.Module: ", "ProfilerStep#"
_SPAN_NS = 100_000_000  # torch's span of a healthy recording ends up to 17 ms early
_PROCESSES = 1 << 16  # at most, whose launch numbers are made to differ


def checked_trace(trace: KinetoTrace) -> KinetoTrace:
    """Return the trace with corrected times, without impossible rows, and with notes. Time between
    two recordings is noted and stays in it (see `without_gaps`)."""
    base_ns = whole(trace.header.base_ns, 0)
    trace = _with_ranges(_with_lengths(_with_times(trace, base_ns)))
    work, runtime = _work(trace), trace.rows_of(*RUNTIME)
    process = np.array([*processes_of(trace), 0], dtype=np.int64)[trace.thread[runtime]]
    start = trace.start_ns[runtime] - base_ns
    names, name = _numbered(trace.events.name[runtime])
    launches, syncs = host_calls(
        [trace.events.names[code] for code in names.tolist()],
        name,
        start,
        start + trace.duration_ns[runtime],
        process,
        trace.thread[runtime].astype(np.int64),
        _correlations(trace, runtime),
    )
    hardware = "" if len(work) else _hardware(trace)
    on_devices, apart = _device_rows(trace, work, base_ns)
    found = check(on_devices, launches, syncs, hardware)
    unserved = runtime[found.unserved]
    lost = _lost_operators(trace, work, runtime[launches.row])
    notes = (*trace.health, *found.notes, *apart, *lost)
    trace = replace(trace, health=notes, unserved=unserved)
    if not found.changed:
        return trace
    if found.process is not None:
        _rekey(trace, work, found.process)
        _rekey(trace, runtime, process)
    start, duration = trace.start_ns.copy(), trace.duration_ns.copy()
    start[work], duration[work] = found.start + base_ns, found.end - found.start
    gone = work[~found.kept]
    rows = {name: one[~np.isin(one, gone)] for name, one in trace.rows.items()}
    if any(note.rule is HealthRule.TWICE for note in found.notes):
        again = _again(trace)
        rows = {name: one[~np.isin(one, again)] for name, one in rows.items()}
    shorter = found.recorded >= 0
    recorded = dict(zip(work[shorter].tolist(), found.recorded[shorter].tolist(), strict=True))
    return replace(trace, start_ns=start, duration_ns=duration, recorded_ns=recorded, rows=rows)


def without_gaps(traces: Sequence[KinetoTrace]) -> list[KinetoTrace]:
    """Return traces on one clock without the time between two recordings: later events of all
    traces are moved ahead by the same amount. Unchanged if some trace has no such gap, or an event
    of any spans it."""
    noted = [_gap_of(trace) for trace in traces]
    if not noted or None in noted:
        return list(traces)
    times = [(trace.start_ns[rows], trace.end_ns[rows]) for trace, rows in _all_rows(traces)]
    start, end = (np.concatenate(column) for column in zip(*times, strict=True))
    order = np.argsort(start, kind="stable")
    start = start[order]
    idle = start[1:] - np.maximum.accumulate(end[order])[:-1]
    gaps = np.flatnonzero(idle > EMPTY_NS)
    if not len(gaps):
        return list(traces)
    less = np.concatenate(([0], np.cumsum(idle[gaps])))
    later = start[gaps + 1]

    def moved(times: Int64s) -> Int64s:
        return times - less[np.searchsorted(later, times, side="right")]

    found = []
    for trace, gap in zip(traces, noted, strict=True):
        assert gap is not None
        excess_ns = min(int(less[-1]), LARGEST)
        left_out = structs.replace(gap, action=HealthAction.LEFT_OUT, excess_ns=excess_ns)
        health = tuple(left_out if note is gap else note for note in trace.health)
        found.append(replace(trace.moved(moved), health=health))
    return found


def _gap_of(trace: KinetoTrace) -> HealthNote | None:
    return next((note for note in trace.health if note.rule is HealthRule.GAP), None)


def _all_rows(traces: Sequence[KinetoTrace]) -> Iterator[tuple[KinetoTrace, Int64s]]:
    for trace in traces:
        yield trace, np.concatenate(list(trace.rows.values()))


def processes_of(trace: KinetoTrace) -> list[int]:
    """A number from 0 for the process of each thread."""
    pids: dict[str, int] = {}
    return [pids.setdefault(str(pid), len(pids)) for pid, _ in trace.threads]


def _with_times(trace: KinetoTrace, base_ns: int) -> KinetoTrace:
    """The trace without events of the host that have no time."""
    start = trace.start_ns - base_ns
    if int(start.min(initial=1)) > 0 and not len(trace.untimed):
        return trace
    none = timeless(start, start + trace.duration_ns)
    none[trace.untimed] = True
    none[_work(trace)] = False
    count = int(none.sum())
    if not count:
        return trace
    action = HealthAction.SET_ASIDE
    total = len(none)
    note = HealthNote(
        rule=HealthRule.NO_TIME, device=ROOT_DEVICE, count=count, total=total, action=action
    )
    rows = {name: one[~none[one]] for name, one in trace.rows.items()}
    return replace(trace, rows=rows, health=(*trace.health, note))


def _with_lengths(trace: KinetoTrace) -> KinetoTrace:
    """Note host events that never ended, and count those that ended before they started as
    dropped."""
    if not len(trace.unfinished) and not len(trace.negative):
        return trace
    unfinished = int((~_of_devices(trace, trace.unfinished)).sum())
    negative = int((~_of_devices(trace, trace.negative)).sum())
    health = trace.health
    if unfinished:
        note = HealthNote(
            rule=HealthRule.UNFINISHED,
            device=ROOT_DEVICE,
            count=unfinished,
            total=len(trace.events),
            action=HealthAction.SET_ASIDE,
        )
        health = (*health, note)
    return replace(trace, health=health, dropped=trace.dropped + negative)


def _with_ranges(trace: KinetoTrace) -> KinetoTrace:
    """The trace without annotations and modules that end long after the recording: they last as
    long as others of their name on their thread, or are set aside. Others are left as they are:
    ranges of coroutines cross, and one request may be much slower than the rest."""
    if not len(trace.rows_of("Trace")):
        return trace  # the file does not say when the recording ended
    # a step of torch's schedule ends where the next begins; what the last does may not be recorded
    annotations = trace.rows_named(lambda name: not name.startswith(_STEP), "user_annotation")
    modules = trace.rows_named(lambda name: name.startswith(_MODULE), "python_function")
    rows, start, end = np.append(annotations, modules), trace.start_ns, trace.end_ns
    late = end[rows] > int(np.delete(end, rows).max()) + _SPAN_NS
    if not late.any():
        return trace
    key = trace.events.name.astype(np.int64) * len(trace.threads) + trace.thread
    others = rows[~late]
    others = others[np.lexsort((start[others], key[others]))]
    keys, starts, length = key[others], start[others], trace.duration_ns.copy()
    usual: dict[int, int] = {}  # the usual length by key, 0 if too few are known
    for row in rows[late].tolist():
        own = key.item(row)
        first, last = np.searchsorted(keys, (own, own + 1)).tolist()
        if own not in usual:
            known = last - first >= LEAST_PEERS
            usual[own] = int(np.median(trace.duration_ns[others[first:last]])) if known else 0
        length[row] = usual[own]
        following = first + int(np.searchsorted(starts[first:last], start[row], side="right"))
        if following < last:
            length[row] = min(usual[own], starts.item(following) - start.item(row))
    gone = rows[late & (length[rows] == 0)]
    shortened = rows[late & (length[rows] > 0)]
    health = trace.health
    for of, action in ((shortened, HealthAction.SHORTENED), (gone, HealthAction.SET_ASIDE)):
        if len(of):
            worst = of.item(int(trace.duration_ns[of].argmax()))
            note = HealthNote(
                rule=HealthRule.RANGE,
                device=ROOT_DEVICE,
                count=len(of),
                total=len(rows),
                worst=trace.events[worst].name[:200],
                worst_ns=min(trace.duration_ns.item(worst), LARGEST),
                usual_ns=usual[key.item(worst)],
                action=action,
            )
            health = (*health, note)
    left = {name: one[~np.isin(one, gone)] for name, one in trace.rows.items()}
    return replace(trace, duration_ns=length, rows=left, health=health)


def _lost_operators(trace: KinetoTrace, work: Int64s, calls: Int64s) -> Iterator[HealthNote]:
    """Note kernels that name an operator which is missing although earlier and later ones are in
    the file. Older recorders number kernels differently, so that most match no operator. Therefore
    some runtime calls are sampled first: their numbers must be absent from the operators just
    before them."""
    rows = np.append(trace.rows_of(OPERATORS), trace.unfinished)
    calls = calls[:: max(len(calls) // _SAMPLE, 1)]
    rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
    if not len(rows):
        return
    places = np.searchsorted(trace.start_ns[rows], trace.start_ns[calls], side="right")
    numbers_of = partial(trace.events.args.numbers, "external_id", default=0)
    wanted, ahead = numbers_of(events=calls), places[:, None] + np.arange(-_AHEAD, 0)
    near = numbers_of(events=rows[np.maximum(ahead, 0).reshape(-1)]).reshape(ahead.shape)
    found = ((near == wanted[:, None]) & (ahead >= 0)).any(axis=1)
    if not 0 < 2 * int((~found & (wanted != 0)).sum()) < len(calls):
        return
    operators = numbers_of(events=rows)
    known, named = operators[operators > 0], numbers_of(events=work)
    named = named[named > 0]
    lost = named[~np.isin(named, known)]
    if len(lost) < _LEAST_LOST or 2 * len(lost) > len(named) or not len(known):
        return
    amid = int(((lost > known.min()) & (lost < known.max())).sum())
    if amid >= max(_LEAST_LOST, _LOST_SHARE * len(named)):
        share = amid / len(named)
        yield HealthNote(rule=HealthRule.OPERATORS, count=amid, total=len(named), share=share)


def _again(trace: KinetoTrace) -> Int64s:
    """The rows of host events that are duplicates in the file, perhaps under another process."""
    host = [one for name, one in trace.rows.items() if name not in DEVICE_WORK]
    rows = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *host]))
    tids: dict[str, int] = {}
    tid = np.array(
        [tids.setdefault(str(one), len(tids)) for _, one in trace.threads], dtype=np.int64
    )
    events, thread = trace.events, trace.thread[rows]
    columns = [events.name[rows], events.category[rows], tid[thread]]
    columns += [trace.duration_ns[rows], trace.start_ns[rows]]
    order = np.lexsort(columns)
    again = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
    for column in columns:
        again &= column[order[1:]] == column[order[:-1]]
    return rows[order[1:][again]]


def _work(trace: KinetoTrace) -> Int64s:
    """The rows of device work, including work without a start or a length."""
    work = trace.rows_of(*DEVICE_WORK)
    others = np.concatenate((trace.untimed, trace.unfinished, trace.negative))
    return np.union1d(work, others[_of_devices(trace, others)]) if len(others) else work


def _of_devices(trace: KinetoTrace, rows: Int64s) -> Bools:
    """Whether each event is device work."""
    known = [code for code, name in enumerate(trace.events.categories) if name in DEVICE_WORK]
    return np.isin(trace.events.category[rows], known)


def _hardware(trace: KinetoTrace) -> str:
    """The names of the machine's devices, as the file has them."""
    try:
        known = msgspec.json.decode(trace.header.devices or b"[]")
    except msgspec.DecodeError:
        return ""
    entries = [one for one in known if isinstance(one, dict)] if isinstance(known, list) else []
    return ", ".join(sorted({str(one.get("name", "")) for one in entries}))


def _device_rows(
    trace: KinetoTrace, work: Int64s, base_ns: int
) -> tuple[DeviceRows, Iterator[HealthNote]]:
    """The rows of devices, and notes of those that name another one than Kineto lists them under:
    it writes a device's number as the process, and once more."""
    kind = device_kind(trace)
    devices: dict[str, int] = {}
    streams: dict[tuple[Any, ...], int] = {}
    # MTIA's copies run beside the kernels of their stream, and beside each other
    apart = trace.events.of_category(work, "gpu_memcpy") & (kind == "mtia")
    kinds, index = trace.events.args.alike(work)
    queue = _codes([(one.device, one.stream) for one in kinds])[index]
    queue = queue * len(trace.threads) + trace.thread[work]
    first = np.full(int(queue.max(initial=-1)) + 1, len(work))
    first[queue[::-1]] = np.arange(len(work))[::-1]
    codes = np.zeros((2, len(first)), dtype=np.int64)
    others: dict[tuple[str, str], list[int]] = {}
    for row in np.sort(first[first < len(work)]).tolist():  # in the order of the file
        args, event = kinds[index[row]], trace.events[work.item(row)]
        on = device_name(kind, trace, event)
        stream = str(event.tid if args.stream is None else args.stream)
        device = devices.setdefault(on, len(devices))
        codes[:, queue[row]] = device, streams.setdefault((on, event.pid, stream), len(streams))
        of_number = type(event.pid) is int and event.pid not in trace.device_names
        if of_number and on != (listed := f"{kind}:{event.pid}"):
            others.setdefault((listed, on), []).append(queue.item(row))
    computes = trace.events.of_category(work, "kernel")
    kernel, names = _kernels(trace, work, _codes([bytes(one.grid) for one in kinds])[index])
    start = trace.start_ns[work] - base_ns
    start[np.isin(work, trace.untimed)] = NO_END
    rows = DeviceRows(
        start=start,
        end=_ends(trace, work, start),
        device=codes[0][queue],
        stream=codes[1][queue],
        process=np.full(len(work), -1, dtype=np.int64),
        correlation=_correlations(trace, work),
        kernel=np.where(computes, kernel, -1),
        exempt=apart,
        devices=tuple(devices),
        streams=tuple(f"stream {stream}" for _, _, stream in streams),
        kernels=names,
    )
    return rows, _elsewhere(others, np.bincount(queue) if others else queue)


def _elsewhere(apart: Mapping[tuple[str, str], list[int]], number: Int64s) -> Iterator[HealthNote]:
    """Notes of work that is listed under one device and names another, by the queues of both.
    Files put together from several may list devices otherwise: then most of their work is apart."""
    total = int(number.sum())
    counts = {devices: int(number[queues].sum()) for devices, queues in apart.items()}
    if sum(counts.values()) <= _MOST_APART * total:
        yield from elsewhere(counts, total)


def _ends(trace: KinetoTrace, work: Int64s, start: Int64s) -> Int64s:
    end = start + trace.duration_ns[work]
    if len(trace.negative) or len(trace.unfinished):
        backwards = np.isin(work, trace.negative)
        end[backwards] = start[backwards] - 1
        end[np.isin(work, trace.unfinished)] = NO_END
    return end


def _codes(values: Sequence[Hashable]) -> Int64s:
    """A number for each value, from 0 on."""
    codes: dict[Hashable, int] = {}
    return np.array([codes.setdefault(one, len(codes)) for one in values], dtype=np.int64)


def _kernels(trace: KinetoTrace, work: Int64s, grid: Int64s) -> tuple[Int64s, tuple[str, ...]]:
    """The number of each row's kernel, by its name and grid, and the kernels' names."""
    number = int(grid.max(initial=0)) + 1
    known, kernel = _numbered(trace.events.name[work])
    pairs, kernel = _numbered(kernel * number + grid)
    names = map(trace.events.names.__getitem__, known[pairs // number].tolist())
    return kernel, tuple(names)


def _numbered(values: Int32s | Int64s) -> tuple[Int64s, Int64s]:
    """Return the values, each once and in their order, and the place of each among them."""
    most = int(values.max(initial=0)) + 1
    if most > _NEAR_VALUES * len(values):
        once, place = np.unique(values, return_inverse=True)
        return once.astype(np.int64), place.reshape(-1).astype(np.int64)
    there = np.zeros(most, dtype=np.bool_)  # quicker than a sort
    there[values] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[values]


def _correlations(trace: KinetoTrace, rows: Int64s) -> Int64s:
    """The launch numbers of events, -1 for none. Those that the file writes as signed 32 bits are
    changed in the trace."""
    numbers = trace.events.args.numbers("correlation", rows, -1)
    signed = (numbers < -1) & (numbers >= -_SIGN)
    if signed.any():
        numbers[signed] += 2 * _SIGN
        trace.events.args.set_integers("correlation", rows[signed], numbers[signed])
    return np.where((numbers > 0) & (numbers < _LARGEST), numbers, -1)


def _rekey(trace: KinetoTrace, rows: Int64s, process: Int64s) -> None:
    """Change launch numbers so that they differ between processes."""
    numbers = _correlations(trace, rows)
    known = numbers > 0
    unique = numbers[known] * _PROCESSES + process[known] + 1
    trace.events.args.set_integers("correlation", rows[known], unique)


# --- Processes that ran operators without launching work, beside one that launched some.
#
# Front ends of servers and data loaders record themselves, too. What they do is no submodule of the
# model: their events are left out, and a note says so.


_LAUNCHES = (
    "Launch",
    "Memcpy",
    "Memset",
    "Enqueue",
)  # in names of calls that put work onto a device


def launches_work(trace: KinetoTrace) -> bool:
    """Whether the trace has both launches and device work."""
    return bool(len(trace.rows_of(*DEVICE_WORK)) and len(_launches(trace)))


def operators_alone(trace: KinetoTrace) -> int:
    """The number of operators if the trace has neither a launch nor device work; else 0."""
    nothing = not len(trace.rows_of(*DEVICE_WORK)) and not len(_launches(trace))
    return len(trace.rows_of(OPERATORS)) if nothing else 0


def without_front_ends(trace: KinetoTrace) -> KinetoTrace:
    """The trace without processes that have operators but neither launches nor work, if another
    process has launches. A note is added for each."""
    if not launches_work(trace):
        return trace
    working = {*_pids(trace, _launches(trace)), *_pids(trace, trace.rows_of(*DEVICE_WORK))}
    operators = _pids(trace, trace.rows_of(OPERATORS))
    gone = {pid: count for pid, count in operators.items() if pid not in working}
    if not gone:
        return trace
    threads = [code for code, (pid, _) in enumerate(trace.threads) if str(pid) in gone]
    kept = ~np.isin(trace.thread, threads)
    notes = (front_end(f"process {pid}", count) for pid, count in gone.items())
    rows = {name: one[kept[one]] for name, one in trace.rows.items()}
    return replace(trace, rows=rows, health=(*trace.health, *notes))


def front_end(name: str, operators: int) -> HealthNote:
    """The note of a process, or of a file, without launches."""
    rule, action = HealthRule.FRONT_END, HealthAction.LEFT_OUT
    return HealthNote(rule=rule, count=operators, worst=name, action=action)


def _launches(trace: KinetoTrace) -> Int64s:
    rows = trace.rows_of(*RUNTIME)
    named = trace.events.named(rows, lambda name: any(word in name for word in _LAUNCHES))
    found: Int64s = rows[named.astype(np.bool_)]
    return found


def _pids(trace: KinetoTrace, rows: Int64s) -> dict[str, int]:
    """The number of events in `rows` of each process."""
    found: dict[str, int] = {}
    codes, counts = np.unique(trace.thread[rows], return_counts=True)
    for code, number in zip(codes.tolist(), counts.tolist(), strict=True):
        pid = str(trace.threads[code][0])
        found[pid] = found.get(pid, 0) + number
    return found
