"""Import Triton Inference Server traces: requests, queues and model executions.

    import_trace(Path("trace.json"), Path("traces"), options={"rate": 100})

An external request is a pipeline call. Each request of a model that computes is a call, and its
model is a device (`triton:0`), because each model has its own queue. All requests of a batch
have the full compute time. Source: triton-inference-server/server, docs/user_guide/trace.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from profiler.errors import InputError
from profiler.files import converted, decoded, paired
from profiler.importers.foreign_run import CallLabels, ForeignRunBuilder, component, stages
from profiler.importers.importer import content_of
from profiler.trace.columns import CommandBuilder, Counter, Int64s
from profiler.trace.events import (
    NO_ITERATION,
    ROOT_DEVICE,
    UNKNOWN,
    Category,
    DropKind,
    DropReason,
    Track,
)
from profiler.trace.manifest_fields import Device

# --- Traces of the Triton Inference Server as requests: fragments joined by their id.
#
# Source of the format: triton-inference-server/server, docs/user_guide/trace.md. A fragment has the
# model, or timestamps, or a tensor, whose data is not read; older servers wrote one object a
# request.


_Ns = Annotated[int, msgspec.Meta(ge=0, lt=1 << 61)]
_Id = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_LONGEST = 200  # characters of a name
_FRAGMENT = re.compile(r'\{ ?"id"|\{"model_name"')


class _Stamp(msgspec.Struct, frozen=True):
    name: str
    ns: _Ns


class _Fragment(msgspec.Struct, frozen=True):
    id: _Id
    model_name: str = ""
    parent_id: _Id | None = None
    timestamps: tuple[_Stamp, ...] = ()


@dataclass(slots=True)
class Request:
    """One request of a model. `at` are nanoseconds of the server's steady clock by today's names
    (`QUEUE_START`); `parent` is the id of the calling request, 0 for none."""

    id: int
    model: str = ""
    parent: int = 0
    at: dict[str, int] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether it has a model, a start, a later end, and its parts in order."""
        named = ("REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END")
        times = [self.at[name] for name in (*named, *_LAST) if name in self.at]
        there = self.model and "REQUEST_START" in self.at and "REQUEST_END" in self.at
        computed = ("COMPUTE_START" in self.at) == ("COMPUTE_END" in self.at)
        return bool(there) and computed and times == sorted(times)

    def between(self, first: str, last: str) -> tuple[int, int] | None:
        """Two of its times, None if one is not known."""
        if first not in self.at or last not in self.at:
            return None
        return self.at[first], self.at[last]


_LAST = ("COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END")


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests in order of id; `unread` counts fragments that could not be read, `cut` names
    the files that do not end as JSON does."""

    requests: tuple[Request, ...]
    unread: int
    cut: tuple[Path, ...]


def read_requests(paths: Iterable[Path]) -> Requests:
    """Read the files of one server. Raises InputError if one cannot be read."""
    found: dict[int, Request] = {}
    unread, cut = 0, []
    for path in paths:
        data = content_of(path)
        try:
            fragments: Iterable[_Fragment] = decoded(data, list[_Fragment])
            missed = 0
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            whole, missed = _one_by_one(data)
            fragments = whole
            cut += [] if data.rstrip().endswith(b"]") else [path]
        unread += missed
        for one in fragments:
            request = found.setdefault(one.id, Request(one.id))
            request.model = one.model_name[:_LONGEST] or request.model
            request.parent = one.parent_id or request.parent
            for stamp in one.timestamps:
                name = stamp.name[:_LONGEST]
                if not stamp.name.isupper() or " " in stamp.name:  # of the Triton 1 series
                    name = name.upper().replace("/", "").replace(" ", "_")
                    name = name.replace("REQUEST_HANDLER_", "REQUEST_")
                request.at.setdefault(name, stamp.ns)
    return Requests(tuple(found[number] for number in sorted(found)), unread, tuple(cut))


def _one_by_one(data: bytes) -> tuple[list[_Fragment], int]:
    """The readable fragments of damaged JSON, and how many are not readable."""
    found, unread = [], 0
    for one in _objects(paired(data.decode("utf-8", "replace"))):
        try:
            found.append(converted(one, _Fragment))
        except msgspec.ValidationError:
            unread += 1
    return found, unread


def _objects(text: str) -> Iterator[Any]:
    """Yield the objects of an array one by one; after a damaged one, continue with the next that
    starts as a fragment does."""
    decoder, at = json.JSONDecoder(), text.find("[") + 1
    while (at := text.find("{", at)) >= 0:
        try:
            one, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            following = _FRAGMENT.search(text, at + 1)
            if following is None:
                return
            at, one = following.start(), None
        yield one


# --- A trace of the Triton Inference Server → a bundle.
#
# The calls are the requests of models that compute, themselves or those that an ensemble or a BLS
# model made for them. The server has a queue and instances for each model, and tells of no
# hardware.


_PARTS = (
    ("input", "COMPUTE_START", "COMPUTE_INPUT_END"),
    ("infer", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START"),
    ("output", "COMPUTE_OUTPUT_START", "COMPUTE_END"),
)
_COMPUTE = ("infer", "COMPUTE_START", "COMPUTE_END")  # if there is no breakdown
_FRONT = (
    ("receive", "HTTP", "HTTP_RECV_START", "HTTP_RECV_END"),
    ("send", "HTTP", "HTTP_SEND_START", "HTTP_SEND_END"),
    ("send", "GRPC", "GRPC_SEND_START", "GRPC_SEND_END"),
)
_BEGINS = ("HTTP_RECV_START", "GRPC_WAITREAD_END", "REQUEST_START")  # GRPC waits before it reads
_ENDS = ("REQUEST_END", "HTTP_SEND_END", "GRPC_SEND_END")
_NAMED = 8  # requests left out that are named
_INCOMPLETE, _NOT_COMPUTED = DropReason.REQUESTS_INCOMPLETE, DropReason.REQUESTS_NOT_COMPUTED


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """A request from outside. `inner` are its requests to ensembles and BLS models, including
    itself if it is one; `leaves` are those that compute and call no other."""

    number: int
    root: Request
    inner: tuple[Request, ...]
    leaves: tuple[Request, ...]

    @property
    def begin(self) -> int:
        starts = (self.root.at[name] for name in _BEGINS if name in self.root.at)
        return min(next(starts), self.root.at["REQUEST_START"])

    @property
    def end(self) -> int:
        return max(self.root.at[name] for name in _ENDS if name in self.root.at)


def read_run(paths: Sequence[Path], rate: int = 0) -> ForeignRunBuilder:
    """Read the files of one server. Raises InputError if there is no complete request."""
    read = read_requests(sorted(paths))
    pipelines, incomplete, idle = _pipelines(read.requests)
    if not pipelines:
        raise InputError(
            f"{paths[0]} holds no complete request: record with --trace-config level=TIMESTAMPS, "
            "and give the file once the server has written it"
        )
    # a device for each model that computes, in order of their first requests
    models = dict.fromkeys(one.model for pipeline in pipelines for one in pipeline.leaves)
    devices = {model: f"triton:{number}" for number, model in enumerate(models)}
    path, roots = min(paths), {one.root.model for one in pipelines}
    name = roots.pop() if len(roots) == 1 else path.name.removesuffix(".gz").split(".json")[0]
    run = ForeignRunBuilder("triton", name, path, len(paths))
    run.capability(timeline=True, requests=True)
    for model, device in devices.items():
        run.devices[device] = Device(hardware=model, compute_units=_instances(pipelines, model))
    for one in pipelines:
        _add_pipeline(run, one, devices)
        _add_host(run.host, one)
    run.counters += _counters(pipelines, devices)
    _add_drops(run, read, {_INCOMPLETE: incomplete, _NOT_COMPUTED: idle}, rate)
    return run


def _pipelines(requests: Sequence[Request]) -> tuple[list[_Pipeline], list[Request], list[Request]]:
    """Requests from outside in order of start, and two lists of those left out: requests without an
    end or without their caller, with all that they called; and complete ones for which no model
    computed."""
    children: dict[int, list[Request]] = {}
    for one in requests:
        if one.parent:
            children.setdefault(one.parent, []).append(one)
    roots: list[Request] = []
    left: list[Request] = []
    seen: set[int] = set()
    families: dict[int, list[Request]] = {}
    for one in requests:
        if one.parent:
            continue
        family, waiting = families.setdefault(one.id, []), [one]
        while waiting:
            member = waiting.pop()
            if member.id not in seen:
                seen.add(member.id)
                family.append(member)
                waiting += children.get(member.id, [])
        (roots if all(each.whole for each in family) else left).append(one)
    left += [one for one in requests if one.id not in seen]
    roots.sort(key=lambda one: (one.at["REQUEST_START"], one.id))
    made = []
    for number, root in enumerate(roots):
        family = families[root.id]
        inner = [one for one in family if one.id in children]
        leaves = [one for one in family if one.id not in children and "COMPUTE_START" in one.at]
        leaves.sort(key=lambda one: (one.at["REQUEST_START"], one.id))
        made.append(_Pipeline(number, root, tuple(inner), tuple(leaves)))
    computed = [one for one in made if one.leaves]
    return computed, left, [one.root for one in made if not one.leaves]


def _instances(pipelines: Sequence[_Pipeline], model: str) -> int:
    """The most batches of a model that ran at the same time: it has at least that many
    instances."""
    batches = {
        (one.at["COMPUTE_START"], one.at["COMPUTE_END"])
        for pipeline in pipelines
        for one in pipeline.leaves
        if one.model == model
    }
    return max(_running(batches)[1].tolist(), default=0)


def _running(ranges: Iterable[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    """The times at which the number of open ranges changes, and the number from then on; int64
    each."""
    pairs = np.array(list(ranges), dtype=np.int64).reshape(-1, 2)
    times = np.concatenate((pairs[:, 1], pairs[:, 0]))  # what ends goes before what starts
    change = np.concatenate((np.full(len(pairs), -1), np.ones(len(pairs), dtype=np.int64)))
    order = np.argsort(times, kind="stable")
    running = np.cumsum(change[order])
    last = np.append(np.diff(times[order]) > 0, np.ones(min(len(times), 1), dtype=bool))
    return times[order][last], running[last]


def _add_pipeline(run: ForeignRunBuilder, pipeline: _Pipeline, devices: dict[str, str]) -> None:
    """Add the calls of a request, and its spans. A stage lasts from its first call to that of the
    next stage."""
    names = [component(one.model) or one.model for one in pipeline.leaves]
    labels = stages(names, [NO_ITERATION] * len(names))
    begin, end, number = pipeline.begin, pipeline.end, pipeline.number
    run.span("pipeline", pipeline.root.model, begin, end - begin, number)
    works: list[tuple[str, int]] = []
    for one, name, (stage, step, iteration) in zip(pipeline.leaves, names, labels, strict=True):
        device, builder = devices[one.model], CommandBuilder()
        track = Track(device, one.model, "compute")
        queued = one.between("QUEUE_START", "COMPUTE_START")
        if queued is not None:
            _add(builder, Track(device, "queue", "sync"), name, "queue", queued)
        for part, times in _computed(one):
            _add(builder, track, name, part, times)
        start = one.at["REQUEST_START"]
        at = CallLabels(stage=stage, step=step, iteration=iteration, pipeline=number)
        duration = one.at["REQUEST_END"] - start
        run.call(name, start, duration, builder.build(), device=device, **at)
        works.append((stage, start))
    run.stages(works, begin, end, number)


def _computed(one: Request) -> Iterator[tuple[str, tuple[int, int]]]:
    parts = [(name, one.between(first, last)) for name, first, last in _PARTS]
    if any(times is None for _, times in parts):
        name, first, last = _COMPUTE
        parts = [(name, one.between(first, last))]
    yield from ((name, times) for name, times in parts if times is not None)


def _add(
    builder: CommandBuilder, track: Track, name: str, part: str, times: tuple[int, int]
) -> None:
    begin, end = times
    builder.add(track, f"{name}/{part}", part, begin, end - begin, module=name)


def _add_host(builder: CommandBuilder, pipeline: _Pipeline) -> None:
    """Add the endpoint's work, and the BLS models' computing between their calls."""

    def add(track: Track, layer: str, part: str, times: tuple[int, int]) -> None:
        begin, end = times
        builder.add(track, layer, part, begin, end - begin, pipeline=pipeline.number)

    for part, protocol, first, last in _FRONT:
        times = pipeline.root.between(first, last)
        if times is not None and times[0] <= times[1]:
            add(Track(ROOT_DEVICE, protocol, "host"), part, part, times)
    for one in pipeline.inner:
        layers: list[tuple[Category, str, tuple[int, int]]] = [
            ("host", part, times) for part, times in _computed(one)
        ]
        if (queued := one.between("QUEUE_START", "COMPUTE_START")) is not None:
            layers.insert(0, ("sync", "queue", queued))
        for category, part, times in layers:
            track = Track(ROOT_DEVICE, f"{one.model} {category}", category)
            add(track, f"{one.model}/{part}", part, times)


def _counters(pipelines: Sequence[_Pipeline], devices: dict[str, str]) -> Iterator[Counter]:
    """Yield how many requests were open, and how many waited for each model."""
    times, running = _running((one.begin, one.end) for one in pipelines)
    yield Counter(ROOT_DEVICE, "requests in flight", "count", times, running)
    for model, device in devices.items():
        waits = (
            one.between("QUEUE_START", "COMPUTE_START")
            for pipeline in pipelines
            for one in pipeline.leaves
            if one.model == model
        )
        times, running = _running(wait for wait in waits if wait is not None)
        if len(times):
            yield Counter(device, "requests queued", "count", times, running)


def _add_drops(
    run: ForeignRunBuilder, read: Requests, left: Mapping[DropReason, Sequence[Request]], rate: int
) -> None:
    if not rate:
        run.drop(DropKind.DROPPED_EVENTS, UNKNOWN, "requests", DropReason.RATE_UNTOLD)
    elif rate != 1:
        run.drop(DropKind.DROPPED_EVENTS, UNKNOWN, "requests", DropReason.EVERY_NTH, rate=rate)
    for reason, requests in left.items():
        named = tuple(f"{one.id} ({one.model or '?'})" for one in requests[:_NAMED])
        run.drop(DropKind.DROPPED_EVENTS, len(requests), "requests", reason, requests=named)
    run.drop(DropKind.DROPPED_EVENTS, read.unread, "events", DropReason.DAMAGED)
    for cut in read.cut:
        run.drop(DropKind.TRUNCATED_FILE, UNKNOWN, "events", DropReason.ENTRIES_CUT, cut.name)
