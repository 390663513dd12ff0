"""Which submodule calls a pipeline makes, in order: built in for some, from YAML for others.

    description = describe("sd3")              # or a .yaml file, see docs/rbln.md
    description.calls(28)                      # 6 encoder calls, 28 transformer steps, 1 VAE

A description says what one image costs; nothing of it is read from the trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

from profiler.errors import InputError
from profiler.events import BRANCHES, NO_STEP, STAGES, Branch
from profiler.importers.plain_yaml import plain_yaml

__all__ = ["BUILT_IN", "CallPattern", "Description", "ExpectedCall", "describe"]

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
