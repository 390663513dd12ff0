"""Partial results of the work of commands: what they are for, by what they are of, when and where.

A cell holds the commands of one operator and role in one call (work of no call: in one step of a
pipeline call) on one device.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.inputs import Inputs
from profiler.analysis.partials import Partials, partials
from profiler.analysis.pipelines import call_groups
from profiler.analysis.work.of_kinds import UNRATED
from profiler.run.intervals import batches, codes_of_text
from profiler.trace.manifest_fields import Submodule

__all__ = ["Cells", "cells_of"]

_OF_HOST = ("within_offset_ns", "waited_ns")
_SUMMED = pl.Schema({"key": pl.Int64(), "commands": pl.Int64(), "total_ns": pl.Int64()})
_OFFSETS = pl.Schema({"key": pl.Int64(), **dict.fromkeys(_OF_HOST, pl.Int64())})
_WORK = (
    *("submodule", "layer", "host", "rated", "op_type", "role", "block", "norm_kind", "role_by"),
)


class Cells(Struct, frozen=True, eq=False):
    """The selected commands, summed.

    `rows` has `work` and `key` (UInt32), entries of the dictionaries `works` and `keys`, and Int64
    the number of their `commands`, their `total_ns`, and of the host's what is to be added to it
    for their own time (`within_offset_ns`) and what of that they waited (`waited_ns`). `works` has
    the attributes submodule, layer, host, rated (held against a roofline), op_type, role, block,
    norm_kind, role_by and `overhead_ratio` (Float64; null where calls tell it that a selection may
    leave out); `keys` has
    group (Int64, of `pipelines.call_groups`), call, stage, branch, step, device.
    """

    works: pl.DataFrame
    keys: pl.DataFrame
    rows: pl.DataFrame

    def partials(self) -> Partials:
        """The partials `cells`."""
        return partials("cells", self.rows, {"work": self.works, "key": self.keys})


def cells_of(of: Inputs, roles: pl.DataFrame, overhead_ratio: pl.DataFrame) -> Cells:
    """The cells of the selected commands. `roles` has the role of each kind (`KIND_ROLE`),
    `overhead_ratio` the columns `submodule` and `overhead_ratio`."""
    works, work_of_kind = _works(of, roles, overhead_ratio)
    found = _summed(of, work_of_kind)
    keys = _keys(of, found)
    numbered = keys.select("code").with_row_index("key")
    rows = found.join(numbered, on="code").select("work", "key", "commands", "total_ns", *_OF_HOST)
    return Cells(works, keys.drop("code"), rows)


def _works(
    of: Inputs, roles: pl.DataFrame, overhead_ratio: pl.DataFrame
) -> tuple[pl.DataFrame, pl.Series]:
    """The dictionary of what commands are of, and the entry of each kind."""
    fixed = overhead_ratio.filter(pl.col("submodule").is_in(_measured(of.run.info.submodules)))
    text = ("role", "role_by")
    kinds = (
        of.kinds.table.with_columns(rated=~pl.col("category").is_in(UNRATED))
        .join(roles, on="kind", maintain_order="left")
        .with_columns(pl.col(text).cast(pl.String))
        .with_columns(block=pl.when(pl.col("role").is_not_null()).then(pl.col("block")))
        .select(_WORK)
    )
    works = kinds.unique(maintain_order=True)
    numbers = kinds.join(
        works.with_row_index("work"), on=_WORK, how="left", nulls_equal=True, maintain_order="left"
    )
    told = works.join(fixed, on="submodule", how="left", maintain_order="left")
    return told, numbers["work"]


def _measured(submodules: Mapping[str, Submodule]) -> list[str]:
    """Submodules whose overhead ratio was measured and does not depend on the calls selected."""
    return [name for name, known in submodules.items() if known.overhead_ratio is not None]


def _summed(of: Inputs, work_of_kind: pl.Series) -> pl.DataFrame:
    """The sums of the commands of each `work` and `code`, which numbers group, stage, step and
    device."""
    commands, frame = of.commands, of.frame
    group = call_groups(of.calls, frame, commands)
    stage_of, stages = codes_of_text(frame["stage"])
    steps = int(commands.step.max(initial=0)) + 2
    own = of.host_times
    work, works = work_of_kind.to_numpy().astype(np.int64), int(work_of_kind.len()) + 1
    parts, of_hosts = [pl.DataFrame(schema=_SUMMED)], [pl.DataFrame(schema=_OFFSETS)]
    for rows in batches(len(frame)):
        code = (group[rows].astype(np.int64) * (len(stages) + 1) + stage_of(rows)) * steps
        code = (code + commands.step[rows] + 1) * (len(commands.devices) + 1)
        code = (code + commands.device[rows]) * works + work[of.kinds.of_command[rows]]
        took = commands.end[rows] - commands.start[rows]
        grouped = pl.DataFrame({"key": code, "total_ns": took}).group_by("key")
        parts.append(
            grouped.agg(pl.len().cast(pl.Int64).alias("commands"), pl.col("total_ns").sum())
        )
        hosts = slice(*np.searchsorted(own.row, (rows.start, rows.stop)).tolist())
        offsets = -own.within_ns[hosts], own.waited_ns[hosts]
        keys = {"key": code[own.row[hosts] - rows.start]}
        of_hosts.append(pl.DataFrame(keys | dict(zip(_OF_HOST, offsets, strict=True))))
    found = pl.concat(parts).group_by("key").agg(pl.col("commands", "total_ns").sum())
    sums = pl.concat(of_hosts).group_by("key").agg(pl.col(*_OF_HOST).sum())
    found = found.join(sums, on="key", how="left").with_columns(pl.col(*_OF_HOST).fill_null(0))
    entry = {"work": (pl.col("key") % works).cast(pl.UInt32), "code": pl.col("key") // works}
    return found.select("commands", "total_ns", *_OF_HOST, **entry)


def _keys(of: Inputs, found: pl.DataFrame) -> pl.DataFrame:
    """The dictionary of when and where, with the `code` of each entry, in their order."""
    _, stages = codes_of_text(of.frame["stage"])
    steps, devices = int(of.commands.step.max(initial=0)) + 2, of.commands.devices
    code = found["code"].unique().sort()
    rest, device = code // (len(devices) + 1), code % (len(devices) + 1)
    rest, step = rest // steps, rest % steps - 1
    group, stage = rest // (len(stages) + 1), rest % (len(stages) + 1)
    row = group.set(group >= len(of.calls), None)
    return pl.DataFrame(
        {
            "code": code,
            "group": group,
            "call": of.calls["call"].gather(row),
            "stage": _named(stages, stage),
            "branch": of.calls["branch"].cast(pl.String).gather(row),
            "step": step,
            "device": _named(devices, device),
        }
    )


def _named(names: list[str] | tuple[str, ...], codes: pl.Series) -> pl.Series:
    """The name of each code, null for the one behind the last."""
    return pl.Series([*names, None], dtype=pl.String).gather(codes)
