"""Capture settings: traced calls and output folder, from code or the environment.

    every:7                           every seventh step of the loop, counted from 0
    first,last steps:0-3 vae=none     several entries, separated by spaces
    RBLN_PROFILER=1 RBLN_PROFILER_CONFIG='{"ops": "none"}' python script.py

The keys are the keywords of `profiler.profile` and `profiler.start`; `docs/capture.md` lists
them, and `docs/capture-ops.md` has the grammar of `ops`. A switched-on process writes its
settings back to the environment with an absolute folder, so child processes use the same
configuration.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from profiler.errors import InputError
from profiler.text import check_run_name, parse_size, step_range
from profiler.trace.events import NO_STEP, component_of

# --- Which calls have their operators traced: `--ops` and `ops=`, one text for all submodules. A
# call is chosen before it starts, by its `Position`.


_MEASURE_OVERHEAD = "measure-overhead"
_LEFT_OUT = 4  # `measure-overhead` leaves out the last of so many calls
_WORDS = "all, none, first, last, every:N, steps:A-B and measure-overhead"
_NUMBER = re.compile(r"[0-9]{1,9}")
_SUBMODULE = re.compile(r"[\w.\-@]+")


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a call: its `step` (-1 outside the loop), the schedule's `last_step` (-1 if
    unknown), the first step of its pipeline call, and its `ordinal` among the submodule's calls in
    the pipeline call, or in the run if there is none."""

    ordinal: int
    step: int = NO_STEP
    first_step: int = 0
    last_step: int = NO_STEP


@dataclass(frozen=True, slots=True)
class CallSelection:
    """The calls of one submodule whose operators are traced: those that any field selects."""

    everything: bool = False
    first: bool = False
    last: bool = False
    every: tuple[int, ...] = ()
    steps: tuple[tuple[int, int], ...] = ()  # first and last of each range, both included
    measure_overhead: bool = False

    @property
    def nothing(self) -> bool:
        """Whether no call is traced."""
        return not (self.everything or self.first or self.last or self.every or self.steps)

    @property
    def steps_only(self) -> bool:
        """Whether no call outside the denoising loop is ever traced."""
        return not (self.everything or self.first or self.every)

    @property
    def mixed(self) -> bool:
        """Whether there may be traced and untraced calls."""
        return not self.nothing and (self.measure_overhead or not self.everything)

    def selects(self, position: Position) -> bool:
        """Whether a call at `position` is traced."""
        in_loop = position.step != NO_STEP
        place = position.step if in_loop else position.ordinal
        if self.measure_overhead and place % _LEFT_OUT == _LEFT_OUT - 1:
            return False
        return (
            self.everything
            or (self.first and place == (position.first_step if in_loop else 0))
            or (self.last and in_loop and place == position.last_step)
            or any(place % number == 0 for number in self.every)
            or (in_loop and any(begin <= place <= end for begin, end in self.steps))
        )


ALL = CallSelection(everything=True)
NONE = CallSelection()
_SIMPLE = {
    "all": ALL,
    "none": NONE,
    "first": CallSelection(first=True),
    "last": CallSelection(last=True),
}


@dataclass(frozen=True, slots=True)
class OpsSelection:
    """The parsed `ops` text: `default` applies to every submodule that is not in `by_submodule`."""

    default: CallSelection = ALL
    by_submodule: Mapping[str, CallSelection] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, submodule: str) -> CallSelection:
        """The selection for one submodule."""
        known = self.by_submodule.get(submodule)
        return known or self.by_submodule.get(component_of(submodule), self.default)


@functools.lru_cache(maxsize=64)
def parse_ops(text: str) -> OpsSelection:
    """Parse a text such as `"every:7 vae=none"`. Raises InputError in one sentence."""
    if not isinstance(text, str):
        raise InputError(f"ops is {text!r}: give a text such as 'all' or 'every:7'")
    terms: dict[str, list[str]] = {}
    for entry in text.split():
        submodule, equals, words = entry.rpartition("=")
        if equals and not _SUBMODULE.fullmatch(submodule):
            raise InputError(f"ops has {entry!r}: write SUBMODULE=SELECTION, such as vae=none")
        terms.setdefault(submodule, []).extend(words.split(","))
    if not terms:
        raise InputError(f"ops is empty: use {_WORDS}")
    found = {name: _selection(words, name) for name, words in terms.items()}
    default = found.pop("", ALL)
    if default.measure_overhead:
        found = {name: replace(part, measure_overhead=True) for name, part in found.items()}
    return OpsSelection(default, MappingProxyType(found))


def _selection(words: list[str], submodule: str) -> CallSelection:
    """The selection of calls by any of `words`, for a submodule or "" for all others.
    `measure-overhead` alone selects from all calls."""
    terms = [_term(word) for word in words if word != _MEASURE_OVERHEAD] or [ALL]
    if len(terms) > 1 and NONE in terms:
        where = f" for {submodule}" if submodule else ""
        text = ",".join(words)
        raise InputError(f"ops has none beside other words in {text!r}{where}: use one of them")
    return CallSelection(
        everything=any(term.everything for term in terms),
        first=any(term.first for term in terms),
        last=any(term.last for term in terms),
        every=tuple(number for term in terms for number in term.every),
        steps=tuple(steps for term in terms for steps in term.steps),
        measure_overhead=_MEASURE_OVERHEAD in words,
    )


def _term(text: str) -> CallSelection:
    word, colon, value = text.partition(":")
    if text in _SIMPLE:
        return _SIMPLE[text]
    if word == "every" and colon:
        if _NUMBER.fullmatch(value) and int(value) > 0:
            return CallSelection(every=(int(value),))
        raise InputError(f"ops has {text!r}: write every:N with a whole number from 1 on")
    if word == "steps" and colon:
        between = step_range(value)
        if between is not None:
            return CallSelection(steps=(between,))
        raise InputError(f"ops has {text!r}: write steps:A-B with A not above B, or steps:A")
    raise InputError(f"ops={text!r} is not known: use {_WORDS}")


# --- The options of a profiled run, checked before anything starts.


_OPTION_KEYS = ("activate_profiler", "device")
_FORM = '{"text_encoder": {"device": 0, "activate_profiler": True}}'


@dataclass(frozen=True, slots=True)
class SubmoduleOptions:
    """The configuration of one submodule: `activate_profiler` False keeps its call spans without
    operators; `device` is where it is expected to run. None means not configured: operators are
    traced, on any device."""

    activate_profiler: bool | None = None
    device: str | None = None

    def filled_up(self, own: SubmoduleOptions) -> SubmoduleOptions:
        """These options, with `own` for what they leave open."""
        activate = self.activate_profiler
        return SubmoduleOptions(
            own.activate_profiler if activate is None else activate, self.device or own.device
        )


@dataclass(frozen=True, slots=True)
class Options:
    """`ops` says which calls have their operators traced, as parsed by `parse_ops`; `config` is the
    configuration by submodule. `max_size` is how many bytes a run may write before calls are
    recorded without operators; `memory` records allocations, if a backend can; `keep_prompts` keeps
    prompts and paths of images in the recorded command line."""

    ops: str = "all"
    config: Mapping[str, SubmoduleOptions] = field(default_factory=dict)
    max_size: int | None = None
    memory: bool = False
    keep_prompts: bool = False

    def of(self, submodule: str) -> SubmoduleOptions:
        known = self.config.get(submodule) or self.config.get(component_of(submodule))
        return known or SubmoduleOptions()

    def selection(self, submodule: str) -> CallSelection:
        """The calls of `submodule` whose operators are traced."""
        off = self.of(submodule).activate_profiler is False
        return NONE if off else parse_ops(self.ops).of(submodule)

    def beside(self, submodule: str, own: SubmoduleOptions) -> Options:
        """These options, with `own` for what they leave open for `submodule`."""
        if own == SubmoduleOptions():
            return self
        filled = {**self.config, submodule: self.of(submodule).filled_up(own)}
        return replace(self, config=filled)

    def check_device(self, submodule: str, actual: str, recommendation: str) -> None:
        """Raise InputError if a submodule runs on another device than configured."""
        wanted = self.of(submodule).device
        if wanted is not None and wanted not in (actual, actual.partition(":")[2]):
            raise InputError(
                f"{submodule} is configured for device {wanted} but runs on {actual}: "
                f"{recommendation}, or leave out its device"
            )

    def traces_operators(self, submodule: str) -> bool:
        """Whether any call of `submodule` may have its operators traced."""
        return not self.selection(submodule).nothing


def check_names(options: Options, known: Collection[str]) -> None:
    """Raise InputError if a submodule is selected that is not `known`."""
    for name in parse_ops(options.ops).by_submodule:
        if name not in known:
            raise _unknown(name, known)


def parse_config(
    config: Mapping[str, Mapping[str, Any]] | None, ops: str, known: Collection[str]
) -> Options:
    """Check a configuration of the form `{"text_encoder": {"device": 0, "activate_profiler":
    True}, …}` and the text `ops`. Raises InputError for unknown submodules, keys or values.

    The submodules in `ops` are left to `check_names`: not every pipeline of a process has all.
    """
    parse_ops(ops)
    if config is not None and not isinstance(config, Mapping):
        raise InputError(f"config is {config!r}: write {_FORM}")
    checked: dict[str, SubmoduleOptions] = {}
    for name, entry in (config or {}).items():
        if name not in known:
            raise _unknown(name, known)
        checked[name] = _checked_entry(name, entry)
    return Options(ops, checked)


def parse_max_size(value: int | str | None) -> int | None:
    """A number of bytes, from a number or a text such as "2GiB". Raises InputError."""
    if value is None:
        return None
    size = None if isinstance(value, bool) else parse_size(str(value))
    if size is None:
        raise InputError(f"max_size is {value!r}: give bytes, or a size such as 500MB or 2GiB")
    return size


def _unknown(name: str, known: Collection[str]) -> InputError:
    return InputError(f"{name!r} is not a submodule of this pipeline; it has {', '.join(known)}")


def _checked_entry(name: str, entry: Mapping[str, Any]) -> SubmoduleOptions:
    if not isinstance(entry, Mapping):
        raise InputError(f"the configuration of {name} is {entry!r}: write {_FORM}")
    unknown = [key for key in entry if key not in _OPTION_KEYS]
    if unknown:
        raise InputError(
            f"the configuration of {name} has unknown keys {', '.join(map(str, unknown))}: "
            f"use {' and '.join(_OPTION_KEYS)}"
        )
    activate = entry.get("activate_profiler")
    if "activate_profiler" in entry and not isinstance(activate, bool):
        raise InputError(f"activate_profiler of {name} is {activate!r}: write True or False")
    return SubmoduleOptions(activate, _device(name, entry.get("device")))


def _device(name: str, device: Any) -> str | None:
    """A device as "cpu:1", or as an index on the pipeline's kind of device."""
    if device is None:
        return None
    if isinstance(device, bool) or not isinstance(device, (int, str)) or device == "":
        raise InputError(f"the device of {name} is {device!r}: write an index or kind:index")
    return str(device)


# --- Settings of a switched-on process: what to trace and where to, and how that is inherited.


SWITCH = "RBLN_PROFILER"
DIRECTORY = "RBLN_PROFILER_DIR"
CONFIG = "RBLN_PROFILER_CONFIG"
MAX_SIZE = "RBLN_PROFILER_MAX_SIZE"
MEMORY = "RBLN_PROFILER_MEMORY"
KEEP_PROMPTS = "RBLN_PROFILER_KEEP_PROMPTS"

_ON, _OFF = ("1", "true", "on", "yes"), ("0", "false", "off", "no", "")
_DEFAULT_OUT = "traces"
_COMPRESSIONS = ("none", "deflate", "zstd")  # profiler.trace.compression is too heavy to import


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run, checked as far as possible without the pipeline.

    `out` is the folder of bundles and `name` the run's name in it (None: its time). `ops` says
    which calls have their operators traced, `config` the same per submodule. `compress` packs the
    packets of all files. `max_size` is how many bytes a run may write before calls are recorded
    without operators, `memory` records allocations, if a backend can, `keep_prompts` keeps prompts
    and paths of images in the recorded command line. `journal` is a file to which every process of
    a recording appends a line when it is switched on and when it has opened or finished a bundle;
    None: none is written.
    """

    out: Path = Path(_DEFAULT_OUT)
    name: str | None = None
    ops: str = "all"
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    compress: str = "none"
    max_size: int | None = None
    memory: bool = False
    keep_prompts: bool = False
    journal: Path | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Check settings given by keyword or as JSON. Raises InputError in one sentence."""
        unknown = [str(key) for key in given if key not in _CHECKS]
        if unknown:
            raise InputError(
                f"no setting is called {', '.join(unknown)}: use {', '.join(_SETTING_KEYS)}"
            )
        checked: dict[str, Any] = {key: _CHECKS[key](key, value) for key, value in given.items()}
        settings = cls(**checked)
        parse_config(settings.config, settings.ops, settings.config.keys())
        return settings

    def absolute(self) -> Settings:
        """The same settings with an absolute folder."""
        return replace(self, out=Path(os.path.abspath(self.out)))  # noqa: PTH100 - links stay

    def given(self) -> dict[str, Any]:
        """The arguments of `Settings.of` for these settings, without defaults."""
        values = {key: getattr(self, key) for key in _CHECKS}
        return {k: value for k, value in values.items() if value not in (None, False, {})}

    def to_json(self) -> str:
        """The settings as one line of JSON that `Settings.of` takes back."""
        return json.dumps(self.given(), default=os.fspath)

    def write_environment(self, environment: MutableMapping[str, str]) -> None:
        """Let child processes that get `environment` be profiled with these settings."""
        absolute = self.absolute()
        environment[SWITCH] = "1"
        environment[DIRECTORY] = str(absolute.out)
        environment[CONFIG] = absolute.to_json()
        for variable in (MAX_SIZE, MEMORY, KEEP_PROMPTS):  # they are set already, and would win
            environment.pop(variable, None)


def is_on(environment: Mapping[str, str]) -> bool:
    """Whether the process is switched on: 1, true, on, yes, or 0, false, off, no, in any case.
    Raises InputError for anything else."""
    value = environment.get(SWITCH, "").strip()
    if value.lower() not in _ON + _OFF:
        raise InputError(f"{SWITCH} is {value!r}: use 1 to profile, 0 or nothing not to")
    return value.lower() in _ON


def _of_variables(environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings that have variables of their own. Raises InputError."""
    given: dict[str, Any] = {}
    if environment.get(DIRECTORY, ""):
        given["out"] = environment[DIRECTORY]
    size = environment.get(MAX_SIZE, "").strip()
    if size:
        try:
            given["max_size"] = parse_max_size(size)
        except InputError as error:
            raise InputError(f"{MAX_SIZE}: {error}") from None
    for key, variable, what in (
        ("memory", MEMORY, "record allocations"),
        ("keep_prompts", KEEP_PROMPTS, "record prompts"),
    ):
        value = environment.get(variable, "").strip()
        if value.lower() not in _ON + _OFF:
            raise InputError(f"{variable} is {value!r}: use 1 to {what}, 0 not to")
        if value:
            given[key] = value.lower() in _ON
    return given


def environment_settings(environment: Mapping[str, str]) -> Settings:
    """The settings in the environment; a setting's own variable wins over the configuration.

    RBLN_PROFILER_CONFIG is JSON text if it starts with a brace, else the path of a JSON file.
    Raises InputError in one sentence.
    """
    given: dict[str, Any] = {}
    text = environment.get(CONFIG, "").strip()
    if text:
        given = _document(text)
    given |= _of_variables(environment)
    try:
        return Settings.of(given)
    except InputError as error:
        where = f"{CONFIG}: " if text else f"{DIRECTORY}: "
        raise InputError(f"{where}{error}") from None


def _document(text: str) -> dict[str, Any]:
    """Parse a JSON object from `text`, or from the file whose path it is."""
    source = CONFIG
    if not text.startswith("{"):
        source = f"{text} ({CONFIG})"
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            advice = 'give the path of a JSON file, or JSON such as {"ops": "none"}'
            raise InputError(f"cannot read {source}: {reason}: {advice}") from error
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not valid JSON ({error}): correct it") from error
    if not isinstance(document, dict):
        raise InputError(f'{source} is no JSON object: write one such as {{"ops": "none"}}')
    return document


def _path(key: str, value: Any) -> Path:
    if isinstance(value, (str, os.PathLike)) and os.fspath(value) and "\0" not in os.fspath(value):
        return Path(value)
    raise InputError(f"{key} is {value!r}: give a folder")


def _text(key: str, value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    raise InputError(f"{key} is {value!r}: give a text")


def _config(key: str, value: Any) -> Mapping[str, Mapping[str, Any]]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    raise InputError(f'{key} is {value!r}: write {{"text_encoder": {{"activate_profiler": true}}}}')


def _compress(key: str, value: Any) -> str:
    if value in _COMPRESSIONS:
        return str(value)
    raise InputError(f"{key} is {value!r}: use {', '.join(_COMPRESSIONS)}")


def _switch(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise InputError(f"{key} is {value!r}: give true or false")


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "out": _path,
    "name": lambda key, value: None if value is None else check_run_name(_text(key, value)),
    "ops": _text,
    "config": _config,
    "compress": _compress,
    "max_size": lambda _key, value: parse_max_size(value),
    "memory": _switch,
    "keep_prompts": _switch,
    "journal": lambda key, value: None if value is None else _path(key, value),
}
_SETTING_KEYS = [key for key in _CHECKS if key != "journal"]  # the journal is for `record` only
