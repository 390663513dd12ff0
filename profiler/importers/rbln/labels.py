"""Label RBLN trace files with pipeline calls: by description, guess or own recording.

    description = describe("sd3")              # or a .yaml file, see docs/rbln.md
    description.calls(28)                      # 6 encoder calls, 28 transformer steps, 1 VAE

Files only record the order of runtime calls. Either all of them are labelled or none, because
one missing call would shift every later label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from profiler.errors import InputError
from profiler.grammars.names import CommandName, parse_command_name
from profiler.importers.openvino.read import plain_yaml
from profiler.importers.rbln import Capture, Shard, missing_numbers
from profiler.importers.rbln.trace import RblnTrace
from profiler.text import Note
from profiler.trace.bundle import find_bundles
from profiler.trace.events import BRANCHES, NO_CALL, NO_STEP, STAGES, Branch, Call, DropReason, Span
from profiler.trace.manifest import MANIFEST_NAME, Manifest, read_manifest
from profiler.trace.manifest_fields import Submodule

# --- Which submodule calls a pipeline makes, in order: built in for some, from YAML for others.
#
#     description = describe("sd3")              # or a .yaml file, see docs/rbln.md
#     description.calls(28)                      # 6 encoder calls, 28 transformer steps, 1 VAE
#
# A description says what one image costs; nothing of it is read from the trace.


_SUFFIXES = (".yaml", ".yml")
_DEEPEST = 8  # collections in each other
_LARGEST = 1 << 16  # bytes of a description
_MOST_PATTERNS = 1_000  # of one stage
_MOST_STEPS = 100_000
_MOST_CALLS = 1_000_000
_SUBMODULE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_DEVICE = re.compile(r"[a-z][a-z0-9_]{0,31}:[0-9]{1,5}")
_KEYS = {"name", "steps", "warmup", "allow_gaps", "devices", *STAGES}
_PATTERN_KEYS = {"submodule", "branch", "repeat", "steps"}


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """A call that the pipeline makes; `device` is "" where the description does not say."""

    submodule: str
    stage: str
    branch: str
    step: int
    device: str


@dataclass(frozen=True, slots=True)
class CallPattern:
    """A call of one stage, made `repeat` times in a row.

    In `denoise` it is made in every step, or where `steps` is given in those from `steps[0]` up
    to `steps[1]`, both included.
    """

    submodule: str
    branch: str = ""
    repeat: int = 1
    steps: tuple[int, int] | None = None

    def made_in(self, step: int) -> bool:
        return self.steps is None or self.steps[0] <= step <= self.steps[1]


@dataclass(frozen=True, slots=True)
class Description:
    """The calls of a pipeline, by stage in order.

    `steps` is used where the caller names none (0: it must); `warmup` leading calls are not the
    run's; with `allow_gaps` call numbers may be missing, because submodules were not profiled.
    """

    name: str
    encode: tuple[CallPattern, ...]
    denoise: tuple[CallPattern, ...]
    decode: tuple[CallPattern, ...]
    steps: int = 0
    warmup: int = 0
    allow_gaps: bool = False
    devices: Mapping[str, str] = field(default_factory=dict)

    def calls(self, steps: int | None = None) -> tuple[ExpectedCall, ...]:
        """Every call of a run with `steps` denoising steps, in order.

        Raises InputError where the number of steps is not known or absurd.
        """
        count = self.step_count(steps)
        per_step = sum(pattern.repeat for pattern in self.denoise)
        around = sum(pattern.repeat for pattern in (*self.encode, *self.decode))
        if count * per_step + around > _MOST_CALLS:
            raise InputError(
                f"{self.name} with {count:,} steps makes more than {_MOST_CALLS:,} calls: "
                "check the number of steps and the description's repeats"
            )
        return tuple(self._expected(count))

    def step_count(self, steps: int | None = None) -> int:
        """`steps`, else the description's own, checked; 0 for a pipeline that does not denoise."""
        if not self.denoise:
            return 0
        count = self.steps if steps is None else steps
        if count == 0 and steps is None:
            raise InputError(
                f"{self.name} does not say how many denoising steps were run: give --steps N to "
                "`import`, --import steps=N to other commands"
            )
        if not 1 <= count <= _MOST_STEPS:
            raise InputError(f"--steps {count} is not between 1 and {_MOST_STEPS:,}")
        return count

    def _expected(self, steps: int) -> Iterator[ExpectedCall]:
        yield from self._stage("encode", self.encode, NO_STEP)
        for step in range(steps):
            made = [pattern for pattern in self.denoise if pattern.made_in(step)]
            yield from self._stage("denoise", made, step)
        yield from self._stage("decode", self.decode, NO_STEP)

    def _stage(
        self, stage: str, patterns: Sequence[CallPattern], step: int
    ) -> Iterator[ExpectedCall]:
        for pattern in patterns:
            device = self.devices.get(pattern.submodule, "")
            call = ExpectedCall(pattern.submodule, stage, pattern.branch, step, device)
            yield from (call for _ in range(pattern.repeat))


def _encoders(count: int, *branches: Branch) -> tuple[CallPattern, ...]:
    """Every encoder for one branch, then every encoder for the next: diffusers' order."""
    names = ["text_encoder", *(f"text_encoder_{number}" for number in range(2, count + 1))]
    return tuple(CallPattern(name, branch) for branch in branches for name in names)


def _built_in(
    name: str, encode: tuple[CallPattern, ...], denoiser: str, branch: Branch
) -> Description:
    return Description(name, encode, (CallPattern(denoiser, branch),), (CallPattern("vae"),))


_BOTH: tuple[Branch, Branch] = ("prompt", "negative_prompt")
BUILT_IN: dict[str, Description] = {
    description.name: description
    for description in (
        _built_in("sd3", _encoders(3, *_BOTH), "transformer", "batched"),
        _built_in("sd3-no-guidance", _encoders(3, "prompt"), "transformer", "cond"),
        _built_in("sdxl", _encoders(2, *_BOTH), "unet", "batched"),
        _built_in("sdxl-no-negative-prompt", _encoders(2, "prompt"), "unet", "batched"),
        _built_in("sdxl-no-guidance", _encoders(2, "prompt"), "unet", "cond"),
        _built_in("flux", _encoders(2, "prompt"), "transformer", "cond"),
    )
}


def describe(pipeline: str | Path) -> Description:
    """The built-in description of that name, or that of a `.yaml` file.

    Raises InputError where there is no such description or the file does not follow the schema.
    """
    name = str(pipeline)
    if name in BUILT_IN:
        return BUILT_IN[name]
    if Path(name).suffix.lower() in _SUFFIXES:
        return _read(Path(name))
    raise InputError(
        f"no pipeline {name!r}: give one of {', '.join(BUILT_IN)}, or a .yaml description"
    )


def _read(path: Path) -> Description:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > _LARGEST:
        raise InputError(f"{path} is larger than 64 KiB: no description of a pipeline is")
    try:
        return _Schema(path).description(plain_yaml(data, _DEEPEST))
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path} is not valid YAML ({reason}): see docs/rbln.md") from error


@dataclass(frozen=True, slots=True)
class _Schema:
    """Checks a document and says in one sentence what is wrong with it, and where."""

    path: Path

    def description(self, document: Any) -> Description:
        entries = self._mapping(document, "the description", _KEYS)
        stages = {stage: self._patterns(entries.get(stage, []), stage) for stage in STAGES}
        if not any(stages.values()):
            raise self._wrong("it names no calls", f"give lists of calls under {', '.join(STAGES)}")
        name = entries.get("name", self.path.stem)
        if not isinstance(name, str) or not name or len(name) > 200:
            raise self._wrong("name is no short text", "give the pipeline's name")
        return Description(
            name=name,
            **stages,
            steps=self._number(entries.get("steps", 0), "steps", 0, _MOST_STEPS),
            warmup=self._number(entries.get("warmup", 0), "warmup", 0, _MOST_CALLS),
            allow_gaps=self._flag(entries.get("allow_gaps", False), "allow_gaps"),
            devices=self._devices(entries.get("devices", {}), stages),
        )

    def _patterns(self, entries: Any, stage: str) -> tuple[CallPattern, ...]:
        if not isinstance(entries, list) or len(entries) > _MOST_PATTERNS:
            raise self._wrong(f"{stage} is no list of calls", "write `- submodule: NAME` lines")
        return tuple(
            self._pattern(entry, stage, f"{stage}[{number}]")
            for number, entry in enumerate(entries)
        )

    def _pattern(self, entry: Any, stage: str, where: str) -> CallPattern:
        if isinstance(entry, str):
            entry = {"submodule": entry}
        fields = self._mapping(entry, where, _PATTERN_KEYS)
        submodule, branch = fields.get("submodule"), fields.get("branch", "")
        if not isinstance(submodule, str) or not _SUBMODULE.fullmatch(submodule):
            raise self._wrong(f"{where} names no submodule", "give letters, digits and underscores")
        if not isinstance(branch, str) or branch not in ("", *BRANCHES):
            allowed = ", ".join(get_args(Branch))
            raise self._wrong(f"{where} has an unknown branch", f"give one of {allowed}, or none")
        repeat = self._number(fields.get("repeat", 1), f"repeat of {where}", 1, _MOST_CALLS)
        window = fields.get("steps")
        if window is None:
            return CallPattern(submodule, branch, repeat)
        if stage != "denoise":
            raise self._wrong(f"{where} has steps", "only calls of denoise may have them")
        return CallPattern(submodule, branch, repeat, self._window(window, where))

    def _window(self, window: Any, where: str) -> tuple[int, int]:
        if not isinstance(window, list) or len(window) != 2:
            raise self._wrong(f"steps of {where} are no [first, last]", "give two step numbers")
        first, last = (self._number(s, f"steps of {where}", 0, _MOST_STEPS) for s in window)
        if first > last:
            raise self._wrong(f"steps of {where} end before they begin", "give [first, last]")
        return first, last

    def _devices(self, entries: Any, stages: Mapping[str, Sequence[CallPattern]]) -> dict[str, str]:
        known = {pattern.submodule for patterns in stages.values() for pattern in patterns}
        devices = self._mapping(entries, "devices", known)
        for submodule, device in devices.items():
            if not isinstance(device, str) or not _DEVICE.fullmatch(device):
                raise self._wrong(f"the device of {submodule} is none", "write it like rbln:1")
        return cast("dict[str, str]", devices)

    def _mapping(self, value: Any, where: str, keys: set[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(f"{where} is no mapping", "write `key: value` lines")
        for key in value:
            if not isinstance(key, str) or key not in keys:
                shown = f"{key:.40}" if isinstance(key, str) else f"of type {type(key).__name__}"
                raise self._wrong(
                    f"{where} has an unknown key {shown}", f"use {', '.join(sorted(keys))}"
                )
        return value

    def _number(self, value: Any, what: str, least: int, most: int) -> int:
        if type(value) is not int or not least <= value <= most:
            raise self._wrong(f"{what} is no number from {least} to {most:,}", "correct it")
        return value

    def _flag(self, value: Any, what: str) -> bool:
        if not isinstance(value, bool):
            raise self._wrong(f"{what} is neither true nor false", "write one of them")
        return value

    def _wrong(self, what: str, advice: str) -> InputError:
        return InputError(f"{self.path}: {what}: {advice} (docs/rbln.md)")


# --- Which pipeline ran, guessed from its files where nobody said it.
#
# A compiled model executes the same layers in every call. So the files fall into groups of equal
# layers, and a built-in description fits where each of its submodules is one of them, in its
# order
# and number. Nothing less is guessed; what was guessed is said in the bundle's drops.


_CONVOLUTION = "conv"


@dataclass(frozen=True, slots=True)
class Guess:
    """A description with its steps, and the names of the others that fit as well."""

    description: Description
    steps: int
    others: tuple[str, ...]


def guess(traces: Sequence[RblnTrace | None], steps: int | None) -> Guess | None:
    """The description that fits the files in their order, None where none does. `steps` is their
    number where it is known; a file that holds nothing (None) is of any submodule."""
    models = [None if trace is None else frozenset(_layers(trace)) for trace in traces]
    fitting = [
        (description, count)
        for description in BUILT_IN.values()
        for count in _step_counts(description, len(models))
        if steps in (None, count) and _fits(description, count, models)
    ]
    alike = [found for found in fitting if _is_of_kind(*found, models)] or fitting
    if not alike:
        return None
    others = tuple(description.name for description, _ in fitting if description != alike[0][0])
    return Guess(*alike[0], others)


def _layers(trace: RblnTrace) -> Iterator[CommandName]:
    """The layers that ran, each with no more than its name."""
    for code in np.unique(trace.name).tolist():
        command = parse_command_name(trace.strings[code])
        if command is not None:
            yield CommandName(command.layer, 0, 0)


_Models = Sequence[frozenset[CommandName] | None]


def _step_counts(description: Description, files: int) -> Iterator[int]:
    """With how many steps the description makes as many calls: one number or none."""
    around = sum(pattern.repeat for pattern in (*description.encode, *description.decode))
    each_step = sum(pattern.repeat for pattern in description.denoise)
    count, rest = divmod(files - around, each_step)
    if count > 0 and rest == 0:
        yield count


def _fits(description: Description, steps: int, models: _Models) -> bool:
    """Whether all calls of a submodule have the same layers, and two submodules never."""
    known: dict[str, frozenset[CommandName]] = {}
    expected = description.calls(steps)
    for call, model in zip(expected, models, strict=True):
        if model is not None and known.setdefault(call.submodule, model) != model:
            return False
    distinct = all(known.values()) and len({*known.values()}) == len(known)
    return distinct and len(known) == len({call.submodule for call in expected})


def _is_of_kind(description: Description, steps: int, models: _Models) -> bool:
    """Whether the denoiser convolves, as a UNet does, or does not, as FLUX's transformer (SD3's
    does, but in SD3 alone are there three text encoders)."""
    expected = description.calls(steps)
    denoiser = description.denoise[0].submodule
    layers = {
        layer
        for call, model in zip(expected, models, strict=True)
        if call.submodule == denoiser
        for layer in model or ()
    }
    convolves = any(_CONVOLUTION in layer.op_type for layer in layers)
    return convolves == (denoiser == "unet")


# --- Which call of the pipeline each file is, where the number of files fits the description.
#
# The files say only in which order runtimes were called. So either all of them are labelled or
# none:
# one call too many or too few, and every label behind it would be wrong.


UNLABELLED = ExpectedCall("unlabelled", "", "", NO_STEP, "")
_SHOWN = 5  # numbers that are named


@dataclass(frozen=True, slots=True)
class Labels:
    """What each shard of the run is. `why_not` says why nothing was labelled, None where it was;
    `skipped` are the shards that are not the run's. `pipeline` is what ran, and
    `described_as` the description or the recorded run by which it is known, "" for none; `guess`
    is that description where it was guessed."""

    skipped: tuple[Shard, ...]
    shards: tuple[Shard, ...]
    calls: tuple[ExpectedCall, ...]
    why_not: Note | None
    pipeline: str = ""
    described_as: str = ""
    guess: Guess | None = None


def label_shards(
    capture: Capture, description: Description | None, steps: int | None, skip: int | None
) -> Labels:
    """Label the shards behind the first `skip` (None: the description's `warmup`) in order.

    Raises InputError where nothing is left or the number of steps is not known.
    """
    count = skip if skip is not None else description.warmup if description else 0
    total = len(capture.shards)
    if not 0 <= count < total:
        raise InputError(
            f"--skip {count} leaves none of the {_files(total)} in {capture.source}: skip fewer"
        )
    skipped, shards = capture.shards[:count], capture.shards[count:]
    expected = description.calls(steps) if description is not None else ()
    why_not = None if capture.in_order else Note.of(DropReason.ORDER_UNKNOWN)
    why_not = why_not or _why_unlabelled(description, expected, shards, count)
    calls = unlabelled(shards) if why_not else expected
    name = description.name if description is not None else ""
    return Labels(skipped, shards, calls, why_not, name, name)


def unlabelled(shards: Sequence[Shard]) -> tuple[ExpectedCall, ...]:
    """Calls that nothing describes: models are told apart where their runtime instance is known."""
    return tuple(
        UNLABELLED
        if shard.instance < 0
        else ExpectedCall(f"instance_{shard.instance}", "", "", NO_STEP, "")
        for shard in shards
    )


def _why_unlabelled(
    description: Description | None,
    expected: Sequence[ExpectedCall],
    shards: Sequence[Shard],
    skip: int,
) -> Note | None:
    if description is None:
        return Note.of(DropReason.NO_PIPELINE_NAMED)
    missing = missing_numbers(shards)
    if len(expected) != len(shards):
        advice = _label_advice(description, expected, len(shards))
    elif missing and not description.allow_gaps:
        advice = Note.of(DropReason.COPY_OR_DESCRIBE)
    else:
        return None
    found = files_found(shards, skip)
    if shards[0].number < 0 and len(shards) == 1:
        found.append(Note.of(DropReason.PERHAPS_AGGREGATE))
    if missing:
        found.append(_listed(missing))
    makes = {"steps": _steps(expected), "calls": len(expected)}
    found.append(Note.of(DropReason.PIPELINE_MAKES, pipeline=description.name, **makes))
    return Note.of(DropReason.NOT_LABELLED, found=tuple(found), advice=advice)


def files_found(shards: Sequence[Shard], skipped: int) -> list[Note]:
    """How many files there are, or calls in one file, behind how many that were skipped."""
    found = [Note.of(DropReason.FILES_FOUND, files=len(shards))]
    if shards[0].is_part:
        found = [Note.of(DropReason.CALLS_IN_FILE, calls=len(shards))]
    if skipped:
        found.append(Note.of(DropReason.FILES_SKIPPED, skipped=skipped))
    return found


def _label_advice(description: Description, expected: Sequence[ExpectedCall], files: int) -> Note:
    """What else would fit the number of files."""
    steps = 1 + max((call.step for call in expected), default=-1)
    fitting = []
    if files > len(expected):
        fitting.append(f"--skip {files - len(expected)}")
    per_step = sum(pattern.repeat for pattern in description.denoise)
    if per_step and all(pattern.steps is None for pattern in description.denoise):
        rest = files - (len(expected) - steps * per_step)
        if rest > 0 and rest % per_step == 0:
            fitting.append(f"--steps {rest // per_step}")
    for name, other in BUILT_IN.items():
        if name != description.name and steps and len(other.calls(steps)) == files:
            fitting.append(f"--pipeline {name}")
    if not fitting:
        return Note.of(DropReason.CHECK_OPTIONS)
    return Note.of(DropReason.FITTING, options=tuple(fitting))


def _steps(expected: Sequence[ExpectedCall]) -> int:
    return 1 + max((call.step for call in expected), default=-1)


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _listed(missing: Sequence[int]) -> Note:
    numbers, more = tuple(missing[:_SHOWN]), len(missing) - _SHOWN
    if more > 0:
        return Note.of(DropReason.MORE_FILES_MISSING, numbers=numbers, more=more)
    return Note.of(DropReason.FILES_MISSING, numbers=numbers)


@dataclass(slots=True)
class _Part:
    """A stage or a step: from its first call to its last."""

    name: str
    stage: str
    step: int
    start_ns: int
    end_ns: int


def spans_of(
    name: str, calls: Sequence[ExpectedCall], times: Sequence[tuple[int, int]]
) -> Iterator[Span]:
    """Pipeline, stages and steps, from the (start, end) of each call in ns; no stages where the
    calls have none.

    Nothing was recorded between calls, so stages and steps last until the next one begins.
    """
    start, end = min(begin for begin, _ in times), max(end for _, end in times)
    yield Span("pipeline", name, "", NO_STEP, start, end - start)
    stages = _parts(calls, times, steps=False)
    steps = _parts(calls, times, steps=True)
    for stage in stages:
        for last in [step for step in steps if step.stage == stage.stage][-1:]:
            last.end_ns = max(last.end_ns, stage.end_ns)
    for part in stages:
        length = part.end_ns - part.start_ns
        yield Span("stage", part.name, part.stage, NO_STEP, part.start_ns, length)
    for part in steps:
        length = part.end_ns - part.start_ns
        yield Span("step", part.name, part.stage, part.step, part.start_ns, length)


def _parts(
    calls: Sequence[ExpectedCall], times: Sequence[tuple[int, int]], *, steps: bool
) -> list[_Part]:
    parts: dict[tuple[str, int], _Part] = {}
    for call, (start, end) in zip(calls, times, strict=True):
        if not call.stage or (steps and call.step == NO_STEP):
            continue
        key = (call.stage, call.step if steps else NO_STEP)
        name = f"step {call.step}" if steps else call.stage
        part = parts.setdefault(key, _Part(name, call.stage, key[1], start, end))
        part.start_ns, part.end_ns = min(part.start_ns, start), max(part.end_ns, end)
    ordered = list(parts.values())
    for part, following in pairwise(ordered):
        if part.start_ns <= following.start_ns and part.end_ns <= following.start_ns:
            part.end_ns = following.start_ns
    return ordered


# --- Which call each file is, by our own recording of the same run.
#
# RBLN's profiler numbers its files by runtime calls, and a bundle that we recorded says which of
# those belong to which call (`submodules.*.runtime_calls` in its manifest). So nothing is
# described:
# the n-th file is the n-th runtime call that was profiled, and has its call's names. Where their
# numbers do not fit, no file is named.


@dataclass(frozen=True, slots=True, order=True)
class _RuntimeCall:
    """A runtime call that the run made; `call` is the index of the call in which, `NO_CALL` for
    warm-up and calls that failed."""

    number: int
    call: int
    profiled: bool


def label_by_run(capture: Capture, run: Path, skip: int) -> Labels:
    """Label the shards behind the first `skip` by the bundle at `run`, all of them or none.

    Files of runtime calls that belong to no call of the run (warm-up) are skipped as well. Raises
    InputError where `run` is no bundle or one that notes no runtime calls, or nothing is left.
    """
    total = len(capture.shards)
    if skip >= total:
        raise InputError(f"--skip {skip} leaves none of the {total:,} files: skip fewer")
    manifest = read_manifest(find_bundles(run)[0] / MANIFEST_NAME)
    made = _runtime_calls(manifest, run)
    leading, shards = capture.shards[:skip], capture.shards[skip:]
    profiled = [call for call in made if call.profiled]
    why_not = None if capture.in_order else Note.of(DropReason.ORDER_UNKNOWN)
    why_not = why_not or _why_unmatched(shards, profiled, manifest.run_id, skip)
    name = manifest.info.pipeline
    if why_not:
        return Labels(leading, shards, unlabelled(shards), why_not, name, manifest.run_id)
    calls = {entry.call.index: entry.call for entry in manifest.calls}
    pairs = list(zip(shards, profiled, strict=True))
    kept = [(shard, calls[made.call]) for shard, made in pairs if made.call != NO_CALL]
    if not kept:
        raise InputError(f"every file in {capture.source} is of a warm-up call of {run}")
    apart = tuple(shard for shard, made in pairs if made.call == NO_CALL)
    return Labels(
        (*leading, *apart),
        tuple(shard for shard, _ in kept),
        tuple(_expected(call) for _, call in kept),
        None,
        name,
        manifest.run_id,
    )


def _expected(call: Call) -> ExpectedCall:
    return ExpectedCall(call.submodule, call.stage, call.branch, call.step, call.device)


def _runtime_calls(manifest: Manifest, run: Path) -> list[_RuntimeCall]:
    """All runtime calls of the run in their order."""
    known = {entry.call.index for entry in manifest.calls} | {NO_CALL}
    found: list[_RuntimeCall] = []
    for facts in manifest.info.submodules.values():
        found += _of_submodule(facts, known, run)
    if not found:
        raise InputError(
            f"{run} notes no calls of RBLN's runtimes: give a run of an optimum-rbln pipeline that "
            "was recorded with ops='all', or describe it with --pipeline"
        )
    found.sort()
    if any(before.number == after.number for before, after in pairwise(found)):
        raise InputError(f"the manifest of {run} notes a runtime call twice: record the run again")
    return found


def _of_submodule(facts: Submodule, known: set[int], run: Path) -> list[_RuntimeCall]:
    profiled = facts.writes_shards is True
    found = [_RuntimeCall(number, call, profiled) for number, call in facts.runtime_calls]
    if any(call.call not in known for call in found):
        raise InputError(f"runtime_calls in the manifest of {run} are damaged: record it again")
    return found


def _why_unmatched(
    shards: Sequence[Shard],
    profiled: Sequence[_RuntimeCall],
    run_id: str,
    skip: int,
) -> Note | None:
    made = Note.of(DropReason.RUN_MADE, run=run_id, calls=len(profiled))
    found = (*files_found(shards, skip), made)
    if len(shards) != len(profiled):
        advice = _copy_advice(shards, profiled)
        return Note.of(DropReason.NOT_LABELLED, found=found, advice=advice)
    if missing_numbers(shards) and not _same_gaps(shards, profiled):
        found = (*found, Note.of(DropReason.OTHER_NUMBERS))
        return Note.of(DropReason.NOT_LABELLED, found=found, advice=Note.of(DropReason.COPY_ALL))
    return None


def _same_gaps(shards: Sequence[Shard], profiled: Sequence[_RuntimeCall]) -> bool:
    """Whether the numbers of the files lie as far apart as those of the runtime calls."""
    apart = {shard.number - call.number for shard, call in zip(shards, profiled, strict=True)}
    return len(apart) == 1


def _copy_advice(shards: Sequence[Shard], profiled: Sequence[_RuntimeCall]) -> Note:
    more = len(shards) - len(profiled)
    if not profiled:
        return Note.of(DropReason.NOTHING_PROFILED)
    if more > 0:
        return Note.of(DropReason.SKIP_EARLIER, files=more)
    return Note.of(DropReason.COPY_ALL)
