"""The manifest of a run: versions, hardware, settings, weights, compilations, lost data.

    compilations = RunCompilations(recorder)
    compilations.open()      # once the backends are known
    compilations.look()      # after each call
    compilations.of_run()    # when the run has ended

Facts about a pipeline are read when it is attached, so the manifest keeps no reference to it.
Every call that expected operators and got none is listed as lost data.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from msgspec import structs

from profiler.capture import overhead
from profiler.capture.backend import (
    CompilationLog,
    backend_named,
    backend_of,
    backends,
    device_facts,
)
from profiler.capture.calls import Invocation, PipelineCall, error_mark
from profiler.capture.imports import interrupts_wait
from profiler.capture.operator_source import SourceSummary
from profiler.capture.overhead import CallCost, measured_costs
from profiler.capture.pipelines.discovery import Together
from profiler.capture.pipelines.steps import part_settings, submodule_settings
from profiler.capture.pipelines.submodules import device_of, entries, options_for, part_of
from profiler.capture.recorder import Recorder
from profiler.capture.settings import Options
from profiler.plugins import let_pass
from profiler.text import Note
from profiler.trace.events import ROOT_DEVICE, Drop, DropKind, DropReason
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    AttributedTo,
    Attribution,
    CachedCall,
    ClockName,
    Clocks,
    Compilation,
    Device,
    Generation,
    Hardware,
    Recording,
    Setting,
    Submodule,
    SubmoduleSettings,
    Warmup,
    quantity,
)
from profiler.trace.redaction import HIDDEN, prompts_in, without_prompts

# --- What was compiled in a run, and in which of its calls.


_WHERE = "compilation"  # where a drop is reported if a log fails


class RunCompilations:
    """Collects the compilations that the backends' logs report.

    Compilers report a time but no thread. A compilation belongs to the recorded call that was
    running when it started; of several on different threads, to the one that started last.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._logs: list[CompilationLog] = []
        self._found: list[Compilation] = []
        self._looking = threading.Lock()  # if taken, the next look does it

    def open(self) -> None:
        """Start to listen; earlier compilations are not part of this run."""
        opened = (self._recorder.attempt(_WHERE, one.compilation_log) for one in backends())
        self._logs = [log for log in opened if log is not None]

    def look(self) -> None:
        """Collect what has been compiled since the last look."""
        if not self._logs or not self._looking.acquire(blocking=False):
            return
        try:
            for log in self._logs:
                new = self._recorder.attempt(_WHERE, log.new)
                if new:
                    offset_ns = self._recorder.clock.now_ns() - time.time_ns()
                    self._found += [
                        structs.replace(one, start_ns=one.start_ns + offset_ns) for one in new
                    ]
        finally:
            self._looking.release()

    def of_run(self) -> tuple[Compilation, ...]:
        """The compilations in recorded calls, with the calls' indices, and in recorded pipeline
        calls outside of calls. Those in warm-up and of other work of the script are left out."""
        self.look()
        calls = sorted(self._recorder.finished(), key=lambda call: call.start_ns)
        found = []
        for one in sorted(self._found, key=lambda one: one.start_ns):
            call = _call_at(calls, one.start_ns)
            if call is not None:
                found.append(structs.replace(one, call=call.index))
            elif self._in_pipeline(one.start_ns):
                found.append(one)
        return tuple(found)

    def _in_pipeline(self, at_ns: int) -> bool:
        return any(call.start_ns <= at_ns < call.end_ns for call in self._recorder.pipelines)


def _call_at(calls: list[Invocation], at_ns: int) -> Invocation | None:
    """The call that was running at `at_ns`; of several the one that started last. `calls` are
    sorted by start."""
    running = (call for call in reversed(calls) if call.start_ns <= at_ns < call.end_ns)
    return next(running, None)


# --- Where a run was recorded: versions and hardware, as far as this machine reports them.


_PACKAGES = ("profile-sd3", "numpy", "diffusers", "transformers")  # with those of backends


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages involved in a run."""
    of_backends = [package for backend in backends() for package in backend.packages]
    found = {
        package: _version(package) or _version_of_library(package)
        for package in (*_PACKAGES, *of_backends)
    }
    known = {package: version for package, version in found.items() if version}
    return {"python": platform.python_version(), **known}


@functools.cache  # once per process: the search takes longer than all else for the manifest
@interrupts_wait()  # the search suppresses every exception, so also those of the script's handlers
def _version(package: str) -> str:
    """The version of an installed package, "" if it is not. `metadata.version` would parse all
    of its METADATA as an e-mail, whose body is the README."""
    try:
        text = metadata.distribution(package).read_text("METADATA") or ""
    except (metadata.PackageNotFoundError, OSError, UnicodeDecodeError) as error:
        let_pass(error)
        return ""
    found = re.search(r"^Version:[ \t]*(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def _version_of_library(name: str) -> str:
    """The version that an imported library reports itself, "" if there is none: it may come from a
    package of another name, such as a runtime's GPU build."""
    found = getattr(sys.modules.get(name), "__version__", "")
    return found if isinstance(found, str) else ""


def hardware() -> Hardware:
    """CPU model, cores that the process may use, memory in bytes, operating system."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = sorted(affinity(0)) if affinity else list(range(os.cpu_count() or 1))
    return Hardware(
        cpu=_cpu_name(),
        cores=len(cores),
        memory_bytes=_memory_bytes(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
    )


def crowding() -> float:
    """The number of threads per core of the machine that were ready to run, averaged over the last
    minute; this process's included. 1 if unknown."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except (OSError, AttributeError):
        return 1.0


@functools.cache
def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError as error:
        let_pass(error)
    return platform.processor() or platform.machine()


def _memory_bytes() -> int | None:
    try:
        return quantity(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError) as error:
        let_pass(error)
        return None


# --- Settings of a run's pipeline calls and submodules. Each is written once: settings that a call
# shares with the one before are written with that one.


def generations(calls: Iterable[PipelineCall]) -> tuple[Generation, ...]:
    """The distinct outputs of the calls, each with the numbers of its pipeline calls, in order of
    the first one."""
    found: dict[str, tuple[Generation, list[int]]] = {}
    for call in sorted(calls, key=lambda call: call.number):
        if call.generation is not None and call.generation != Generation():
            known = found.setdefault(repr(call.generation), (call.generation, []))
            known[1].append(call.number)
    return tuple(structs.replace(made, pipelines=tuple(of)) for made, of in found.values())


def settings_of(
    before: Mapping[str, SubmoduleSettings], calls: Iterable[PipelineCall]
) -> dict[str, tuple[SubmoduleSettings, ...]]:
    """The successive settings of each submodule, from its pipeline calls; if no call reports them,
    those read `before` all calls, which may have been changed since."""
    by_submodule: dict[str, list[SubmoduleSettings]] = {}
    for call in sorted(calls, key=lambda call: call.number):
        for name, settings in call.submodules.items():
            known = by_submodule.setdefault(name, [])
            if known and _same(known[-1], settings):
                known[-1] = structs.replace(settings, since=known[-1].since)
            else:
                since = call.number if known else -1
                known.append(structs.replace(settings, since=since))
    found = {name: (settings,) for name, settings in before.items()}
    return found | {name: tuple(known) for name, known in by_submodule.items()}


def cached_calls(invocations: Iterable[Invocation]) -> tuple[CachedCall, ...]:
    """What step caches skipped, for each call with a cache on."""
    return tuple(
        CachedCall(
            call=one.index,
            cache=one.skipped.cache,
            blocks=one.skipped.blocks,
            skipped=one.skipped.paths,
            without_uncond=one.skipped.without_uncond,
            residual_ratio=one.skipped.residual_ratio,
        )
        for one in invocations
        if one.skipped is not None
    )


def _same(before: SubmoduleSettings, now: SubmoduleSettings) -> bool:
    """Whether the settings are unchanged; ones from before the session was opened lack its inputs
    and providers."""
    if not (before.inputs or before.providers):
        before = structs.replace(before, inputs=now.inputs, providers=now.providers)
    return structs.replace(before, since=now.since) == now


# --- What is missing of a run.
#
# Every call that awaited operators and got none is in a drop, whatever the cause.


NOT_ENDED = Drop(DropKind.ABORTED_RUN, "run", 1, "runs", Note.of(DropReason.NOT_ENDED))
"""The drop that the manifest has until the run has ended."""

_UNWRITTEN = (DropKind.MISSING_FILE, DropKind.DROPPED_EVENTS)


def run_drops(
    recorder: Recorder, summaries: Iterable[SourceSummary], written: Iterable[Drop], failure: str
) -> tuple[Drop, ...]:
    """All drops of a run that has ended. `written` are those from reading and writing files;
    `failure` is what ended the run early, "" if nothing did."""
    known = [drop for summary in summaries for drop in summary.drops]
    written = list(written)
    return (
        *known,
        *_not_returned(recorder, failure),
        *_failures(recorder),
        *_guessed(recorder),
        *_unnamed(recorder, [*known, *written]),
        *_ended_with(failure),
        *written,
    )


def _ended_with(failure: str) -> Iterator[Drop]:
    if failure:
        detail = Note.of(DropReason.ENDED_WITH, failure=failure)
        yield Drop(DropKind.ABORTED_RUN, "run", 1, "runs", detail)


def _not_returned(recorder: Recorder, failure: str) -> Iterator[Drop]:
    """Drops for calls that had not returned when the run ended. One whose exception the script
    caught, such as a run that the runtime refuses, lacks nothing."""
    found: Counter[tuple[str, Note]] = Counter()
    ended_by = {*map(error_mark, _ending_errors())} if failure else set()
    latest = {call.error: call for call in recorder.invocations if call.failed}
    for call in recorder.invocations:
        if call.index >= 0:
            continue
        ends = call.error in ended_by and latest[call.error] is call  # earlier ones had its address
        if not call.failed or ends or (failure and not call.error):
            detail = Note.of(DropReason.CALL_NOT_RETURNED)
            if call.stage == "denoise":
                detail = Note.of(DropReason.STEP_NOT_RETURNED, step=call.step)
            found[call.submodule, detail] += 1
    for (submodule, detail), count in found.items():
        yield Drop(DropKind.UNTRACED_CALL, submodule, count, "calls", detail)


def _ending_errors() -> list[BaseException]:
    """The exception that ends the run, and those that led to it."""
    found: list[BaseException] = []
    left = [sys.exc_info()[1] or getattr(sys, "last_value", None)]
    while left:
        error = left.pop()
        if isinstance(error, BaseException) and not any(error is one for one in found):
            found.append(error)
            left += [error.__cause__, error.__context__, *getattr(error, "exceptions", ())]
    return found


def _guessed(recorder: Recorder) -> Iterator[Drop]:
    """Drops for calls whose branch is a guess."""
    found = Counter(call.submodule for call in recorder.finished() if call.branch_guessed)
    for submodule, count in found.items():
        detail = Note.of(DropReason.BRANCH_GUESSED)
        yield Drop(DropKind.DOUBTFUL_LABEL, submodule, count, "calls", detail)


def _failures(recorder: Recorder) -> Iterator[Drop]:
    for (where, reason), count in recorder.failures.items():
        detail = Note.of(DropReason.PROFILER_FAILED, error=reason)
        yield Drop(DropKind.UNTRACED_CALL, where, count, "calls", detail)


def _unnamed(recorder: Recorder, known: Sequence[Drop]) -> Iterator[Drop]:
    """Drops for calls that awaited operators and got none without another drop. A drop without a
    count covers its whole submodule."""
    files = {drop.where for drop in known if drop.kind in _UNWRITTEN}
    named: Counter[str] = Counter()
    uncounted: set[str] = set()
    for drop in known:
        if drop.kind == DropKind.UNTRACED_CALL:
            named[drop.where] += max(drop.count, 0)
            uncounted |= {drop.where} if drop.count < 0 else set()
    without = Counter(
        call.submodule
        for call in recorder.finished()
        if call.awaits_operators and not (call.ops_traced or call.drop_noted)
        if call.as_call().file_name not in files
    )
    for submodule, count in (without - named).items():
        if submodule not in uncounted:
            detail = Note.of(DropReason.NOT_RECORDED)
            yield Drop(DropKind.UNTRACED_CALL, submodule, count, "calls", detail)


# --- How many bytes the weights of a submodule take on its device: "does it fit?".


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """The weights of a submodule's part on a device: `size` bytes, None if unknown. `holder()` is
    the object that has them, None once it is gone."""

    submodule: str
    device: str
    size: int | None
    holder: Callable[[], Any]


def loaded_part(submodule: str, part: Any, device: str) -> LoadedPart:
    """Describe the weights of a part now, without keeping it alive. Parts that share their weights
    have one holder."""
    backend = backend_of(part)
    return LoadedPart(submodule, device, backend.weight_bytes(part), backend.holder(part))


class LoadedWeights:
    """Tracks the maximum of the weights loaded at one time, as a run's pipelines and sessions come
    and go. Shared weights count once."""

    def __init__(self) -> None:
        self._parts: list[LoadedPart] = []
        self._unknown: set[tuple[str, str]] = set()  # submodule and device
        self._submodules: dict[str, tuple[int, int]] = {}  # total, of it counted before
        self._devices: dict[str, int] = {}

    def add(self, parts: Iterable[LoadedPart]) -> None:
        """Add loaded parts to those that are still alive."""
        self._parts = [p for p in (*self._parts, *parts) if p.holder() is not None]
        self._unknown |= {(p.submodule, p.device) for p in self._parts if p.size is None}
        submodules: dict[str, dict[int, int]] = {}
        devices: dict[str, dict[int, int]] = {}
        for part in self._parts:
            if part.size is not None:
                identity = id(part.holder())
                submodules.setdefault(part.submodule, {})[identity] = part.size
                devices.setdefault(part.device, {})[identity] = part.size
        counted: set[int] = set()
        for name, sizes in submodules.items():
            total = sum(sizes.values())
            shared = sum(size for identity, size in sizes.items() if identity in counted)
            counted.update(sizes)
            self._submodules[name] = max((total, shared), self._submodules.get(name, (0, 0)))
        for name, sizes in devices.items():
            self._devices[name] = max(sum(sizes.values()), self._devices.get(name, 0))

    def of_submodule(self, name: str) -> dict[str, int]:
        """`weight_bytes` of a submodule, and the `shared_weight_bytes` in it that an earlier
        submodule has; empty if the size of a part is unknown."""
        if name not in self._submodules or any(name == submodule for submodule, _ in self._unknown):
            return {}
        total, shared = self._submodules[name]
        return {"weight_bytes": total} | ({"shared_weight_bytes": shared} if shared else {})

    def of_device(self, name: str) -> dict[str, int]:
        """`weight_bytes` on a device; empty if the size of a part there is unknown."""
        if name not in self._devices or any(name == device for _, device in self._unknown):
            return {}
        return {"weight_bytes": self._devices[name]}


# --- The manifest of a run: on what it ran, what it cost and what is missing.
#
# Facts about a pipeline are read when it is attached, so that nothing here references it.


@dataclass(slots=True)
class PipelineFacts:
    """What the manifest says about one pipeline. `devices` and `submodules` are by name; `parts`
    are its parts with their weights, `settings` those of its submodules when attached. `seen`: the
    submodules were found, not requested."""

    name: str
    model: str
    devices: dict[str, Device]
    submodules: dict[str, Submodule] = field(default_factory=dict)
    parts: list[LoadedPart] = field(default_factory=list, compare=False)
    settings: dict[str, SubmoduleSettings] = field(default_factory=dict)
    seen: bool = False


def only_called(facts: PipelineFacts, called: Container[str]) -> PipelineFacts:
    """The facts for the manifest of a finished run: without submodules that were only `seen` and
    never called. Libraries keep modules of their own, such as the activations of transformers."""
    if not facts.seen:
        return facts
    submodules = {name: known for name, known in facts.submodules.items() if name in called}
    used = {known.device for known in submodules.values()}
    return replace(
        facts,
        submodules=submodules,
        settings={name: known for name, known in facts.settings.items() if name in called},
        devices={name: known for name, known in facts.devices.items() if name in used},
    )


def pipeline_facts(pipeline: Any, options: Options) -> PipelineFacts:
    """Describe `pipeline` as it is now."""
    placement = getattr(pipeline, "placement", None)
    known = {} if placement is None else placement.described()
    facts = PipelineFacts(
        name="" if isinstance(pipeline, Together) else type(pipeline).__name__,
        model=str(getattr(pipeline, "name_or_path", "") or ""),
        devices={},
    )
    described: set[tuple[str, int]] = set()
    for entry in entries(pipeline):
        device, part = device_of(pipeline, entry), part_of(pipeline, entry)
        facts.devices[device] = known.get(device, Device())
        if (entry.submodule, id(part)) in described:
            continue
        described.add((entry.submodule, id(part)))
        traced = options_for(pipeline, entry, options).traces_operators(entry.submodule)
        facts.submodules[entry.submodule] = _submodule(part, device, traced)
        facts.parts.append(loaded_part(entry.submodule, part, device))
    facts.settings = submodule_settings(pipeline)
    return _with_weights(facts)


def part_facts(submodule: str, part: Any, device: str, *, traced: bool) -> PipelineFacts:
    """Describe a submodule that belongs to no pipeline; `traced`: its operators are."""
    facts = PipelineFacts(name="", model="", devices={device: Device()})
    facts.submodules[submodule] = _submodule(part, device, traced)
    facts.parts.append(loaded_part(submodule, part, device))
    settings = part_settings(part)
    facts.settings = {} if settings is None else {submodule: settings}
    return _with_weights(facts)


def _with_weights(facts: PipelineFacts) -> PipelineFacts:
    weights = LoadedWeights()
    weights.add(facts.parts)
    for name, known in facts.submodules.items():
        facts.submodules[name] = structs.replace(known, **weights.of_submodule(name))
    return facts


def _submodule(part: Any, device: str, traced: bool) -> Submodule:
    path = backend_of(part).model_path(part)
    where = path.absolute() if path else None
    model = f"{where.parent.name}/{where.name}" if where else ""
    return Submodule(device=device, activate_profiler=traced, model=model)


def run_info(
    recorder: Recorder,
    pipelines: Sequence[PipelineFacts],
    sources: Sequence[tuple[str, SourceSummary]],
    weights: LoadedWeights,
    *,
    warmup: Warmup | None = None,
    writing: Mapping[str, int] | None = None,
    drops: Iterable[Drop] = (),
    failure: str = "",
) -> RunInfo:
    """The manifest's description of a run that has ended. `sources` are the operator sources with
    their submodules; `weights` the loaded weights of all of them; `writing` the time for conversion
    and writing in ns, by name; `drops` what could not be written; `failure` what ended the run
    early, "" if nothing did."""
    for prompt in () if recorder.keep_prompts else prompts_in(sys.argv):
        if len(prompt) >= _LEAST_OF_A_PROMPT:
            failure = failure.replace(prompt, HIDDEN)
    costs = measured_costs(sources)
    summaries = [summary for _, summary in sources]
    settings, pipeline_settings = _settings(recorder.pipelines)
    return RunInfo(
        producer="capture",
        model=_joined(facts.model for facts in pipelines),
        pipeline=_joined(facts.name for facts in pipelines),
        command_line=_command_line(keep_prompts=recorder.keep_prompts),
        versions=versions(),
        hardware=hardware(),
        devices=_described(pipelines, weights),
        submodules=_submodules(pipelines, sources, costs, weights),
        settings=settings,
        pipeline_settings=pipeline_settings,
        submodule_settings=settings_of(
            {name: known for facts in pipelines for name, known in facts.settings.items()},
            recorder.pipelines,
        ),
        generations=(
            *generations(recorder.pipelines),
            *recorder.loops.generations(recorder.finished()),
        ),
        cached_calls=cached_calls(recorder.finished()),
        clocks=Clocks(
            clock=ClockName.REALTIME, monotonic_offset_ns=recorder.clock.monotonic_offset_ns
        ),
        overhead=structs.replace(
            overhead.tracing_cost(
                sources,
                costs,
                recorder.hooks_ns,
                recorder.traced_ns,
                overhead.whole_of(recorder),
                overhead.noise_ns(recorder, crowding()),
            ),
            **(writing or {}),
        ),
        coverage=recorder.coverage.coverage(),
        warmup=warmup,
        recording=_recording(recorder, summaries),
        attribution=_attribution(sources),
        drops=run_drops(recorder, summaries, drops, failure),
    )


def _recording(recorder: Recorder, summaries: Iterable[SourceSummary]) -> Recording | None:
    """Whether allocations were recorded; None if no source could."""
    if not any(one.sessions and backend_named(one.backend).allocations for one in summaries):
        return None
    return Recording(profile_memory=recorder.memory)


def _submodules(
    pipelines: Iterable[PipelineFacts],
    sources: Sequence[tuple[str, SourceSummary]],
    costs: Mapping[str, CallCost],
    weights: LoadedWeights,
) -> dict[str, Submodule]:
    """What is known about each submodule, from its pipeline, its sources and its profiling
    overhead."""
    found: dict[str, Submodule] = {}
    for facts in pipelines:
        found |= facts.submodules
    of_one = {"weight_bytes": None, "shared_weight_bytes": None}  # facts of one pipeline only
    for name, known in found.items():
        summaries = [summary for submodule, summary in sources if submodule == name]
        sessions = sum(summary.sessions for summary in summaries)
        found[name] = structs.replace(
            known, profiled_sessions=sessions, **{**of_one, **weights.of_submodule(name)}
        )
        for summary in summaries:
            found[name] = add_known(found[name], summary.known)
    for name, measured in costs.items():
        known = found.get(name, Submodule())
        found[name] = structs.replace(known, overhead_ratio=measured.overhead_ratio())
    return found


def add_known(known: Submodule, more: Submodule) -> Submodule:
    """Join what two sources report about a submodule; entries in both appear once."""
    return structs.replace(
        known,
        modules={**known.modules, **more.modules},
        runtime_calls=known.runtime_calls + more.runtime_calls,
        writes_shards=known.writes_shards if more.writes_shards is None else more.writes_shards,
    )


def _joined(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, names)))


def _described(pipelines: Iterable[PipelineFacts], weights: LoadedWeights) -> dict[str, Device]:
    devices: dict[str, Device] = {ROOT_DEVICE: Device()}
    for facts in pipelines:
        devices |= facts.devices
    return {
        name: structs.replace(known, **_hardware(name), **weights.of_device(name))
        for name, known in sorted(devices.items())
    }


def _hardware(device: str) -> dict[str, Any]:
    """The name of a device's hardware; for a GPU also its memory and compute units, as its backend
    reports them."""
    if device.startswith("cpu"):
        return {"hardware": hardware().cpu}
    facts = device_facts(device)
    if facts is None:
        return {"hardware": ""}
    return {name: getattr(facts, name) for name in ("hardware", "memory_bytes", "compute_units")}


def _attribution(sources: Sequence[tuple[str, SourceSummary]]) -> dict[str, Attribution]:
    found: dict[str, Attribution] = {}
    for submodule, summary in sources:
        if not summary.total_ns:
            continue
        before = found.get(submodule, Attribution())
        attributed = before.attributed_ns + summary.attributed_ns
        total = before.total_ns + summary.total_ns
        found[submodule] = Attribution(
            to=AttributedTo.MODULES,
            attributed_ns=attributed,
            total_ns=total,
            share=attributed / total,
        )
    return found


def _settings(
    calls: Iterable[PipelineCall],
) -> tuple[dict[str, Setting], dict[str, dict[str, Setting]]]:
    """The settings that all pipeline calls share, and the others by call number."""
    given = {str(call.number): call.settings for call in sorted(calls, key=lambda c: c.number)}
    texts = [{key: repr(value) for key, value in one.items()} for one in given.values()]
    first = next(iter(given.values()), {})
    common = {k: v for k, v in first.items() if all(text.get(k) == repr(v) for text in texts)}
    own = {
        number: {key: value for key, value in one.items() if key not in common}
        for number, one in given.items()
    }
    return common, own if any(own.values()) else {}


_LEAST_OF_A_PROMPT = 4  # characters: a shorter one may be part of other words


def _command_line(*, keep_prompts: bool) -> tuple[str, ...]:
    """The command line of the program without its folder. Prompts and paths of images are replaced
    by their lengths, unless `keep_prompts`."""
    program, *arguments = sys.argv or [""]
    name = Path(program).name
    line = ("profile-sd3" if name == "__main__.py" else name, *arguments)
    return line if keep_prompts else without_prompts(line)
