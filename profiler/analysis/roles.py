"""The role of every kind of command, and device time by role, per submodule and per block.

Shares are of the total of device commands. Host work has no role.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from msgspec.structs import replace

from profiler.analysis.commands import SUBMODULE, Kinds, kinds_of, ratio
from profiler.analysis.context import Inputs, shared
from profiler.analysis.document import Figure, Part
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, ReportInput
from profiler.analysis.role_kernel_names import Purpose, Sort
from profiler.analysis.role_patterns import (
    ROLE_BY,
    Decision,
    Evidence,
    StreamKind,
    projection_of,
    streams_of,
)
from profiler.analysis.role_rules import KindRow, SubmoduleKinds, decide
from profiler.analysis.table_text import table
from profiler.run.columns import INT64, LAYER, NS, ROLE, SHARE, STRING, Adds, Column, col, typed
from profiler.run.intervals import Codes, counts, is_sorted, positions
from profiler.run.run import Run
from profiler.text import said, sentence
from profiler.trace.events import component_of
from profiler.trace.manifest_fields import Submodule

# --- The commands of each kind by where they ran and in which kernel: few sums that stand for many.
#
# What a table says of devices, tracks and kernels follows from them without another look at the
# commands.


@shared
def kind_cells(of: Inputs) -> pl.DataFrame:
    """One row per `kind` (Int32), `device`, `track` and `kernel` (texts, null for none) of the
    selected commands, in this order: the number of `commands`, and their `total_ns` (Int64
    each)."""
    commands, keys = of.commands, ("kind", "device", "track", "kernel")
    devices = pl.Series([*commands.devices, None], dtype=pl.String)
    rows = of.frame.lazy().select(
        "track",
        "kernel",
        kind=pl.Series(of.kinds.of_command, dtype=pl.Int32),
        device=pl.Series(commands.device),
        start=pl.Series(commands.start),
        end=pl.Series(commands.end),
    )
    took = (pl.col("end") - pl.col("start")).sum()
    cells = rows.group_by(keys).agg(commands=pl.len().cast(pl.Int64), total_ns=took).collect()
    return (
        cells.with_columns(
            devices.gather(cells["device"]).alias("device"),
            pl.col("track", "kernel").cast(pl.String),
        )
        .select(*keys, "commands", "total_ns")
        .sort(keys, nulls_last=True)
    )


# --- The columns of roles and blocks.


_BLOCK = ("submodule", "block")

_STREAMS: tuple[Column, ...] = (
    col(
        "image_stream_ns",
        NS,
        "total_ns of the image stream of a joint transformer",
        True,
        label="image",
        importance=1,
    ),
    col("text_stream_ns", NS, "total_ns of its text stream", True, label="text", importance=1),
)

ROLES: tuple[Column, ...] = (
    SUBMODULE,
    col("role", STRING, "what the commands are for in a diffusion model", key=True),
    col("commands", INT64, "device commands of that role", importance=3, adds=Adds("commands")),
    col("total_ns", NS, "sum of their durations", adds=Adds("total_ns")),
    col(
        "share",
        SHARE,
        "total_ns / that of all roles of the submodule",
        True,
        label="of submodule",
        adds=Adds("total_ns", within=("submodule",)),
    ),
    col(
        "corrected_ns",
        NS,
        "total_ns * overhead_ratio of the submodule",
        True,
        label="untraced",
        importance=4,
    ),
    *_STREAMS,
    col(
        "norm_kinds",
        STRING,
        "kinds of norms, longest time first, joined with commas",
        label="norms",
        kind="list",
        importance=2,
    ),
    col(
        "limited_by",
        STRING,
        "evidence for the role, longest time first, joined with commas",
        label="recognized by",
        kind="list",
        importance=15,
    ),
)

BLOCKS: tuple[Column, ...] = (
    col("submodule", STRING, "submodule that the block is a part of", True, key=True),
    col("block", LAYER, "module path of the block", key=True),
    col("commands", INT64, "device commands in the block", importance=8, adds=Adds("commands")),
    col("total_ns", NS, "sum of their durations", adds=Adds("total_ns")),
    col(
        "norm_ns",
        NS,
        "total_ns of its norms",
        label="norms",
        importance=1,
        adds=Adds("total_ns", role="norm"),
    ),
    col(
        "norm_share",
        SHARE,
        "norm_ns / total_ns",
        True,
        label="norms",
        adds=Adds("total_ns", role="norm", within=_BLOCK),
    ),
    col(
        "modulation_ns",
        NS,
        "total_ns of its modulation: shift, scale and gate",
        importance=1,
        adds=Adds("total_ns", role="modulation"),
        hide_if_zero=True,
    ),
    col(
        "modulation_share",
        SHARE,
        "modulation_ns / total_ns",
        True,
        label="modulation",
        adds=Adds("total_ns", role="modulation", within=_BLOCK),
        hide_if_zero=True,
    ),
    *_STREAMS,
)


# --- Roles of all kinds of a run: evidence from names, classes and a representative call.
#
# Works on kinds in plain Python; what concerns commands is one gather (`Kinds.spread`).


STREAMS = ("image", "text")
KIND_ROLE: Mapping[str, pl.DataType] = {
    "kind": pl.Int32(),
    "role": ROLE,
    "norm_kind": pl.String(),
    "stream": pl.Enum(STREAMS),
    "block": pl.String(),
    "role_by": pl.Enum(ROLE_BY),
}
"""One row a kind, in their order. Null: `role` of host work; `norm_kind` of all but norms and of
norms whose kind is not known; `stream` if there are not two, or it works on both; `block`
outside of blocks; `role_by` if nothing decided (`other`)."""

_TIMESTEP = re.compile(r"(?i)time_?(step|_?(text_?)?embed|_?proj|_?in$)|^t_embedder$|adaln")
_DENOISERS = {"transformer", "transformer_2", "unet", "dit", "denoiser", "controlnet", "prior"}
_LONGEST = 10_000  # commands of a representative call that chains are looked for in


def roles_of(
    submodules: Mapping[str, Submodule],
    kinds: Kinds,
    calls: Codes,
    given: pl.Series | None = None,
    *,
    denoises: bool = True,
) -> pl.DataFrame:
    """The role of each kind (`KIND_ROLE`).

    `submodules` is what the manifest says of them, with the classes of their `modules` if
    capture kept those; `calls` is the row of the call of each command, -1 for none; `given` the
    role that the producer gave to each command: a kind keeps the one that most of it has. If
    nothing says that a model denoises, neither `denoises` nor its modules, it modulates nothing.
    """
    table = kinds.table
    rows = [*map(KindRow._make, table.select(KindRow._fields).iter_rows())]
    known, decisions = _decided(submodules, kinds, rows, calls, _produced(kinds, given))
    if not (
        denoises
        or any(map(_is_conditioned, known))
        or _DENOISERS & {*map(component_of, submodules)}
    ):
        decisions = [_unmodulated(*each) for each in zip(decisions, known, strict=True)]
    streams = (
        StreamKind(row.submodule or "", one.place, one.shapes, row.total_ns, d.role if d else "")
        for row, d, one in zip(rows, decisions, known, strict=True)
    )
    return pl.DataFrame(
        {
            "kind": range(len(rows)),
            "role": [d.role if d else None for d in decisions],
            "norm_kind": [(d.norm_kind or None) if d else None for d in decisions],
            "stream": streams_of([*streams]),
            "block": [one.place.block for one in known],
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
        manifest = submodules.get(submodule or "")
        classes = manifest.modules if manifest else {}
        found = SubmoduleKinds({n: rows[n] for n in own}, classes, order.get(submodule, []))
        known = {number: found.evidence(number) for number in own}
        decided = _complete({n: decide(known[n]) for n in own}, known)
        decisions |= {n: _kept(decided[n], produced.get(n)) for n in own}
        evidence |= known
    return [evidence[n] for n in range(len(rows))], [decisions[n] for n in range(len(rows))]


def has_denoiser(run: Run) -> bool:
    """Whether some call of a run is one of a denoiser."""
    return bool((run.calls["stage"] == "denoise").any())


def _is_conditioned(found: Evidence) -> bool:
    """Whether a kind lies in a module that only models of diffusion have."""
    place = found.place
    return Purpose.MODULATION in (place.purpose, place.outer) or any(
        _TIMESTEP.search(name) for name in place.names
    )


def _unmodulated(decision: Decision | None, found: Evidence) -> Decision | None:
    """The decision if no timestep's vector scales or shifts anything: few rows are tokens of a
    decoding step then, and no size is that of an embedding."""
    if decision is None or decision.by == "producer":
        return decision
    product = found.operation.sort is Sort.MATMUL
    by_size = product and decision.by in ("shapes", "kernel")
    if decision.role in ("embedding", "modulation") and by_size and found.shapes is not None:
        role = projection_of(found.shapes, of_heads=found.projects, vectors=not found.of_tokens)
        known = role in ("qkv_projection", "mlp")
        return Decision(role if known else "matmul", decision.by)
    if decision.role != "modulation":
        return decision
    return Decision("matmul" if product else "elementwise", decision.by)


def _kept(decision: Decision | None, produced: str | None) -> Decision | None:
    """The role that a producer gave, if it did; host work and waits have none, whoever says."""
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
    """The role that a producer gave to most of each kind, if it gave any."""
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


# --- The role of every command of a run.


def with_roles(run: Run, kinds: Kinds | None = None, roles: pl.DataFrame | None = None) -> Run:
    """`run` with the role of every command that a producer left without one.

    `kinds` and `roles` are those of all commands of the run, if they are known.
    """
    if kinds is None or roles is None or len(kinds.of_command) != len(run.commands):
        kinds, roles = kinds_and_roles(run)
    return run.with_role(roles_of_commands(run.commands["role"], kinds, roles))


def kinds_and_roles(run: Run) -> tuple[Kinds, pl.DataFrame]:
    """The kinds of all commands of a run, and their roles."""
    calls = run.calls.sort("call")
    rows = positions(run.commands["call"].to_numpy(), calls["call"].to_numpy())
    kinds = kinds_of(calls, run.commands, rows)
    given = run.commands["role"]
    return kinds, roles_of(run.info.submodules, kinds, rows, given, denoises=has_denoiser(run))


def roles_of_commands(given: pl.Series, kinds: Kinds, roles: pl.DataFrame) -> pl.Series:
    """The `given` role of each command, or that of its kind if its producer gave none."""
    found = kinds.spread(roles["role"])
    if given.null_count() < len(given):
        found = given.zip_with(given.is_not_null(), found)
    return _in_pieces_of(given, found)


def _in_pieces_of(column: pl.Series, values: pl.Series) -> pl.Series:
    """`values` in the same chunks as `column`; otherwise their frame is copied into one."""
    ends = np.cumsum(column.chunk_lengths()).tolist()
    pieces = [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return pl.concat(pieces, rechunk=False) if len(pieces) > 1 else values


# --- What the time of each submodule and block is for.
#
# Shares are of the total of device commands; host work has no role.


def corrected(total: pl.Expr) -> pl.Expr:
    """A time times `overhead_ratio`; null if a foreign factor is beyond reason."""
    return (total * pl.col("overhead_ratio")).round().cast(pl.Int64, strict=False)


def _roles(of: Inputs) -> pl.DataFrame:
    """One row per submodule and role, by submodule, longest first."""
    known = _with_role(of.kinds, kind_roles(of))
    overhead_ratio = of.table("submodules").select("submodule", "overhead_ratio")
    table = (
        known.group_by("submodule", "role")
        .agg(pl.col("commands", "total_ns").sum(), *_of_streams())
        .join(overhead_ratio, on="submodule", how="left")
        .with_columns(
            share=ratio(pl.col("total_ns"), pl.col("total_ns").sum().over("submodule")),
            corrected_ns=corrected(pl.col("total_ns")),
        )
    )
    for name, joined in (("norm_kind", "norm_kinds"), ("role_by", "limited_by")):
        texts = texts_by_time(known, ["submodule", "role"], name, joined)
        table = table.join(texts, on=["submodule", "role"], how="left", nulls_equal=True)
    table = table.with_columns(pl.col("norm_kinds", "limited_by").fill_null("")).sort(
        ["submodule", "total_ns", "role"], descending=[False, True, False], nulls_last=True
    )
    return _declared(table, ROLES)


def _blocks(of: Inputs) -> pl.DataFrame:
    """One row per block of a submodule, in the order of their names' numbers."""
    total = pl.col("total_ns")
    norm, modulation = (total.filter(pl.col("role") == role) for role in ("norm", "modulation"))
    table = (
        _with_role(of.kinds, kind_roles(of))
        .drop_nulls("block")
        .group_by("submodule", "block")
        .agg(
            pl.col("commands", "total_ns").sum(),
            *_of_streams(),
            norm_ns=norm.sum(),
            modulation_ns=modulation.sum(),
        )
        .with_columns(
            norm_share=ratio(pl.col("norm_ns"), total),
            modulation_share=ratio(pl.col("modulation_ns"), total),
        )
        .sort("submodule", *_block_order(), nulls_last=True)
    )
    return _declared(table, BLOCKS)


def block_roles(kinds: Kinds, roles: pl.DataFrame) -> pl.DataFrame:
    """Return the device time of each block by role: columns `submodule` and `block` (text), `role`
    and `total_ns` (int64), one row per role of a block, in the order of the blocks' numbers."""
    return (
        _with_role(kinds, roles)
        .drop_nulls("block")
        .group_by("submodule", "block", "role", maintain_order=True)
        .agg(pl.col("total_ns").sum().cast(pl.Int64))
        .filter(pl.col("total_ns") > 0)
        .with_columns(pl.col("role").cast(pl.String))
        .sort("submodule", *_block_order(), "role", nulls_last=True)
    )


def _block_order() -> tuple[pl.Expr, ...]:
    """Sort keys of blocks: their name without its number, the number."""
    block = pl.col("block")
    number = block.str.extract(r"(\d+)$").cast(pl.Int64, strict=False)
    return block.str.replace(r"\d+$", ""), number, block


def _with_role(kinds: Kinds, roles: pl.DataFrame) -> pl.DataFrame:
    """The kinds that have a role, with it."""
    return kinds.table.join(roles, on="kind").drop_nulls("role")


def _of_streams() -> tuple[pl.Expr, ...]:
    """The time of each stream; null if nothing is known to be of one."""
    known = pl.col("stream").is_not_null().any()
    return tuple(
        pl.when(known)
        .then(pl.col("total_ns").filter(pl.col("stream") == stream).sum())
        .alias(f"{stream}_stream_ns")
        for stream in STREAMS
    )


def texts_by_time(
    rows: pl.DataFrame, keys: Sequence[str], name: str, joined: str, time: str = "total_ns"
) -> pl.DataFrame:
    """For each of the `keys` the texts in a column, most time first, as one text in `joined`."""
    return (
        rows.drop_nulls(name)
        .group_by(*keys, pl.col(name).cast(pl.String))
        .agg(pl.col(time).sum())
        .sort([time, name], descending=[True, False])
        .group_by(keys, maintain_order=True)
        .agg(pl.col(name).str.join(", ").alias(joined))
    )


def _declared(table: pl.DataFrame, columns: Sequence[Column]) -> pl.DataFrame:
    return table.select(typed(columns))


# --- The tables of roles and of blocks.


@shared
def kind_roles(of: Inputs) -> pl.DataFrame:
    """The role of each kind of the selected commands, and what decided it."""
    given = of.frame["role"]
    return roles_of(
        of.run.info.submodules, of.kinds, of.commands.call, given, denoises=has_denoiser(of.run)
    )


TABLES = (
    Table(
        name="roles",
        row="one role in a submodule",
        section="roofline",
        columns=ROLES,
        make=_roles,
        title="What the device time of each submodule is for",
        about="Rows are grouped by submodule, longest first. [roles.md](roles.md) has details.",
        reads=("submodules",),
        rank=("submodule", "-total_ns"),
    ),
    Table(
        name="blocks",
        row="one block of a submodule",
        section="roofline",
        columns=BLOCKS,
        make=_blocks,
        title="Norms and modulation in blocks",
        about="A block is a module with a number in its path.",
    ),
)


# --- The submodule whose blocks a figure shows.


def submodule_of_blocks(blocks: pl.DataFrame) -> str:
    """The submodule whose repeated blocks took most device time, "" if none has two."""
    found = blocks.drop_nulls("submodule").filter(pl.col("total_ns") > 0)
    sums = found.group_by("submodule").agg(pl.col("total_ns").sum(), pl.len())
    several = sums.filter(pl.col("len") > 1).sort("total_ns", "submodule", descending=[True, False])
    return str(several["submodule"][0]) if len(several) else ""


# --- Device time by role: roles by submodule and by block, norms and modulation.


_HELD = 200  # blocks
_WITHOUT_CLASSES = said(
    "the trace has no classes of modules: roles are by names, op types and shapes"
)
_ROLES = (
    "submodule role commands total_ns share corrected_ns image_stream_ns text_stream_ns",
    "norm_kinds limited_by",
)
_OF_BLOCKS = (
    "block submodule commands total_ns norm_ns norm_share modulation_ns modulation_share",
    "image_stream_ns text_stream_ns",
)


def roles_figure(analysis: Analysis) -> Figure:
    """The share of each role in the device time of each submodule."""
    return Figure("roles", "roles", (analysis.roles,))


def blocks_figure(analysis: Analysis, submodule: str) -> Figure:
    """What the device time of each block of that submodule is for."""
    found = block_roles(analysis.kinds, analysis.kind_roles)
    rows = found.filter(pl.col("submodule") == submodule)
    return Figure("blocks", "blocks", (rows,))


def role_parts(of: ReportInput) -> Iterator[Part]:
    """Roles of each submodule, image against context stream, and the blocks."""
    analysis = of.analysis
    roles = analysis.roles.drop_nulls("submodule").filter(pl.col("total_ns") > 0)
    if roles.is_empty():
        return
    known = any("class" in by for by in roles["limited_by"])
    of_submodule = pl.col("total_ns").sum().over("submodule")
    blocks = analysis.blocks.filter(pl.col("total_ns") > 0).sort(
        of_submodule, descending=True, maintain_order=True
    )
    yield Part(
        said("Device time by role"),
        figure=roles_figure(analysis),
        table=table("roles", "roles", _ROLES, ROLES, roles, shown=15, search=True, sort="total_ns"),
        notes=() if known else (sentence(_WITHOUT_CLASSES),),
        anchor="roles",
    )
    largest = submodule_of_blocks(analysis.blocks)
    if largest:
        yield Part(
            said("Roles by block of {submodule}", submodule=largest),
            figure=blocks_figure(analysis, largest),
        )
    yield Part(
        said("Norms and modulation in blocks"),
        table=table(
            "blocks",
            "blocks",
            _OF_BLOCKS,
            BLOCKS,
            blocks,
            shown=of.rows(10),
            held=_HELD,
            search=True,
        ),
        folded=True,
    )
