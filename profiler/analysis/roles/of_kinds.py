"""Roles of all kinds of a run: evidence from names, classes and a representative call.

    found = roles_of(run, kinds, rows)      # one row a kind

Works on kinds in plain Python; what concerns commands is one gather (`Kinds.spread`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec.structs import replace

from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.roles.evidence import ROLE_BY, Decision, Evidence
from profiler.analysis.roles.of_submodule import KindRow, SubmoduleKinds
from profiler.analysis.roles.places import Purpose
from profiler.analysis.roles.rules import decide
from profiler.analysis.roles.streams import StreamKind, streams_of
from profiler.run.columns import ROLE
from profiler.run.intervals import Codes, counts, is_sorted
from profiler.trace.manifest_fields import Submodule

__all__ = ["KIND_ROLE", "STREAMS", "roles_of"]

STREAMS = ("image", "text")
KIND_ROLE = pl.Schema(
    {
        "kind": pl.Int32(),
        "role": ROLE,
        "norm_kind": pl.String(),
        "stream": pl.Enum(STREAMS),
        "block": pl.String(),
        "role_by": pl.Enum(ROLE_BY),
    }
)
"""One row a kind, in their order. Null: `role` of host work; `norm_kind` of all but norms and of
norms whose kind is not known; `stream` where there are not two, or it works on both; `block`
outside of blocks; `role_by` where nothing decided (`other`)."""

_LONGEST = 10_000  # commands of a representative call that chains are looked for in


def roles_of(
    submodules: Mapping[str, Submodule],
    kinds: Kinds,
    calls: Codes,
    given: pl.Series | None = None,
) -> pl.DataFrame:
    """The role of each kind (`KIND_ROLE`).

    `submodules` is what the manifest says of them, with the classes of their `modules` where
    capture kept those; `calls` is the row of the call of each command, -1 for none; `given` the
    role that the producer gave to each command: a kind keeps the one that most of it has.
    """
    table = kinds.table
    rows = [*map(KindRow._make, table.select(KindRow._fields).iter_rows())]
    known, decisions = _decided(submodules, kinds, rows, calls, _produced(kinds, given))
    members = [
        StreamKind(
            row.submodule or "", found.place, found.shapes, row.total_ns, d.role if d else ""
        )
        for row, d, found in zip(rows, decisions, known, strict=True)
    ]
    return pl.DataFrame(
        {
            "kind": range(len(rows)),
            "role": [d.role if d else None for d in decisions],
            "norm_kind": [(d.norm_kind or None) if d else None for d in decisions],
            "stream": streams_of(members),
            "block": [member.place.block for member in members],
            "role_by": [(d.by or None) if d else None for d in decisions],
        },
        schema=KIND_ROLE,
    )


def _decided(
    submodules: Mapping[str, Submodule],
    kinds: Kinds,
    rows: Sequence[KindRow],
    calls: Codes,
    produced: Mapping[int, str],
) -> tuple[list[Evidence], list[Decision | None]]:
    """What is known of each kind and what it decides, submodule by submodule."""
    numbers: dict[str | None, list[int]] = {}
    for number, row in enumerate(rows):
        numbers.setdefault(row.submodule, []).append(number)
    order = _representatives(kinds, calls, numbers)
    evidence: dict[int, Evidence] = {}
    decisions: dict[int, Decision | None] = {}
    for submodule, own in numbers.items():
        classes = _classes(submodules, submodule)
        found = SubmoduleKinds({n: rows[n] for n in own}, classes, order.get(submodule, []))
        known = {number: found.evidence(number) for number in own}
        decided = _complete({n: decide(known[n]) for n in own}, known)
        decisions |= {n: _kept(decided[n], produced.get(n)) for n in own}
        evidence |= known
    return [evidence[n] for n in range(len(rows))], [decisions[n] for n in range(len(rows))]


def _kept(decision: Decision | None, produced: str | None) -> Decision | None:
    """The role that a producer gave, where it did; host work and waits have none, whoever says."""
    if produced is None or decision is None:
        return decision
    return Decision(produced, "producer", decision.norm_kind)


def _complete(
    decided: dict[int, Decision | None], known: Mapping[int, Evidence]
) -> dict[int, Decision | None]:
    """Give the commands of a norm that do not tell its kind the one that others of it tell."""
    kinds: dict[str, set[str]] = {}
    for number, decision in decided.items():
        if decision is not None and decision.norm_kind:
            kinds.setdefault(known[number].place.path, set()).add(decision.norm_kind)
    for number, decision in decided.items():
        place = known[number].place
        if place.purpose is not Purpose.NORM or decision is None or decision.norm_kind:
            continue
        found = kinds.get(place.path, set())
        if decision.role == "norm" and len(found) == 1:
            decided[number] = replace(decision, norm_kind=next(iter(found)))
    return decided


def _produced(kinds: Kinds, given: pl.Series | None) -> dict[int, str]:
    """The role that a producer gave to most of each kind, where it gave any."""
    if given is None or given.null_count() == len(given):
        return {}
    counted = (
        pl.DataFrame({"kind": kinds.of_command, "role": given.cast(pl.String)})
        .drop_nulls("role")
        .group_by("kind", "role")
        .len()
        .sort(["len", "role"])
    )
    return dict(counted.select("kind", "role").rows())  # the last of a kind stays


def _classes(submodules: Mapping[str, Submodule], submodule: str | None) -> dict[str, str]:
    """Class by module path, from the manifest."""
    known = submodules.get(submodule or "")
    return known.modules if known else {}


def _representatives(
    kinds: Kinds, calls: Codes, numbers: Mapping[str | None, list[int]]
) -> dict[str | None, list[int]]:
    """For each submodule the kinds of its call with the most commands, in their order, without
    host work."""
    found: dict[str | None, list[int]] = {}
    groups = int(calls.max(initial=-1)) + 1
    lengths = counts(calls, groups)
    on_host = (kinds.table["category"] == "host").to_numpy()
    submodule_of = kinds.table["submodule"].to_list()
    keys = calls.view(np.uint32)  # -1 becomes the largest: work of no call comes last
    in_order = is_sorted(keys)
    for row in np.argsort(-lengths, kind="stable").tolist():
        if in_order:
            ends = np.array((row, row + 1), dtype=np.uint32)
            own: Any = slice(*np.searchsorted(keys, ends).tolist())
        else:
            own = calls == row
        codes = kinds.of_command[own][:_LONGEST]
        if not len(codes):
            break
        submodule = submodule_of[int(codes[0])]
        if submodule not in found and submodule in numbers:
            found[submodule] = codes[~on_host[codes]].tolist()
        if len(found) == len(numbers):
            break
    return found
