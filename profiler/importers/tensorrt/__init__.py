"""What trtexec exports of a TensorRT engine: profile, times, layers, summary; or folders of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct, field

from profiler.errors import InputError
from profiler.files import decoded, paired
from profiler.importers.importer import Importer, Option, content_of, head_of, reader

# --- The files that trtexec exports, by their content, and what of each is read.
#
# Source of the formats: NVIDIA/TensorRT, samples/common/sampleReporting.cpp; the summaries are
# those of its trt-engine-explorer. Times are milliseconds.


_FLAT = re.compile(  # an object of an array, none within it; names may have braces and brackets
    rb'\{[^{}"]*(?:"(?:[^"\\\n]|\\.)*"[^{}"]*)*\}'
)
_OF_EACH = {"profile": b'"percentage"', "times": b'"startEnqMs"'}  # a key of every entry
_PARTS = re.compile(rb"\s*\{\s*\"Layers\"\s*:\s*\[")
_Milliseconds = Annotated[float, msgspec.Meta(gt=-1e9, lt=1e9)]  # 11 days: sums of ns fit int64
_ENDINGS = re.compile(r"\.(?:gz|json|graph|layers|profile|timing|times|metadata|build|engine)$")


class Kind(StrEnum):
    """What a file tells."""

    PROFILE = "profile"  # average time of each layer
    TIMES = "times"  # start and end of each inference
    LAYERS = "layers"  # types, tensors and kernels of the layers
    SUMMARY = "summary"  # what trtexec was asked for, and the device


class LayerTime(msgspec.Struct, frozen=True):
    """A row of `--exportProfile`; `timeMs` is the sum over all profiled inferences."""

    name: str
    timeMs: _Milliseconds = -1.0  # noqa: N815
    averageMs: _Milliseconds = -1.0  # noqa: N815


class Row(msgspec.Struct, frozen=True):
    """A row of `--exportTimes`: an inference. Enqueueing is on the host's clock, all else is by
    events of the GPU; both count from trtexec's start."""

    startEnqMs: _Milliseconds  # noqa: N815
    endEnqMs: _Milliseconds  # noqa: N815
    startComputeMs: _Milliseconds  # noqa: N815
    endComputeMs: _Milliseconds  # noqa: N815
    startH2dMs: _Milliseconds = 0.0  # noqa: N815
    endH2dMs: _Milliseconds = 0.0  # noqa: N815
    startD2hMs: _Milliseconds = 0.0  # noqa: N815
    endD2hMs: _Milliseconds = 0.0  # noqa: N815


class Export(Struct, frozen=True):
    """A file: what it has of its kind, and how many entries could not be read; `cut` if it does
    not end as JSON does."""

    path: Path
    kind: Kind
    times: tuple[LayerTime, ...] = ()
    count: int = 1  # inferences over which times of layers are summed
    rows: tuple[Row, ...] = ()
    layers: tuple[dict[str, Any], ...] = ()
    summary: dict[str, Any] = field(default_factory=dict)
    unread: int = 0
    cut: bool = False

    @property
    def engine(self) -> str:
        """The engine's name: the file's, without the endings that tell what it is."""
        name = self.path.name
        while _ENDINGS.search(name):
            name = _ENDINGS.sub("", name)
        return name


def kind_of(head: bytes) -> Kind | None:
    """What a file is, by its first MiB; None for one of no kind."""
    if head.lstrip()[:1] == b"[":
        if b'"startEnqMs"' in head:
            return Kind.TIMES
        return Kind.PROFILE if b'"averageMs"' in head and b'"percentage"' in head else None
    if _PARTS.match(head) and b'"LayerType"' in head:
        return Kind.LAYERS
    return Kind.SUMMARY if head.lstrip()[:40].startswith(b'{"performance_summary"') else None


def exports_in(folder: Path) -> list[Path]:
    """The exports that lie in a folder, by name; a summary alone is none."""
    files = (path for path in folder.iterdir() if path.is_file())
    named = sorted(path for path in files if path.name.endswith((".json", ".json.gz")))
    kinds = {path: kind_of(head_of(path)) for path in named}
    found = [path for path, kind in kinds.items() if kind is not None]
    return found if any(kinds[path] is not Kind.SUMMARY for path in found) else []


def read_export(path: Path) -> Export:
    """Read one file. Raises InputError if it is of no kind or cannot be read."""
    data = content_of(path)
    kind = kind_of(data[: 1 << 20])
    if kind is None:
        raise InputError(
            f"{path} is no export of trtexec: give --exportProfile's or --exportTimes'"
        )
    if kind is Kind.LAYERS:  # one after the other, so that of a cut file the whole ones are read
        text = paired(data.decode("utf-8", "replace"))
        found = [layer for layer in _whole_objects(text) if isinstance(layer.get("Name"), str)]
        return Export(path, kind, layers=tuple(found), cut=not text.rstrip().endswith("}"))
    if kind is Kind.SUMMARY:
        try:
            return Export(path, kind, summary=decoded(data, dict[str, Any]))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Export(path, kind, unread=1, cut=True)
    objects = _FLAT.findall(data)
    cut = not data.rstrip().endswith(b"]")
    rows, times, count, unread = [], [], 1, 0
    for one in objects:
        try:
            if kind is Kind.TIMES:
                rows.append(decoded(one, Row))
            elif b'"count"' in one and b'"name"' not in one:
                count = max(decoded(one, dict[str, int])["count"], 1)
            else:
                times.append(decoded(one, LayerTime))
        except (msgspec.MsgspecError, KeyError, UnicodeDecodeError):
            unread += 1
    unread = max(unread, data.count(_OF_EACH[kind]) - len(times) - len(rows))
    return Export(path, kind, tuple(times), count, tuple(rows), unread=unread, cut=cut)


def _whole_objects(text: str) -> Iterator[dict[str, Any]]:
    decoder, at = json.JSONDecoder(), text.index("[") + 1
    while (at := text.find("{", at)) >= 0:
        try:
            found, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            return
        yield found
        if text[at : at + 40].lstrip()[:1] != ",":
            return


# --- What trtexec exports of a TensorRT engine: profile, times, layers, summary; or folders of it.


def _recognises(path: Path, head: bytes) -> bool:
    return bool(exports_in(path)) if path.is_dir() else kind_of(head) is not None


IMPORTER = Importer(
    name="tensorrt",
    title="TensorRT",
    accepts="what trtexec exports of an engine (--exportProfile, --exportTimes, "
    "--exportLayerInfo), or a folder with it",
    recognises=_recognises,
    read=reader(__name__),
    options=(
        Option(
            "warmup",
            int,
            "the milliseconds at the start of the times that are warm-up (trtexec --warmUp); what "
            "the summary beside them says where it is left out, else 200",
        ),
    ),
    capabilities=frozenset({"timeline", "averages", "shapes", "bytes"}),
    seen="those of NVIDIA's trt-engine-explorer (A100 and RTX 3090)",
)
