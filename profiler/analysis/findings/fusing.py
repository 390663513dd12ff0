"""Rules about chains of operators that could be one, and data that is only moved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from profiler.analysis.findings.finding import Effect, Finding
from profiler.analysis.findings.measures import (
    MATERIAL,
    calls_of,
    end_to_end_ns,
    scaled,
    share,
)
from profiler.analysis.findings.over_time import cold_calls
from profiler.analysis.result import Analysis
from profiler.analysis.roles.operations import Sort, operation_of
from profiler.analysis.roofline.codes import FusionKind
from profiler.text import Value

__all__ = ["data_movement", "elementwise_chains", "norm_chains", "unfused_attention"]

_BUSY = 0.05  # of end to end, of chains on a device without profile: what fusing saves is not known
_BUSY_MEDIUM = 0.20
_MOVED = 0.10  # of the time of the submodule's computing commands
_MOVES = pl.col("role") == "data_movement"
_MOVED_OF_RUN = 0.02
_NAMED = 3
_MOST = 0.5  # of the time of chains
_NEXT = "→"  # between the op types of a chain


def unfused_attention(analysis: Analysis) -> tuple[Finding, ...]:
    """Attention writes its scores to memory: product, softmax and product are commands each."""
    return _of_chains(
        analysis,
        "unfused_attention",
        (FusionKind.ATTENTION,),
    )


def norm_chains(analysis: Analysis) -> tuple[Finding, ...]:
    """Norms, and the modulation after them, read and write memory several times. A norm that is one
    operator, between arithmetic, is none of these: `elementwise_chains`."""
    return _of_chains(
        analysis,
        "norm_chains",
        (FusionKind.NORM, FusionKind.NORM_AND_MODULATION),
        _chains_of(analysis, whole_norms=False),
    )


def elementwise_chains(analysis: Analysis) -> tuple[Finding, ...]:
    """Elementwise operators hand intermediates to each other, or to a norm, through memory. The
    norm is named where most of the time is its own."""
    found = _of_chains(
        analysis,
        "elementwise_chains",
        (
            *(FusionKind.ELEMENTWISE, FusionKind.SOFTMAX, FusionKind.MODULATION, FusionKind.ROPE),
            FusionKind.NORM,
        ),
        _chains_of(analysis, whole_norms=True),
    )
    return tuple(
        replace(one, evidence={**one.evidence, **_own_norm(analysis, one)}) for one in found
    )


def _own_norm(analysis: Analysis, found: Finding) -> dict[str, Value]:
    """The norm that takes at least half of the time of a submodule's chains, how long, and its
    share of the roofline where that is known; nothing where none does."""
    rows = analysis.fusions.filter(
        (pl.col("submodule") == found.where.submodule) & (pl.col("what") == FusionKind.NORM.value)
    )
    names = {name for types in rows["op_types"] for name in types.split(f" {_NEXT} ")}
    norms = pl.Series([name for name in sorted(names) if _is_norm(name)], dtype=pl.String)
    taken = (
        _computing(analysis)
        .filter(
            (pl.col("submodule") == found.where.submodule)
            & pl.col("op_type").cast(pl.String).is_in(norms.implode())
        )
        .group_by("submodule", name=pl.col("op_type").cast(pl.String))
        .agg(pl.col("total_ns").sum())
        .sort("total_ns", "name", descending=[True, False])
        .head(1)
    )
    whole = found.evidence["total_ns"]
    assert isinstance(whole, int)
    for row in scaled(analysis, taken, "total_ns").to_dicts():
        if row["total_ns"] < _MOST * whole:
            break
        evidence: dict[str, Value] = {"norm": row["name"], "norm_total_ns": round(row["total_ns"])}
        known = analysis.roofline.filter(
            (pl.col("submodule") == found.where.submodule) & (pl.col("op_types") == row["name"])
        ).select(pl.col("roofline_ns", "beyond_ns").sum())
        least, beyond = known.row(0)
        if least:
            evidence["norm_of_roofline_share"] = least / (least + beyond)
        return evidence
    return {}


def _chains_of(analysis: Analysis, *, whole_norms: bool) -> pl.DataFrame:
    """The chains of which those called norms have, or have not, a norm that is one operator."""
    chains = analysis.fusions
    whole = pl.Series([_has_whole_norm(names) for names in chains["op_types"]], dtype=pl.Boolean)
    norms = pl.col("what") == FusionKind.NORM.value
    return chains.filter(~norms | (whole if whole_norms else ~whole))


def _has_whole_norm(op_types: str) -> bool:
    """Whether an operator of a chain is a norm by itself: `aten::cudnn_batch_norm`."""
    return any(map(_is_norm, op_types.split(f" {_NEXT} ")))


def _is_norm(op_type: str) -> bool:
    return operation_of(op_type).sort is Sort.NORM


def data_movement(analysis: Analysis) -> tuple[Finding, ...]:
    """Casts, transposes and concatenations take a large part of the time in which a submodule's
    devices compute. Transfers (dma, copy) do not count: they run beside, `transfers_exposed` says
    where not."""
    total = end_to_end_ns(analysis)
    kinds = _without_cold_calls(analysis)
    rows = kinds.group_by("submodule", maintain_order=True).agg(
        pl.col("commands", "total_ns").filter(_MOVES).sum(),
        share=pl.col("total_ns").filter(_MOVES).sum() / pl.col("total_ns").sum(),
    )
    found = []
    rows = rows.filter(pl.col("share") >= _MOVED)
    for row in scaled(analysis, rows, "total_ns", "commands").to_dicts():
        if share(row["total_ns"], total) < _MOVED_OF_RUN:
            continue
        types, layer = _movers(kinds, row["submodule"])
        found.append(
            Finding(
                rule="data_movement",
                evidence={
                    "total_ns": round(row["total_ns"]),
                    "compute_time_share": row["share"],
                    "run_share": share(row["total_ns"], total),
                    "commands": round(row["commands"]),
                    "op_types": types,
                    "longest_layer": layer,
                },
                where=calls_of(analysis, row["submodule"], layer=layer or None),
                cost_ns=round(row["total_ns"]),
                effect=Effect(
                    (row["submodule"],),
                    row["total_ns"],
                    launches_of=_moves_of(analysis, kinds, row["submodule"]),
                ),
            )
        )
    return tuple(found)


def _of_chains(
    analysis: Analysis,
    rule: str,
    what: tuple[FusionKind, ...],
    chains: pl.DataFrame | None = None,
) -> tuple[Finding, ...]:
    """A finding for each submodule whose chains of these sorts are worth a word, of all or of
    `chains`: without a profile for the time they take, else for what fusing them saves."""
    total = end_to_end_ns(analysis)
    rows = (analysis.fusions if chains is None else chains).filter(
        pl.col("what").is_in([kind.value for kind in what])
    )
    rows = scaled(analysis, rows, "total_ns", "saved_ns", "chains", "saved_bytes")
    found = []
    for (submodule,), some in rows.group_by("submodule", maintain_order=True):
        busy = float(some["total_ns"].sum())
        saved = None if some["saved_ns"].null_count() else float(some["saved_ns"].sum())
        lost = None
        if saved is not None:
            lost = Effect((str(submodule),), saved, launches_of=_launches(some))
        part = share(busy if saved is None else saved, total)
        if part < (_BUSY if saved is None else MATERIAL):
            continue
        found.append(
            Finding(
                rule=rule,
                evidence=_evidence(some, busy, saved, total),
                where=calls_of(analysis, str(submodule), layer=some["layer"][0]),
                cost_ns=None if saved is None else round(saved),
                severity="medium" if share(busy, total) >= _BUSY_MEDIUM else "low",
                effect=lost,
            )
        )
    return tuple(found)


def _launches(chains: pl.DataFrame) -> dict[str, float]:
    """How many launches less fused chains have, by op type: of each the first one stays."""
    found: dict[str, float] = {}
    for names, times in chains.select("op_types", "chains").iter_rows():
        for name in names.split(f" {_NEXT} ")[1:]:
            found[name] = found.get(name, 0.0) + times
    return found


def _evidence(
    chains: pl.DataFrame, busy: float, saved: float | None, total: int
) -> dict[str, Value]:
    evidence: dict[str, Value] = {
        "chains": round(chains["chains"].sum()),
        "total_ns": round(busy),
        "busy_share": share(busy, total),
        "memory_traffic_saved_bytes": round(chains["saved_bytes"].sum()),
        "longest_chain": chains["op_types"][0],
    }
    if saved is not None:
        evidence |= {"saved_ns": round(saved), "saved_share": share(saved, total)}
    return evidence


def _computing(analysis: Analysis) -> pl.DataFrame:
    """The kinds of the submodules' commands of category compute and other, with their roles."""
    roles = analysis.kind_roles["role"].cast(pl.String)
    computes = pl.col("category").cast(pl.String).is_in(["compute", "other"])
    kinds = analysis.kinds.table.with_columns(role=roles)
    return kinds.filter(computes & pl.col("submodule").is_not_null())


def _without_cold_calls(analysis: Analysis) -> pl.DataFrame:
    """`_computing`; of a submodule whose first call is cold, what its later traced calls say, for
    all of these calls: a first cast may load a library or start threads, which moves no data, and
    `first_call` counts it."""
    kinds, frame = _computing(analysis), analysis.inputs.frame
    cold = cold_calls(analysis)
    traced = analysis.inputs.calls.filter("ops_traced").select(
        pl.col("submodule").cast(pl.String), cold=pl.col("call").is_in(cold.implode())
    )
    scale = traced.group_by("submodule").agg(scale=pl.len() / (~pl.col("cold")).sum())
    scale = scale.filter(pl.col("scale").is_finite())  # some later call is traced
    inside = np.flatnonzero(frame["call"].is_in(cold.implode()).to_numpy())
    codes, duration = analysis.kinds.of_command[inside], frame["duration_ns"].to_numpy()[inside]
    groups = len(analysis.kinds)
    taken = np.bincount(codes, np.maximum(duration, 0), groups).astype(np.int64)
    first = pl.DataFrame({"first": np.bincount(codes, minlength=groups), "first_ns": taken})
    steady = pl.col("scale").is_not_null()
    return (
        pl.concat([kinds, first[kinds["kind"].to_numpy()]], how="horizontal")
        .join(scale, on="submodule", how="left", maintain_order="left")
        .with_columns(
            pl.when(steady)
            .then((pl.col(name) - pl.col(part)) * pl.col("scale"))
            .otherwise(name)
            .alias(name)
            for name, part in (("commands", "first"), ("total_ns", "first_ns"))
        )
    )


def _moves_of(analysis: Analysis, kinds: pl.DataFrame, submodule: str) -> dict[str, float]:
    """How many commands of a submodule move data, by op type."""
    rows = kinds.filter(_MOVES & (pl.col("submodule") == submodule))
    rows = rows.group_by("submodule", pl.col("op_type").cast(pl.String).fill_null("")).agg(
        pl.col("commands").sum()
    )
    return dict(scaled(analysis, rows, "commands").select("op_type", "commands").iter_rows())


def _movers(kinds: pl.DataFrame, submodule: str) -> tuple[str, str]:
    """The op types that move most, and the layer that does it longest."""
    rows = kinds.filter(_MOVES & (pl.col("submodule") == submodule))

    def longest(name: str) -> list[str]:
        by = rows.drop_nulls(name).group_by(name).agg(pl.col("total_ns").sum())
        return by.sort(["total_ns", name], descending=[True, False])[name].head(_NAMED).to_list()

    layers = longest("layer")
    return ", ".join(longest("op_type")), layers[0] if layers else ""
