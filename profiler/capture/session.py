"""`profile`: one profiled run, from attaching to a pipeline to the finished bundle.

with profiler.profile(pipe, out="traces/") as run:
    pipe("a cat", num_inference_steps=28)
run.path   # traces/20261121-093000-StableDiffusion3Pipeline
"""

from __future__ import annotations

import functools
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from profiler.capture import environment, overhead
from profiler.capture.clock import Clock, RunClock
from profiler.capture.onnx_profile import EVENT_CAP
from profiler.capture.onnxruntime import OperatorTrace, ProfiledPart
from profiler.capture.options import Options, parse_config
from profiler.capture.pipeline import Entry, attach, device_of, entries, part_of
from profiler.capture.recorder import Invocation, Recorder
from profiler.capture.wraps import WRAPPED, Wraps
from profiler.errors import InputError
from profiler.events import HOST_TRACK, ROOT_DEVICE, Loss, Track
from profiler.trace.bundle import WORK_NAME, BundleWriter
from profiler.trace.columns import CommandBuilder
from profiler.trace.compression import Compression, check_compression
from profiler.trace.manifest import RunInfo

__all__ = ["Profile", "profile"]

_F = TypeVar("_F", bound=Callable[..., Any])


def profile(
    pipeline: Any,
    *,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    ops: str = "all",
    out: str | Path = "traces",
    name: str | None = None,
    clock: Clock | None = None,
    event_cap: int = EVENT_CAP,
    compress: Compression = "none",
) -> Profile:
    """Profile `pipeline` inside the block that this opens, or in the function it decorates.

    `config` says per submodule, as RBLN's does, whether to trace its operators and on which
    device it runs: `{"text_encoder": {"device": 0, "activate_profiler": True}}`. `ops` "none"
    records calls only. The bundle is written to a new folder `name` below `out` when the block
    ends. `event_cap` is the number of events after which ONNX Runtime's profiler drops them;
    sessions are renewed before. `compress` packs the packets of all files: "none", "deflate" or
    "zstd". Raises InputError where the pipeline or an option cannot be
    used, OutputError where `out` cannot be written.
    """
    known = [entry.submodule for entry in entries(pipeline)]
    options = parse_config(config, ops, known)
    _check_devices(pipeline, options)
    check_compression(compress)
    clock = clock or RunClock.start()
    return Profile(pipeline, options, Path(out), name, clock, event_cap, compress)


def _check_devices(pipeline: Any, options: Options) -> None:
    """Refuse a configuration that names another device than the submodule runs on."""
    for entry in entries(pipeline):
        wanted = options.of(entry.submodule).device
        actual = device_of(pipeline, entry)
        if wanted is not None and wanted not in (actual, actual.partition(":")[2]):
            raise InputError(
                f"{entry.submodule} is configured for device {wanted} but runs on {actual}: "
                f"place it there when the pipeline is loaded, or leave out its device"
            )


class Profile:
    """A run being profiled. `path` is the bundle's folder, set when the block has ended.

    Use as a context manager, or as a decorator of a function that runs the pipeline; each use
    writes one bundle.
    """

    def __init__(
        self,
        pipeline: Any,
        options: Options,
        out: Path,
        name: str | None,
        clock: Clock,
        event_cap: int,
        compress: Compression,
    ) -> None:
        self.path: Path | None = None
        self.recorder = Recorder(clock)
        self._pipeline = pipeline
        self._options = options
        self._out = out
        self._name = name
        self._clock = clock
        self._event_cap = event_cap
        self._compress: Compression = compress
        self._parts: dict[str, ProfiledPart] = {}
        self._wraps: list[Wraps] = []
        self._bundle: BundleWriter | None = None
        self._warmup: dict[str, Any] = {}
        self._thread = 0

    def __call__(self, function: _F) -> _F:
        """Decorate `function`: every call of it is a run of its own."""

        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            fresh = Profile(
                self._pipeline,
                self._options,
                self._out,
                self._name,
                self._clock,
                self._event_cap,
                self._compress,
            )
            with fresh:
                result = function(*args, **kwargs)
            self.path = fresh.path
            return result

        return profiled  # type: ignore[return-value]

    def __enter__(self) -> Profile:
        if getattr(type(self._pipeline), WRAPPED, False):
            raise InputError(
                f"this {type(self._pipeline).__name__} is being profiled already: end that first"
            )
        if self._bundle is not None:
            raise InputError(
                "this profile has been used: call profiler.profile again for a new run"
            )
        self._thread = threading.get_ident()
        self._bundle = BundleWriter.create(self._out, self._run_id(), compress=self._compress)
        try:
            sessions = Wraps()
            self._wraps.append(sessions)
            self._open_sessions(sessions)
            self._wraps.append(attach(self._pipeline, self.recorder, self._before_call))
        except BaseException:
            self._detach()
            shutil.rmtree(self._bundle.directory)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._detach()
        failure = "" if error is None else f"{type(error).__name__}: {error}"
        self._write(failure)

    @contextmanager
    def warmup(self) -> Iterator[None]:
        """What runs inside is executed on the profiled sessions but kept out of the run; the
        manifest says how long it took."""
        begin = self._clock.now_ns()
        self.recorder.recording = False
        try:
            yield
        finally:
            self.recorder.recording = True
            before = self._warmup.get("duration_ns", 0)
            self._warmup = {
                "runs": self._warmup.get("runs", 0) + 1,
                "duration_ns": before + self._clock.now_ns() - begin,
            }

    def _run_id(self) -> str:
        if self._name is not None:
            if not re.fullmatch(r"[\w.+-]+", self._name) or self._name.startswith("."):
                raise InputError(f"{self._name!r} cannot name a run: use letters, digits, - and _")
            return self._name
        now = datetime.fromtimestamp(self._clock.now_ns() / 1e9, UTC)
        return f"{now:%Y%m%d-%H%M%S}-{type(self._pipeline).__name__}"

    def _open_sessions(self, wraps: Wraps) -> None:
        assert self._bundle is not None
        folder = self._bundle.directory / WORK_NAME
        for entry in entries(self._pipeline):
            if not self._options.traces_operators(entry.submodule):
                continue
            part, device = part_of(self._pipeline, entry), device_of(self._pipeline, entry)
            if not (hasattr(part, "open_session") or hasattr(part, "session")):
                raise InputError(
                    f"{entry.submodule} holds no ONNX Runtime session, so its operators cannot be "
                    "traced: use ops='none' or activate_profiler=False"
                )
            folder.mkdir(exist_ok=True)
            traced = ProfiledPart(entry.submodule, part, device, folder, event_cap=self._event_cap)
            self._parts[entry.submodule] = traced
            _lend_session(wraps, part, traced.open())

    def _before_call(self, invocation: Invocation | None, submodule: str) -> None:
        traced = self._parts.get(submodule)
        if traced is None:
            return
        begin = self._clock.now_ns()
        if traced.note_run(invocation):
            traced.part.session = traced.session
            self.recorder.add_host_work("profiler.renew_session", begin, self._clock.now_ns())

    def _detach(self) -> None:
        while self._wraps:
            self._wraps.pop().undo()
        for part in self._parts.values():
            part.end()

    def _write(self, failure: str) -> None:
        assert self._bundle is not None
        begin = time.perf_counter_ns()
        traces = {
            id(trace.invocation): trace for part in self._parts.values() for trace in part.traces()
        }
        calls = self.recorder.calls()
        for call, invocation in zip(calls, self.recorder.finished(), strict=True):
            trace = traces.get(id(invocation)) or _without_operators(invocation)
            self._bundle.write_call(call, trace.commands, trace.counters)
        self._bundle.write_host(self.recorder.spans(), self._host_commands(), ROOT_DEVICE)
        shutil.rmtree(self._bundle.directory / WORK_NAME, ignore_errors=True)
        conversion_ns = time.perf_counter_ns() - begin
        self.path = self._bundle.finish(self._info(failure, conversion_ns))

    def _host_commands(self) -> Any:
        builder = CommandBuilder()
        track = Track(ROOT_DEVICE, HOST_TRACK, "host")
        for work in self.recorder.placed_host_work():
            duration = work.end_ns - work.start_ns
            builder.add(
                track, work.name, "", work.start_ns, duration, stage=work.stage, step=work.step
            )
        return builder.build()

    def _info(self, failure: str, conversion_ns: int) -> RunInfo:
        return RunInfo(
            producer="capture",
            model=str(getattr(self._pipeline, "name_or_path", "") or ""),
            pipeline=type(self._pipeline).__name__,
            command_line=_command_line(),
            versions=environment.versions(),
            hardware=environment.hardware(),
            devices=self._devices(),
            submodules={e.submodule: self._submodule(e) for e in entries(self._pipeline)},
            settings=self.recorder.settings,
            clocks={
                "clock": "CLOCK_REALTIME",
                "monotonic_offset_ns": self._clock.monotonic_offset_ns,
            },
            overhead=self._overhead(conversion_ns),
            warmup=self._warmup,
            attribution={
                name: _attribution(part) for name, part in self._parts.items() if part.total_ns
            },
            losses=tuple(self._losses(failure)),
        )

    def _devices(self) -> dict[str, dict[str, Any]]:
        placement = getattr(self._pipeline, "placement", None)
        known = placement.as_dict() if placement is not None else {}
        names = {device_of(self._pipeline, entry) for entry in entries(self._pipeline)}
        cpu = environment.hardware()["cpu"]
        return {
            name: {"hardware": cpu if name.startswith("cpu") else "", **known.get(name, {})}
            for name in sorted({*names, ROOT_DEVICE})
        }

    def _submodule(self, entry: Entry) -> dict[str, Any]:
        part = part_of(self._pipeline, entry)
        path = getattr(part, "model_path", None)
        return {
            "device": device_of(self._pipeline, entry),
            "activate_profiler": self._options.traces_operators(entry.submodule),
            "model": f"{Path(path).parent.name}/{Path(path).name}" if path else "",
            "profiled_sessions": 1 + self._parts[entry.submodule].renewals
            if entry.submodule in self._parts
            else 0,
        }

    def _overhead(self, conversion_ns: int) -> dict[str, Any]:
        end_to_end = sum(p.end_ns - p.start_ns for p in self.recorder.pipelines)
        events = sum(part.events for part in self._parts.values())
        event_ns = overhead.operator_event_ns() if events else 0.0
        total = self.recorder.hooks_ns + round(events * event_ns)
        return {
            "hooks_ns": self.recorder.hooks_ns,
            "operator_events": events,
            "operator_event_ns": round(event_ns, 1),
            "operators_ns": round(events * event_ns),
            "share": total / end_to_end if end_to_end else 0.0,
            "conversion_ns": conversion_ns,
            "method": overhead.OPERATOR_METHOD,
        }

    def _losses(self, failure: str) -> Iterator[Loss]:
        for part in self._parts.values():
            yield from part.losses
        for call in self.recorder.invocations:
            if call.end_ns < 0:
                step = f" of step {call.step}" if call.stage == "denoise" else ""
                detail = f"the call{step} did not return, so it has no file"
                yield Loss("untraced_call", call.submodule, 1, "calls", detail)
        if failure:
            yield Loss("aborted_run", "run", 1, "runs", f"the run ended with {failure}")


def _command_line() -> tuple[str, ...]:
    """How the program was started, without the folder that it lies in."""
    program, *arguments = sys.argv or [""]
    name = Path(program).name
    return ("profile-sd3" if name == "__main__.py" else name, *arguments)


def _lend_session(wraps: Wraps, part: Any, session: Any) -> None:
    """Give `part` the profiled session until the wraps are undone."""
    opened = (
        getattr(part, "opened_session", None) if hasattr(part, "open_session") else part.session
    )
    part.session = session

    def restore() -> None:
        if opened is None:
            del part.session
        else:
            part.session = opened

    wraps.on_undo(restore)


def _without_operators(invocation: Invocation) -> OperatorTrace:
    return OperatorTrace(invocation, CommandBuilder().build(), ())


def _attribution(part: ProfiledPart) -> dict[str, Any]:
    return {
        "to": "module paths",
        "attributed_ns": part.attributed_ns,
        "total_ns": part.total_ns,
        "share": part.attributed_ns / part.total_ns,
    }
