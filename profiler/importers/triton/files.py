"""Traces of the Triton Inference Server as requests: fragments joined by their id.

Source of the format: triton-inference-server/server, docs/user_guide/trace.md. A fragment has the
model, or timestamps, or a tensor, whose data is not read; older servers wrote one object a request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from profiler.importers.head import content_of
from profiler.typed_json import converted, decoded

__all__ = ["Request", "Requests", "read_requests"]

_Ns = Annotated[int, msgspec.Meta(ge=0, lt=1 << 61)]
_Id = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_LONGEST = 200  # characters of a name


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
    (`QUEUE_START`); `parent` is the id of the request that it belongs to, 0 for none."""

    id: int
    model: str = ""
    parent: int = 0
    at: dict[str, int] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether it has a model, a begin and an end behind it, and its parts in their order."""
        named = ("REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END")
        times = [self.at[name] for name in (*named, *_LAST) if name in self.at]
        there = self.model and "REQUEST_START" in self.at and "REQUEST_END" in self.at
        computed = ("COMPUTE_START" in self.at) == ("COMPUTE_END" in self.at)
        return bool(there) and computed and times == sorted(times)

    def between(self, first: str, last: str) -> tuple[int, int] | None:
        """Two times, where both are told."""
        if first not in self.at or last not in self.at:
            return None
        return self.at[first], self.at[last]


_LAST = ("COMPUTE_OUTPUT_START", "COMPUTE_END", "REQUEST_END")


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests in order of their ids; `unread` counts fragments that are none, `cut` names the
    files that do not end as JSON does."""

    requests: tuple[Request, ...]
    unread: int
    cut: tuple[Path, ...]


def read_requests(paths: Iterable[Path]) -> Requests:
    """Read files of one server. Raises InputError where one cannot be read."""
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
            _join(found, one)
    return Requests(tuple(found[number] for number in sorted(found)), unread, tuple(cut))


def _join(found: dict[int, Request], one: _Fragment) -> None:
    request = found.setdefault(one.id, Request(one.id))
    if one.model_name:
        request.model = one.model_name[:_LONGEST]
    if one.parent_id:
        request.parent = one.parent_id
    for stamp in one.timestamps:
        request.at.setdefault(_name(stamp.name), stamp.ns)


def _name(name: str) -> str:
    """`request handler start` of the Triton 1 series → `REQUEST_START`."""
    if name.isupper() and " " not in name:
        return name[:_LONGEST]
    upper = name[:_LONGEST].upper().replace("/", "").replace(" ", "_")
    return upper.replace("REQUEST_HANDLER_", "REQUEST_")


def _one_by_one(data: bytes) -> tuple[list[_Fragment], int]:
    """The fragments that can be read, and how many cannot."""
    found, unread = [], 0
    for one in _objects(data.decode("utf-8", "replace")):
        try:
            found.append(converted(one, _Fragment))
        except msgspec.ValidationError:
            unread += 1
    return found, unread


def _objects(text: str) -> Iterator[Any]:
    """Objects of an array, one after the other; behind one that is damaged goes on with the next
    that begins as a fragment does."""
    decoder, at = json.JSONDecoder(), text.find("[") + 1
    while (at := text.find("{", at)) >= 0:
        try:
            one, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            at = _next(text, at + 1)
            if at < 0:
                return
            yield None
            continue
        yield one


def _next(text: str, at: int) -> int:
    """Where the next fragment begins, -1 where none does."""
    starts = [text.find(mark, at) for mark in ('{"id"', '{"model_name"', '{ "id"')]
    return min((start for start in starts if start >= 0), default=-1)
