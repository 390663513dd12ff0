"""Which kinds of commands compute the same thing again, by where they are and what they take.

A trace holds no values: these are rules about models, each with the evidence it goes by.

- conditioning: projections of text, pooled text, sizes or the guidance scale. The same in every
  step.
- position: tables of positions and what is cut from them. The same in every step and branch; in an
  encoder for every prompt.
- cross-attention: keys and values of an attention to the text. The same in every step.
- shape arithmetic: integers computed from sizes of tensors. The same in every step and branch.
- timestep: the timestep's embedding. The same in every branch; known before the first step.
- modulation: projections of the timestep's vector to shift, scale and gate. Known before the first
  step; where no pooled text is added to the vector, the same in every branch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod

import polars as pl
from msgspec import Struct

from profiler.analysis.denoise.codes import Over, RedundancyEvidence, RedundancyKind
from profiler.analysis.distinct_commands import Kinds
from profiler.analysis.roles.operations import Sort, operation_of, word_of
from profiler.analysis.roles.tensors import only_vectors
from profiler.analysis.work.shapes import Shapes, Tensor, parse_shapes
from profiler.grammars.names import parse_name
from profiler.text import Note

__all__ = ["Redundancy", "module_path", "redundancies_of"]


class Redundancy(Struct, frozen=True):
    """Why a kind computes the same again: `rule`, what it is the same `over`, and `evidence`."""

    rule: RedundancyKind
    over: Over
    evidence: tuple[Note, ...]


def _words(*names: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|\.)({'|'.join(names)})(?:\.|$)")


_CONDITIONING = _words(
    "context_embedder",
    "txt_in",
    "txt_norm",
    "text_embedder",
    "caption_projection",
    "encoder_hid_proj",
    "guidance_embedder",
    "add_embedding",
    "add_time_proj",
    "caption_norm",
    "to_[kv]_ip",
)
_CHANGING = _words("token_refiner", "time_text_embed", "timestep_embedder", "time_proj")
_TIMESTEP = _words(
    "time_proj", "timestep_embedder", "time_embedding", "time_embedder", "t_embedder", "time_in"
)
_POSITION = _words("pos_embed", "pos_embedder", "rope", "rotary_emb", "rope_embedder")
_OF_ENCODER = _words("position_embedding", "position_embeddings", "relative_attention_bias")
_POOLED = _words("text_embedder", "add_embedding")
_CROSS = re.compile(r"(.*(?:^|\.)(?:attn2|cross_attn))\.(to_[kv])$")
_VECTOR = _words("linear", "silu", "time_emb_proj", r"(?:img_mod|txt_mod)\.\d+")
_ROWS = 16  # of a vector for each member of a batch; more are tokens


class _Row(Struct, frozen=True):
    """What decides about a kind."""

    submodule: str
    place: str
    op_type: str
    shapes: Shapes | None
    role: str | None
    block: str | None

    @property
    def path(self) -> str:
        """The path of its module, else its layer."""
        return module_path(self.place)


def redundancies_of(
    kinds: Kinds, roles: pl.DataFrame, denoisers: Sequence[str]
) -> list[Redundancy | None]:
    """For each kind why it computes the same again, None where nothing says so.

    `roles` has a row a kind (`KIND_ROLE`); `denoisers` are the submodules that have steps.
    """
    rows = [*_rows(kinds, roles)]
    queries = {
        (row.submodule, row.path): _tokens(row)
        for row in rows
        if row is not None and row.path.endswith(".to_q")
    }
    pooled = {row.submodule for row in rows if row is not None and _POOLED.search(row.path)}
    paths = {row.submodule for row in rows if row is not None and "." in row.path}
    found: list[Redundancy | None] = []
    for row in rows:
        if row is None:
            found.append(None)
        elif row.submodule in denoisers:
            unknown = row.submodule in pooled or row.submodule not in paths
            found.append(_of_denoiser(row, queries, pooled=unknown))
        else:
            found.append(_of_encoder(row))
    return found


@lru_cache(maxsize=1 << 16)
def module_path(layer: str) -> str:
    """The path of the module that a layer's name says it lies in, else the name itself."""
    parsed = parse_name(layer)
    return (parsed.module_path if parsed else "") or layer


def _rows(kinds: Kinds, roles: pl.DataFrame) -> Iterator[_Row | None]:
    """The kinds, None for those of the host and of no call."""
    table = kinds.table.with_columns(
        roles.select(pl.col("role").cast(pl.String), pl.col("block").cast(pl.String))
    ).select("submodule", "place", "op_type", "shapes", "role", "block", "host")
    for submodule, place, op_type, shapes, role, block, host in table.iter_rows():
        if submodule is None or host:
            yield None
        else:
            yield _Row(submodule, place, op_type or "", parse_shapes(shapes), role, block)


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
    """What its path alone says."""
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
    """Keys and values of other tokens than the queries."""
    cross = _CROSS.match(row.path)
    query = queries.get((row.submodule, f"{cross[1]}.to_q")) if cross else None
    key = _tokens(row)
    if not cross or not query or not key or query == key:
        return None
    tokens = Note.of(RedundancyEvidence.TOKENS, tokens=key[-1], others=query[-1])
    return Redundancy(RedundancyKind.CROSS_ATTENTION, Over.STEPS, (*_path(cross[2]), tokens))


def _of_encoder(row: _Row) -> Redundancy | None:
    named = _OF_ENCODER.search(row.path)
    if named:
        return Redundancy(RedundancyKind.POSITION, Over.BRANCHES, _path(named[1]))
    return None


def _is_position_table(row: _Row) -> bool:
    """Whether it makes a table of positions, or cuts one: it takes nothing of the image."""
    if row.block is not None:
        return False
    named = bool(_POSITION.search(row.path))
    if row.role == "rope":  # positions times frequencies; turning queries and keys has it, too
        return named or only_vectors(row.shapes)
    return named and word_of(row.op_type) == "slice"


def _is_shape_arithmetic(row: _Row) -> bool:
    """Whether it gives nothing but a few integers, from nothing but integers or shapes."""
    if row.shapes is None or not row.shapes.outputs:
        return False
    given = () if word_of(row.op_type) == "shape" else row.shapes.inputs
    return all(map(_is_small_integer, (*given, *row.shapes.outputs)))


def _is_small_integer(tensor: Tensor) -> bool:
    return tensor.dtype in ("int64", "int32") and len(tensor.dims) <= 1 and tensor.size <= _ROWS


def _is_projection(row: _Row) -> bool:
    """Whether it projects one vector a sample, or activates it before: no tokens."""
    if operation_of(row.op_type).sort not in (Sort.MATMUL, Sort.ACTIVATION):
        return False
    if row.shapes is None or not row.shapes.inputs:
        return bool(_VECTOR.search(row.path))
    rows = _tokens(row)
    return bool(rows) and prod(rows) <= _ROWS


def _tokens(row: _Row) -> tuple[int, ...]:
    """All dims but the last of the first matrix that it takes, () where there is none."""
    inputs = row.shapes.inputs if row.shapes else ()
    return next((tensor.dims[:-1] for tensor in inputs if len(tensor.dims) > 1), ())
