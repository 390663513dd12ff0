"""Read rocprofv3's Perfetto form (`--output-format pftrace`) into rows.

    add_perfetto(Path("4242_results.pftrace"), rows)

A category says what a slice is (`kernel_dispatch`, `memory_copy`, `hip_api`, `marker_api`, …), its
track on which agent and queue it was (`COMPUTE AGENT [4] QUEUE [1] GPU`, `COPY to AGENT [4] …`).
Work and its launch have `corr_id` in common, if annotations were written. Source:
ROCm/rocprofiler-sdk, source/lib/output/generatePerfetto.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from profiler.importers.gpu_calls import NO_TIME
from profiler.importers.rocprofv3.rows import NO_ID, Agent, Agents, Rows, Times
from profiler.trace.columns import ARG_KINDS, Int64s, TraceColumns, TrackRow, read_trace
from profiler.trace.events import DropReason

_KERNELS, _COPIES, _MARKS = ("kernel_dispatch",), ("memory_copy",), ("marker_api",)
_APIS = ("hip_api", "hsa_api", "hip_runtime_api", "hip_compiler_api", "rccl_api")
_AGENT = re.compile(r"AGENT \[(\d{1,6})\]")
_QUEUE = re.compile(r"(?:QUEUE|STREAM) \[(\d{1,9})\]")
_THREAD = re.compile(r"THREAD (\d{1,9})")
_CORRELATIONS = ("debug.corr_id", "debug.stack_id", "corr_id")
_SIZES = ("debug.copy_bytes", "debug.bytes", "copy_bytes")
_WHOLE = tuple(ARG_KINDS.index(kind) for kind in ("int", "uint"))


def add_perfetto(path: Path, rows: Rows) -> None:
    """Read one file into `rows`. Raises InputError if it is no Perfetto trace."""
    trace = read_trace(path)
    agents = sorted({_number(_AGENT, track) for track in trace.tracks} - {NO_ID})
    known = Agents.of(Agent(id=one, gpu=True, number=at) for at, one in enumerate(agents))
    rows.devices.update(known.devices())
    correlation, size = (_argument(trace, names) for names in (_CORRELATIONS, _SIZES))
    ids = [
        (
            _number(_AGENT, one),
            _number(_QUEUE, one),
            NO_ID if one.pid is None else one.pid,
            _number(_THREAD, one) if one.tid is None else one.tid,
        )
        for one in trace.tracks
    ]
    agent, queue, pid, tid = np.array(ids, dtype=np.int64).reshape(-1, 4).T
    slices, track = trace.slices, trace.slices.track
    ends = np.where(slices.duration_ns < 0, NO_TIME, slices.start_ns + slices.duration_ns)

    def times(found: Int64s) -> Times:
        of_process = pid[track[found]]
        return Times(slices.start_ns[found], ends[found], of_process, correlation[found])

    def names(found: Int64s) -> tuple[list[str], Int64s]:
        used, place = np.unique(slices.name[found], return_inverse=True)
        return [trace.strings[code] for code in used.tolist()], place.reshape(-1)

    kernels = _of_categories(trace, _KERNELS)
    device = known.of_kernels(agent[track[kernels]])
    rows.add_kernels(times(kernels), device, queue[track[kernels]], *names(kernels))
    copies = _of_categories(trace, _COPIES)
    device = known.numbers(agent[track[copies]])
    rows.add_copies(times(copies), device, size[copies], *names(copies))
    calls = _of_categories(trace, _APIS)
    rows.add_api(times(calls), tid[track[calls]], *names(calls))
    marks = _of_categories(trace, _MARKS)
    texts = [trace.strings[code] for code in slices.name[marks].tolist()]
    rows.add_marks(times(marks), tid[track[marks]], texts)
    for drop in trace.drops:
        rows.drop(drop.count, drop.unit, DropReason.DAMAGED, path.name)


def _number(pattern: re.Pattern[str], track: TrackRow) -> int:
    found = pattern.search(track.name)
    return int(found[1]) if found else NO_ID


def _of_categories(trace: TraceColumns, names: Sequence[str]) -> Int64s:
    codes = [code for code, text in enumerate(trace.strings) if text in names]
    return np.flatnonzero(np.isin(trace.slices.category, codes))


def _argument(trace: TraceColumns, names: Sequence[str]) -> Int64s:
    """What the annotation with one of these names says of each slice, -1 if it has none."""
    found = np.full(len(trace.slices), NO_ID, dtype=np.int64)
    args = trace.args
    codes = [code for code, text in enumerate(trace.strings) if text in names]
    rows = np.flatnonzero(np.isin(args.key, codes) & np.isin(args.kind, _WHOLE))
    found[args.slice[rows]] = args.value[rows]
    return found
