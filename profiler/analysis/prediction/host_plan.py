"""What the host does in one pipeline call, piece by piece, and what of it a scenario has it do.

Pieces are on the host's axis: a call until it returned. A plan leaves some out and repeats others;
`host_replay` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from profiler.analysis.denoise.batch import BATCHED
from profiler.analysis.prediction.leaving import OWN_CALLS, staying
from profiler.analysis.prediction.pieces import APPLY_GUIDANCE, Piece, PipelinePieces

__all__ = ["dropped", "unguided", "with_steps"]

_Phase = tuple[Piece, ...]


def _mapped(plan: PipelinePieces, change: Callable[[_Phase], _Phase]) -> PipelinePieces:
    return replace(
        plan,
        encode=change(plan.encode),
        steps=tuple(map(change, plan.steps)),
        decode=change(plan.decode),
    )


def _left(leaves: Callable[[Piece], bool]) -> Callable[[_Phase], _Phase]:
    return lambda pieces: staying(pieces, leaves, lambda host, call: host.call == call.call)


def dropped(plan: PipelinePieces, names: Sequence[str]) -> PipelinePieces:
    """Without the calls of some submodules."""
    return _mapped(plan, _left(lambda piece: piece.submodule in names))


def unguided(plan: PipelinePieces) -> PipelinePieces:
    """Without the calls and the work of guidance; what was batched is of the prompt alone."""

    def alone(pieces: _Phase) -> _Phase:
        kept = _left(lambda piece: piece.branch in OWN_CALLS)(pieces)
        return tuple(map(_single, (piece for piece in kept if piece.name != APPLY_GUIDANCE)))

    return _mapped(plan, alone)


def _single(piece: Piece) -> Piece:
    if piece.branch != BATCHED:
        return piece
    return replace(piece, branch="cond", name=f"{piece.submodule}.cond")


def with_steps(plan: PipelinePieces, steps: int) -> PipelinePieces:
    """With so many steps: the first once, the others spread evenly over those after it."""
    return replace(plan, steps=tuple(plan.steps[i] for i in _chosen(len(plan.steps), steps)))


def _chosen(recorded: int, wanted: int) -> list[int]:
    """Which recorded step each of the wanted ones repeats."""
    later = recorded - 1
    return [0, *(1 + place * later // (wanted - 1) for place in range(wanted - 1))]
