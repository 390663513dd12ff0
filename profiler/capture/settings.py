"""Settings of a switched-on process: what to trace and where to, and how that is inherited.

    RBLN_PROFILER=1 RBLN_PROFILER_DIR=traces RBLN_PROFILER_CONFIG='{"ops": "none"}' python script.py

The keys are the keywords of `profiler.profile` and `profiler.start`; `docs/capture.md` lists them.
A process that is switched on writes its settings back to the environment, with an absolute folder,
so that its child processes find one configuration, whatever folder they start in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from profiler.capture.options import parse_config, parse_max_size
from profiler.errors import InputError
from profiler.run_names import check_run_name

__all__ = [
    "CONFIG",
    "DIRECTORY",
    "MAX_SIZE",
    "MEMORY",
    "SWITCH",
    "Settings",
    "environment_settings",
    "is_on",
]

SWITCH = "RBLN_PROFILER"
DIRECTORY = "RBLN_PROFILER_DIR"
CONFIG = "RBLN_PROFILER_CONFIG"
MAX_SIZE = "RBLN_PROFILER_MAX_SIZE"
MEMORY = "RBLN_PROFILER_MEMORY"

_ON, _OFF = ("1", "true", "on", "yes"), ("0", "false", "off", "no", "")
_DEFAULT_OUT = "traces"
_COMPRESSIONS = ("none", "deflate", "zstd")  # profiler.trace.compression, too heavy to import here


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is asked for, checked as far as it can be without the pipeline.

    `out` is the folder of bundles and `name` the run's name in it (None: its time). `ops` says
    which calls have their operators traced, `config` the same per submodule.
    `compress` packs the packets of all files. `max_size` is how many bytes a run may write before
    calls are recorded without operators, `memory` asks for what is allocated, where a backend
    can tell. `journal` is a file to which every process of a recording appends a line when it is
    switched on and when it has opened or finished a bundle; None: nobody asked for that.
    """

    out: Path = Path(_DEFAULT_OUT)
    name: str | None = None
    ops: str = "all"
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    compress: str = "none"
    max_size: int | None = None
    memory: bool = False
    journal: Path | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        """Check settings given by keyword or as JSON. Raises InputError in one sentence."""
        unknown = [str(key) for key in given if key not in _CHECKS]
        if unknown:
            raise InputError(f"no setting is called {', '.join(unknown)}: use {', '.join(_KEYS)}")
        checked: dict[str, Any] = {key: _CHECKS[key](key, value) for key, value in given.items()}
        settings = cls(**checked)
        parse_config(settings.config, settings.ops, settings.config.keys())
        return settings

    def absolute(self) -> Settings:
        """The same settings, whatever folder a process works in."""
        return replace(self, out=Path(os.path.abspath(self.out)))  # noqa: PTH100 - links stay

    def given(self) -> dict[str, Any]:
        """What `Settings.of` takes to make these settings: those that say more than nothing."""
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
        for variable in (MAX_SIZE, MEMORY):  # they stand in it, and would win
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
    size, memory = (environment.get(name, "").strip() for name in (MAX_SIZE, MEMORY))
    if size:
        try:
            given["max_size"] = parse_max_size(size)
        except InputError as error:
            raise InputError(f"{MAX_SIZE}: {error}") from None
    if memory.lower() not in _ON + _OFF:
        raise InputError(f"{MEMORY} is {memory!r}: use 1 to record allocations, 0 not to")
    if memory:
        given["memory"] = memory.lower() in _ON
    return given


def environment_settings(environment: Mapping[str, str]) -> Settings:
    """The settings in the environment; what has a variable of its own wins over the configuration.

    RBLN_PROFILER_CONFIG is JSON text where it begins with a brace, else the path of a JSON file.
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
    """The JSON object that `text` is, or that the file holds whose path it is."""
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


def _optional_path(key: str, value: Any) -> Path | None:
    return None if value is None else _path(key, value)


def _text(key: str, value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    raise InputError(f"{key} is {value!r}: give a text")


def _name(key: str, value: Any) -> str | None:
    if value is None:
        return None
    return check_run_name(_text(key, value))


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


def _max_size(_: str, value: Any) -> int | None:
    return parse_max_size(value)


def _switch(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise InputError(f"{key} is {value!r}: give true or false")


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "out": _path,
    "name": _name,
    "ops": _text,
    "config": _config,
    "compress": _compress,
    "max_size": _max_size,
    "memory": _switch,
    "journal": _optional_path,
}
_KEYS = [key for key in _CHECKS if key != "journal"]  # the journal is `record`'s own
