"""Identify files that no importer reads, and what to give instead.

Entries of `REFUSALS` are checked before the importers, so an entry must not match a file that an
importer reads.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from profiler.errors import InputError
from profiler.files import opened
from profiler.importers.importer import GZIP, SQLITE, bytes_of, first_line
from profiler.kineto import packed_as
from profiler.plugins import plain_text

_NAMES = 4  # names, columns, keys that a description gives
_ENTRIES = 1000  # of a folder that are looked at
_TEXT = 4096  # bytes by which text and binary are distinguished
_NAME_LENGTH = 40
_KEY = re.compile(rb'"((?:[^"\\\n]|\\.){1,60})"\s*:')
_TABLE = re.compile(rb"CREATE (?:TABLE|VIEW) [\"'`\[]?(\w+)", re.IGNORECASE)
_SQLITE, _PICKLE = rb"SQLite format 3\0", rb"\x80[\x02-\x05]"
_Matches = Callable[[Path, bytes], object]


class Known(Struct, frozen=True):
    """A kind of file: `what` follows "FILE is" or "FILE looks like"; `matches` sees the path and
    the first MiB, unpacked; `instead`, an imperative, says what to give instead of one that no
    importer can read."""

    what: str
    matches: _Matches
    instead: str = ""
    stands_in: bool = False  # in a folder it may be there instead of a trace


def _is(begin: bytes, *words: bytes, without: bytes | None = None) -> _Matches:
    """A test whether a file starts with a pattern and contains all of these words."""
    pattern = re.compile(begin, re.DOTALL)

    def matches(_path: Path, head: bytes) -> bool:
        there = pattern.match(head) is not None and all(word in head for word in words)
        return there and (without is None or without not in head)

    return matches


def _packed(form: str) -> _Matches:
    return lambda _path, head: packed_as(head) == form


def _is_blank(path: Path, head: bytes) -> bool:
    """Whether a file has nothing in it, or nothing but blanks or zero bytes. One whose unpacking
    ended early may have more."""
    return not head.strip(b" \t\r\n\0") and path.is_file() and not bytes_of(path, 1)[1]


def _is_packed_again(path: Path, head: bytes) -> bool:
    """Whether a gzip file contains another one, or a zip archive."""
    if packed_as(head) not in ("gzip", "zip") or not path.is_file():
        return False
    with opened(path) as file:
        return file.read(2) == GZIP


def _header(*columns: str) -> _Matches:
    """A test whether the header of a CSV file starts with these columns, quoted or not."""
    wanted = list(columns)

    def matches(_path: Path, head: bytes) -> bool:
        names = first_line(head).split(",", len(wanted))[: len(wanted)]
        return [name.strip().strip('"') for name in names] == wanted

    return matches


def _columns(*names: str) -> _Matches:
    """A test whether the header of a CSV file has all of these columns."""

    def matches(_path: Path, head: bytes) -> bool:
        return {*names} <= {name.strip(' "\r') for name in first_line(head).split(",")}

    return matches


_ASCEND_SUMMARIES = (
    ("Host Self Duration(us)", "Device Self Duration(us)"),  # operator_details.csv
    ("Computing", "Communication(Not Overlapped)", "Free"),  # step_trace_time.csv
    ("OP Type", "Core Type", "Total Time(us)"),  # op_statistic*.csv
    ("API Name", "Level", "Time(us)"),  # api_statistic*.csv
)


def _is_ascend_summary(path: Path, head: bytes) -> bool:
    if head.lstrip()[:1] == b"{":
        return b'"Communication Time Info"' in head or b'"Communication Bandwidth Info"' in head
    return any(_columns(*names)(path, head) for names in _ASCEND_SUMMARIES)


def _is_raw_ascend(path: Path, _head: bytes) -> bool:
    """Whether a folder has what torch_npu recorded, and nothing that was exported from it."""
    if not path.is_dir() or not any(path.glob("PROF_*")) or not any(path.glob("FRAMEWORK")):
        return False
    return next(path.glob("ASCEND_PROFILER_OUTPUT/*"), None) is None


def _lies_beside_xplane(path: Path, head: bytes) -> bool:
    """Whether a file is what TensorBoard's profiler writes for its viewer, beside the original
    trace."""
    if b'"traceEvents"' not in head or not path.name.endswith((".trace.json", ".trace.json.gz")):
        return False
    return next(path.parent.glob("*.xplane.pb"), None) is not None


_PRODUCERS = (
    Known(
        "a profile of TensorRT (trtexec --exportProfile)", _is(b"", b'"averageMs"', b'"percentage"')
    ),
    Known("times of TensorRT (trtexec --exportTimes)", _is(b"", b'"startEnqMs"')),
    Known("layers of TensorRT (trtexec --exportLayerInfo)", _is(b"", b'{"Layers"')),
    Known("a summary of trtexec", _is(b"", b'"performance_summary"')),
    Known("a trace of the Triton Inference Server", _is(b"", b'"timestamps"', b'"ns"', b'"id"')),
    Known("an analysis of Qualcomm's HTP (QHAS)", _is(b"", b'"artifact_type"', b'"QHAS"')),
    Known("a profile of Qualcomm's QNN", _is(b"", b"Msg Timestamp,")),
    Known("counters of OpenVINO", _is(b"", b"layerName;execStatus;layerType")),
    Known("measurements of Qualcomm's AI Hub", _is(b"", b"performance_metrics:", b"components:")),
    Known(
        "an XPlane of XLA's profiler",
        _is(rb"\x0a.{1,5}(\x08.{1,9})?\x12.(/host:|/device:|Task Environment)"),
    ),
    Known("a trace of rocprofv3", _is(b"", b'"rocprofiler-sdk-tool"')),
)
_OTHERS = (
    Known("a program or library", _is(rb"(?i)\x7felf")),
    Known("a picture", _is(rb"(?i)\x89png")),
    Known("a PDF document", _is(rb"(?i)%pdf")),
    Known("weights of a model (GGUF)", _is(rb"(?i)gguf")),
    Known("an array of numpy", _is(rb"(?i)\x93numpy")),
    Known("an HDF5 file", _is(rb"(?i)\x89hdf")),
    Known("a zip archive without a trace", _packed("zip")),
    Known("a tar archive without a trace", _packed("tar")),
    Known("a Chrome trace of another program (an array of events)", _is(rb"\s*\[", b'"ph"')),
    Known("a Chrome trace of another program", _is(rb"\s*\{", b'"traceEvents"')),
)


def producer(head: bytes) -> str | None:
    """The name of the known kind of file with this start; None if it has no format of its own."""
    return next((known.what for known in _PRODUCERS if known.matches(Path(), head)), None)


def likeness(path: Path, head: bytes) -> str:
    """What the file or folder looks like, from its first MiB, unpacked; nothing in it is executed.

    Text of the file is shown as plain text, shortened.
    """
    if path.is_dir():
        with os.scandir(path) as entries:
            kinds = Counter(
                "folders"
                if entry.is_dir(follow_symlinks=False)
                else Path(entry.name).suffix[:_NAME_LENGTH] or "files"
                for entry in islice(entries, _ENTRIES)
            )
        most = ", ".join(f"{count} {plain_text(kind)}" for kind, count in kinds.most_common(_NAMES))
        more = ", …" if len(kinds) > _NAMES else ""
        return f"a folder ({most}{more})" if kinds else "an empty folder"
    if not head:
        return "an empty file"
    found = (known.what for known in (*_PRODUCERS, *_OTHERS) if known.matches(path, head))
    return next(found, "") or _by_structure(head)


def _by_structure(head: bytes) -> str:
    if head.startswith(SQLITE):
        return _named("an SQLite database", "tables", sorted(_TABLE.findall(head)))
    if b"\0" in head[:_TEXT]:
        return "a binary file"
    text = head.lstrip()
    if text[:1] in (b"{", b"["):
        what = "a JSON array" if text[:1] == b"[" else "a JSON object"
        return _named(what, "keys", _KEY.findall(text[:_TEXT]))
    line = text.split(b"\n", 1)[0]
    for separator in (b",", b";", b"\t"):
        if line.count(separator) >= 2:
            columns = [name.strip(b' "\r') for name in line.split(separator)]
            return _named("a table", "columns", columns)
    return "a text"


def _named(what: str, of: str, names: list[bytes]) -> str:
    different = list(dict.fromkeys(names))
    shown = [plain_text(n.decode("utf-8", "replace")[:_NAME_LENGTH]) for n in different[:_NAMES]]
    if not shown:
        return what
    more = ", …" if len(different) > _NAMES else ""
    return f"{what} ({of}: {', '.join(shown)}{more})"


# --- Files that no importer can read, and what to give instead of each. Source of the formats: the
# producers' manuals.


def refuse(paths: Sequence[Path], heads: Sequence[bytes]) -> None:
    """Raise InputError, with what to give instead, for the first file that no importer can read."""
    for path, head in zip(paths, heads, strict=True):
        refusal = refusal_of(path, head)
        if refusal is not None:
            raise InputError(f"{path} is {refusal.what}: {refusal.instead}")


def refusal_of(path: Path, head: bytes) -> Known | None:
    """The matching refusal of a file, None if it may be read."""
    return next((refusal for refusal in REFUSALS if refusal.matches(path, head)), None)


REFUSALS: tuple[Known, ...] = (
    Known("empty", _is_blank, "record or copy it again", stands_in=True),
    Known(
        "the pointer to a file, of Git LFS or git-annex, not the file",
        _is(rb"version https://git-lfs\.|/annex/objects/"),
        "get the file with `git lfs pull` or `git annex get`",
        stands_in=True,
    ),
    Known(
        "a web page or XML, as servers send it instead of a file",
        _is(rb"(?i)(?:\xef\xbb\xbf)?\s*(?:<!doctype html|<html|<\?xml)"),
        "download the file itself, signed in if that is needed",
        stands_in=True,
    ),
    Known(
        "a text in UTF-16 or UTF-32",
        _is(rb"\xff\xfe|\xfe\xff|\0{0,3}[\[{]\0"),
        "save it as UTF-8",
    ),
    Known(
        "packed in a way that is not read here (gzip, zip and tar are)",
        _is(
            rb"BZh[1-9]1AY&SY|\xfd7zXZ\0|\x28\xb5\x2f\xfd|\x04\x22M\x18|7z\xbc\xaf|Rar!|x[\x01\x9c\xda]"
        ),
        "unpack it, and give what was in it",
    ),
    Known(
        "packed twice: its gzip contains a gzip or zip",
        _is_packed_again,
        "unpack it once",
    ),
    Known(
        "a summary of a run: medians and counts without a trace",
        _is(rb'\s*\{\s*"schema_version"\s*:\s*\d+\s*,\s*"content"\s*:'),
        "give the run's bundle, or compare the summary with a run: `profile-sd3 diff SUMMARY RUN`",
    ),
    Known(
        "a document that profile-sd3 wrote (--json)",
        _is(rb'\s*\{\s*"schema"\s*:\s*"urn:profile-sd3:'),
        "give the run that it is about",
    ),
    Known(
        "a report of Nsight Systems, whose format is its own",
        lambda path, _: path.suffix in (".nsys-rep", ".qdrep", ".qdstrm"),
        "give what `nsys export --type sqlite` writes from it",
    ),
    Known(
        "a report of Nsight Compute: counters of kernels without a timeline",
        lambda path, _: path.suffix in (".ncu-rep",),
        "record with `nsys profile` and give what `nsys export --type sqlite` writes",
    ),
    Known(
        "a Parquet file",
        _is(rb"PAR1"),
        "give the folder that `analyze --parquet` wrote, or, of Nsight Systems, what "
        "`nsys export --type sqlite` writes",
    ),
    Known(
        "a trace of torch.autograd.profiler, whose rows of the GPU are no kernels",
        _is(rb"\s*\[", b'"ph"', b'"CPU functions"'),
        "record with torch.profiler.profile",
    ),
    Known(
        "a trace of rocprof, the profiler before rocprofv3",
        _is(rb"\s*\{", b'"traceEvents"', b'"BeginNs"', b'"EndNs"'),
        "record with `rocprofv3 --sys-trace --output-format json`",
    ),
    Known(
        "times by trtexec of TensorRT 7 (--exportTimes)",
        _is(rb"\s*\[", b'"startInMs"', b'"endToEndMs"'),
        "give what `trtexec --exportProfile` writes, or times of TensorRT 8 or newer",
    ),
    Known(
        "a trace of AMD's rocmProfileData (RPD)",
        _is(_SQLITE, b"rocpd_api", b"rocpd_op", without=b"rocpd_kernel_dispatch"),
        "record with `rocprofv3 --sys-trace --output-format json`",
    ),
    Known(
        "a CSV of rocprof, the profiler before rocprofv3",
        _header("Index", "KernelName"),
        "record with `rocprofv3 --sys-trace --output-format json`",
    ),
    Known(
        "a CSV of rocprofv2, the profiler before rocprofv3",
        _header("Dispatch_ID", "GPU_ID"),
        "record with `rocprofv3 --sys-trace --output-format json`",
    ),
    Known(
        "a summary by rocprof (…_stats.csv): sums without a timeline",
        _header("Name", "Calls", "TotalDurationNs"),
        "give the trace beside it (…_kernel_trace.csv)",
    ),
    Known(
        "a list of rocprofv3's agents, without work",
        _header("Node_Id", "Logical_Node_Id", "Agent_Type"),
        "give the traces beside it (…_kernel_trace.csv), or their folder",
    ),
    Known(
        "a summary by Ascend's profiler: sums without a timeline",
        _is_ascend_summary,
        "give the trace beside it (trace_view.json, kernel_details.csv; of msprof msprof_*.json, "
        "op_summary_*.csv), or their folder",
    ),
    Known(
        "a recording of torch_npu that was not exported",
        _is_raw_ascend,
        "export it with torch_npu.profiler.profiler.analyse(FOLDER), then give the folder again",
    ),
    Known(
        "the output tensors of trtexec (--exportOutput)",
        _is(rb'\s*\[\s*\{\s*"name"\s*:[^{}]*"dimensions"\s*:[^{}]*"values"\s*:'),
        "give what `trtexec --exportProfile` and `--exportLayerInfo` write",
    ),
    Known(
        "a list of TensorRT's layers by name alone",
        _is(rb'\s*\{\s*"Layers"\s*:\s*\[\s*"'),
        "build the engine with `trtexec --profilingVerbosity=detailed`, then give what "
        "`--exportLayerInfo` and `--exportProfile` write",
    ),
    Known(
        "a trace in OpenTelemetry's format",
        _is(rb'\s*\[?\s*\{\s*"resourceSpans"\s*:'),
        "give the Triton Inference Server's own (--trace-config mode=triton)",
    ),
    Known(
        "a log of Qualcomm's QNN in its binary form",
        lambda path, head: path.name.startswith("qnn-profiling-data") and b"\0" in head,
        "give the CSV that `qnn-profile-viewer` makes of it",
    ),
    Known(
        "the report of OpenVINO's benchmark_app, without layers",
        _is(rb"Command line parameters"),
        "give the counters that `benchmark_app -report_type average_counters` writes beside it",
    ),
    Known(
        "a view of the trace in the .xplane.pb beside it",
        _lies_beside_xplane,
        "give the .xplane.pb, which has all of it",
    ),
    Known(
        "a memory snapshot of torch, a pickle, which is never opened, since it can run code",
        _is(_PICKLE, b"segments", b"device_traces"),
        "record with torch.profiler.profile(profile_memory=True) and export_chrome_trace",
    ),
    Known(
        "a pickle, which is never opened, since it can run code",
        _is(_PICKLE),
        "give a trace in the format of its producer",
    ),
)
