"""Unsupported trace files: what they look like, and what to provide instead.

Entries of `REFUSALS` are checked before the importers, so an entry must not match a file that
an importer reads.
"""

from __future__ import annotations

import os
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path

from msgspec import Struct

from profiler.errors import InputError
from profiler.importers.archive import archive_importer, heads_in, is_archive
from profiler.importers.importer import SQLITE, Importer, head_of, recognised_by
from profiler.importers.mixed import mixed_importer
from profiler.kineto import packed_as
from profiler.plugins import plain_text, plugins

# --- What a file looks like that no importer reads, in words that follow "FILE looks like".


_NAMES = 4  # names, columns, keys that a description gives
_ENTRIES = 1000  # of a folder that are looked at
_TEXT = 4096  # bytes by which text and binary are told apart
_NAME_LENGTH = 40
_KEY = re.compile(rb'"((?:[^"\\\n]|\\.){1,60})"\s*:')
_TABLE = re.compile(rb"CREATE (?:TABLE|VIEW) [\"'`\[]?(\w+)", re.IGNORECASE)
_XPLANE = re.compile(rb"\x0a.{1,5}(\x08.{1,9})?\x12.(/host:|/device:|Task Environment)", re.DOTALL)


class Known(Struct, frozen=True):
    """A kind of file, in words that follow "looks like", and what tells it by its first MiB."""

    what: str
    matches: Callable[[bytes], bool]


def _has(*words: bytes) -> Callable[[bytes], bool]:
    return lambda head: all(word in head for word in words)


def _head_starts(*magics: bytes) -> Callable[[bytes], bool]:
    return lambda head: head[:16].lower().startswith(magics)


def _packed(form: str) -> Callable[[bytes], bool]:
    return lambda head: packed_as(head) == form


_PRODUCERS = (
    Known("a profile of TensorRT (trtexec --exportProfile)", _has(b'"averageMs"', b'"percentage"')),
    Known("times of TensorRT (trtexec --exportTimes)", _has(b'"startEnqMs"')),
    Known("layers of TensorRT (trtexec --exportLayerInfo)", _has(b'{"Layers"')),
    Known("a summary of trtexec", _has(b'"performance_summary"')),
    Known("a trace of the Triton Inference Server", _has(b'"timestamps"', b'"ns"', b'"id"')),
    Known("an analysis of Qualcomm's HTP (QHAS)", _has(b'"artifact_type"', b'"QHAS"')),
    Known("a profile of Qualcomm's QNN", _has(b"Msg Timestamp,")),
    Known("counters of OpenVINO", _has(b"layerName;execStatus;layerType")),
    Known("measurements of Qualcomm's AI Hub", _has(b"performance_metrics:", b"components:")),
    Known("an XPlane of XLA's profiler", lambda head: _XPLANE.match(head) is not None),
    Known("a trace of rocprofv3", _has(b'"rocprofiler-sdk-tool"')),
)
_OTHERS = (
    Known("a program or library", _head_starts(b"\x7felf")),
    Known("a picture", _head_starts(b"\x89png")),
    Known("a PDF document", _head_starts(b"%pdf")),
    Known("weights of a model (GGUF)", _head_starts(b"gguf")),
    Known("an array of numpy", _head_starts(b"\x93numpy")),
    Known("an HDF5 file", _head_starts(b"\x89hdf")),
    Known("a web page", _head_starts(b"<!doctype html", b"<html")),
    Known("a zip archive without a trace", _packed("zip")),
    Known("a tar archive without a trace", _packed("tar")),
    Known("a damaged gzip file", _packed("gzip")),
    Known(
        "a Chrome trace of another program (an array of events)",
        lambda head: head.lstrip()[:1] == b"[" and b'"ph"' in head,
    ),
    Known(
        "a Chrome trace of another program",
        lambda head: head.lstrip()[:1] == b"{" and b'"traceEvents"' in head,
    ),
)


def producer(head: bytes) -> str | None:
    """The known kind of file that begins so, where there is an own format behind it."""
    return next((known.what for known in _PRODUCERS if known.matches(head)), None)


def likeness(path: Path, head: bytes) -> str:
    """What the file or folder looks like, from its first MiB, unpacked; nothing of it is run.

    Text of the file is shown as plain text, shortened.
    """
    if path.is_dir():
        return _folder(path)
    if not head:
        return "an empty file"
    found = (known.what for known in (*_PRODUCERS, *_OTHERS) if known.matches(head))
    return next(found, "") or _by_structure(head)


def _by_structure(head: bytes) -> str:
    if head.startswith(b"SQLite format 3\0"):
        return _named("an SQLite database", "tables", sorted(_TABLE.findall(head)))
    if b"\0" in head[:_TEXT]:
        return "a binary file"
    text = head.lstrip()
    if text[:1] in (b"{", b"["):
        return _json(text)
    line = text.split(b"\n", 1)[0]
    for separator in (b",", b";", b"\t"):
        if line.count(separator) >= 2:
            columns = [name.strip(b' "\r') for name in line.split(separator)]
            return _named("a table", "columns", columns)
    return "a text"


def _json(text: bytes) -> str:
    keys = _KEY.findall(text[:_TEXT])
    if text[:1] == b"[":
        return _named("a JSON array", "keys", keys)
    return _named("a JSON object", "keys", keys)


def _named(what: str, of: str, names: list[bytes]) -> str:
    different = list(dict.fromkeys(names))
    shown = [plain_text(n.decode("utf-8", "replace")[:_NAME_LENGTH]) for n in different[:_NAMES]]
    if not shown:
        return what
    more = ", …" if len(different) > _NAMES else ""
    return f"{what} ({of}: {', '.join(shown)}{more})"


def _folder(path: Path) -> str:
    """By the suffixes of what lies in it."""
    with os.scandir(path) as entries:
        kinds = Counter(_kind(entry) for entry in islice(entries, _ENTRIES))
    if not kinds:
        return "an empty folder"
    most = ", ".join(f"{count} {plain_text(kind)}" for kind, count in kinds.most_common(_NAMES))
    more = ", …" if len(kinds) > _NAMES else ""
    return f"a folder ({most}{more})"


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_dir(follow_symlinks=False):
        return "folders"
    return Path(entry.name).suffix[:_NAME_LENGTH] or "files"


# --- Files that no importer can read, whatever it tried, and what to give instead of each.
#
# Adding one is adding an entry. They are looked at before the importers are, so that an entry
# must
# match nothing that one of them reads. Source of the formats: the producers' manuals.


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


def _file_starts(magic: bytes) -> Callable[[Path, bytes], bool]:
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
        _file_starts(b"PAR1"),
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
        _file_starts(b"Command line parameters"),
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


# --- The importers that are there, and which of them a file is for.
#
# A folder of this package with an `IMPORTER` is one; so is what another package names under the
# entry point group `profile_sd3.importers`. Nothing lists them.


GROUP = "profile_sd3.importers"
_NEEDS = ("name", "accepts", "recognises", "read", "options", "capabilities", "values")


@cache
def built_in() -> tuple[Importer, ...]:
    """The importers of this package, by name; looking for them imports no library."""
    package = import_module("profiler.importers")
    folders = [
        import_module(f"{package.__name__}.{module.name}")
        for module in pkgutil.iter_modules(package.__path__)
        if module.ispkg
    ]
    found = [folder.IMPORTER for folder in folders if hasattr(folder, "IMPORTER")]
    return tuple(sorted(found, key=lambda importer: importer.name))


def importers() -> tuple[Importer, ...]:
    """All importers: those of this package, then those of others, each name once."""
    by_name: dict[str, Importer] = {}
    for importer in (*built_in(), *plugins(GROUP, *_NEEDS)):
        by_name.setdefault(importer.name, importer)
    return tuple(by_name.values())


def recognised(paths: Sequence[Path]) -> Importer | None:
    """The first importer that recognises every path, None where none does. Raises InputError
    where one cannot be read, or is of a kind for which something else must be given."""
    heads = [head_of(path) for path in paths]
    if len(paths) == 1:  # among several it may be what another needs beside it
        refuse(paths, heads)
    given = list(zip(paths, heads, strict=True))
    matching = (one for one in importers() if all(recognised_by(*each, one) for each in given))
    found = next(matching, None)
    if len(paths) == 1 and paths[0].is_dir():
        return _of_folder(paths[0], found)
    if len(paths) == 1 and is_archive(paths[0], heads[0]):
        return _of_archive(paths[0], found)
    if found is None:
        refuse(paths, heads)
    return found


def _of_folder(folder: Path, whole: Importer | None) -> Importer | None:
    """What reads a folder: `whole`, which recognises it, unless files of others lie in it, too."""
    from profiler.importers.mixed.align import contents_of

    there = contents_of(folder, importers()).files
    if whole is not None and there.keys() <= {whole.name}:
        together = getattr(whole, "together", None)  # later than other packages' importers may be
        if together is None or len(together(there.get(whole.name, ()))) < 2:
            return whole
    return mixed_importer(importers()) if there else None


def _of_archive(path: Path, whole: Importer | None) -> Importer | None:
    """What reads an archive: `whole`, which reads the only trace in it where it lies, else what
    unpacks it; None where no importer recognises any of its files."""
    holders = [
        found
        for name, head in heads_in(path)
        if (found := next((o for o in importers() if recognised_by(Path(name), head, o)), None))
    ]
    if not holders:
        return None
    alone = whole is not None and [one.name for one in holders] == [whole.name]
    return whole if alone else archive_importer(importers(), recognised)


def choose(paths: Sequence[Path], options: Mapping[str, object]) -> Importer:
    """The importer that recognises `paths`; where none does, the only one that has the `options`
    that were given. Raises InputError where there is none, with what the first looks like."""
    found = recognised(paths)
    if found is not None:
        return found
    able = [one for one in importers() if options and options.keys() <= _names(one)]
    if len(able) == 1:
        return able[0]
    for path in paths:
        if recognised([path]) is None:
            raise unread(path)
    named = ", ".join(map(str, paths))
    raise InputError(f"{named} are of different formats, and no importer reads them as one run")


def unread(path: Path) -> InputError:
    """What to raise for a path that nobody reads: what it looks like, which formats are read, and
    where it says what to give of each."""
    formats = ", ".join(getattr(one, "title", "") or one.name for one in importers())
    return InputError(
        f"{path} looks like {likeness(path, head_of(path))}, which is not read here. Formats: "
        f"bundle, Perfetto trace, {formats}. `profile-sd3 import --list` says which file to give "
        "of each"
    )


def _names(importer: Importer) -> set[str]:
    return {option.name for option in importer.options}
