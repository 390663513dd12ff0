"""Files that no importer can read, whatever it tried, and what to give instead of each.

Adding one is adding an entry. They are looked at before the importers are, so that an entry must
match nothing that one of them reads. Source of the formats: the producers' manuals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from profiler.errors import InputError
from profiler.importers.head import SQLITE

__all__ = ["REFUSALS", "Refusal", "refusal_of", "refuse"]

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_MEMORY_SNAPSHOT = b"segments", b"device_traces"
_LAYER_NAMES = re.compile(rb'\s*\{\s*"Layers"\s*:\s*\[\s*"')
_TENSORS = re.compile(rb'\s*\[\s*\{\s*"name"\s*:[^{}]*"dimensions"\s*:[^{}]*"values"\s*:')
_OTLP = re.compile(rb'\s*\[?\s*\{\s*"resourceSpans"\s*:')


class Refusal(Struct, frozen=True):
    """A kind of file: what it is, by what it is told, and what to give instead.

    `what` follows "FILE is", `instead` is an imperative; `matches` sees the path and the first
    MiB, unpacked.
    """

    what: str
    matches: Callable[[Path, bytes], bool]
    instead: str


def refuse(paths: Sequence[Path], heads: Sequence[bytes]) -> None:
    """Raises InputError, with what to give, for the first file that no importer can read."""
    for path, head in zip(paths, heads, strict=True):
        refusal = refusal_of(path, head)
        if refusal is not None:
            raise InputError(f"{path} is {refusal.what}: {refusal.instead}")


def refusal_of(path: Path, head: bytes) -> Refusal | None:
    """The refusal that a file meets, None for one that may be read."""
    return next((refusal for refusal in REFUSALS if refusal.matches(path, head)), None)


def _suffix(*suffixes: str) -> Callable[[Path, bytes], bool]:
    return lambda path, _head: path.suffix in suffixes


def _tables(*names: bytes, without: bytes | None = None) -> Callable[[Path, bytes], bool]:
    """An SQLite file with all of these names in its schema."""

    def matches(_path: Path, head: bytes) -> bool:
        there = head.startswith(SQLITE) and all(name in head for name in names)
        return there and (without is None or without not in head)

    return matches


def _header(*columns: str) -> Callable[[Path, bytes], bool]:
    """A CSV file whose header begins with these columns, quoted or not."""
    wanted = list(columns)

    def matches(_path: Path, head: bytes) -> bool:
        line = head.split(b"\n", 1)[0].decode("utf-8", "replace")
        names = line.split(",", len(wanted))[: len(wanted)]  # a JSON text may be one long line
        return [name.strip().strip('"') for name in names] == wanted

    return matches


def _begins(pattern: re.Pattern[bytes]) -> Callable[[Path, bytes], bool]:
    return lambda _path, head: pattern.match(head) is not None


def _starts(magic: bytes) -> Callable[[Path, bytes], bool]:
    return lambda _path, head: head.startswith(magic)


def _is_pickle(_path: Path, head: bytes) -> bool:
    return _PICKLE.match(head) is not None


def _is_snapshot(path: Path, head: bytes) -> bool:
    return _is_pickle(path, head) and all(key in head for key in _MEMORY_SNAPSHOT)


def _is_qnn_log(path: Path, head: bytes) -> bool:
    return path.name.startswith("qnn-profiling-data") and b"\0" in head


def _lies_beside_xplane(path: Path, head: bytes) -> bool:
    """What TensorBoard's profiler writes for its viewer, beside the trace that it is made from."""
    if b'"traceEvents"' not in head or not path.name.endswith((".trace.json", ".trace.json.gz")):
        return False
    return next(path.parent.glob("*.xplane.pb"), None) is not None


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        "a report of Nsight Systems, whose format is its own",
        _suffix(".nsys-rep", ".qdrep", ".qdstrm"),
        "give what `nsys export --type sqlite` writes from it",
    ),
    Refusal(
        "a report of Nsight Compute: counters of kernels without a timeline",
        _suffix(".ncu-rep"),
        "record with `nsys profile` and give what `nsys export --type sqlite` writes",
    ),
    Refusal(
        "a Parquet file",
        _starts(b"PAR1"),
        "give the folder that `analyze --parquet` wrote, or, of Nsight Systems, what "
        "`nsys export --type sqlite` writes",
    ),
    Refusal(
        "an SQLite export of Ascend's msprof",
        _tables(b"STRING_IDS", b"PYTORCH_API"),
        "no export of it can be read; give a trace that `profile-sd3 import --list` names",
    ),
    Refusal(
        "a trace of AMD's rocmProfileData (RPD)",
        _tables(b"rocpd_api", b"rocpd_op", without=b"rocpd_kernel_dispatch"),
        "record with `rocprofv3 --sys-trace --output-format json`",
    ),
    Refusal(
        "a CSV of rocprof, the profiler before rocprofv3",
        _header("Index", "KernelName"),
        "record with `rocprofv3 --sys-trace --output-format json`",
    ),
    Refusal(
        "a CSV of rocprofv2, the profiler before rocprofv3",
        _header("Dispatch_ID", "GPU_ID"),
        "record with `rocprofv3 --sys-trace --output-format json`",
    ),
    Refusal(
        "a summary by rocprof (…_stats.csv): sums without a timeline",
        _header("Name", "Calls", "TotalDurationNs"),
        "give the trace beside it (…_kernel_trace.csv)",
    ),
    Refusal(
        "a list of rocprofv3's agents, without work",
        _header("Node_Id", "Logical_Node_Id", "Agent_Type"),
        "give the traces beside it (…_kernel_trace.csv), or their folder",
    ),
    Refusal(
        "the output tensors of trtexec (--exportOutput)",
        _begins(_TENSORS),
        "give what `trtexec --exportProfile` and `--exportLayerInfo` write",
    ),
    Refusal(
        "a list of TensorRT's layers by name alone",
        _begins(_LAYER_NAMES),
        "build the engine with `trtexec --profilingVerbosity=detailed`, then give what "
        "`--exportLayerInfo` and `--exportProfile` write",
    ),
    Refusal(
        "a trace in OpenTelemetry's format",
        _begins(_OTLP),
        "give the Triton Inference Server's own (--trace-config mode=triton)",
    ),
    Refusal(
        "a log of Qualcomm's QNN in its binary form",
        _is_qnn_log,
        "give the CSV that `qnn-profile-viewer` makes of it",
    ),
    Refusal(
        "the report of OpenVINO's benchmark_app, without layers",
        _starts(b"Command line parameters"),
        "give the counters that `benchmark_app -report_type average_counters` writes beside it",
    ),
    Refusal(
        "a view of the trace in the .xplane.pb beside it",
        _lies_beside_xplane,
        "give the .xplane.pb, which has all of it",
    ),
    Refusal(
        "a memory snapshot of torch, a pickle, which is never opened, since it can run code",
        _is_snapshot,
        "record with torch.profiler.profile(profile_memory=True) and export_chrome_trace",
    ),
    Refusal(
        "a pickle, which is never opened, since it can run code",
        _is_pickle,
        "give a trace in the format of its producer",
    ),
)
