"""What to trace, and where: the options of a profiled run, checked before anything starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from profiler.capture.selection import NONE, CallSelection, parse_ops
from profiler.errors import InputError
from profiler.sizes import parse_size

__all__ = ["Options", "SubmoduleOptions", "check_names", "parse_config", "parse_max_size"]

_KEYS = ("activate_profiler", "device")
_FORM = '{"text_encoder": {"device": 0, "activate_profiler": True}}'


@dataclass(frozen=True, slots=True)
class SubmoduleOptions:
    """What a configuration says of one submodule: `activate_profiler` False keeps its call
    spans and leaves out its operators; `device` is where it is expected to run. None: it does not
    say, so operators are traced, anywhere."""

    activate_profiler: bool | None = None
    device: str | None = None

    def filled_up(self, own: SubmoduleOptions) -> SubmoduleOptions:
        """With what `own` says where this says nothing."""
        activate = self.activate_profiler
        return SubmoduleOptions(
            own.activate_profiler if activate is None else activate, self.device or own.device
        )


@dataclass(frozen=True, slots=True)
class Options:
    """`ops` says which calls have their operators traced, as `parse_ops` reads it; `config` holds
    what was said per submodule. `max_size` is how many bytes a run may write before calls are
    recorded without operators; `memory` asks for what is allocated, where a backend can tell."""

    ops: str = "all"
    config: Mapping[str, SubmoduleOptions] = field(default_factory=dict)
    max_size: int | None = None
    memory: bool = False

    def of(self, submodule: str) -> SubmoduleOptions:
        return self.config.get(submodule, SubmoduleOptions())

    def selection(self, submodule: str) -> CallSelection:
        """The calls of `submodule` whose operators are traced."""
        off = self.of(submodule).activate_profiler is False
        return NONE if off else parse_ops(self.ops).of(submodule)

    def beside(self, submodule: str, own: SubmoduleOptions) -> Options:
        """These options, in which `own` says of `submodule` what they leave open."""
        if own == SubmoduleOptions():
            return self
        filled = {**self.config, submodule: self.of(submodule).filled_up(own)}
        return replace(self, config=filled)

    def check_device(self, submodule: str, actual: str, recommendation: str) -> None:
        """Refuse, with InputError, a submodule that runs on another device than configured."""
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
    """Refuse, with InputError, a selection for a submodule that is not `known`."""
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
    """Bytes, of a number or a text such as "2GiB". Raises InputError."""
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
    unknown = [key for key in entry if key not in _KEYS]
    if unknown:
        raise InputError(
            f"the configuration of {name} has unknown keys {', '.join(map(str, unknown))}: "
            f"use {' and '.join(_KEYS)}"
        )
    activate = entry.get("activate_profiler")
    if "activate_profiler" in entry and not isinstance(activate, bool):
        raise InputError(f"activate_profiler of {name} is {activate!r}: write True or False")
    return SubmoduleOptions(activate, _device(name, entry.get("device")))


def _device(name: str, device: Any) -> str | None:
    """A device as "cpu:1", or as an index, of whatever kind the pipeline uses."""
    if device is None:
        return None
    if isinstance(device, bool) or not isinstance(device, (int, str)) or device == "":
        raise InputError(f"the device of {name} is {device!r}: write an index or kind:index")
    return str(device)
