"""Declare the options of commands, and register subcommands: each module declares its own.

    @cli_options
    class DumpOptions:
        file: Path = arg("FILE  Any Perfetto trace (.pb).")
        limit: int | None = opt("N  Lines to print.  [default: all]", min=0)

    def dump(options: DumpOptions) -> None: ...

    SUBCOMMAND = Subcommand(dump, place=120)   # the last line of profiler/cli/commands/dump.py

The module's name is the subcommand's name: `import_` is `import`, `benchmark_device` is
`benchmark-device`. Plain option values bypass typer's conversion, because it imports pydantic,
which takes as long as NumPy's core.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import (
    Annotated,
    Any,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from msgspec import Struct, field
from typer.core import TyperCommand
from typer.models import OptionInfo

from profiler.errors import require
from profiler.files import MAX_UNPACKED, SHARED

# --- Options and arguments: each is a field of the command's options class. Its text is what
# `--help` prints: names other than the field's, metavar, two spaces, meaning.


_T = TypeVar("_T")
_DECLARED = "__declared__"  # attribute of an options class: a `Declared` by field


class Declared(Struct, frozen=True):
    """An option or argument for typer, and the default of its field (`...`: required)."""

    info: Any
    default: Any


def opt(text: str, *, default: Any = None, **settings: Any) -> Any:
    """Declare an option: `opt("N Rows of each table.", min=0)`, or a flag without `N`; `settings`
    are typer's. It is named after its field, unless the text starts with other names: `--all -a`.
    `/--no-x` names a flag that is true by default."""
    head, _, meaning = text.partition("  ")
    words = head.split(" ")
    names = [word.replace("/", " /") for word in words if word.startswith(("-", "/-"))]
    if not names and len(words) > 1:  # a flag with its meaning
        words, meaning = [], text
    metavar = " ".join(words[len(names) :]) or None
    return Declared(typer.Option(*names, metavar=metavar, help=meaning, **settings), default)


def arg(text: str, *, default: Any = ..., **settings: Any) -> Any:
    """Declare an argument: `arg("FILE Any Perfetto trace (.pb).")`; see `opt`."""
    metavar, _, meaning = text.partition("  ")
    return Declared(typer.Argument(metavar=metavar, help=meaning, **settings), default)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def cli_options(cls: type[_T]) -> type[_T]:
    """Give `cls`, whose fields `opt` and `arg` declare, a constructor that takes them by keyword.

    Without a default a flag is False, and a repeatable option an empty list.
    """
    declared: dict[str, Declared] = {name: getattr(cls, name) for name in cls.__annotations__}

    def fill(self: Any, **given: Any) -> None:
        for name, annotation in cls.__annotations__.items():
            default = declared[name].default
            if default is None and annotation.startswith("list["):
                default = []
            elif default is None and annotation == "bool":
                default = False
            setattr(self, name, given[name] if default is ... else given.get(name, default))

    setattr(cls, _DECLARED, declared)
    cls.__init__ = fill  # type: ignore[method-assign]
    return cls


def _parameters(options: type[Any]) -> Iterator[Parameter]:
    """Yield the function parameters from which typer makes these options."""
    types = get_type_hints(options)
    for name, declared in getattr(options, _DECLARED).items():
        annotation, default = types[name], declared.default
        if isinstance(declared.info, OptionInfo) and declared.info.default is ...:
            declared.info.param_decls = (f"--{name.replace('_', '-')}",)
        if default is None and get_origin(annotation) is list:
            annotation = annotation | None
        elif default is None and annotation is bool:
            default = False
        yield _parameter(name, annotation, declared.info, default)


def _parameter(name: str, annotation: Any, info: Any, default: Any = None) -> Parameter:
    default = Parameter.empty if default is ... else default
    annotation = Annotated[annotation, info]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


# --- Values of options that need no conversion, so that typer's library for it is not imported.
#
# typer (from 0.29) converts every value, `None` too, by pydantic, which takes as long to import as
# NumPy's core. Most values are defaults, texts and paths: these are taken as typer would. All
# others, and every error, are left to typer.


ADVANCED = "Advanced"
Panels = Mapping[str, str]
"""Titles of panels of `--help`, each with the names of its options, separated by blanks."""
_EXAMPLES, _PANELS = "__examples__", "__panels__"  # attributes of a command's function

_EXAMPLE = 54  # columns of an example

_Process = Callable[[Any, Any], Any]
_UNCHECKED = {"exists": False, "file_okay": True, "dir_okay": True, "writable": False}
_AS_GIVEN = {"parser": None, "path_type": None, "resolve_path": False, "allow_dash": False}
_LEFT_TO_TYPER = object()
_PYDANTIC = "Value error, "


class PlainCommand(TyperCommand):
    """A command that bypasses typer's conversion of plain values; its `--help` starts with examples
    and has options in panels."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's parameters, with plain values unconverted."""
        return take_plain_values(super().get_params(ctx))

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, then what the command does."""
        examples = getattr(self.callback, _EXAMPLES, ())
        if examples:
            with formatter.section("Examples"):
                formatter.write_dl(examples, col_max=_EXAMPLE)
        super().format_help_text(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, and options by panel; options without a panel are in the last."""
        panels: Panels = getattr(self.callback, _PANELS, {})
        panel_of = {name: title for title, names in panels.items() for name in names.split()}
        rest = ADVANCED if panels else "Options"
        written: dict[str, list[Any]] = {title: [] for title in ("Arguments", *panels, rest)}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                argument = param.param_type_name == "argument"
                title = "Arguments" if argument else panel_of.get(param.name, rest)
                written[title].append(record)
        for title, records in written.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def take_plain_values(params: list[Any]) -> list[Any]:
    """Let parameters call typer's conversion only if a value needs it; returns `params`."""
    for param in params:
        if hasattr(param, "type_descriptor") and "process_value" not in vars(param):
            param.process_value = _processing(param, param.process_value)
    return params


def _processing(param: Any, convert: _Process) -> _Process:
    """Return a `process_value` for the parameter that calls `convert` only if a value needs it."""

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
    """Remove pydantic's error name from the start of typer's messages."""
    try:
        yield
    except Exception as error:
        message = getattr(error, "message", None)
        if isinstance(message, str):
            error.message = message.removeprefix(_PYDANTIC)  # type: ignore[attr-defined]
        raise


def _plain(param: Any, value: Any) -> Any:
    """Return what typer would make of a value, or `_LEFT_TO_TYPER`."""
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
    if given.parser is None:
        if wanted is Path and isinstance(value, str | Path):
            return _path(given, value)
        if wanted is str and type(value) is str:
            return value
        if wanted in (int, float) and type(value) is wanted:
            low = value if given.min is None else given.min
            high = value if given.max is None else given.max
            return value if low <= value <= high else _LEFT_TO_TYPER
    return _LEFT_TO_TYPER


def _path(given: Any, value: str | Path) -> Any:
    """Return a path if the only check on it is that it must be readable, and it is."""
    asked = {**_UNCHECKED, **_AS_GIVEN}
    checked = any(getattr(given, name, None) != usual for name, usual in asked.items())
    unreadable = given.readable and Path(value).exists() and not os.access(value, os.R_OK)
    return _LEFT_TO_TYPER if checked or unreadable else Path(value)


# --- Subcommands are found: each module of a package of commands declares its own.


_SHARED = opt(
    f"--shared  Let the umask decide who can read the output, like {SHARED}=1.  [default: only you]"
)


_MAX_UNPACKED = opt(
    "--max-unpacked SIZE  Limit of what a packed file unpacks to, such as 16GiB.  [default: 8GiB; "
    "1GiB of formats that are read at once]"
)


class Subcommand(Struct, frozen=True):
    """A subcommand: a function that takes its options as one value, or a group of subcommands.

    `place` is its position in the program's `--help`; gaps leave room. `settings` are click's
    context settings of the command. `about_runs`: it writes files about runs, and has `--shared`
    and `--max-unpacked`. `needs` is the extra without which it cannot run. `further` are text
    options that depend on the installation; the function gets them by keyword. Its `--help` has
    `examples`, with explanations, and the options in `panels`. `advanced` subcommands are last in
    the program's `--help`.
    """

    command: Callable[..., None] | typer.Typer
    place: int = 0
    examples: tuple[tuple[str, str], ...] = ()
    panels: Panels = field(default_factory=dict)
    advanced: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    about_runs: bool = False
    needs: str = ""
    further: Mapping[str, Declared] = field(default_factory=dict)


def add_subcommands(app: typer.Typer, package: ModuleType, named: str = "") -> None:
    """Add the subcommand that each module of `package` declares as `SUBCOMMAND`, in order of
    `place`.

    If one is `named`, add only that one: to run it, the others need not be imported and built.
    """
    modules = {
        module.name.rstrip("_").replace("_", "-"): module.name
        for module in iter_modules(package.__path__)
    }
    if named in modules:
        modules = {named: modules[named]}
    declared: dict[str, Subcommand] = {
        name: import_module(f"{package.__name__}.{module}").SUBCOMMAND
        for name, module in modules.items()
    }
    for name in sorted(declared, key=lambda name: (declared[name].place, name)):
        add_subcommand(app, name, declared[name])


def add_subcommand(app: typer.Typer, called: str, declared: Subcommand) -> None:
    """Add one subcommand under the name `called`, as typed after `profile-sd3`."""
    name = called.rpartition(" ")[2]
    panel = ADVANCED if declared.advanced else None
    if isinstance(declared.command, typer.Typer):
        app.add_typer(declared.command, name=name, rich_help_panel=panel)
    else:
        function = _for_typer(declared, declared.command, called)
        settings = {**declared.settings}
        app.command(name, cls=PlainCommand, context_settings=settings, rich_help_panel=panel)(
            function
        )


def _for_typer(
    declared: Subcommand, command: Callable[..., None], called: str
) -> Callable[..., None]:
    """Return a function for typer whose parameters are the command's options."""
    hints = get_type_hints(command).values()
    cls = next((hint for hint in hints if hasattr(hint, _DECLARED)), None)
    parameters = [*_parameters(cls)] if cls else []
    own = [each.name for each in parameters]
    for name, further in declared.further.items():
        parameters.append(_parameter(name, str | None, further.info))
    if declared.about_runs:
        parameters.append(_parameter("shared", bool, _SHARED.info, default=False))
        parameters.append(_parameter("max_unpacked", str | None, _MAX_UNPACKED.info))

    def run(*, shared: bool = False, max_unpacked: str | None = None, **given: Any) -> None:
        if declared.needs:  # checked first
            require(declared.needs, called)
        values = {name: given.pop(name) for name in own}
        given_values = {name: value for name, value in values.items() if value is not None}
        variables = {SHARED: "1" if shared else None, MAX_UNPACKED: max_unpacked}
        with _variables({name: value for name, value in variables.items() if value}):
            command(*([cls(**given_values)] if cls else []), **given)

    run.__doc__ = command.__doc__
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    setattr(run, _EXAMPLES, declared.examples)
    setattr(run, _PANELS, declared.panels)
    return run


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the block, also for programs started in it."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def command_group(called: str, meaning: str, **subcommands: Subcommand) -> typer.Typer:
    """Return a group of subcommands, in order."""
    group = typer.Typer(help=meaning, no_args_is_help=True, rich_markup_mode=None)
    for name, declared in subcommands.items():
        add_subcommand(group, f"{called} {name}", declared)
    return group
