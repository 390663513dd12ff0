"""Runs whose commands have op types, shapes and times; nothing else matters to the roofline."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import polars as pl

from profiler.analysis import CommandArrays, kind_work, kinds_of
from profiler.analysis.fusion import fusion_table
from profiler.analysis.roofline import kind_roofline, operator_roofline, role_roofline
from tests.runs import Command, make_call, make_run

__all__ = ["Row", "Shaped", "in_order"]

# layer, op type, shapes, start, duration
Row = tuple[str, str, str | None, int, int]


def in_order(*operations: tuple[str, str], duration: int = 10, layer: str = "layer") -> list[Row]:
    """Commands one right after the other, from op types and shapes."""
    return [
        (layer, op_type, shapes, duration * i, duration)
        for i, (op_type, shapes) in enumerate(operations)
    ]


class Shaped:
    """One or more calls of `transformer` with the same commands, and what is found in them."""

    def __init__(
        self, rows: Sequence[Row], calls: int = 1, device: str = "cuda:0", category: str = "compute"
    ) -> None:
        span = 1 + max((start + duration for *_, start, duration in rows), default=0)
        called = [
            make_call(i, "transformer", i * span, (i + 1) * span, step=i, device=device)
            for i in range(calls)
        ]
        commands = [
            Command(i, device, "stream 7", category, layer, i * span + start, duration, op_type)
            for i in range(calls)
            for layer, op_type, _, start, duration in rows
        ]
        run = make_run(called, commands)
        shapes = pl.Series("shapes", [row[2] for row in rows] * calls, dtype=pl.Categorical())
        self.run = dataclasses.replace(run, commands=run.commands.with_columns(shapes))

    def recorded(self, **columns: Sequence[int | None]) -> Shaped:
        """The same with what the producer recorded: flops, bytes_read, bytes_written."""
        added = [pl.Series(name, values, dtype=pl.Int64) for name, values in columns.items()]
        commands = self.run.commands.with_columns(added)
        self.run = dataclasses.replace(self.run, commands=commands)
        return self

    def found(self, **profiles):
        """The tables: kinds' work, roofline, operators; profiles by kind of device."""
        run = self.run
        arrays = CommandArrays.of(run.commands, run.calls)
        kinds = kinds_of(run.calls, run.commands, arrays.call)
        work = kind_work(kinds, run.commands)
        by_device = {f"{kind}:0": profile for kind, profile in profiles.items()}
        roofline = kind_roofline(kinds, work, arrays, by_device)
        return {
            "kinds": kinds,
            "work": work.table,
            "roofline": roofline,
            "operators": operator_roofline(roofline, kinds),
            "fusions": fusion_table(run.calls, kinds, work, arrays, by_device),
            "roles": lambda roles: role_roofline(roofline, kinds, roles),
            "fusions_by_role": lambda roles: fusion_table(
                run.calls, kinds, work, arrays, by_device, roles
            ),
        }
