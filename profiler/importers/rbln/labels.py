"""Label RBLN trace files with pipeline calls: by a description, an inferred one, or our own
recording.

    description = describe("sd3")              # or a .yaml file, see docs/rbln.md
    description.calls(28)                      # 6 encoder calls, 28 transformer steps, 1 VAE

Files only record the order of runtime calls. Either all of them are labelled or none, because one
missing call would shift every later label.
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
from profiler.files import opened
from profiler.grammars.names import CommandName, parse_command_name
from profiler.importers.openvino import plain_yaml
from profiler.importers.rbln import Capture, Shard, missing_numbers
from profiler.importers.rbln.trace import RblnTrace
from profiler.text import Note
from profiler.trace.bundle import find_bundles
from profiler.trace.events import BRANCHES, NO_CALL, NO_STEP, STAGES, Branch, DropReason, Span
from profiler.trace.manifest import MANIFEST_NAME, Manifest, read_manifest

# --- Which submodule calls a pipeline makes, in order: built in for some, from YAML for others.
#
# A description says what one image costs; nothing of it is read from the trace.


_SUFFIXES = (".yaml", ".yml")
_DEEPEST = 8  # nested collections
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
    """A call that the pipeline makes; `device` is "" if the description does not say."""

    submodule: str
    stage: str
    branch: str
    step: int
    device: str


@dataclass(frozen=True, slots=True)
class CallPattern:
    """A call of one stage, made `repeat` times in a row.

    In `denoise` it is made in every step, or, if `steps` is given, in those from `steps[0]` to
    `steps[1]`, inclusive.
    """

    submodule: str
    branch: str = ""
    repeat: int = 1
    steps: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """The calls of a pipeline, by stage in order.

    `steps` is the default number of steps (0: the caller must name it); the first `warmup` calls
    are not part of the run; with `allow_gaps` call numbers may be missing, because submodules were
    not profiled.
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

        Raises InputError if the number of steps is not known or absurd.
        """
        count = self.step_count(steps)
        if count * self.each_step + self.around > _MOST_CALLS:
            raise InputError(
                f"{self.name} with {count:,} steps makes more than {_MOST_CALLS:,} calls: "
                "check the number of steps and the description's repeats"
            )
        made = [("encode", NO_STEP, one) for one in self.encode]
        made += [
            ("denoise", step, one)
            for step in range(count)
            for one in self.denoise
            if one.steps is None or one.steps[0] <= step <= one.steps[1]
        ]
        made += [("decode", NO_STEP, one) for one in self.decode]
        return tuple(
            ExpectedCall(
                one.submodule, stage, one.branch, step, self.devices.get(one.submodule, "")
            )
            for stage, step, one in made
            for _ in range(one.repeat)
        )

    @property
    def around(self) -> int:
        """The number of calls outside of steps."""
        return sum(pattern.repeat for pattern in (*self.encode, *self.decode))

    @property
    def each_step(self) -> int:
        """The number of calls per step, including those made only in some steps."""
        return sum(pattern.repeat for pattern in self.denoise)

    def step_count(self, steps: int | None = None) -> int:
        """`steps`, else the description's default, after checks; 0 for a pipeline that does not
        denoise."""
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


def _built_in(name: str, encoders: int, prompts: int, denoiser: str, branch: Branch) -> Description:
    """A description with every encoder for one prompt, then every encoder for the next: diffusers'
    order."""
    names = ["text_encoder", *(f"text_encoder_{number}" for number in range(2, encoders + 1))]
    encode = [CallPattern(one, b) for b in ("prompt", "negative_prompt")[:prompts] for one in names]
    return Description(name, (*encode,), (CallPattern(denoiser, branch),), (CallPattern("vae"),))


BUILT_IN: dict[str, Description] = {
    description.name: description
    for description in (
        _built_in("sd3", 3, 2, "transformer", "batched"),
        _built_in("sd3-no-guidance", 3, 1, "transformer", "cond"),
        _built_in("sdxl", 2, 2, "unet", "batched"),
        _built_in("sdxl-no-negative-prompt", 2, 1, "unet", "batched"),
        _built_in("sdxl-no-guidance", 2, 1, "unet", "cond"),
        _built_in("flux", 2, 1, "transformer", "cond"),
    )
}


def describe(pipeline: str | Path) -> Description:
    """The built-in description with that name, or the one in a `.yaml` file.

    Raises InputError if there is no such description or the file does not follow the schema.
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
        with opened(path) as file:
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
    """Checks a document; an error says in one sentence what is wrong with it, and where."""

    path: Path

    def description(self, document: Any) -> Description:
        entries = self._mapping(document, "the description", _KEYS)
        stages = {stage: self._patterns(entries.get(stage, []), stage) for stage in STAGES}
        if not any(stages.values()):
            raise self._wrong("it names no calls", f"give lists of calls under {', '.join(STAGES)}")
        name = entries.get("name", self.path.stem)
        if not isinstance(name, str) or not name or len(name) > 200:
            raise self._wrong("name is no short text", "give the pipeline's name")
        allow_gaps = entries.get("allow_gaps", False)
        if not isinstance(allow_gaps, bool):
            raise self._wrong("allow_gaps is neither true nor false", "write one of them")
        return Description(
            name=name,
            **stages,
            steps=self._number(entries.get("steps", 0), "steps", 0, _MOST_STEPS),
            warmup=self._number(entries.get("warmup", 0), "warmup", 0, _MOST_CALLS),
            allow_gaps=allow_gaps,
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
        if not isinstance(window, list) or len(window) != 2:
            raise self._wrong(f"steps of {where} are no [first, last]", "give two step numbers")
        first, last = (self._number(s, f"steps of {where}", 0, _MOST_STEPS) for s in window)
        if first > last:
            raise self._wrong(f"steps of {where} end before they begin", "give [first, last]")
        return CallPattern(submodule, branch, repeat, (first, last))

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

    def _wrong(self, what: str, advice: str) -> InputError:
        return InputError(f"{self.path}: {what}: {advice} (docs/rbln.md)")


# --- Which pipeline ran, inferred from its files if it was not given.
#
# A compiled model executes the same layers in every call. So the files fall into groups of equal
# layers, and a built-in description fits if each of its submodules is one of them, in its order and
# number. Nothing less is guessed; what was guessed is said in the bundle's drops.


_CONVOLUTION = "conv"


@dataclass(frozen=True, slots=True)
class Guess:
    """An inferred description with its steps, and the names of others that fit as well."""

    description: Description
    steps: int
    others: tuple[str, ...]


def guess(traces: Sequence[RblnTrace | None], steps: int | None) -> Guess | None:
    """The built-in description that fits the files in order, None if none does. `steps` is their
    number if known; an empty file (None) may be of any submodule."""
    models: list[frozenset[CommandName] | None] = []
    for trace in traces:  # the layers that ran, with names only
        names = [trace.strings[code] for code in np.unique(trace.name).tolist()] if trace else []
        found = (CommandName(one.layer, 0, 0) for one in map(parse_command_name, names) if one)
        models.append(None if trace is None else frozenset(found))
    fitting = []
    for one in BUILT_IN.values():
        count, rest = divmod(len(models) - one.around, one.each_step)
        fits = count > 0 and not rest and steps in (None, count)
        if fits and _fits(one, count, models):
            fitting.append((one, count))
    alike = [found for found in fitting if _is_of_kind(*found, models)] or fitting
    if not alike:
        return None
    others = tuple(description.name for description, _ in fitting if description != alike[0][0])
    return Guess(*alike[0], others)


_Models = Sequence[frozenset[CommandName] | None]


def _fits(description: Description, steps: int, models: _Models) -> bool:
    """Whether all calls of a submodule have the same layers, and different submodules have
    different ones."""
    known: dict[str, frozenset[CommandName]] = {}
    expected = description.calls(steps)
    for call, model in zip(expected, models, strict=True):
        if model is not None and known.setdefault(call.submodule, model) != model:
            return False
    distinct = all(known.values()) and len({*known.values()}) == len(known)
    return distinct and len(known) == len({call.submodule for call in expected})


def _is_of_kind(description: Description, steps: int, models: _Models) -> bool:
    """Whether the denoiser has convolutions as its kind should: a UNet does, FLUX's transformer
    does not. (SD3's does, but only SD3 has three text encoders.)"""
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


# --- Which call of the pipeline each file is, if the number of files fits the description.


UNLABELLED = ExpectedCall("unlabelled", "", "", NO_STEP, "")
_SHOWN = 5  # numbers shown in a message


@dataclass(frozen=True, slots=True)
class Labels:
    """The label of each shard of the run. `why_not` is why nothing was labelled, None if labelled;
    `skipped` are shards that are not part of the run. `pipeline` is what ran. `described_as` names
    the description or the recorded run that labels come from, "" for none; `guess` is the
    description if it was inferred."""

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

    Raises InputError if nothing is left or the number of steps is not known.
    """
    count = skip if skip is not None else description.warmup if description else 0
    total = len(capture.shards)
    if not 0 <= count < total:
        files = f"{total:,} file{'' if total == 1 else 's'}"
        raise InputError(
            f"--skip {count} leaves none of the {files} in {capture.source}: skip fewer"
        )
    skipped, shards = capture.shards[:count], capture.shards[count:]
    expected = description.calls(steps) if description is not None else ()
    why_not = None if capture.in_order else Note.of(DropReason.ORDER_UNKNOWN)
    why_not = why_not or _why_unlabelled(description, expected, shards, count)
    calls = unlabelled(shards) if why_not else expected
    name = description.name if description is not None else ""
    return Labels(skipped, shards, calls, why_not, name, name)


def unlabelled(shards: Sequence[Shard]) -> tuple[ExpectedCall, ...]:
    """The calls of shards without labels; models are distinguished if their runtime instance is
    known."""
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
    numbers, more = tuple(missing[:_SHOWN]), len(missing) - _SHOWN
    if more > 0:
        found.append(Note.of(DropReason.MORE_FILES_MISSING, numbers=numbers, more=more))
    elif missing:
        found.append(Note.of(DropReason.FILES_MISSING, numbers=numbers))
    steps = 1 + max((call.step for call in expected), default=-1)
    makes = {"steps": steps, "calls": len(expected)}
    found.append(Note.of(DropReason.PIPELINE_MAKES, pipeline=description.name, **makes))
    return Note.of(DropReason.NOT_LABELLED, found=tuple(found), advice=advice)


def files_found(shards: Sequence[Shard], skipped: int) -> list[Note]:
    """Notes of how many files there are, or calls in one file, and how many were skipped before."""
    found = [Note.of(DropReason.FILES_FOUND, files=len(shards))]
    if shards[0].is_part:
        found = [Note.of(DropReason.CALLS_IN_FILE, calls=len(shards))]
    if skipped:
        found.append(Note.of(DropReason.FILES_SKIPPED, skipped=skipped))
    return found


def _label_advice(description: Description, expected: Sequence[ExpectedCall], files: int) -> Note:
    """The advice of which options would fit the number of files."""
    steps = 1 + max((call.step for call in expected), default=-1)
    fitting = []
    if files > len(expected):
        fitting.append(f"--skip {files - len(expected)}")
    per_step = description.each_step
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


def spans_of(
    name: str, calls: Sequence[ExpectedCall], times: Sequence[tuple[int, int]]
) -> Iterator[Span]:
    """Yield pipeline, stage and step spans, from the (start, end) of each call in ns; no stages if
    the calls have none.

    Nothing was recorded between calls, so stages and steps last until the next one begins.
    """
    start, end = min(begin for begin, _ in times), max(end for _, end in times)
    yield Span("pipeline", name, "", NO_STEP, start, end - start)
    stages = _parts(calls, times, steps=False)
    steps = _parts(calls, times, steps=True)
    last = {stage: (stage, step) for stage, step in steps}
    for (stage, _), (begun, ended) in stages.items():
        if stage in last:
            steps[last[stage]][1] = max(steps[last[stage]][1], ended)
        yield Span("stage", stage, stage, NO_STEP, begun, ended - begun)
    for (stage, step), (begun, ended) in steps.items():
        yield Span("step", f"step {step}", stage, step, begun, ended - begun)


def _parts(
    calls: Sequence[ExpectedCall], times: Sequence[tuple[int, int]], *, steps: bool
) -> dict[tuple[str, int], list[int]]:
    """Start and end of stages, or of steps, from the first call to the last, by stage and step."""
    parts: dict[tuple[str, int], list[int]] = {}
    for call, (start, end) in zip(calls, times, strict=True):
        if call.stage and not (steps and call.step == NO_STEP):
            part = parts.setdefault((call.stage, call.step if steps else NO_STEP), [start, end])
            part[:] = min(part[0], start), max(part[1], end)
    for part, following in pairwise(parts.values()):
        if part[0] <= following[0] and part[1] <= following[0]:
            part[1] = following[0]
    return parts


# --- Which call each file is, by our own recording of the same run.
#
# RBLN's profiler numbers its files by runtime calls, and a bundle that we recorded says which of
# those belong to which call (`submodules.*.runtime_calls` in its manifest). So nothing is
# described: the n-th file is the n-th runtime call that was profiled, and has its call's names. If
# their numbers do not fit, no file is named.


@dataclass(frozen=True, slots=True, order=True)
class _RuntimeCall:
    """A runtime call of the run; `call` is the index of its pipeline's call, `NO_CALL` for warm-up
    and failed calls."""

    number: int
    call: int
    profiled: bool


def label_by_run(capture: Capture, run: Path, skip: int) -> Labels:
    """Label the shards behind the first `skip` by the bundle at `run`, all of them or none.

    Files of runtime calls that belong to no call of the run (warm-up) are skipped as well. Raises
    InputError if `run` is no bundle or one that notes no runtime calls, or nothing is left.
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
    labels = tuple(
        ExpectedCall(call.submodule, call.stage, call.branch, call.step, call.device)
        for _, call in kept
    )
    shards = tuple(shard for shard, _ in kept)
    return Labels((*leading, *apart), shards, labels, None, name, manifest.run_id)


def _runtime_calls(manifest: Manifest, run: Path) -> list[_RuntimeCall]:
    """All runtime calls of the run in their order."""
    known = {entry.call.index for entry in manifest.calls} | {NO_CALL}
    found = [
        _RuntimeCall(number, call, facts.writes_shards is True)
        for facts in manifest.info.submodules.values()
        for number, call in facts.runtime_calls
    ]
    if any(call.call not in known for call in found):
        raise InputError(f"runtime_calls in the manifest of {run} are damaged: record it again")
    if not found:
        raise InputError(
            f"{run} notes no calls of RBLN's runtimes: give a run of an optimum-rbln pipeline that "
            "was recorded with ops='all', or describe it with --pipeline"
        )
    found.sort()
    if any(before.number == after.number for before, after in pairwise(found)):
        raise InputError(f"the manifest of {run} notes a runtime call twice: record the run again")
    return found


def _why_unmatched(
    shards: Sequence[Shard], profiled: Sequence[_RuntimeCall], run_id: str, skip: int
) -> Note | None:
    made = Note.of(DropReason.RUN_MADE, run=run_id, calls=len(profiled))
    found = (*files_found(shards, skip), made)
    more, advice = len(shards) - len(profiled), Note.of(DropReason.COPY_ALL)
    if not more:
        apart = {shard.number - one.number for shard, one in zip(shards, profiled, strict=True)}
        if not missing_numbers(shards) or len(apart) == 1:  # the numbers are equally spaced
            return None
        found = (*found, Note.of(DropReason.OTHER_NUMBERS))
    elif not profiled:
        advice = Note.of(DropReason.NOTHING_PROFILED)
    elif more > 0:
        advice = Note.of(DropReason.SKIP_EARLIER, files=more)
    return Note.of(DropReason.NOT_LABELLED, found=found, advice=advice)
