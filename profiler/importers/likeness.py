"""What a file looks like that no importer reads, in words that follow "FILE looks like"."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from msgspec import Struct

from profiler.kineto.archives import packed_as
from profiler.plain_text import plain_text

__all__ = ["Known", "likeness", "producer"]

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


def _starts(*magics: bytes) -> Callable[[bytes], bool]:
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
    Known("a program or library", _starts(b"\x7felf")),
    Known("a picture", _starts(b"\x89png")),
    Known("a PDF document", _starts(b"%pdf")),
    Known("weights of a model (GGUF)", _starts(b"gguf")),
    Known("an array of numpy", _starts(b"\x93numpy")),
    Known("an HDF5 file", _starts(b"\x89hdf")),
    Known("a web page", _starts(b"<!doctype html", b"<html")),
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
