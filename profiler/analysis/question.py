"""Declare the tables of an analysis, and list them.

    TABLES = (
        Table("roles", "one role in a submodule", "time", ROLES, _roles, rank=("-total_ns",)),
    )

Modules of `profiler.analysis` declare their tables as `TABLES`, and they are imported when a
table is first asked for. A program adds its own with `register`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

import polars as pl
from msgspec import Struct

from profiler.errors import InputError
from profiler.run.columns import Column, checked, column_item

if TYPE_CHECKING:
    from profiler.analysis.context import Inputs


# --- A table of an analysis: what it is, how it is made, and what reports show of it.


class FigureSpec(Struct, frozen=True):
    """A figure as data: its `kind`, which a module of `report/charts/` draws, and the columns of
    the table that it is drawn from, by what that kind calls them."""

    kind: str
    columns: Mapping[str, tuple[str, ...]]


class Table(Struct, frozen=True, eq=False):
    """A table under its `name`: attribute of `Analysis`, key of JSON, name of CSV, Parquet and SQL.

    `row` is what a row is: "one operator of a submodule".
    `section` is the key of the section of the report that it belongs to. `make` makes it, perhaps
    from other tables, whose names `reads` has. `rank` are the columns by which rows are ordered
    ("-total_ns": the highest first; nulls last); if it is empty, they stay as they were made.
    `shown` rows are seen at first. `title` is its heading if its section says no other. `about`
    is what a reader of the data must know beside the meanings of the columns.
    """

    name: str
    row: str
    section: str
    columns: tuple[Column, ...]
    make: Callable[[Inputs], pl.DataFrame]
    title: str = ""
    about: str = ""
    reads: tuple[str, ...] = ()
    rank: tuple[str, ...] = ()
    shown: int = 10
    figure: FigureSpec | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for an impossible name or an unknown column: a programming error."""
        if not self.name.isidentifier():
            raise ValueError(f"{self.name!r} cannot be the name of a table")
        missing = set(self._named()) - {column.name for column in self.columns}
        if missing:
            raise ValueError(f"table {self.name} has no column {', '.join(sorted(missing))}")

    def _named(self) -> Iterator[str]:
        yield from (name.removeprefix("-") for name in self.rank)
        if self.figure is not None:
            for names in self.figure.columns.values():
                yield from names

    def frame(self, of: Inputs) -> pl.DataFrame:
        """The table of these inputs, in the order of `rank`; equal rows keep their order. Raises
        ValueError if it differs from its declaration."""
        frame = checked(self.make(of), self.columns)
        if not self.rank:
            return frame
        names = [name.removeprefix("-") for name in self.rank]
        down = [name.startswith("-") for name in self.rank]
        return frame.sort(names, descending=down, nulls_last=True, maintain_order=True)


# --- Every table of an analysis, found in the modules of `profiler.analysis`.


_PACKAGE = "profiler.analysis"
_ORDER = (  # a tuple a line: the formatter keeps it
    *("pipelines", "stages", "compilations", "step_operators", "step_times"),
    *("step_outliers", "guidance", "redundant_work", "devices", "drops", "health"),
    *("shortened", "contradictions", "findings", "kernels", "kernel_durations"),
    *("memory_devices", "memory", "memory_timeline", "module_tree", "operators"),
    *("partitioning", "ranks", "collectives", "collective_arrivals", "rank_imbalance"),
    *("requests", "request_percentiles", "roles", "blocks", "roofline", "roofline_roles"),
    *("fusions", "shapes", "cached_calls", "cache_use", "steps", "submodules", "branches"),
    *("calls", "activity", "idle", "copies", "busy_timeline", "gaps", "critical_path"),
    *("device_transitions", "cpu_fallback"),
)
TAKEN = frozenset(
    (
        *("accounting", "annotated", "commands", "device_profiles", "frames", "inputs", "kind"),
        *("kind_roles", "kinds"),
        *("ladder", "producer", "run", "schema", "step_summary", "step_outliers_total", "version"),
    )
)
"""Names that no table may have: attributes of an `Analysis` or keys of `--json` that are something
else."""


def tables() -> tuple[Table, ...]:
    """All tables, in the order of `docs/tables.md`; then those that were registered."""
    return tuple(_by_name().values())


@cache
def question_modules() -> tuple[ModuleType, ...]:
    """The modules in which questions declare their tables, sentences and sections: all modules of
    `profiler.analysis`."""
    return tuple(
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(
            importlib.import_module(_PACKAGE).__path__, f"{_PACKAGE}."
        )
    )


def table_named(name: str) -> Table:
    """The table of that name; raises InputError, which names the tables there are."""
    known = _by_name()
    if name not in known:
        raise InputError(f"an analysis has no table {name!r}: there is {', '.join(known)}")
    return known[name]


def register(*added: Table) -> None:
    """Add tables of a program's own, for analyses to come. Raises ValueError if a name is
    taken."""
    known = _by_name()
    for table in added:
        if table.name in known:
            raise ValueError(f"there is a table {table.name!r} already")
        _refuse_taken(table)
        known[table.name] = table


@contextmanager
def registered(*added: Table) -> Iterator[None]:
    """Register tables for the time of a `with` block."""
    register(*added)
    try:
        yield
    finally:
        for table in added:
            del _by_name()[table.name]


def forget() -> None:
    """Forget all tables, registered ones too; declared ones are found again when next asked for."""
    question_modules.cache_clear()
    _by_name.cache_clear()


@cache
def _by_name() -> dict[str, Table]:
    found: dict[str, Table] = {}
    for module in question_modules():
        for table in getattr(module, "TABLES", ()):
            if table.name in found:
                raise ValueError(f"two tables are called {table.name!r}")
            _refuse_taken(table)
            found[table.name] = table
    return dict(sorted(found.items(), key=lambda entry: _place(entry[0])))


def _place(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _refuse_taken(table: Table) -> None:
    if table.name in TAKEN:
        raise ValueError(f"no table can be called {table.name!r}: that is something else")


def markdown() -> str:
    """The page `docs/tables.md`."""
    shared = _shared_columns()
    lines = [
        "# Tables and columns of an analysis",
        "",
        "Look up the tables of an analysis here. A table has one name everywhere: an attribute of",
        "`profiler.Analysis`, a key in `--json`, a `--csv` or `--parquet` file, and in SQL.",
        "This page is generated: `python -m profiler.analysis.question > docs/tables.md`.",
        "",
        "Behind a name stand the dtype (Int64 if there is none), the unit if the name does not end",
        "with it, and `null` if values may be unknown. Times are in nanoseconds, `start_ns` on the",
        "run's own clock; a ratio of 1.0 is the whole.",
        "",
        "`analysis.commands` is not one of these tables: it has the selected commands one by one,",
        "with role, FLOPs and bytes, in the columns of [columns.md](columns.md#commands).",
        "",
        "## Columns of several tables",
        "",
        'Tables that have these columns only name them, under "also":',
        "",
        *shared.values(),
    ]
    explained: dict[str, str] = {}  # item of a column → the first table that has it
    for table in tables():
        lines += ["", f"## {table.name}", "", f"A row is {table.row}. {table.about}".strip(), ""]
        items = [column_item(column) for column in table.columns]
        places = [
            "also" if shared.get(column.name) == item else f"as in {explained.get(item, '')}:"
            for column, item in zip(table.columns, items, strict=True)
        ]
        often = {place for place, count in Counter(places).items() if count > 1} - {"as in :"}
        named: dict[str, list[str]] = {}
        for column, item, place in zip(table.columns, items, places, strict=True):
            if place == "also" or place in often:
                named.setdefault(place, []).append(f"`{column.name}`")
            else:
                lines.append(item)
                explained.setdefault(item, f"[{table.name}](#{table.name})")
        lines += [f"- {place} {', '.join(names)}" for place, names in named.items()]
    return "\n".join(lines) + "\n"


def _shared_columns() -> dict[str, str]:
    """Return the list items of columns that at least three tables share, by name; if columns share
    a name, the one that most tables have."""
    counts = Counter(
        (column.name, column_item(column)) for each in tables() for column in each.columns
    )
    shared: dict[str, str] = {}
    for (name, item), count in counts.most_common():
        if count >= 3:
            shared.setdefault(name, item)
    return dict(sorted(shared.items()))


if __name__ == "__main__":
    # Not this module's `markdown`: its `Table` is another class than the one that questions use.
    sys.stdout.write(importlib.import_module("profiler.analysis.question").markdown())
