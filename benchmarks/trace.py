"""The trace engine: rates, bytes a command, memory, and the same beside its peers.

    python benchmarks/trace.py [--sizes 100000,1000000,10000000] [--rounds 5]
        [--peers upb,ptars,perfetto,trace_processor] [--peer-commands 100000] [--bundle DIR]

Traces are real ones, repeated (`trace_commands.py`); peers and what they do: `trace_peers.py`.
What is compared runs in turn in each round; ratios are medians of per-round ratios, with their
spread. The floor is a C++ loop over all fields of all packets that keeps nothing. Memory is the
peak of a process of its own, above what that process has before it reads.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import checkout  # noqa: F401 - finds the project
import numpy as np
import trace_commands
import trace_peers
from trace_floor import floor_reader

from profiler.trace.columns import CommandColumns, read_bytes, read_trace
from profiler.trace.compression import COMPRESSIONS, Compression
from profiler.trace.events import UNKNOWN
from profiler.trace.writer import encode_call

PEERS = ("upb", "ptars", "perfetto", "trace_processor")
FILES = 35  # calls of a run of 28 steps
_PEAK = """
import sys
from pathlib import Path
import numpy, polars, profiler
from profiler.trace.columns import read_trace

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = peak()
if sys.argv[1] == "read":
    rows = len(read_trace(Path(sys.argv[2])).slices)
else:
    rows = len(profiler.load(sys.argv[2]).commands)
print((peak() - before) / rows)
"""


def seconds(function: Callable[[], Any]) -> float:
    """How long one call takes; what it returns is freed before the next."""
    gc.collect()
    begin = time.perf_counter()
    result = function()
    end = time.perf_counter()
    del result
    return end - begin


def in_turn(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each function, one call a round."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            times[name].append(seconds(function))
    return times


def spread(values: Sequence[float], form: str = ".1f") -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def rates(times: Sequence[float], count: int) -> str:
    return spread([count / value / 1e6 for value in times])


def ratios(times: Sequence[float], base: Sequence[float], form: str = ".1f") -> str:
    return spread([value / least for value, least in zip(times, base, strict=True)], form)


def encoded(commands: CommandColumns, compress: Compression = "none") -> bytes:
    return encode_call(trace_commands.call_of(commands), commands, compress=compress)


def table(title: str, head: Sequence[str], rows: Iterator[Sequence[str]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def cost(
    kinds: Sequence[trace_commands.Kind], sizes: Sequence[int], rounds: int
) -> Iterator[Sequence[str]]:
    """Rates and time a command by size: the cost is linear where the latter stays."""
    floor = floor_reader()
    for kind in kinds:
        for size in sizes:
            commands = kind.repeated(size)
            data = encoded(commands)
            functions: dict[str, Callable[[], Any]] = {
                "decode": lambda data=data: read_bytes(data),
                "encode": lambda commands=commands: encoded(commands),
            }
            if floor is not None:
                functions["floor"] = lambda data=data: floor(data)
            times = in_turn(functions, rounds)
            yield (
                kind.name,
                f"{size:,}",
                rates(times["decode"], size),
                rates(times["encode"], size),
                f"{median(times['decode']) / size * 1e9:.0f}",
                f"{median(times['encode']) / size * 1e9:.0f}",
                ratios(times["decode"], times["floor"]) if floor else "-",
            )


def sizes_of(kinds: Sequence[trace_commands.Kind], size: int) -> Iterator[Sequence[str]]:
    """Bytes a command, plain and packed, and how fast packing is."""
    for kind in kinds:
        commands = kind.repeated(size)
        cells = []
        for how in COMPRESSIONS:
            begin = time.perf_counter()
            length = len(encoded(commands, how))  # type: ignore[arg-type]
            rate = size / (time.perf_counter() - begin) / 1e6
            cells.append(f"{length / size:.1f} at {rate:.1f} M/s")
        yield (f"{kind.name}: {kind.what}", *cells)


def fields(kind: trace_commands.Kind, size: int) -> Iterator[Sequence[str]]:
    """What each field of a command takes, added one after another."""
    commands = kind.repeated(size)
    none, unknown = np.zeros(size, np.int32), np.full(size, UNKNOWN, np.int64)
    left: dict[str, Any] = dict.fromkeys(("op_type", "role", "shapes", "stage"), none)
    left |= dict.fromkeys(("bytes_read", "bytes_written", "flops"), unknown)
    left["step"] = np.full(size, UNKNOWN, np.int32)
    before = 0.0
    for name in ("layer, command_index", "op_type", "shapes", "bytes_read", "bytes_written"):
        left.pop(name, None)
        now = len(encoded(replace(commands, **left))) / size
        yield (name, f"{now - before:.1f}", f"{now:.1f}")
        before = now


def peers(
    kind: trace_commands.Kind, count: int, rounds: int, names: Sequence[str]
) -> Iterator[Sequence[str]]:
    """Ours and the others on one trace; ratios are how much longer the others take."""
    commands = kind.repeated(count)
    data = encoded(commands)
    with ExitStack() as stack:
        decoders: dict[str, Callable[[], Any]] = {"decode": lambda: read_bytes(data)}
        if "upb" in names:
            decoders["upb and Python loops"] = lambda: trace_peers.read_with_upb(data)
        if "ptars" in names and (ptars := trace_peers.ptars_reader()):
            decoders["ptars, nothing paired, no command fields"] = lambda: ptars(data)
        if "trace_processor" in names:
            try:
                opened = stack.enter_context(trace_peers.trace_processor(data))
                decoders["trace_processor (wasm), open and count"] = opened
            except (ImportError, OSError) as error:
                yield (f"trace_processor: {error}", "-", "-")
        encoders: dict[str, Callable[[], Any]] = {"encode": lambda: encoded(commands)}
        if "perfetto" in names and trace_peers.build_with_perfetto(commands):
            encoders["Perfetto's TraceProtoBuilder"] = lambda: trace_peers.build_with_perfetto(
                commands
            )
        for functions in (decoders, encoders):
            times = in_turn(functions, rounds)
            ours, *others = functions
            for name in (ours, *others):
                yield (name, rates(times[name], count), ratios(times[name], times[ours], ".0f"))


def memory(
    kind: trace_commands.Kind, sizes: Sequence[int], folder: Path
) -> Iterator[Sequence[str]]:
    """Peak bytes a command of a process that reads a file, and of one that loads it as a run."""
    for size in sizes:
        path = folder / f"{size}.pb"
        path.write_bytes(encoded(kind.repeated(size)))
        cells = []
        for what in ("read", "load"):
            call = [sys.executable, "-c", _PEAK, what, str(path)]
            result = subprocess.run(call, check=True, capture_output=True, text=True)
            cells.append(f"{float(result.stdout):.0f}")
        yield (kind.name, f"{size:,}", f"{path.stat().st_size / size:.0f}", *cells)
        path.unlink()


def parallel(
    kind: trace_commands.Kind, bundle: Path, size: int, rounds: int, folder: Path
) -> Iterator[Sequence[str]]:
    """Call files one after another, and in threads: the decoder releases the GIL."""
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    data = encoded(kind.repeated(size))
    large = [folder / f"{number}.pb" for number in range(FILES)]
    for path in large:
        path.write_bytes(data)
    recorded = sorted(bundle.glob("[0-9]*.pb"))
    for name, files in (("as recorded", recorded), (f"{size:,} commands each", large)):
        with ThreadPoolExecutor(threads) as pool:
            times = in_turn(
                {
                    "one": lambda files=files: [read_trace(path) for path in files],
                    "all": lambda files=files: list(pool.map(read_trace, files)),
                },
                rounds,
            )
        yield (
            f"{len(files)} files, {name}",
            spread([value * 1e3 for value in times["one"]], ".0f"),
            spread([value * 1e3 for value in times["all"]], ".0f"),
            ratios(times["one"], times["all"], ".2f") + f" with {threads} threads",
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="100000,1000000,10000000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default="upb,ptars,perfetto", help=f"of {','.join(PEERS)}")
    parser.add_argument("--peer-commands", type=int, default=100_000)
    parser.add_argument("--bundle", type=Path, help="of a run on ONNX Runtime; default: record one")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    middle = sorted(sizes)[len(sizes) // 2]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle = options.bundle or trace_commands.record_run(folder)
        run, gpu = trace_commands.onnxruntime(bundle), trace_commands.gpu()
        worst = trace_commands.adversarial()
        head = ("commands", "n", "decode M/s", "encode M/s", "ns", "ns", "decode ÷ floor")
        table("Rates and time a command", head, cost([run, gpu], sizes, options.rounds))
        table("Adversarial", head, cost([worst], [middle], options.rounds))
        head = (f"bytes a command, n = {middle:,}", *COMPRESSIONS)
        table("Size", head, sizes_of([run, gpu, worst], middle))
        table("Fields", ("field", "bytes", "together"), fields(run, middle))
        head = (f"n = {options.peer_commands:,}", "M/s", "time ÷ ours")
        asked = options.peers.split(",")
        table("Peers", head, peers(run, options.peer_commands, options.rounds, asked))
        head = ("commands", "n", "file", "read_trace", "profiler.load")
        table("Peak memory, bytes a command", head, memory(run, sizes, folder))
        head = ("", "one after another, ms", "threads, ms", "speed-up")
        table("Many files", head, parallel(run, bundle, 40_000, options.rounds, folder))


if __name__ == "__main__":
    main()
