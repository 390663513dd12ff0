"""Import trtexec exports: inference times and average layer times of TensorRT engines.

    import_trace(Path("resnet.profile.json"), Path("traces"))
    import_trace(Path("exports"), Path("traces"))          # all exports, of any engines

An inference is a call. Layers were timed in separate inferences, of which only averages remain;
they are one more call, laid end to end.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct, field

from profiler.errors import InputError
from profiler.files import decoded, paired
from profiler.grammars.names import TensorRtLayer
from profiler.importers.foreign_run import (
    ForeignRunBuilder,
    PlacedCall,
    TimedLayer,
    call_at,
    component,
    end_to_end,
)
from profiler.importers.formats import TensorRtKind, tensorrt_exports, tensorrt_kind
from profiler.importers.importer import content_of
from profiler.trace.columns import CommandBuilder
from profiler.trace.events import UNKNOWN, DropKind, DropReason, Track
from profiler.trace.manifest_fields import Clocks, Device, Warmup

# --- The files that trtexec exports, by their content, and what of each is read.
#
# Source of the formats: NVIDIA/TensorRT, samples/common/sampleReporting.cpp; the summaries are
# those of its trt-engine-explorer. Times are milliseconds.


_FLAT = re.compile(  # an object of an array, none within it; names may have braces and brackets
    rb'\{[^{}"]*(?:"(?:[^"\\\n]|\\.)*"[^{}"]*)*\}'
)
_OF_EACH = {"profile": b'"percentage"', "times": b'"startEnqMs"'}  # a key of every entry
_Milliseconds = Annotated[float, msgspec.Meta(gt=-1e9, lt=1e9)]  # 11 days: sums of ns fit int64
_ENDINGS = re.compile(r"\.(?:gz|json|graph|layers|profile|timing|times|metadata|build|engine)$")


class LayerTime(msgspec.Struct, frozen=True):
    """A row of `--exportProfile`; `timeMs` is the sum over all profiled inferences."""

    name: str
    timeMs: _Milliseconds = -1.0  # noqa: N815
    averageMs: _Milliseconds = -1.0  # noqa: N815


class Row(msgspec.Struct, frozen=True):
    """A row of `--exportTimes`: an inference. Enqueueing is timed by the host's clock, everything
    else by GPU events; both count from trtexec's start."""

    startEnqMs: _Milliseconds  # noqa: N815
    endEnqMs: _Milliseconds  # noqa: N815
    startComputeMs: _Milliseconds  # noqa: N815
    endComputeMs: _Milliseconds  # noqa: N815
    startH2dMs: _Milliseconds = 0.0  # noqa: N815
    endH2dMs: _Milliseconds = 0.0  # noqa: N815
    startD2hMs: _Milliseconds = 0.0  # noqa: N815
    endD2hMs: _Milliseconds = 0.0  # noqa: N815


class Export(Struct, frozen=True):
    """One file: its entries, and how many could not be read; `cut` if it does not end as JSON
    does."""

    path: Path
    kind: TensorRtKind
    times: tuple[LayerTime, ...] = ()
    count: int = 1  # inferences over which layer times are summed
    rows: tuple[Row, ...] = ()
    layers: tuple[dict[str, Any], ...] = ()
    summary: dict[str, Any] = field(default_factory=dict)
    unread: int = 0
    cut: bool = False

    @property
    def engine(self) -> str:
        """The engine's name: the file's name without the endings for its kind."""
        name = self.path.name
        while _ENDINGS.search(name):
            name = _ENDINGS.sub("", name)
        return name


def read_export(path: Path) -> Export:
    """Read one file. Raises InputError if it is not an export or cannot be read."""
    data = content_of(path)
    kind = tensorrt_kind(data[: 1 << 20])
    if kind is None:
        raise InputError(
            f"{path} is no export of trtexec: give --exportProfile's or --exportTimes'"
        )
    if kind is TensorRtKind.LAYERS:  # one by one, so that the whole entries of a cut file are read
        text = paired(data.decode("utf-8", "replace"))
        found = [layer for layer in _whole_objects(text) if isinstance(layer.get("Name"), str)]
        return Export(path, kind, layers=tuple(found), cut=not text.rstrip().endswith("}"))
    if kind is TensorRtKind.SUMMARY:
        try:
            return Export(path, kind, summary=decoded(data, dict[str, Any]))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Export(path, kind, unread=1, cut=True)
    objects = _FLAT.findall(data)
    cut = not data.rstrip().endswith(b"]")
    rows, times, count, unread = [], [], 1, 0
    for one in objects:
        try:
            if kind is TensorRtKind.TIMES:
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


# --- Layers of an engine: their times, joined with the layer file's details.


_TYPES = {  # words of "Format/Datatype" and of weights → type, bits
    **dict.fromkeys(("FP32", "FLOAT"), ("float", 32)),
    **dict.fromkeys(("FP16", "HALF"), ("half", 16)),
    **{f"INT{bits}": (f"int{bits}", bits) for bits in (4, 8, 32, 64)},
    "BF16": ("bfloat16", 16),
    "FP8": ("float8e4m3fn", 8),
    "UINT8": ("uint8", 8),
    "BOOL": ("bool", 8),
}
_GRAMMAR = TensorRtLayer()
_NODE = re.compile(r"(?:^(?=.*_\d)|/)([A-Z][A-Za-z]*)(?:[123]D)?(?:_\d+)*$")
_UNNAMED = re.compile(r"\(Unnamed Layer\* \d+\) \[([\w ]+)\]")
_HOST_COPY = re.compile(r"\[(\w*Copy)\w* \d+\]")
_GENERATED = "kgen"  # Myelin's type of every kernel that it wrote
_ONNX_NODE = re.compile(r"\[ONNX Layer: ([^\]]+)\]")  # in `Metadata`
_ATEN = re.compile(r"\[\w+\]-\[aten_ops\.(\w+?)(?:\.\w+)?\]-\[[^\]]*\]")  # of Torch-TensorRT
_TYPES_BY_NAME = (
    (re.compile(r"ReadVariableOp.*/\w*conv\w*/BiasAdd"), "Conv"),  # of TensorFlow, with weights
    (re.compile(r"^\{(?!ForeignNode\[)[^{}]+\}"), "DLA"),  # and what it waits for
    (re.compile(r" (?:in|out)put reformatter \d+$"), "Reformat"),  # of TensorRT 8
)
_API_TYPES = {  # of layers, where ONNX has another word
    "Convolution": "Conv",
    "Deconvolution": "ConvTranspose",
    "Fully Connected": "Gemm",
    "Matrix Multiply": "MatMul",
}
_FUSED = " + "
_BESIDE = " || "  # layers that run as one, side by side
_QUANTIZES = re.compile(
    r"((?:Dynamic)?(?:De)?[Qq]uantize(?:Linear)?|QuantLinearNode)(?:_+\d+)*"
    r"(?:_(?:de)?quantize_scale_node\w*)?"
)
_COMPUTES = re.compile(r"Conv\w*|Deconv\w*|Gemm|MatMul\w*|Einsum|\w*Attention\w*|LSTM|GRU|RNN")
_WORD = re.compile(r"[A-Za-z]+\d*")
_LARGEST = 1 << 40  # of a dimension, and of a count
_DECONVOLUTION = "deconv"


def layers_of(profile: Export | None, described: Export | None) -> list[TimedLayer]:
    """The layers in order of execution: those of the profile, with details from the layer file by
    name (repeated names in order). Without a profile, those of the layer file, untimed."""
    by_name: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for layer in described.layers if described is not None else ():
        by_name[layer["Name"]].append(layer)
    if profile is None:
        return [_layer(name, UNKNOWN, one) for name, found in by_name.items() for one in found]
    made = []
    for time in profile.times:
        average = time.averageMs if time.averageMs >= 0 else time.timeMs / profile.count
        found = by_name.get(time.name)
        details = found.pop(0) if found else {}
        made.append(_layer(time.name, max(round(average * 1e6), 0), details))
    return made


def _layer(name: str, average_ns: int, details: dict[str, Any]) -> TimedLayer:
    inputs, outputs = _tensors(details.get("Inputs")), _tensors(details.get("Outputs"))
    weights = _weights(details, inputs)
    if weights is not None:  # then fused inputs that are added to the result
        inputs = [*inputs[:1], weights, *inputs[1:]]
    known = inputs and outputs and (weights is not None or "Weights" not in details)
    text = " ".join(t.text for t in inputs) + " -> " + " ".join(t.text for t in outputs)
    return TimedLayer(
        name,
        average_ns,
        _type(name, details),
        _text(details.get("TacticName")),
        text if known else "",
        sum(t.bytes for t in inputs) if known else UNKNOWN,
        sum(t.bytes for t in outputs) if known else UNKNOWN,
    )


def _type(name: str, details: dict[str, Any]) -> str:
    """The type that the layer file has; of a kernel that Myelin wrote, that of the ONNX nodes in
    it. Without a file, the type by the layer's name."""
    given = _text(details.get("LayerType"))
    if given != _GENERATED:
        return given or engine_op_type(name)
    nodes = _ONNX_NODE.findall(_text(details.get("Metadata")))
    return engine_op_type(_FUSED.join(nodes)) or engine_op_type(name) or given


def engine_op_type(name: str) -> str:
    """The op type of the node in a TensorRT layer's name that computes; else of the first one that
    does more than change the type of numbers, else of the first; "" if the name has none."""
    if known := next((kind for pattern, kind in _TYPES_BY_NAME if pattern.search(name)), ""):
        return known
    types = [_QUANTIZES.sub(r"\1", one) for one in _types_in(name)]
    computing = (one for one in types if _COMPUTES.fullmatch(one))
    others = (one for one in types if not _QUANTIZES.fullmatch(one))
    return next(computing, "") or next(others, "") or next(iter(types), "")


def _types_in(name: str) -> Sequence[str]:
    if unnamed := _UNNAMED.findall(name):  # layers that TensorRT added, or without an ONNX file
        named = _FUSED.join(one for one in name.split(_FUSED) if not _UNNAMED.search(one))
        types = [_API_TYPES.get(one, one.replace(" ", "")) for one in unnamed]
        return [*(_types_in(named) if named else ()), *types]
    if copy := _HOST_COPY.fullmatch(name):
        return (copy[1],)
    if operators := _ATEN.findall(name):
        return [f"aten::{one}" for one in operators]
    name = name.split(_BESIDE, maxsplit=1)[0]
    parsed = _GRAMMAR.parse(name)
    if parsed is not None:
        return parsed.op_types
    node = _QUANTIZES.fullmatch(name) or _NODE.search(name)
    return (node[1],) if node else ()


@dataclass(frozen=True, slots=True)
class _Tensor:
    text: str
    dims: tuple[int, ...]
    bytes: int


def _tensor(dims: Sequence[int], described: str) -> _Tensor | None:
    for word in _WORD.findall(described):
        if word.upper() in _TYPES:
            name, bits = _TYPES[word.upper()]
            size = prod(dims) * bits // 8
            return _Tensor(f"{name}[{','.join(map(str, dims))}]", tuple(dims), min(size, _LARGEST))
    return None


def _tensors(given: object) -> list[_Tensor]:
    """The tensors; empty if any of them cannot be read, because the rest would be incomplete."""
    found = []
    for one in given if isinstance(given, list) else []:
        dims = _dims(one.get("Dimensions")) if isinstance(one, dict) else None
        tensor = _tensor(dims, _text(one.get("Format/Datatype"))) if dims is not None else None
        if tensor is None:
            return []
        found.append(tensor)
    return found


def _weights(details: dict[str, Any], inputs: Sequence[_Tensor]) -> _Tensor | None:
    """The weights of a convolution, [M, C/groups, k…], or a transposed one, [C, M/groups, k…]; None
    for other layers."""
    weights, kernel = details.get("Weights"), _dims(details.get("Kernel"))
    maps, groups = _size(details.get("OutMaps")), _size(details.get("Groups")) or 1
    if not isinstance(weights, dict) or not kernel or not maps or not inputs:
        return None
    if len(inputs[0].dims) < 2:
        return None
    channels = inputs[0].dims[1]
    dims = [maps, channels // groups, *kernel]
    if _DECONVOLUTION in _text(details.get("LayerType")).lower():
        dims = [channels, maps // groups, *kernel]
    if prod(dims) != weights.get("Count"):
        return None
    return _tensor(dims, _text(weights.get("Type")))


def _dims(given: object) -> list[int] | None:
    if not isinstance(given, list):
        return None
    found = [size for size in map(_size, given) if size is not None]
    return found if len(found) == len(given) else None


def _size(given: object) -> int | None:
    return given if type(given) is int and 0 <= given <= _LARGEST else None


def _text(given: object) -> str:
    return given if isinstance(given, str) else ""


# --- Measurements of trtexec → a bundle. In an inference the host enqueues, the device copies and
# computes.


_DEVICE = "cuda:0"
_WARMUP_MS = 200  # trtexec's default
_WARMUP = re.compile(r"\+ (\d+)\s*ms warm up")
_MEMORY = re.compile(r"(\d+) MiB")
_COPIES = {"HtoD": ("startH2dMs", "endH2dMs"), "DtoH": ("startD2hMs", "endD2hMs")}
_LATEST_MS = 1e12
_INFERENCE = "inference"  # its layer: an engine's file name would be read as a module's path


@dataclass(frozen=True, slots=True)
class _Engine:
    """One engine: the inferences that count, its layers, and the inferences of the warm-up."""

    name: str
    rows: tuple[Row, ...]
    warm_up: tuple[Row, ...]
    layers: tuple[TimedLayer, ...]
    device: Device

    @property
    def layered(self) -> str:
        """The submodule of the layers. Beside inferences it is a separate one, because layer times
        are not part of theirs."""
        return f"{self.name}.layers" if self.rows else self.name


def read_run(paths: Sequence[Path], warmup: int | None = None) -> ForeignRunBuilder:
    """Read what trtexec exported, files or folders of one or several engines. Inferences that
    started within `warmup` ms of trtexec's start are left out.

    Raises InputError if a file cannot be read or none has a time.
    """
    files = [
        file for path in paths for file in (tensorrt_exports(path) if path.is_dir() else [path])
    ]
    exports = sorted(map(read_export, files), key=lambda export: export.engine)
    if len({export.kind for export in exports}) == len(exports):  # one of each: of one engine
        timed = [
            one.engine for one in exports if one.kind in (TensorRtKind.PROFILE, TensorRtKind.TIMES)
        ]
        together = [((*timed, exports[0].engine)[0], exports)]
    else:
        by_name = groupby(exports, key=lambda export: export.engine)
        together = [(name, list(found)) for name, found in by_name]
    engines = [_engine(name, found, warmup) for name, found in together]
    measured = tuple(engine for engine in engines if engine.rows or engine.layers)
    if not measured:
        named = ", ".join(map(str, paths[:3]))
        raise InputError(
            f"{named} holds no time of a layer or inference: give what `trtexec --exportProfile` "
            "or `--exportTimes` writes"
        )
    return _run(measured, exports)


def _run(engines: Sequence[_Engine], exports: Sequence[Export]) -> ForeignRunBuilder:
    """The timelines of all engines, one after the other: each has its own clock."""
    first = exports[0].path
    name = engines[0].name if len(engines) == 1 else first.absolute().parent.name
    run = ForeignRunBuilder("tensorrt", name, first, len(exports))
    if left_out := [row for engine in engines for row in engine.warm_up]:
        lasted = sum(_ns(row.endComputeMs) - _ns(row.startComputeMs) for row in left_out)
        run.warmup = Warmup(calls=len(left_out), duration_ns=max(lasted, 0))
    layers = [layer for engine in engines for layer in engine.layers]
    run.capability(  # averages of layers have no timeline, and the layer file has the tensors
        timeline=any(engine.rows for engine in engines),
        averages=bool(layers),
        shapes=any(layer.shapes for layer in layers),
        bytes=any(layer.bytes_read >= 0 for layer in layers),
    )
    run.devices[_DEVICE] = engines[0].device
    for export in exports:
        where, cut = export.path.name, UNKNOWN if export.cut else 0
        run.drop(DropKind.TRUNCATED_FILE, cut, "events", DropReason.ENTRIES_CUT, where)
        run.drop(DropKind.DROPPED_EVENTS, export.unread, "events", DropReason.DAMAGED, where)
    timelines = []
    for one in engines:
        count, reason = len(one.layers), DropReason.LAID_END_TO_END
        run.drop(DropKind.ESTIMATED_TIMES, count, "commands", reason, one.layered)
        timelines += [_inferences(one)] if one.rows else []
        if one.layers:
            track = Track(_DEVICE, "layers", "compute")
            timelines.append([end_to_end(one.layered, track, one.layers)])
    for calls in timelines:
        run.timeline(calls)
    if len(timelines) > 1:
        run.clocks = Clocks(aligned=False)
        count, reason = len(timelines), DropReason.TIMELINES_APART
        run.drop(DropKind.ESTIMATED_TIMES, count, "timelines", reason, name)
    return run


def _engine(name: str, exports: Sequence[Export], warmup: int | None) -> _Engine:
    by_kind: dict[TensorRtKind, Export] = {}
    for export in exports:
        if by_kind.setdefault(export.kind, export) is not export:
            raise InputError(
                f"{by_kind[export.kind].path} and {export.path} are both the {export.kind} of "
                f"{name}: give one, or name them after their engines"
            )
    summary = by_kind[TensorRtKind.SUMMARY].summary if TensorRtKind.SUMMARY in by_kind else {}
    rows = by_kind[TensorRtKind.TIMES].rows if TensorRtKind.TIMES in by_kind else ()
    whole = sorted(filter(_is_whole, rows), key=lambda row: row.startComputeMs)
    until = _warmup_of(summary) if warmup is None else warmup
    steady = tuple(row for row in whole if row.startComputeMs >= until)
    profile = by_kind.get(TensorRtKind.PROFILE)
    return _Engine(
        component(name) or name or "engine",
        steady or tuple(whole),
        tuple(row for row in whole if row.startComputeMs < until) if steady else (),
        tuple(layers_of(profile, by_kind.get(TensorRtKind.LAYERS))) if profile is not None else (),
        _device(summary),
    )


def _is_whole(row: Row) -> bool:
    """Whether the times of an inference are valid."""
    times = (row.startEnqMs, row.startComputeMs, row.startH2dMs, row.startD2hMs)
    ends = (row.endEnqMs, row.endComputeMs, row.endH2dMs, row.endD2hMs)
    return all(0 <= a <= b < _LATEST_MS for a, b in zip(times, ends, strict=True))


def _warmup_of(summary: dict[str, object]) -> int:
    asked = summary.get("inference_options")
    found = _WARMUP.search(str(asked.get("Duration", ""))) if isinstance(asked, dict) else None
    return int(found[1]) if found else _WARMUP_MS


def _device(summary: dict[str, object]) -> Device:
    stated = summary.get("device_information")
    if not isinstance(stated, dict):
        return Device()
    memory = _MEMORY.fullmatch(str(stated.get("Device Global Memory", "")))
    units = stated.get("SMs")
    return Device(
        hardware=str(stated.get("Selected Device", ""))[:200],
        memory_bytes=int(memory[1]) << 20 if memory else None,
        compute_units=int(units) if isinstance(units, int | float) and 0 < units < 1e6 else None,
    )


def _inferences(engine: _Engine) -> list[PlacedCall]:
    """One call per inference, with its copies and its computing. trtexec enqueues each while the
    one before computes. The first one that counts starts when the last of the warm-up has ended;
    otherwise it would wait for work that is left out."""
    free = max((_ns(row.endD2hMs) for row in engine.warm_up), default=0)
    found = []
    for iteration, row in enumerate(engine.rows):
        builder = CommandBuilder()
        compute = Track(_DEVICE, "compute", "compute")
        start = _ns(row.startComputeMs)
        builder.add(compute, _INFERENCE, "Inference", start, _ns(row.endComputeMs) - start)
        for kind, (begin, end) in _COPIES.items():
            first, last = _ns(getattr(row, begin)), _ns(getattr(row, end))
            if last > first:
                copies = Track(_DEVICE, f"copies {kind}", "dma")
                builder.add(copies, _INFERENCE, f"Memcpy {kind}", first, last - first)
        enqueued = _ns(row.startEnqMs)
        start = min(max(enqueued, free), start) if enqueued < start else enqueued
        duration = _ns(row.endEnqMs) - enqueued
        call = call_at(0, engine.name, start, duration, _DEVICE, True, iteration=iteration)
        found.append(PlacedCall(call, builder.build()))
    return found


def _ns(milliseconds: float) -> int:
    return round(milliseconds * 1e6)
