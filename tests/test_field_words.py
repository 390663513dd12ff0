"""The field's names: columns, tables, keys of JSON, options and subcommands have no old one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from profiler.analysis.analyze import analyze
from profiler.analysis.question import tables
from profiler.cli.main import command_line
from profiler.compare import tables as compared
from profiler.report.files import document
from profiler.run import device_timeline as tiles
from profiler.run.columns import TABLES, Column
from tests.runs import tiny_run

OLD = {
    *("losses", "loss", "geometry", "invariants", "boundaries", "stranded"),
    *("of_roof", "attainable_ns", "wall_union_ns", "busy_sum_ns", "parallel_efficiency"),
    *("calibration", "calibrated_ns", "calibrate", "calibrate_device", "image_ns", "context_ns"),
    *("needed", "hazard", "remedy", "device_limit", "memory_limit"),
}
NEW = {  # by table, what the names became
    "partitioning": {"wall_ns", "total_ns", "parallel_utilization", "parallelism"},
    "redundant_work": set(),
    "device_transitions": set(),
    "cpu_fallback": {"total_ns"},
    "roofline": {"of_roofline", "roofline_ns", "bound"},
    "shapes": {"flops_of_peak", "bandwidth_of_peak"},
    "operators": {"wall_ns", "total_ns"},
    "submodules": {"duration_ns"},
    "branches": {"duration_ns"},
    "idle": {"launch_ns", "sync_ns", "data_ns", "other_device_ns", "queue_ns", "unrecorded_ns"},
    "gaps": {"cause"},
    "fusions": {"total_ns"},
    "guidance": set(),
    "drops": set(),
}
SUMS = ("roles", "blocks", "roofline", "fusions", "step_operators", "cpu_fallback")
"""Tables whose time of commands is a sum: `total_ns`, for `busy_ns` is a union."""


def _declared() -> Iterator[tuple[str, tuple[Column, ...]]]:
    """All columns there are, by what declares them."""
    yield from ((table.name, table.columns) for table in tables())
    yield from TABLES.items()
    for module in (compared, tiles):
        for name in module.__all__:
            declared = getattr(module, name)
            if isinstance(declared, tuple) and isinstance(declared[0], Column):
                yield name, declared


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield key
            yield from _keys(part)
    elif isinstance(value, list):
        for part in value:
            yield from _keys(part)


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, (*path, name))


COMMANDS = dict(_commands(typer.main.get_command(command_line())))


def test_no_column_or_table_has_an_old_name() -> None:
    """Those of runs, analyses, tiles and comparisons."""
    for name, columns in _declared():
        assert name not in OLD
        assert not OLD & {column.name for column in columns}, name


def test_what_limits_an_operator_is_its_bound() -> None:
    """`verdict` is what a comparison says of a change, and of nothing else."""
    assert [t.name for t in tables() if "verdict" in {column.name for column in t.columns}] == []


@pytest.mark.parametrize("table", NEW)
def test_tables_have_the_names_of_the_field(table: str) -> None:
    """The names that took the place of the old ones are there."""
    columns = {one.name: {column.name for column in one.columns} for one in tables()}
    assert NEW[table] <= columns[table]


@pytest.mark.parametrize("table", SUMS)
def test_busy_is_never_a_sum(table: str) -> None:
    """Where durations of commands are added up, the column is called a total."""
    (found,) = (one for one in tables() if one.name == table)
    names = {column.name for column in found.columns}
    assert "total_ns" in names
    assert "busy_ns" not in names


def test_no_key_of_json_has_an_old_name() -> None:
    """Of the whole document, however deep."""
    keys = set(_keys(json.loads(json.dumps(document(analyze(tiny_run())), default=str))))
    assert {"drops", "partitioning", "redundant_work", "device_transitions"} <= keys
    assert keys.isdisjoint(OLD)


def test_no_option_or_subcommand_has_an_old_name() -> None:
    """Of any command; `benchmark-device` and `--measure-overhead` are there."""
    words = {word.replace("-", "_") for path in COMMANDS for word in path}
    options = {
        option.lstrip("-").replace("-", "_")
        for command in COMMANDS.values()
        for given in command.params
        for option in (*given.opts, *given.secondary_opts)
    }
    assert {"benchmark_device"} <= words
    assert {"measure_overhead", "device_memory"} <= options
    assert (words | options).isdisjoint(OLD)


def test_limits_of_memory_have_one_option() -> None:
    """In whatever command: `--device-memory`, which takes sizes of devices."""
    found = {
        option
        for command in COMMANDS.values()
        for given in command.params
        for option in given.opts
        if "memory" in option
    }
    assert found == {"--device-memory", "--memory"}  # the latter records allocations
