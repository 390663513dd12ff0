"""Runs of one call whose commands are given as layer, op type and shapes."""

from __future__ import annotations

import polars as pl

from profiler.analysis import CommandArrays, kinds_of
from profiler.analysis.roles import roles_of
from tests.runs import Command, make_call, make_info, make_run

DEVICE = "cuda:0"


def one_call(*commands, classes=None, submodule="transformer"):
    """A run of one call; each command is (layer, op type, shapes) and takes 10 ns."""
    call = make_call(0, submodule, 0, 10 * len(commands), step=0, device=DEVICE)
    made = [
        Command(0, DEVICE, "stream 7", "compute", layer, 10 * at, 10, op_type)
        for at, (layer, op_type, *_) in enumerate(commands)
    ]
    known = {submodule: {"modules": classes}} if classes else {}
    run = make_run([call], made, info=make_info("capture", submodules=known))
    shapes = [given[2] if len(given) > 2 else None for given in commands]
    column = pl.Series("shapes", shapes, dtype=pl.String).cast(pl.Categorical)
    return _with(run, run.commands.with_columns(column))


def _with(run, commands):
    from dataclasses import replace

    return replace(run, commands=commands)


def kinds_and_roles(run):
    """The kinds of a run and their roles."""
    arrays = CommandArrays.of(run.commands, run.calls)
    kinds = kinds_of(run.calls, run.commands, arrays.call)
    return kinds, roles_of(run.info.submodules, kinds, arrays.call, run.commands["role"])


def roles(*commands, **more):
    """Role, norm kind and what decided of each command."""
    kinds, found = kinds_and_roles(one_call(*commands, **more))
    rows = found.select("role", "norm_kind", "role_by").rows()
    return [rows[kind] for kind in kinds.of_command.tolist()]
