"""Calls of RBLN's runtimes: proxies replace them, and record when the device worked.

While a run lasts, `pipe.<submodule>.model[i]` and `pipe.vae.decoder.runtime` are proxies. What a
call of a submodule spends outside its runtime calls is the host's: preparing and checking inputs,
building outputs. `rebel.capture_reports()` tells more, if there is one.

Runtime calls are numbered in the order in which they started, as RBLN's profiler numbers its files:
the manifest keeps the numbers, and `profile-sd3 import --run` names the files by them.
"""

from __future__ import annotations

import itertools
import math
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeGuard

from profiler.capture.calls import Clock, Invocation, PipelineCall, scope
from profiler.capture.operator_source import OperatorTrace, SourceRequest, SourceSummary
from profiler.capture.rbln import Slot, slots_of, writes_shards
from profiler.plugins import let_pass
from profiler.text import Note
from profiler.trace.columns import CommandBuilder, CommandColumns
from profiler.trace.events import NO_CALL, Drop, DropKind, DropReason, Track
from profiler.trace.manifest_fields import Submodule

_NUMBERS = itertools.count()  # of runtime calls, in this process
_INSIDE: ContextVar[bool] = ContextVar("profile_sd3_rbln_inside", default=False)
_CALLED = "Runtime"  # the op type of a runtime call
_WORKLOAD, _CCL = "Device Workload", "CCL Workload"  # tracks, as RBLN's profiler names them
_REPORTED = (  # track, category and field of `reports[0]`, in order
    ("Host", "host", "total_host"),
    (_WORKLOAD, "other", "total_device"),
    (_CCL, "other", "total_ccl"),
)


@dataclass(frozen=True, slots=True)
class _RuntimeCall:
    """One call of a runtime; `reported` has the µs of each of `_REPORTED`, None if there is no
    usable report."""

    runtime: str
    invocation: Invocation
    start_ns: int
    end_ns: int
    reported: tuple[float, ...] | None


class RblnRuntimes:
    """The `OperatorSource` of a submodule that runs on RBLN's runtimes."""

    def __init__(self, request: SourceRequest, slots: list[Slot]) -> None:
        owner = request.part if request.owner is None else request.owner
        self._device = request.device
        self._clock: Clock = request.recorder.clock
        self._submodule = request.submodule
        self._writes_shards = writes_shards(owner)
        self._traces_none = request.selection.nothing
        self._numbered: list[tuple[int, Invocation | None]] = []
        self._waiting: deque[_RuntimeCall] = deque()  # not in a trace yet
        self._left_out: set[Invocation] = set()
        self._misfits = 0
        self._commands = 0
        self._proxies: list[tuple[Slot, weakref.ref[_RuntimeProxy]]] = []
        for slot in slots:
            proxy = _RuntimeProxy(slot.get(), slot.name, self)
            slot.put(proxy)
            self._proxies.append((slot, weakref.ref(proxy)))

    @classmethod
    def of(cls, request: SourceRequest) -> RblnRuntimes | None:
        """Replace the part's runtimes and return its source; None if it has none."""
        slots = slots_of(request.part)
        return cls(request, slots) if slots else None

    def begin_pipeline(self, pipeline: PipelineCall) -> None:
        """Do nothing: runtimes are called inside submodules only."""

    def end_pipeline(self, pipeline: PipelineCall) -> None:
        """Do nothing."""

    def before(self, invocation: Invocation) -> None:
        """Mark an invocation as left out if nothing is traced. Otherwise runtime calls find their
        invocation themselves."""
        if self._traces_none:
            invocation.left_out = invocation.recorded
            self.leave_out(invocation)

    def after(self, invocation: Invocation) -> None:
        """Do nothing."""

    def leave_out(self, invocation: Invocation) -> None:
        """Leave an invocation untraced; its runtime calls are numbered anyway."""
        if invocation.recorded:
            self._left_out.add(invocation)

    def run(self, runtime: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Call `runtime` and note the call, also if it fails."""
        invocation: Invocation | None = getattr(scope().call, "invocation", None)
        number = next(_NUMBERS)
        reports = _Reports() if self._traces(invocation) else None
        begin = self._clock.now_ns()
        try:
            _INSIDE.set(True)
            return runtime(*args, **kwargs)
        finally:
            _INSIDE.set(False)  # as before: inner proxies never get here
            end = self._clock.now_ns()
            reported = reports.close() if reports is not None else None
            self._numbered.append((number, invocation))
            if self._traces(invocation):
                self._waiting.append(_RuntimeCall(name, invocation, begin, end, reported))

    def _traces(self, invocation: Invocation | None) -> TypeGuard[Invocation]:
        return invocation is not None and invocation.recorded and invocation not in self._left_out

    def close(self) -> None:
        """Restore the runtimes."""
        for slot, proxy in reversed(self._proxies):
            _detach(slot, proxy())
        self._proxies = []

    def traces(self) -> Iterator[OperatorTrace]:
        """The runtime calls of each recorded invocation that made any."""
        by_invocation: dict[Invocation, list[_RuntimeCall]] = {}
        for _ in range(len(self._waiting)):
            call = self._waiting.popleft()
            if call.invocation.index >= 0:
                by_invocation.setdefault(call.invocation, []).append(call)
            elif not call.invocation.failed:  # it is running in another thread
                self._waiting.append(call)
        for invocation, calls in by_invocation.items():
            invocation.ops_traced = True
            yield OperatorTrace(invocation, self._commands_of(calls), ())

    def _commands_of(self, calls: list[_RuntimeCall]) -> CommandColumns:
        builder = CommandBuilder()
        for call in calls:
            parts = _parts(call)
            self._misfits += not parts and any(call.reported or ())
            whole = call.end_ns - call.start_ns
            for track, category, start, length in parts or [(_WORKLOAD, "other", 0, whole)]:
                layer = f"{call.runtime}.ccl" if track == _CCL else call.runtime
                place = Track(self._device, track, category)
                builder.add(place, layer, _CALLED, call.start_ns + start, length)
        self._commands += len(builder)
        return builder.build()

    def summary(self) -> SourceSummary:
        """The source's summary, with the numbers of all runtime calls and the index of their call,
        or -1."""
        drops: tuple[Drop, ...] = ()
        if self._misfits:
            detail = Note.of(DropReason.REPORTS_TOO_LONG)
            drops = (
                Drop(DropKind.DROPPED_EVENTS, self._submodule, self._misfits, "reports", detail),
            )
        numbered = tuple(
            (number, NO_CALL if invocation is None else invocation.index)
            for number, invocation in self._numbered
        )
        known = Submodule(runtime_calls=numbered, writes_shards=self._writes_shards)
        return SourceSummary(events=self._commands, drops=drops, backend="rbln", known=known)


class _RuntimeProxy:
    """Replaces a runtime: it behaves like the runtime, and its calls are recorded."""

    __slots__ = ("__weakref__", "called_as", "noted_by", "proxied")

    def __init__(self, runtime: Any, name: str, source: RblnRuntimes) -> None:
        object.__setattr__(self, "proxied", runtime)
        object.__setattr__(self, "called_as", name)
        object.__setattr__(self, "noted_by", source)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.noted_by is None or _INSIDE.get():  # removed, or recorded by the proxy around it
            return self.proxied(*args, **kwargs)
        return self.noted_by.run(self.proxied, self.called_as, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.proxied, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.proxied, name, value)

    def __repr__(self) -> str:
        return repr(self.proxied)

    @property  # type: ignore[misc]  # isinstance keeps its answers
    def __class__(self) -> Any:
        return self.proxied.__class__


def _detach(slot: Slot, proxy: _RuntimeProxy | None) -> None:
    """Restore the runtime if the proxy is still in place; otherwise the proxy only passes calls
    on."""
    if proxy is None:
        return
    object.__setattr__(proxy, "noted_by", None)
    found = slot.get()
    if type(found) is not _RuntimeProxy or found.noted_by is not None:
        return
    while type(found) is _RuntimeProxy and found.noted_by is None:
        found = found.proxied
    slot.put(found)


class _Reports:
    """Context of `rebel.capture_reports()` around one runtime call. Does nothing if that is missing
    or fails: a report must never break the pipeline."""

    def __init__(self) -> None:
        self._context: Any = None
        self._reports: Any = None
        capture = getattr(sys.modules.get("rebel"), "capture_reports", None)
        if capture is not None:
            try:
                context = capture()
                self._reports = context.__enter__()
                self._context = context
            except Exception as error:  # noqa: BLE001 - the user's program goes on
                let_pass(error)

    def close(self) -> tuple[float, ...] | None:
        """Close the context; returns the µs of each of `_REPORTED`, None without a usable
        report."""
        if self._context is None:
            return None
        try:
            self._context.__exit__(None, None, None)
            report = self._reports[0]
            found = tuple(float(report.get(field) or 0) for *_, field in _REPORTED)
            return found if all(map(math.isfinite, found)) else None
        except Exception as error:  # noqa: BLE001 - the user's program goes on
            let_pass(error)
            return None


def _parts(call: _RuntimeCall) -> list[tuple[str, str, int, int]]:
    """Track, category, start relative to the call's start and length in ns of the reported parts;
    empty without a report, or if it does not fit into the call.

    A report contains sums: the length of each part is measured, its position is not.
    """
    lengths = [round(us * 1_000) for us in call.reported or ()]
    room = call.end_ns - call.start_ns
    if not any(lengths) or min(lengths) < 0 or sum(lengths) > room:
        return []
    starts = itertools.accumulate(lengths, initial=0)
    return [
        (track, category, start, length)
        for (track, category, _), start, length in zip(_REPORTED, starts, lengths, strict=False)
        if length
    ]
