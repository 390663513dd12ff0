"""Fusion candidates: chains of operators that pass intermediates through memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import polars as pl
from msgspec.structs import replace

from profiler.analysis.commands import CommandArrays, Kinds
from profiler.analysis.device_profiles import DeviceProfile
from profiler.analysis.finding_text import (
    MATERIAL,
    Rule,
    Words,
    calls_of,
    is_no_gain,
    number,
    scaled,
    share,
    texts,
    whole_of,
)
from profiler.analysis.flop_shapes import Family, Work
from profiler.analysis.flops import KindWork
from profiler.analysis.fusion_chains import Chain, find_chains
from profiler.analysis.operators_section import computing
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, Effect, Finding
from profiler.analysis.role_kernel_names import Sort, operation_of
from profiler.analysis.roles import kind_roles
from profiler.analysis.roofline import NOTHING, SHORT_NS, as_declared, profiles, works
from profiler.run.columns import BYTES, INT64, LAYER, NS, STRING, Column, col, schema
from profiler.text import Said, Value, filled, joined, said
from profiler.trace.events import CATEGORIES


class FusionKind(StrEnum):
    """What a chain of commands that could be one computes."""

    ATTENTION = "attention"
    NORM = "norm"
    MODULATION = "modulation"
    NORM_AND_MODULATION = "norm_and_modulation"
    ROPE = "rope"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"


# --- Rules about chains of operators that could be one.


_BUSY = 0.05  # of end to end, of chains on a device without profile: what fusing saves is not known
_BUSY_MEDIUM = 0.20
_MAX_CHAIN_SHARE = 0.5  # of the time of chains
_NEXT = " → "  # between the op types of a chain
_SLOW = 0.25  # of the roofline
_FEW_GROUPS = said(
    "Its kernel has a block of threads for each group: with few groups in a small batch, most of a "
    "large GPU does nothing. Compiled, the reduction is divided."
)


def _of_chains(analysis: Analysis, rule: str, chains: pl.DataFrame) -> Iterator[Finding]:
    """A finding for each submodule whose chains matter: by what fusing them saves, or without a
    profile by the time they take."""
    rows = scaled(analysis, chains, "total_ns", "saved_ns", "chains", "saved_bytes")
    for (submodule,), some in rows.group_by("submodule", maintain_order=True):
        busy, total = float(some["total_ns"].sum()), whole_of(analysis, str(submodule))
        saved = None if some["saved_ns"].null_count() else float(some["saved_ns"].sum())
        if share(busy if saved is None else saved, total) < (_BUSY if saved is None else MATERIAL):
            continue
        evidence: dict[str, Value] = {
            "chains": round(some["chains"].sum()),
            "total_ns": round(busy),
            "run_share": share(busy, total),
            "memory_traffic_saved_bytes": round(some["saved_bytes"].sum()),
            "longest_chain": some["op_types"][0],
        }
        found = Finding(
            rule=rule,
            evidence=evidence,
            where=calls_of(analysis, str(submodule), layer=some["layer"][0]),
            severity="medium" if share(busy, total) >= _BUSY_MEDIUM else "low",
        )
        if saved is not None:
            evidence |= {"saved_ns": round(saved), "saved_share": share(saved, total)}
            effect = Effect((str(submodule),), saved, launches_of=_launches(some))
            found = replace(found, cost_ns=round(saved), effect=effect)
        yield found


def _launches(chains: pl.DataFrame) -> dict[str, float]:
    """Return how many launches fusing removes, by op type: all of a chain but the first."""
    found: dict[str, float] = {}
    for names, times in chains.select("op_types", "chains").iter_rows():
        for name in names.split(_NEXT)[1:]:
            found[name] = found.get(name, 0.0) + times
    return found


_UPPER_BOUND = (
    "Chains are found by shapes and order, and their saving is an upper bound; where the device "
    "waits for the host anyway, the run gains less. "
)


def _of_figure(title: Said, caveat: str, recommendation: str) -> Callable[[Finding], Words]:
    """Return a function that words a finding; its title ends with what fusing saves, or what the
    chains take if that is not known."""

    def words(found: Finding) -> Words:
        given = texts(found)
        figure = said("its chains take {run_share} of the run")
        if "saved_share" in given and not is_no_gain(found, "saved_ns"):
            figure = said("at most {saved_share} of the run to save")
        whole = filled(title, {**given, "figure": filled(figure, given)})
        return Words(whole, said(_UPPER_BOUND + caveat), recommendation)

    return words


def unfused_attention(analysis: Analysis) -> Iterator[Finding]:
    """Attention writes its scores to memory: product, softmax and product are commands each."""
    chains = analysis.fusions.filter(pl.col("what") == FusionKind.ATTENTION.value)
    return _of_chains(analysis, "unfused_attention", chains)


_UNFUSED_ATTENTION = _of_figure(
    said("Attention of {submodule} is not fused: {figure}"),
    "Fused kernels support only some masks and head sizes, and round differently.",
    said(
        "Use scaled_dot_product_attention (flash or memory-efficient kernel), an attention "
        "processor that does, or ONNX Runtime's attention fusions; check that no dense bias or "
        "float32 softmax keeps the fused kernel away."
    ),
)


def norm_chains(analysis: Analysis) -> Iterator[Finding]:
    """Norms, and the modulation after them, read and write memory several times. A norm that is one
    operator, between arithmetic, is in `elementwise_chains`."""
    chains = _chains_of(analysis, FusionKind.NORM_AND_MODULATION, whole_norms=False)
    return _of_chains(analysis, "norm_chains", chains)


_NORM_CHAINS = _of_figure(
    said("Norms of {submodule} are chains of operators: {figure}"),
    "A fused norm may accumulate in another type.",
    said(
        "Use the framework's norm (torch.nn.RMSNorm, LayerNormalization) instead of a "
        "handwritten one, compile the block, or use one kernel for norm, shift and scale."
    ),
)


def elementwise_chains(analysis: Analysis) -> Iterator[Finding]:
    """Elementwise operators hand intermediates to each other, or to a norm, through memory. The
    norm is named if most of the time is its own."""
    kinds = (FusionKind.ELEMENTWISE, FusionKind.SOFTMAX, FusionKind.MODULATION, FusionKind.ROPE)
    chains = _chains_of(analysis, *kinds, whole_norms=True)
    for found in _of_chains(analysis, "elementwise_chains", chains):
        yield replace(found, evidence={**found.evidence, **_own_norm(analysis, found)})


def _own_norm(analysis: Analysis, found: Finding) -> dict[str, Value]:
    """The norm that takes at least half of the time of a submodule's chains, its time, and its
    share of the roofline if known; empty if there is none."""
    own = pl.col("submodule") == found.where.submodule
    rows = analysis.fusions.filter(own, pl.col("what") == FusionKind.NORM.value)
    names = {name for types in rows["op_types"] for name in types.split(_NEXT)}
    norms = pl.Series([name for name in sorted(names) if _is_norm(name)], dtype=pl.String)
    taken = (
        computing(analysis)
        .with_columns(name=pl.col("op_type").cast(pl.String))
        .filter(own, pl.col("name").is_in(norms.implode()))
        .group_by("submodule", "name")
        .agg(pl.col("total_ns").sum())
        .sort("total_ns", "name", descending=[True, False])
        .head(1)
    )
    enough = pl.col("total_ns") >= _MAX_CHAIN_SHARE * number(found, "total_ns")
    for row in scaled(analysis, taken, "total_ns").filter(enough).to_dicts():
        known = analysis.roofline.filter(own, pl.col("op_types") == row["name"])
        least, beyond = known.select(pl.col("roofline_ns", "excess_ns").sum()).row(0)
        reached = {"norm_of_roofline_share": least / (least + beyond)} if least else {}
        return {"norm": row["name"], "norm_total_ns": round(row["total_ns"]), **reached}
    return {}


def _chains_of(analysis: Analysis, *kinds: FusionKind, whole_norms: bool) -> pl.DataFrame:
    """The chains of these kinds, and norm chains that contain (`whole_norms`) or do not contain a
    norm that is one operator."""
    chains, what = analysis.fusions, pl.col("what")
    parts = [names.split(_NEXT) for names in chains["op_types"]]
    whole = pl.Series([any(map(_is_norm, names)) for names in parts], dtype=pl.Boolean)
    norms = (what == FusionKind.NORM.value) & (whole if whole_norms else ~whole)
    return chains.filter(norms | what.is_in([kind.value for kind in kinds]))


def _is_norm(op_type: str) -> bool:
    return operation_of(op_type).sort is Sort.NORM


def _elementwise_chains(found: Finding) -> Words:
    title = said("Elementwise operators of {submodule} are not fused: {figure}")
    recommendation = said(
        "torch.compile the submodule; in ONNX export activations as one operator (Gelu instead "
        "of its formula) and let the optimizer fuse them."
    )
    if "norm" in found.evidence:
        title = said(
            "{norm} of {submodule}, and elementwise operators beside it, are not fused: {figure}"
        )
        recommendation = joined(" ", [*_slow_norm(found), recommendation])
    caveat = "Compiling costs time at the first call and at each new shape."
    return _of_figure(title, caveat, recommendation)(found)


def _slow_norm(found: Finding) -> Iterator[str]:
    """How long the norm takes, and why torch's norm of groups may be slow: its kernel has a block
    of threads for each of them."""
    if "norm_of_roofline_share" not in found.evidence:
        yield filled(said("{norm} alone takes {norm_total_ns}."), texts(found))
        return
    taken = said("{norm} alone takes {norm_total_ns}, at {norm_of_roofline_share} of its roofline.")
    yield filled(taken, texts(found))
    slow = number(found, "norm_of_roofline_share") < _SLOW
    if slow and found.evidence["norm"] == "aten::native_group_norm":
        yield _FEW_GROUPS


RULES = (
    Rule(
        unfused_attention,
        _UNFUSED_ATTENTION,
        "Use scaled_dot_product_attention, or a fused attention of ONNX",
    ),
    Rule(
        norm_chains,
        _NORM_CHAINS,
        "Use the framework's norm, or compile the block",
        needs=("shapes",),
    ),
    Rule(
        elementwise_chains,
        _elementwise_chains,
        "Compile the submodule, or export activations as one operator",
        needs=("shapes",),
    ),
)


# --- The columns of chains of operators, and of what fusing them would save.


FUSIONS: tuple[Column, ...] = (
    col("submodule", STRING, "submodule in whose calls the chain stands", importance=2, key=True),
    col("device", STRING, "device that ran it", importance=15, key=True),
    col("what", STRING, ", ".join(FusionKind), codes=FusionKind),
    col(
        "layer",
        LAYER,
        "layer of the first command of the first such chain",
        label="first layer",
        importance=15,
    ),
    col("op_types", LAYER, "op types of its commands in order"),
    col("chains", INT64, "such chains in all traced calls", importance=1),
    col("total_ns", NS, "sum of their commands' durations"),
    col(
        "saved_bytes",
        BYTES,
        "upper bound of the bytes of intermediates that are written and read; a sum that a norm "
        "reads is written all the same",
        label="saves traffic",
    ),
    col(
        "saved_ns",
        NS,
        "upper bound of the time that fusing saves: total_ns - the roofline of one command in "
        "their place",
        True,
        label="saves time",
    ),
)


# --- What fusing would save: the chains of `find_chains`, in bytes and time.
#
# `saved_ns` is what the chain takes beyond the roofline of one command in its place, which computes
# as much and does not move `saved_bytes`: fusing saves no more than that.


_MAX_COMMANDS = 20_000  # commands of a call that are looked at
_ROOTS = ("sqrt", "rsqrt", "Sqrt", "Rsqrt", "Reciprocal", "reciprocal")


class _Kind(NamedTuple):
    """What is known of a kind of commands; `took` is the mean of their times in ns."""

    layer: str
    op_type: str
    took: float
    role: str | None
    module: str | None
    work: Work | None


def fusion_table(
    calls: pl.DataFrame,
    kinds: Kinds,
    work: KindWork,
    commands: CommandArrays,
    profiles: Mapping[str, DeviceProfile],
    roles: pl.Series | None = None,
) -> pl.DataFrame:
    """Return the chains of each submodule (`FUSIONS`), equal ones added up, most bytes first.

    `roles`, one per kind, say what chains are for; without them, their operations do.
    """
    facts = kinds.table.select(
        "layer",
        pl.col("op_type").fill_null(""),
        total_ns=pl.col("total_ns") / pl.col("commands"),
        role=pl.lit(None, pl.String) if roles is None else roles.cast(pl.String),
        module=pl.col("module").cast(pl.String),
    ).rows()
    known_kinds = [_Kind._make((*fact, own)) for fact, own in zip(facts, work.works, strict=True)]
    found = []
    for submodule, call, number in _representatives(calls):
        for device, codes in _sequences(kinds, commands, call):
            sequence = [known_kinds[kind] for kind in codes]
            profile = profiles.get(device)
            least = _least_ns((known_kinds[kind] for kind in {*codes}), profile)
            for chain in find_chains(
                [one.work for one in sequence],
                [one.op_type for one in sequence],
                norms_last=_norms_are_last(sequence),
            ):
                row = _row(chain, [sequence[at] for at in chain.members], profile, least)
                found.append({"submodule": submodule, "device": device, "chains": number, **row})
    keys = ["submodule", "device", "what", "op_types"]
    times = ["total_ns", "saved_bytes", "saved_ns"]
    types = schema(FUSIONS)
    frame = pl.DataFrame(found, schema={**types, **dict.fromkeys(times, pl.Float64())})
    known = pl.col("saved_ns").is_not_null().all()
    return (
        frame.with_columns(pl.col(times) * pl.col("chains"))
        .group_by(keys, maintain_order=True)
        .agg(
            pl.col("layer").first(),
            pl.col("total_ns", "saved_bytes", "chains").sum(),
            saved_ns=pl.when(known).then(pl.col("saved_ns").sum()),
        )
        .with_columns(pl.col("total_ns").round())
        .sort(["saved_bytes", *keys], descending=[True, *(False for _ in keys)])
        .select(as_declared(name, dtype) for name, dtype in types.items())
    )


def _row(
    chain: Chain, members: Sequence[_Kind], profile: DeviceProfile | None, least: float
) -> dict[str, object]:
    """What one chain is, its op types, first layer, busy time, saved bytes and time.

    What fusing saves is not known without a profile that has the bandwidth, or if the chain was
    faster. A command takes what a launch does: if the profile does not know, `least`.
    """
    whole = [one for one in members if one.work is not None and one.work.part == 1]
    busy, saved = sum(one.took for one in members), None
    if profile is not None and profile.memory_bandwidth is not None:
        launch = profile.launch_ns
        if launch is None:
            launch = min(least, *(one.took for one in members))
        fused = _roofline_ns(whole, profile, chain.saved_bytes)
        saved = busy - max(fused, launch)
    return {
        "what": _what(chain, members, whole).value,
        "op_types": _NEXT.join(one.op_type for one in whole),
        "layer": members[0].layer,
        "total_ns": busy,
        "saved_bytes": chain.saved_bytes,
        "saved_ns": None if saved is None or saved < 0 else saved,
    }


def _representatives(calls: pl.DataFrame) -> list[tuple[str, int, int]]:
    """Return for each submodule its second traced call, or its only one, as a row of `calls`, and
    its number of traced calls."""
    traced = calls.with_row_index("row").filter("ops_traced")
    grouped = traced.group_by("submodule", maintain_order=True).agg("row")
    return [
        (str(name), rows[min(1, len(rows) - 1)], len(rows)) for name, rows in grouped.iter_rows()
    ]


def _sequences(kinds: Kinds, commands: CommandArrays, call: int) -> list[tuple[str, list[int]]]:
    """The kinds of a call's device work by start, for each device."""
    rows = np.flatnonzero(commands.call == call)
    compute = commands.category[rows] == CATEGORIES.index("compute")
    rows = rows[compute][:_MAX_COMMANDS]
    rows = rows[np.argsort(commands.start[rows], kind="stable")]
    device = commands.device[rows]
    return [
        (commands.devices[place], kinds.of_command[rows[device == place]].tolist())
        for place in np.unique(device).tolist()
        if place < len(commands.devices)
    ]


def _what(chain: Chain, members: Sequence[_Kind], whole: Sequence[_Kind]) -> FusionKind:
    """What a chain is: by the roles of its commands, else by its operations."""
    if chain.is_attention:
        return FusionKind.ATTENTION
    told = {one.role for one in members} & {"norm", "modulation", "rope"}
    if not told:
        roots = (one.op_type.removeprefix("aten::") in _ROOTS for one in whole)
        if Family.NORM in chain.families or (Family.REDUCTION in chain.families and any(roots)):
            told.add("norm")
        if any(_modulates(one.work) for one in members if one.work is not None):
            told.add("modulation")
    if {"norm", "modulation"} <= told:
        return FusionKind.NORM_AND_MODULATION
    if Family.SOFTMAX in chain.families:
        told.add("softmax")
    order = (FusionKind.NORM, FusionKind.MODULATION, FusionKind.ROPE, FusionKind.SOFTMAX)
    return next((kind for kind in order if kind.value in told), FusionKind.ELEMENTWISE)


def _norms_are_last(sequence: Iterable[_Kind]) -> bool:
    """Whether most blocks with products, of which another one follows, end with a norm: then the
    residual stream is what the norms give (BERT), else the sums that they read (GPT-2)."""
    last: dict[str, tuple[bool, str]] = {}
    for one in sequence:
        block = _block_of(one.module or "")
        if block and one.work is not None and one.work.family != Family.VIEW:
            product = one.work.family == Family.MATMUL or last.get(block, (False, ""))[0]
            last[block] = product, one.op_type
    ends = [op_type for product, op_type in last.values() if product][:-1]
    norms = sum(bool(operation_of(one).norm_kind) for one in ends)
    return 2 * norms > len(ends)


def _block_of(module: str) -> str:
    """The outermost numbered part of a module's path, `"layers.3"` or `"layer_3"`; "" if there is
    none. In one pass: names of traces may be long."""
    for piece in module.split("/"):
        parts = piece.split(".")
        for part, after in zip(parts, [*parts[1:], ""], strict=True):
            if part and after.isdecimal():
                return f"{part}.{after}"
            if part.rpartition("_")[0] and part.rpartition("_")[2].isdecimal():
                return part
    return ""


def _modulates(work: Work) -> bool:
    """Whether a [batch, 1, width] is applied to [batch, tokens, width]."""
    if work.family != Family.ELEMENTWISE or not work.writes or len(work.writes[0].dims) != 3:
        return False
    _, tokens, width = work.writes[0].dims
    read = (read.dims for read in work.reads if len(read.dims) == 3)
    return tokens > 1 < width and any(dims[1:] == (1, width) for dims in read)


def _least_ns(kinds: Iterable[_Kind], profile: DeviceProfile | None) -> float:
    """What the shortest command took that does next to nothing, 0 if there is none."""
    short = (
        one.took
        for one in kinds
        if profile is not None
        and one.work is not None
        and 0 < one.took <= SHORT_NS
        and _roofline_ns([one], profile, 0) < NOTHING * one.took
    )
    return min(short, default=0.0)


def _roofline_ns(kinds: Sequence[_Kind], profile: DeviceProfile, saved_bytes: int) -> float:
    """The least time for the arithmetic of commands of these kinds, and for what they move but for
    what is saved of that."""
    own = [one.work for one in kinds if one.work is not None]
    moved = sum((w.bytes_read or 0) + (w.bytes_written or 0) for w in own)
    computed = sum((w.flops or 0) / (profile.peak(w.dtype) or float("inf")) for w in own)
    bandwidth = profile.memory_bandwidth or float("inf")
    return max(max(moved - saved_bytes, 0) / bandwidth, computed) * 1e9


# --- The table of chains that could be fused.


TABLES = (
    Table(
        name="fusions",
        row="one chain of operators that could be fused",
        section="roofline",
        columns=FUSIONS,
        make=lambda of: fusion_table(
            of.calls, of.kinds, works(of), of.commands, profiles(of), kind_roles(of)["role"]
        ),
        title="What fusing would save at most",
        about="The commands of a chain pass tensors to each other through memory. Chains with "
        "equal op types are added up; rows are in order of `saved_bytes`, largest first. "
        "[roofline.md](roofline.md) has details.",
        rank=("-saved_bytes",),
    ),
)
