"""Values of options that need no conversion, so that typer's library for it is not imported.

typer (from 0.29) converts every value, `None` too, by pydantic, which takes as long to import as
NumPy's core. Most values of a command are its defaults, texts and paths: these are taken as typer
would take them. Everything else, and whatever ends in an error, is left to typer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperCommand

__all__ = ["PlainCommand", "take_plain_values"]

_Process = Callable[[Any, Any], Any]
_UNCHECKED = {"exists": False, "file_okay": True, "dir_okay": True, "writable": False}
_AS_GIVEN = {"parser": None, "path_type": None, "resolve_path": False, "allow_dash": False}
_LEFT_TO_TYPER = object()
_PYDANTIC = "Value error, "


class PlainCommand(TyperCommand):
    """A command whose plain values are taken as they are."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The command's parameters."""
        return take_plain_values(super().get_params(ctx))


def take_plain_values(params: list[Any]) -> list[Any]:
    """The same parameters of a command, which ask typer only where there is work for it."""
    for param in params:
        if hasattr(param, "type_descriptor") and "process_value" not in vars(param):
            param.process_value = _processing(param, param.process_value)
    return params


def _processing(param: Any, convert: _Process) -> _Process:
    """The parameter's `process_value`, which calls `convert` only where there is work for it."""

    def process_value(ctx: Any, value: Any) -> Any:
        lacking = param.required and value in (None, (), [])
        taken = _LEFT_TO_TYPER if lacking else _plain(param, value)
        if taken is _LEFT_TO_TYPER:
            with _plain_errors():
                return convert(ctx, value)
        return taken if param.callback is None else param.callback(ctx, param, taken)

    return process_value


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Takes pydantic's name of an error from the front of what typer says of it."""
    try:
        yield
    except Exception as error:
        message = getattr(error, "message", None)
        if isinstance(message, str):
            error.message = message.removeprefix(_PYDANTIC)  # type: ignore[attr-defined]
        raise


def _plain(param: Any, value: Any) -> Any:
    """What typer makes of a value, or `_LEFT_TO_TYPER`."""
    wanted, given = param.type_descriptor.annotation, param.type_descriptor.parameter_info
    several = param.multiple or param.nargs == -1
    if value is None:
        return () if several else None
    if not several:
        return _one(wanted, given, value) if param.nargs == 1 else _LEFT_TO_TYPER
    if get_origin(wanted) is not list or not isinstance(value, list | tuple):
        return _LEFT_TO_TYPER
    found = [_one(get_args(wanted)[0], given, each) for each in value]
    return _LEFT_TO_TYPER if _LEFT_TO_TYPER in found else found


def _one(wanted: Any, given: Any, value: Any) -> Any:
    if given.parser is not None:
        return _LEFT_TO_TYPER
    if wanted is str and type(value) is str:
        return value
    if wanted is Path and isinstance(value, str | Path):
        return _path(given, value)
    if wanted in (int, float) and type(value) is wanted:
        within = (given.min is None or given.min <= value) and (
            given.max is None or value <= given.max
        )
        return value if within else _LEFT_TO_TYPER
    return _LEFT_TO_TYPER


def _path(given: Any, value: str | Path) -> Any:
    """A path of which nothing is asked but that what is there can be read, where that is so."""
    asked = {**_UNCHECKED, **_AS_GIVEN}
    if any(getattr(given, name, None) != usual for name, usual in asked.items()):
        return _LEFT_TO_TYPER
    if given.readable and Path(value).exists() and not os.access(value, os.R_OK):
        return _LEFT_TO_TYPER
    return Path(value)
