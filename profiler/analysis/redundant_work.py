"""Redundant work: operators that recompute the same values in every step, branch or prompt.

A trace has no values, so the rules are about models, and each names its evidence. The saving is
the median execution times the number of unneeded executions, and at most what these took. For
work that is known ahead and could run as one batch, the saving is an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.commands import Kinds
from profiler.analysis.context import Inputs, shared
from profiler.analysis.finding_text import (
    MATERIAL,
    Rule,
    Words,
    calls_of,
    end_to_end_ns,
    is_no_gain,
    scaled,
    share,
)
from profiler.analysis.flop_shapes import Shapes, Tensor, parse_shapes
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, Effect, Finding
from profiler.analysis.role_kernel_names import Sort, operation_of, word_of
from profiler.analysis.role_patterns import only_vectors
from profiler.analysis.roles import kind_roles, texts_by_time
from profiler.analysis.table_text import Sentences
from profiler.grammars.names import parse_name
from profiler.run.columns import BOOL, DATA_ONLY, INT64, LAYER, NS, STRING, Column, col, schema
from profiler.text import Note, NoteCode, notes_from, notes_text, said
from profiler.trace.manifest_fields import Submodule

# --- Words of the tables about denoising steps: closed sets.


class RedundancyKind(StrEnum):
    """Kinds of work that computes the same result again."""

    CONDITIONING = "conditioning"
    POSITION = "position"
    CROSS_ATTENTION = "cross_attention"
    SHAPE_ARITHMETIC = "shape_arithmetic"
    TIMESTEP = "timestep"
    MODULATION = "modulation"


class Over(StrEnum):
    """What a result stays the same over."""

    STEPS = "steps"
    STEPS_AND_BRANCHES = "steps_and_branches"
    BRANCHES = "branches"
    AHEAD = "known_ahead"
    AHEAD_AND_BRANCHES = "known_ahead_and_branches"


class RedundancyEvidence(NoteCode):
    """Evidence that work computes the same result again."""

    PATH = "path"
    CLASS = "class"
    TOKENS = "tokens"
    ROLE_ROPE = "role_rope"
    NO_BLOCK = "no_block"
    ROLE_MODULATION = "role_modulation"
    ONE_VECTOR = "one_vector_a_sample"
    INTEGERS = "integers"
    NO_DATA = "no_data"
    EQUAL_SHAPES = "equal_shapes"
    NO_SHAPES = "no_shapes"


# --- The columns of what is found about denoising steps: the step matrix, guidance, redundancy.


REDUNDANT_WORK: tuple[Column, ...] = (
    col("submodule", STRING, "submodule of the operators", importance=2),
    col("layer", LAYER, "their layer, with * for the numbers of blocks"),
    col(
        "op_types",
        STRING,
        "their op types, longest time first, joined with commas",
        importance=DATA_ONLY,
    ),
    col(
        "rule",
        STRING,
        "kind of work: " + ", ".join(RedundancyKind),
        label="what",
        codes=RedundancyKind,
    ),
    col(
        "constant_over",
        STRING,
        "steps, branches, or both; known_ahead: depends only on the timestep",
        importance=1,
        codes=Over,
    ),
    col("layers", INT64, "operators that the row stands for", importance=DATA_ONLY),
    col("calls", INT64, "calls in which they ran", importance=3),
    col("minimum_executions", INT64, "calls in which they would have to run", importance=4),
    col("total_ns", NS, "their device time", importance=3),
    col(
        "saved_ns",
        NS,
        "what hoisting saves: lower median of executions * executions beyond the minimum",
    ),
    col(
        "estimated",
        BOOL,
        "whether saved_ns is an upper bound rather than a measurement",
        label="at most",
    ),
    col(
        "evidence",
        STRING,
        "the evidence, as a JSON list of notes",
        importance=15,
        codes=RedundancyEvidence,
    ),
)


# --- Which kinds of commands compute the same thing again, by their place and their inputs.
#
# A trace holds no values: these are rules about models, each with the evidence it goes by.
#
# - conditioning: projections of text, pooled text, sizes or the guidance scale. The same in every
#   step.
# - position: tables of positions and what is cut from them. The same in every step and branch; in
#   an encoder for every prompt.
# - cross-attention: keys and values of an attention to the text. The same in every step.
# - shape arithmetic: integers computed from sizes of tensors. The same in every step and branch.
# - timestep: the timestep's embedding. The same in every branch; known before the first step.
# - modulation: projections of the timestep's vector to shift, scale and gate. Known before the
#   first step; if no pooled text is added to the vector, the same in every branch.


class Redundancy(Struct, frozen=True):
    """Why a kind computes the same again: the `rule`, what the result stays the same `over`, and
    the `evidence`."""

    rule: RedundancyKind
    over: Over
    evidence: tuple[Note, ...]


def _words(names: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|\.)({'|'.join(names.split())})(?:\.|$)")


_CONDITIONING = _words(
    "context_embedder txt_in txt_norm text_embedder caption_projection encoder_hid_proj "
    "guidance_embedder add_embedding add_time_proj caption_norm to_[kv]_ip"
)
_CHANGING = _words("token_refiner time_text_embed timestep_embedder time_proj")
_TIMESTEP = _words("time_proj timestep_embedder time_embedding time_embedder t_embedder time_in")
_POSITION = _words("pos_embed pos_embedder rope rotary_emb rope_embedder")
_OF_ENCODER = _words("position_embedding position_embeddings relative_attention_bias")
_POOLED = _words("text_embedder add_embedding")
_CROSS = re.compile(r"(.*(?:^|\.)(?:attn2|cross_attn))\.(to_[kv])$")
_VECTOR = _words(r"linear silu time_emb_proj (?:img_mod|txt_mod)\.\d+")
_ROWS = 16  # of a vector for each member of a batch; more are tokens


class _Row(Struct, frozen=True):
    """What the rules need to know of a kind; `path` is that of its module, else its layer."""

    submodule: str
    path: str
    op_type: str
    shapes: Shapes | None
    role: str | None
    block: str | None


def redundancies_of(
    kinds: Kinds, roles: pl.DataFrame, denoisers: Sequence[str]
) -> list[Redundancy | None]:
    """Return for each kind why it computes the same again, None without evidence.

    `roles` has one row per kind (`KIND_ROLE`); `denoisers` are the submodules that have steps.
    """
    rows = [*_rows(kinds, roles)]
    queries = {
        (row.submodule, row.path): _tokens(row)
        for row in rows
        if row is not None and row.path.endswith(".to_q")
    }
    pooled = {row.submodule for row in rows if row is not None and _POOLED.search(row.path)}
    paths = {row.submodule for row in rows if row is not None and "." in row.path}
    unknown = pooled | ({row.submodule for row in rows if row is not None} - paths)

    def decide(row: _Row) -> Redundancy | None:
        if row.submodule not in denoisers:
            return _of_encoder(row)
        return _of_denoiser(row, queries, pooled=row.submodule in unknown)

    return [None if row is None else decide(row) for row in rows]


@lru_cache(maxsize=1 << 16)
def module_path(layer: str) -> str:
    """The path of the module that a layer's name says it lies in, else the name itself."""
    parsed = parse_name(layer)
    return (parsed.module_path if parsed else "") or layer


def _rows(kinds: Kinds, roles: pl.DataFrame) -> Iterator[_Row | None]:
    """Yield what the rules need of each kind, None for kinds of the host and of no call."""
    table = kinds.table.with_columns(
        roles.select(pl.col("role").cast(pl.String), pl.col("block").cast(pl.String))
    ).select("submodule", "place", "op_type", "shapes", "role", "block", "host")
    for submodule, place, op_type, shapes, role, block, host in table.iter_rows():
        if submodule is None or host:
            yield None
        else:
            path, given = module_path(place), parse_shapes(shapes)
            yield _Row(submodule, path, op_type or "", given, role, block)


def _of_denoiser(
    row: _Row, queries: dict[tuple[str, str], tuple[int, ...]], *, pooled: bool
) -> Redundancy | None:
    path = row.path
    named = _by_path(row) or _cross_attention(row, queries)
    if named is not None:
        return named
    if _is_shape_arithmetic(row):
        evidence = _notes(RedundancyEvidence.INTEGERS, RedundancyEvidence.NO_DATA)
        return Redundancy(RedundancyKind.SHAPE_ARITHMETIC, Over.STEPS_AND_BRANCHES, evidence)
    if _is_position_table(row):
        table = _POSITION.search(path)
        by_role = _notes(RedundancyEvidence.ROLE_ROPE, RedundancyEvidence.NO_BLOCK)
        evidence = _path(table[1]) if table else by_role
        return Redundancy(RedundancyKind.POSITION, Over.STEPS_AND_BRANCHES, evidence)
    if row.role == "modulation" and _is_projection(row):
        over = Over.AHEAD if pooled else Over.AHEAD_AND_BRANCHES
        evidence = _notes(RedundancyEvidence.ROLE_MODULATION, RedundancyEvidence.ONE_VECTOR)
        return Redundancy(RedundancyKind.MODULATION, over, evidence)
    return None


def _by_path(row: _Row) -> Redundancy | None:
    """Return the redundancy of a kind by its path alone, None if that says nothing."""
    named = _CONDITIONING.search(row.path)
    if named and not _CHANGING.search(row.path[named.end(1) :]):
        return Redundancy(RedundancyKind.CONDITIONING, Over.STEPS, _path(named[1]))
    if timestep := _TIMESTEP.search(row.path):
        over = Over.AHEAD_AND_BRANCHES
        return Redundancy(RedundancyKind.TIMESTEP, over, _path(timestep[1]))
    return None


def _path(name: str) -> tuple[Note, ...]:
    return (Note.of(RedundancyEvidence.PATH, name=name),)


def _notes(*codes: RedundancyEvidence) -> tuple[Note, ...]:
    return tuple(map(Note.of, codes))


def _cross_attention(
    row: _Row, queries: dict[tuple[str, str], tuple[int, ...]]
) -> Redundancy | None:
    """Return the redundancy of keys and values that are of other tokens than the queries, else
    None."""
    cross = _CROSS.match(row.path)
    query = queries.get((row.submodule, f"{cross[1]}.to_q")) if cross else None
    key = _tokens(row)
    if not cross or not query or not key or query == key:
        return None
    tokens = Note.of(RedundancyEvidence.TOKENS, tokens=key[-1], others=query[-1])
    return Redundancy(RedundancyKind.CROSS_ATTENTION, Over.STEPS, (*_path(cross[2]), tokens))


def _of_encoder(row: _Row) -> Redundancy | None:
    named = _OF_ENCODER.search(row.path)
    return Redundancy(RedundancyKind.POSITION, Over.BRANCHES, _path(named[1])) if named else None


def _is_position_table(row: _Row) -> bool:
    """Whether a kind makes or cuts a table of positions: the image is no input of it."""
    if row.block is not None:
        return False
    named = bool(_POSITION.search(row.path))
    if row.role == "rope":  # positions times frequencies; turning queries and keys has it, too
        return named or only_vectors(row.shapes)
    return named and word_of(row.op_type) == "slice"


def _is_shape_arithmetic(row: _Row) -> bool:
    """Whether a kind computes only a few integers, from only integers or shapes."""
    if row.shapes is None or not row.shapes.outputs:
        return False
    given = () if word_of(row.op_type) == "shape" else row.shapes.inputs
    return all(map(_is_small_integer, (*given, *row.shapes.outputs)))


def _is_small_integer(tensor: Tensor) -> bool:
    return tensor.dtype in ("int64", "int32") and len(tensor.dims) <= 1 and tensor.size <= _ROWS


def _is_projection(row: _Row) -> bool:
    """Whether a kind projects one vector per sample, or activates it before; tokens do not
    count."""
    if operation_of(row.op_type).sort not in (Sort.MATMUL, Sort.ACTIVATION):
        return False
    if row.shapes is None or not row.shapes.inputs:
        return bool(_VECTOR.search(row.path))
    rows = _tokens(row)
    return bool(rows) and prod(rows) <= _ROWS


def _tokens(row: _Row) -> tuple[int, ...]:
    """All dims but the last of the first input that is a matrix, () if there is none."""
    inputs = row.shapes.inputs if row.shapes else ()
    return next((tensor.dims[:-1] for tensor in inputs if len(tensor.dims) > 1), ())


# --- Operators that compute the same again, and the time that computing it once would save.
#
# Hoisted out of the loop, a command runs once for all steps (or branches) of a pipeline call:
# `redundancies_of` says which kinds can be hoisted. Equal kinds have equal shapes. Saved is the
# median of a kind's executions times those that need not be, and no more than these took: one slow
# execution promises nothing. For work that is known ahead, and may be computed for all steps as one
# batch, that is an upper bound.


_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_OVER_STEPS = (Over.STEPS, Over.STEPS_AND_BRANCHES)
_OVER_BRANCHES = (Over.BRANCHES, Over.STEPS_AND_BRANCHES, Over.AHEAD_AND_BRANCHES)
_AHEAD_OF_STEPS = (Over.AHEAD, Over.AHEAD_AND_BRANCHES)
_EQUAL_SHAPES, _NO_SHAPES = (
    notes_text([Note.of(code)]).removeprefix("[")
    for code in (RedundancyEvidence.EQUAL_SHAPES, RedundancyEvidence.NO_SHAPES)
)
_ROW = ["submodule", "rule", "over", "pattern"]


class RedundantWork(Struct, frozen=True, eq=False):
    """The `table` (`REDUNDANT_WORK`), and whether each kind's result stays the same from step to
    step, bool [k]."""

    table: pl.DataFrame
    over_steps: npt.NDArray[np.bool_]


@shared
def redundant_work(of: Inputs) -> RedundantWork:
    """Return the work of the selected calls that computes the same again."""
    denoisers = of.calls.filter(pl.col("step") >= 0)["submodule"].cast(pl.String).unique()
    found = redundancies_of(of.kinds, kind_roles(of), denoisers.to_list())
    steps = np.array([i is not None and i.over in _OVER_STEPS for i in found], dtype=np.bool_)
    number = np.flatnonzero([i is not None for i in found])
    if not len(number):
        return RedundantWork(pl.DataFrame(schema=schema(REDUNDANT_WORK)), steps)
    known = [one for one in found if one is not None]
    rows = _executions(of, _known(of.kinds.table[number], known, of.run.info.submodules))
    return RedundantWork(_table(rows), steps)


def _known(
    kinds: pl.DataFrame, found: Sequence[Redundancy], submodules: Mapping[str, Submodule]
) -> pl.DataFrame:
    """One row per kind that computes the same again, with rule, evidence and pattern of its
    layer."""
    table = kinds.select("kind", "submodule", "layer", "place", "op_type", "shapes")
    places = zip(found, table["submodule"], table["place"], strict=True)
    evidence = [notes_text((*one.evidence, *_class(submodules, *at))) for one, *at in places]
    return table.with_columns(
        rule=pl.Series([one.rule.value for one in found]),
        over=pl.Series([one.over.value for one in found]),
        evidence=pl.Series(evidence),
        pattern=pl.Series([_NUMBER.sub("*", module_path(place)) for place in table["place"]]),
    )


def _class(submodules: Mapping[str, Submodule], submodule: str, place: str) -> tuple[Note, ...]:
    """The class of a place's module, as a part of the evidence."""
    known = submodules.get(submodule)
    name = known.modules.get(module_path(place)) if known else None
    return (Note.of(RedundancyEvidence.CLASS, name=name),) if name else ()


def _executions(of: Inputs, known: pl.DataFrame) -> pl.DataFrame:
    """One row per call and kind that computes the same again. `minimum_executions` is whether it
    must run there: in the first call of the pipeline call, and of its branch if that makes a
    difference."""
    calls, ran = of.calls, of.call_kinds
    of_calls = calls.select(
        "start_ns",
        call=pl.int_range(pl.len(), dtype=pl.Int64),
        branch=pl.col("branch").cast(pl.String),
        pipeline=pl.Series(of.pipelines.number_of(calls)),
    )
    executed = pl.DataFrame({"call": ran.call, "kind": ran.kind, "busy": ran.busy})
    rows = (
        executed.with_columns(pl.col("kind").cast(pl.Int32))
        .join(known, on="kind")
        .join(of_calls, on="call", how="left")
    )
    branch = pl.when(~pl.col("over").is_in(_OVER_BRANCHES)).then(pl.col("branch"))
    return (
        rows.with_columns(branch=branch)
        .sort("start_ns", "call", "kind")
        .with_columns(
            minimum_executions=pl.struct("kind", "pipeline", "branch").is_first_distinct()
        )
    )


def _table(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per submodule, rule, and layer with numbers as *."""
    merged = rows.group_by(_ROW, maintain_order=True).agg(
        layers=pl.col("layer").n_unique(),
        first_layer=pl.col("layer").first(),
        calls=pl.col("call").n_unique(),
        minimum_executions=pl.col("call").filter("minimum_executions").n_unique(),
        total_ns=pl.col("busy").sum(),
        evidence=pl.col("evidence").sort_by("busy").last(),
        shapes=pl.col("shapes").is_not_null().any(),
    )
    types = texts_by_time(rows, _ROW, "op_type", "op_types", "busy")
    shapes = pl.when("shapes").then(pl.lit(_EQUAL_SHAPES)).otherwise(pl.lit(_NO_SHAPES))
    table = (
        merged.join(types, on=_ROW, how="left")
        .join(_saved(rows), on=_ROW, how="left")
        .with_columns(
            pl.col("op_types").fill_null(""),
            layer=pl.when(pl.col("layers") == 1)
            .then(pl.col("first_layer"))
            .otherwise(pl.col("pattern")),
            constant_over=pl.col("over"),
            estimated=pl.col("over").is_in(_AHEAD_OF_STEPS),
            evidence=pl.format("{}, {}", pl.col("evidence").str.strip_suffix("]"), shapes),
        )
        .filter(pl.col("saved_ns") > 0)
        .sort(["saved_ns", "submodule", "layer"], descending=[True, False, False])
    )
    return table.select(pl.col(n).cast(t) for n, t in schema(REDUNDANT_WORK).items())


def _saved(rows: pl.DataFrame) -> pl.DataFrame:
    """Return what hoisting saves (`saved_ns`) by row of the table. Of an even number of executions
    the median is the lower of the middle two: of two, a slow one does not count."""
    median = pl.col("busy").quantile(0.5, interpolation="lower")
    again = pl.col("busy").filter(~pl.col("minimum_executions"))
    kinds = rows.group_by(*_ROW, "kind").agg(
        saved_ns=pl.min_horizontal(median.cast(pl.Int64) * again.len(), again.sum())
    )
    return kinds.group_by(_ROW).agg(pl.col("saved_ns").sum())


# --- The table of operators that are computed again.


TABLES = (
    Table(
        name="redundant_work",
        row="one group of operators that is recomputed although its inputs are the same",
        section="guidance",
        columns=REDUNDANT_WORK,
        make=lambda of: redundant_work(of).table,
        title="Computed again",
        about="Rows are in order of the time that hoisting would save, largest first. "
        "[steps.md](steps.md#redundant-work) describes the rules.",
        rank=("-saved_ns",),
    ),
)


# --- Rules about operators that compute the same again.


_MATERIAL_AHEAD = 2 * MATERIAL  # its saving is an upper bound


def recomputed(analysis: Analysis) -> Iterator[Finding]:
    """Operators compute in every step, or for both branches, what they had computed already."""
    return _of_redundant_work(analysis, "recomputed", estimated=False, least=MATERIAL)


def _recomputed(found: Finding) -> Words:
    title = said("{submodule} recomputes what does not change: {saved_share} of the run")
    if is_no_gain(found, "saved_ns"):
        title = said("{submodule} recomputes what does not change")
    return Words(
        title=title,
        caveat="This is inferred from names, classes and shapes, not from values: compare the "
        "outputs of two steps before hoisting.",
        recommendation="Compute what no step changes once, before the loop (projected text, rotary "
        "tables, keys and values of the text); export with fixed shapes, so that arithmetic on "
        "shapes folds away.",
    )


_RECOMPUTED = Rule(
    recomputed,
    _recomputed,
    "Compute once, before the loop, what no step changes",
    section="guidance",
)


def known_ahead(analysis: Analysis) -> Iterator[Finding]:
    """Modulation and embeddings of the timestep could be computed for all steps at once."""
    return _of_redundant_work(analysis, "known_ahead", estimated=True, least=_MATERIAL_AHEAD)


def _known_ahead(found: Finding) -> Words:
    title = said(
        "{submodule} projects each timestep in its own step, although all are known before "
        "the loop: at most {saved_share} of the run"
    )
    if is_no_gain(found, "saved_ns"):
        title = said(
            "{submodule} projects each timestep in its own step, although all are known before "
            "the loop"
        )
    return Words(
        title=title,
        caveat="The saving is an upper bound: one batch of all steps takes longer than one step. "
        "The tables take memory and are valid for one schedule, and for one prompt where pooled "
        "text is added.",
        recommendation="Compute shift, scale and gate of all steps as one batch before the loop, "
        "and index them by step.",
    )


_KNOWN_AHEAD = Rule(
    known_ahead,
    _known_ahead,
    "Compute shift, scale and gate of all steps as one batch before the loop",
    section="guidance",
)
RULES = (_RECOMPUTED, _KNOWN_AHEAD)


def _of_redundant_work(
    analysis: Analysis, rule: str, *, estimated: bool, least: float
) -> Iterator[Finding]:
    """A finding for each submodule that would save at least the share `least` of the run."""
    total = end_to_end_ns(analysis)
    rows = analysis.redundant_work.filter(pl.col("estimated") == estimated)
    rows = scaled(analysis, rows, "saved_ns")
    for (submodule,), some in rows.group_by("submodule", maintain_order=True):
        saved = float(some["saved_ns"].sum())
        part = share(saved, total)
        if part < least:
            continue
        first = some.sort("saved_ns", descending=True)
        launches = (some["layers"] * (some["calls"] - some["minimum_executions"])).sum()
        yield Finding(
            rule=rule,
            evidence={
                "saved_ns": round(saved),
                "saved_share": part,
                "operators": int(some["layers"].sum()),
                "what": tuple(map(RedundancyKind, first["rule"].unique(maintain_order=True))),
                "most": first["layer"][0],
                "most_is": RedundancyKind(first["rule"][0]),
                "speaks_for_it": notes_from(first["evidence"][0], RedundancyEvidence),
            },
            where=calls_of(analysis, str(submodule), layer=first["layer"][0]),
            cost_ns=round(saved),
            effect=Effect((str(submodule),), saved, float(launches)),
        )


# --- Sentences about redundant work.


SENTENCES: Sentences = {
    RedundancyKind: {RedundancyKind.CROSS_ATTENTION: "cross-attention"},
    Over: {
        Over.STEPS_AND_BRANCHES: "steps, branches",
        Over.AHEAD_AND_BRANCHES: "known ahead, branches",
    },
    RedundancyEvidence: {
        RedundancyEvidence.PATH: "path {name}",
        RedundancyEvidence.CLASS: "class {name}",
        RedundancyEvidence.TOKENS: "{tokens} tokens where to_q has {others}",
        RedundancyEvidence.NO_BLOCK: "in no block",
    },
}
