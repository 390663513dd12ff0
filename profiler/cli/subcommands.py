"""Subcommands are found, not listed: each module of a package of commands declares its own.

    SUBCOMMAND = Subcommand(dump, place=120)   # the last line of profiler/cli/commands/dump.py

The module's name is the subcommand's: `import_` is `import`, `benchmark_device` is
`benchmark-device`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import typer

from profiler.cli.plain_values import PlainCommand
from profiler.cli.shared_files import with_shared_option
from profiler.errors import require

__all__ = ["Subcommand", "add_subcommands"]


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
