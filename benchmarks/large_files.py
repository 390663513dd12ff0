"""Files of any size as Nsight Systems and torch.profiler write them, whose totals are known; and
what their import needs.

    python benchmarks/large_files.py --form nsys --bytes 1e9 [--folder DIR]
    python benchmarks/large_files.py --form kineto.gz --bytes 1e9

Rows have all columns and events all arguments that the recorders write, in the proportions of real
files: of Nsight Systems 1 kernel to 2 calls of the runtime and 5 ranges, of two processes on two
GPUs; of torch.profiler, `with_stack` and `record_shapes`, 1 kernel to 3 calls of the runtime, 3
operators, 13 Python frames and 4 ends of flows. `--bytes` counts what is unpacked. The import
is a process of its own; memory is its largest resident set (VmHWM), time that of the processor.
What the bundle holds is then read and compared with what was written: the exit status is 1 where
it differs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

import checkout  # noqa: F401 - finds the project

FORMS = ("nsys", "kineto", "kineto.gz")
UTC = 1_790_000_000_000_000_000
UNITS = 2_000  # kernels of a call
COPIES = 4  # kernels to a copy
STEP_NS = 20_000  # from one kernel to the next
KERNEL_NS, COPY_NS = 9_000, 2_000
COPIED = 4096  # bytes
NAMES = 300  # different kernels
UNIT_BYTES = {"nsys": 600, "kineto": 5_400}  # of a unit in the file, nearly


@dataclass(frozen=True)
class Truth:
    """What a file holds: `events` are all its entries, `busy_ns` by device, `copied` in bytes."""

    events: int
    kernels: int
    copies: int
    launches: int
    calls: int
    copied: int
    busy_ns: dict[str, int]


def truth_of(kernels: int, calls: int, events: int, devices: int) -> Truth:
    """The totals of `kernels` on each of some devices, one after the other."""
    copies = kernels // COPIES
    busy = kernels * KERNEL_NS + copies * COPY_NS
    return Truth(
        events=events * devices,
        kernels=kernels * devices,
        copies=copies * devices,
        launches=(kernels + copies) * devices,
        calls=calls * devices,
        copied=copies * COPIED * devices,
        busy_ns={f"cuda:{number}": busy for number in range(devices)},
    )


_TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start end deviceId contextId greenContextId streamId correlationId globalPid bytes "
        "copyKind deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId "
        "dstContextId migrationCause graphNodeId virtualAddress copyCount"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start end deviceId contextId greenContextId streamId correlationId globalPid "
        "demangledName shortName mangledName launchType cacheConfig registersPerThread gridX gridY "
        "gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory localMemoryPerThread "
        "localMemoryTotal gridId sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig "
        "qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ "
        "clusterSchedulingPolicy maxPotentialClusterSize maxActiveClusters"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start end eventClass globalTid correlationId nameId returnValue callchainId"
    ),
    "NVTX_EVENTS": (
        "start end eventType rangeId category color text globalTid endGlobalTid textId domainId "
        "uint64Value int64Value doubleValue uint32Value int32Value floatValue jsonTextId jsonText "
        "binaryData"
    ),
}
_LAUNCH, _COPY, _ASK, _CALL, _MODULE = range(NAMES + 1, NAMES + 6)
_OPERATORS = ("aten::linear", "aten::t", "aten::transpose", "aten::addmm")


def write_nsys(path: Path, kernels: int) -> Truth:
    """Write an export of two processes, each with this many kernels on its GPU."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA synchronous = OFF")
    for table, columns in _TABLES.items():
        plain = ", ".join(f'"{name}" INTEGER' for name in columns.split())
        database.execute(f"CREATE TABLE {table} ({columns if ',' in columns else plain})")
    texts = [f"void cutlass::Kernel<gemm_{n}x128, {n}>(Params)" for n in range(NAMES)]
    others = ("cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaStreamIsCapturing_v10000")
    rows = [*enumerate((*texts, *others, "transformer", "{'Module': 'blocks.0.attn'}"), 1)]
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", rows)
    database.execute(f"INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({UTC}, '', '')")
    calls = 0
    for gpu in range(2):
        database.execute(f"INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES ({gpu}, 0, {4242 + gpu})")
        calls = _process(database, 1 << 48 | (4242 + gpu) << 24, kernels)
    database.commit()
    database.close()
    copies = kernels // COPIES
    return truth_of(kernels, calls, kernels * 8 + copies * 2 + calls, devices=2)


def _process(database: sqlite3.Connection, process: int, kernels: int) -> int:
    """The rows of one process; returns its calls."""
    thread = process | 77

    def add(table: str, rows: Iterator[tuple[object, ...]]) -> None:
        places = ",".join("?" * len(_TABLES[table].split()))
        database.executemany(f"INSERT INTO {table} VALUES ({places})", rows)

    def rows(table: str, numbers: Iterable[int]) -> None:
        of = _kernel if table.endswith("KERNEL") else _copy
        rest = [None] * (len(_TABLES[table].split()) - len(of(0, process)))
        add(table, ((*of(n, process), *rest) for n in numbers))

    rows("CUPTI_ACTIVITY_KIND_KERNEL", range(1, kernels + 1))
    rows("CUPTI_ACTIVITY_KIND_MEMCPY", range(COPIES, kernels + 1, COPIES))
    add("CUPTI_ACTIVITY_KIND_RUNTIME", _runtime(thread, kernels))
    add("NVTX_EVENTS", _ranges(thread, kernels))
    return -(-kernels // UNITS)


def _kernel(n: int, process: int) -> tuple[object, ...]:
    begin, name = n * STEP_NS + 6_000, n % NAMES + 1
    shape = (0, 1, 96, 4096, 16, 1, 256, 1, 1, 16384, 65536, 0, 55_050_240, n, 102400)
    return (begin, begin + KERNEL_NS, 0, 1, None, 7, 2 * n, process, name, name, name, *shape)


def _copy(n: int, process: int) -> tuple[object, ...]:
    begin = n * STEP_NS + 16_000
    return (begin, begin + COPY_NS, 0, 1, None, 7, 2 * n + 1, process, COPIED, 1, None, 0, 2)


def _runtime(thread: int, kernels: int) -> Iterator[tuple[object, ...]]:
    for n in range(1, kernels + 1):
        at = n * STEP_NS
        yield (at + 900, at + 1_000, 0, thread, 0, _ASK, 0, None)
        yield (at + 1_500, at + 4_000, 0, thread, 2 * n, _LAUNCH, 0, None)
        if n % COPIES == 0:
            yield (at + 5_500, at + 5_900, 0, thread, 2 * n + 1, _COPY, 0, None)


def _ranges(thread: int, kernels: int) -> Iterator[tuple[object, ...]]:
    rest = (None,) * 8
    for n in range(1, kernels + 1):
        at = n * STEP_NS
        if n % UNITS == 1:
            end = (min(n + UNITS - 1, kernels)) * STEP_NS + 7_000
            yield (at, end, 59, None, None, None, None, thread, None, _CALL, 0, None, *rest)
        module = (None, _MODULE, 0, None, *rest)
        yield (at + 100, at + 6_500, 59, None, None, None, None, thread, *module)
        begin, end = at + 200, at + 6_400
        for number, name in enumerate(_OPERATORS):
            text = f"{name}, seq = {4 * n}, op_id = {4 * n + number}"
            yield (begin, end, 59, None, None, None, text, thread, None, None, 0, None, *rest)
            begin, end = begin + 10, (end - 10 if number != 1 else end - 20)


def write_kineto(path: Path, kernels: int) -> Truth:
    """Write a trace of torch.profiler with this many kernels; gzip where it is called so."""
    if path.suffix == ".gz":
        with gzip.open(path, "wt", compresslevel=1) as packed:
            return _kineto(packed, kernels)
    with path.open("w") as plain:
        return _kineto(plain, kernels)


_HEAD = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85_899_345_920}],
    "record_shapes": 1,
    "with_stack": 1,
    "with_modules": 1,
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1_782_967_788_000_000_000,
}
_ARGS = (
    '"Record function id": 0, "Concrete Inputs": ["", "", "1", "1"], "Input type": ["c10::Half", '
    '"c10::Half", "Scalar", "Scalar"], "Input Strides": [[1536, 1], [1, 1536], [], []], '
    '"Input Dims": [[4096, 1536], [1536, %d], [], []]'
)
_FRAMES = (
    "diffusers/models/attention.py(%d): forward",
    "diffusers/models/attention_processor.py(%d): __call__",
    *(f"torch/nn/modules/module.py(%d): _call_impl_{number}" for number in range(8)),
    "torch/nn/modules/linear.py(%d): forward",
)
_MODULE_CLASS = "JointTransformerBlock"
_HERE, _THERE = '"pid": 416, "tid": 416', '"pid": 0, "tid": 7'
_FLOW = (("s", _HERE, 2.3), ("f", _THERE, 6.0), ("f", _HERE, 2.1), ("f", _HERE, 2.2))


def _event(cat: str, name: str, tid: int, at: float, length: float, args: str) -> str:
    pid = 0 if cat in ("kernel", "gpu_memcpy") else 416
    return (
        f'{{"ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid}, '
        f'"ts": {2_915_995_000_000 + at:.3f}, "dur": {length:.3f}, "args": {{{args}}}}}'
    )


def _kineto(file: IO[str], kernels: int) -> Truth:
    head = json.dumps(_HEAD)[:-1]
    file.write(f'{head}, "traceEvents": [')
    length = STEP_NS / 1000
    calls, events = -(-kernels // UNITS), 0
    separator = "\n"
    for number in range(calls):
        first, last = number * UNITS + 1, min((number + 1) * UNITS, kernels)
        begin, end = first * length - 0.2, last * length + 19
        called = _event(
            "python_function",
            "nn.Module: SD3Transformer2DModel_0",
            416,
            begin,
            end - begin,
            '"Python id": 1, "Python parent id": null, "Python module id": 0, "Ev Idx": 0',
        )
        file.write(separator + called)
        separator, events = ",\n", events + 1
        for n in range(first, last + 1):
            unit = list(_unit(n, n * length))
            file.write(separator + ",\n".join(unit))
            events += len(unit)
    file.write('\n], "traceName": "made.pt.trace.json"}')
    return truth_of(kernels, calls, events, devices=1)


def _unit(n: int, at: float) -> Iterator[str]:
    """A module's forward with its operators, the launch and the kernel; and a copy at times."""
    block = f"nn.Module: {_MODULE_CLASS}_{n % 24}"
    frames = [block, *(name % (n % 400) for name in _FRAMES), "<built-in function linear>"]
    for depth, name in enumerate(frames):
        begin, length = at + depth * 0.05, 18 - depth * 0.5
        python = f'"Python id": {16 * n + depth}, "Python parent id": {16 * n + depth - 1}, '
        yield _event("python_function", name, 416, begin, length, f'{python}"Ev Idx": {n}')
    for number, name in enumerate(("aten::linear", "aten::t", "aten::addmm")):
        took = (10, 0.3, 6)[number]
        args = f'"External id": {3 * n + number}, {_ARGS % (64 * (n % 40 + 1))}, "Ev Idx": {n}'
        yield _event("cpu_op", name, 416, at + 0.9 + number * 0.5, took, args)
    ids = f'"External id": {3 * n + 2}, "cbid": 211, "correlation": '
    for number, name in enumerate(("cudaGetDevice", "cudaStreamIsCapturing")):
        other = f"{ids}{4 * n + 2 + number}"
        yield _event("cuda_runtime", name, 416, at + 2 + number * 0.1, 0.05, other)
    yield _event("cuda_runtime", "cudaLaunchKernel", 416, at + 2.3, 2.5, f"{ids}{4 * n}")
    kernel = (
        f'"External id": {3 * n + 2}, "queued": 0, "device": 0, "context": 1, "stream": 7, '
        f'"correlation": {4 * n}, "registers per thread": 96, "shared memory": 16384, '
        '"blocks per SM": 496.48486, "warps per SM": 3971.8788, "grid": [4096, 16, 1], '
        '"block": [256, 1, 1], "est. achieved occupancy %": 62'
    )
    name = f"void cutlass::Kernel<gemm_{n % NAMES}x128, {n % NAMES}>(Params)"
    yield _event("kernel", name, 7, at + 6, KERNEL_NS / 1000, kernel)
    for ph, where, when in _FLOW:
        yield (
            f'{{"ph": "{ph}", "id": {4 * n}, {where}, "ts": {2_915_995_000_000 + at + when:.3f}, '
            '"cat": "ac2g", "name": "ac2g", "bp": "e"}'
        )
    if n % COPIES == 0:
        ids = f'"External id": {3 * n}, "cbid": 41, "correlation": {4 * n + 1}'
        yield _event("cuda_runtime", "cudaMemcpyAsync", 416, at + 8, 1.5, ids)
        copy = ids + f', "device": 0, "context": 1, "stream": 7, "bytes": {COPIED}'
        name = "Memcpy HtoD (Pinned -> Device)"
        yield _event("gpu_memcpy", name, 7, at + 16, COPY_NS / 1000, copy)


def write(form: str, folder: Path, size: float) -> tuple[Path, Truth]:
    """Write a file of about `size` bytes, unpacked."""
    kind, _, packed = form.partition(".")
    kernels = max(int(size / UNIT_BYTES[kind]), 10)
    if kind == "nsys":
        path = folder / "made.sqlite"
        return path, write_nsys(path, kernels // 2)
    path = folder / ("made.json.gz" if packed else "made.json")
    return path, write_kineto(path, kernels)


def import_file(path: Path, out: Path) -> None:
    """Import it, and print what that took."""
    from profiler.importers.importing import import_trace

    begin, wall = time.process_time(), time.perf_counter()
    import_trace(path, out, "made")
    seconds, took = time.process_time() - begin, time.perf_counter() - wall
    print(json.dumps({"processor": seconds, "wall": took, "memory": resident()}))


def resident() -> int:
    """The largest resident set of this process, in bytes. Where there is no /proc, what getrusage
    has, which begins with that of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if "VmHWM" in line)
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def found_in(bundle: Path, truth: Truth) -> Truth:
    """What a bundle holds of the totals; the number of the file's entries is not in it."""
    import polars as pl

    from profiler.run.load import load_bundle

    run = load_bundle(bundle)
    try:
        texts = pl.col("device", "category").cast(pl.String)
        commands = run.commands.with_columns(texts)
        work = commands.filter(~pl.col("device").str.starts_with("cpu"))
        kernels = work.filter(pl.col("category") == "compute")
        copies = work.filter(pl.col("category") == "dma")
        busy = work.group_by("device").agg(pl.col("duration_ns").sum()).sort("device")
        return replace(
            truth,
            kernels=kernels.height,
            copies=copies.height,
            launches=run.flows.height,
            calls=run.calls.height,
            copied=int(copies["bytes_written"].sum()),
            busy_ns=dict(zip(busy["device"].to_list(), busy["duration_ns"].to_list(), strict=True)),
        )
    finally:
        run.close()


def main() -> None:
    """Write a file, import it, compare what the bundle holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--form", choices=FORMS, default="nsys")
    parser.add_argument("--bytes", type=float, default=1e9)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", type=Path, help="write the file into this folder and stop")
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.file:
        import_file(given.file, given.out)
        return
    if given.keep:
        print(*write(given.form, given.keep, given.bytes))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path, truth = write(given.form, Path(folder), given.bytes)
        size = path.stat().st_size
        command = [sys.executable, __file__, "--file", str(path), "--out", folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        path.unlink()
        took = json.loads(done)
        found = found_in(Path(folder) / "made", truth)
    told = {"form": given.form, "bytes": size, **took, "truth": asdict(truth)}
    print(json.dumps({**told, "found": asdict(found), "same": found == truth}))
    sys.exit(found != truth)


if __name__ == "__main__":
    main()
