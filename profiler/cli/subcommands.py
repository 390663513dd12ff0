"""Register subcommands: each module of a command package declares its own.

    SUBCOMMAND = Subcommand(dump, place=120)   # the last line of profiler/cli/commands/dump.py

The module's name is the subcommand's name: `import_` is `import`, `benchmark_device` is
`benchmark-device`. Plain option values bypass typer's conversion, because it imports pydantic,
which takes as long as NumPy's core.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperCommand

from profiler.errors import require
from profiler.files import SHARED

# --- Values of options that need no conversion, so that typer's library for it is not imported.
#
# typer (from 0.29) converts every value, `None` too, by pydantic, which takes as long to import
# as
# NumPy's core. Most values of a command are its defaults, texts and paths: these are taken as
# typer
# would take them. Everything else, and whatever ends in an error, is left to typer.


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


# --- The option `--shared` of subcommands that write files about runs: these are for the user alone
# without it.


_Shared = Annotated[
    bool,
    typer.Option(
        "--shared",
        help=f"Let the umask decide who may read what is written, as {SHARED}=1 does.  "
        "[default: you alone]",
    ),
]


def with_shared_option(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the option, which holds while it runs, for the programs that it starts as
    well."""

    @wraps(command)
    def with_option(*, shared: bool, **given: Any) -> None:
        if not shared:
            command(**given)
            return
        with _shared():
            command(**given)

    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter(
        "shared", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Shared
    )
    every = [*signature.parameters.values(), option]
    with_option.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    with_option.__annotations__ = {each.name: each.annotation for each in every}
    return with_option


@contextmanager
def _shared() -> Iterator[None]:
    before = os.environ.get(SHARED)
    os.environ[SHARED] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SHARED]
        else:
            os.environ[SHARED] = before


# --- Subcommands are found, not listed: each module of a package of commands declares its own.
#
#     SUBCOMMAND = Subcommand(dump, place=120)   # the last line of profiler/cli/commands/dump.py
#
# The module's name is the subcommand's: `import_` is `import`, `benchmark_device` is
# `benchmark-device`.


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A function whose parameters are options, or a group of further subcommands.

    `place` orders the list that `--help` prints; gaps leave room. `settings` are click's context
    settings of the command. `about_runs`: it writes files about runs, and has `--shared`. `needs`
    is the extra without which it cannot run at all.
    """

    command: Callable[..., None] | typer.Typer
    place: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    about_runs: bool = False
    needs: str = ""


def add_subcommands(app: typer.Typer, package: ModuleType, named: str = "") -> None:
    """Add the subcommand that each module of `package` declares as `SUBCOMMAND`, in their order.

    Where one is `named`, it alone: to run it, the others need not be imported and built.
    """
    modules = {
        module.name.rstrip("_").replace("_", "-"): module.name
        for module in iter_modules(package.__path__)
    }
    if named in modules:
        modules = {named: modules[named]}
    found: list[tuple[int, str, Subcommand]] = []
    for name, module in modules.items():
        declared: Subcommand = import_module(f"{package.__name__}.{module}").SUBCOMMAND
        found.append((declared.place, name, declared))
    for _, name, declared in sorted(found, key=lambda each: each[:2]):
        if isinstance(declared.command, typer.Typer):
            app.add_typer(declared.command, name=name)
        else:
            command = declared.command
            if declared.needs:
                called = f"{package.__name__.partition('.commands')[2][1:]} {name}".lstrip()
                command = _needing(declared.needs, called, command)
            if declared.about_runs:
                command = with_shared_option(command)
            settings = dict(declared.settings)
            app.command(name, cls=PlainCommand, context_settings=settings)(command)


def _needing(extra: str, called: str, command: Callable[..., None]) -> Callable[..., None]:
    """`command`, which says what to install where the extra is missing, before it does anything."""

    @wraps(command)
    def checked(**given: Any) -> None:
        require(extra, called)
        command(**given)

    return checked
