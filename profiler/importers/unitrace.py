"""Import traces of Intel's unitrace: kernels and copies on GPUs, calls of Level Zero and OpenCL.

    import_trace(Path("python.json"), Path("traces"))

A process `DEVICE<name>` is a GPU, its threads are queues (`L0 CCS<0,0>`); a process `HOST<name>`
has calls of the runtime (`ze…`, `cl…`) and ranges of ITT. Work has the `id` of the call that
appended it. Kernel names include SIMD width and group sizes: `gemm[SIMD16 {128;1;1} {256;1;1}]`.
Without names of processes, those with such rows, or rows of the category `gpu_op`, are GPUs.
Source: intel/pti-gpu, tools/unitrace/README.md.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from profiler.errors import InputError
from profiler.importers.chrome_rows import Row, RowArgs, kineto_trace, read_rows
from profiler.importers.kineto.health import checked_trace, without_gaps
from profiler.importers.kineto.read import KinetoRun, run_of
from profiler.kineto.operators import Scalar
from profiler.kineto.trace_file import Header, KinetoTrace

_PROCESS = re.compile(r"(HOST|DEVICE)<(.*)>")
_RUNTIME = re.compile(r"(?:ze[A-Z]|zes|cl[A-Z])")
_GROUPS = re.compile(r"\s*\[(?:SIMD[^\]{]*)?(\{[^\]]*\})?\s*\]\s*$")
_SIMD = re.compile(r"\[SIMD\d+[ \]]")  # of a kernel
_COPY = re.compile(r"memory_?copy|memcpy|clEnqueue(?:Read|Write|Copy)", re.I)
_FILL = re.compile(r"memory_?fill|clEnqueueFill", re.I)
_NO_WORK = re.compile(r"barrier|event|marker|wait", re.I)
_WAYS = {"M2D": "HtoD", "D2M": "DtoH", "H2D": "HtoD", "D2H": "DtoH", "D2D": "DtoD", "S2D": "HtoD"}
_WAY = re.compile(r"\b([MDHS]2[MDHS])\b")
_BYTES = re.compile(r"\[(\d{1,18}) bytes\]")


def read_run(path: Path) -> KinetoRun:
    """Read one file. Raises InputError if it cannot be read or has no GPU work."""
    (trace,) = without_gaps([checked_trace(_trace(path))])
    return run_of(trace, path, importer="unitrace")


def _trace(path: Path) -> KinetoTrace:
    rows, health = read_rows(path)
    named: dict[Scalar, tuple[str, str]] = {}
    threads: dict[tuple[Scalar, Scalar], str] = {}
    for row in rows:
        found = _PROCESS.fullmatch(row.named) if row.ph == "M" else None
        if found is not None:
            named[row.pid] = found[1], found[2]
        elif row.name == "thread_name":
            threads[row.pid, row.tid] = row.named
    worked = {row.pid: None for row in rows if row.cat == "gpu_op" or _SIMD.search(row.name)}
    gpus = [pid for pid, (kind, _) in named.items() if kind == "DEVICE"]
    gpus += [pid for pid in worked if pid not in named]  # a process without a name
    devices = {pid: f"xpu:{number}" for number, pid in enumerate(gpus)}
    host, work = [], []
    for row in rows:
        if row.ph != "X":
            continue
        if row.pid in devices:
            work += [row] if _is_work(row) else []
        else:
            host.append(_host_row(row))
    if not work:
        raise InputError(
            f"{path} holds no kernel and no copy of a GPU: record with unitrace "
            "--chrome-kernel-logging --chrome-call-logging"
        )
    properties = [{"id": at, "name": named[pid][1]} for at, pid in enumerate(gpus) if pid in named]
    header = Header([], deviceProperties=msgspec.Raw(msgspec.json.encode(properties)))
    return kineto_trace(path, [*host, *work], devices, threads, health=health, header=header)


def _number(row: Row) -> Scalar:
    """The number, from 1, that a call and its work share."""
    number = row.args.id if row.id is None and row.args is not None else row.id
    text = str(number)
    return int(text) + 1 if text.isdecimal() and len(text) < 12 else None


def _host_row(row: Row) -> Row:
    row.cat = "xpu_runtime" if _RUNTIME.match(row.name) else "user_annotation"
    if row.cat == "xpu_runtime":
        args = row.args = row.args or RowArgs()
        args.correlation = _number(row)
    return row


def _is_work(row: Row) -> bool:
    """Whether a row is GPU work; if so, set its category, name and size."""
    args = row.args = row.args or RowArgs()
    args.correlation = _number(row)
    if _COPY.search(row.name):
        way, size = _WAY.search(row.name), _BYTES.search(row.name)
        row.cat, args.bytes = "gpu_memcpy", size and int(size[1])
        row.name = f"Memcpy {_WAYS.get(way[1], '') if way else ''}".strip()
    elif _FILL.search(row.name):
        row.cat, row.name = "gpu_memset", "Memset"
    elif _NO_WORK.search(row.name) and _RUNTIME.match(row.name):
        return False
    else:
        groups = _GROUPS.search(row.name)
        row.cat = "kernel"
        if groups is not None:
            args.grid = msgspec.Raw(msgspec.json.encode(groups[1] or ""))
            row.name = row.name[: groups.start()]
    return True
