"""The tasks of a request: pieces of pipeline calls that are the same in each, with their times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler.analysis.prediction.pieces import Piece, PipelinePieces

__all__ = ["ScaledPieces", "Task"]

_Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One call of a submodule, or the host's time before the next one.

    p pipeline calls were measured. `first_ns` is the time in the first step of each, int64 [p]; of
    what lies in no step it is empty, int64 [0]. `steady_ns` are the times in later steps,
    int64 [p, k]; of what lies in no step its time in each pipeline call, int64 [p, 1]. A step in
    which it did not happen counts as 0 ns.

    `submodule` is None, `device` and `branch` "" for the host's time: pipeline code, and what it
    waited for outside of calls. `of` is then the name of the task that it leads to, "" for none.
    """

    name: str  # "text_encoder_3.prompt", "transformer.cond", "host", "tokenizer_2"
    submodule: str | None
    stage: str
    branch: str
    device: str
    first_ns: _Times
    steady_ns: _Times
    of: str = ""

    @property
    def total_ns(self) -> _Times:
        """Its time in each pipeline call, int64 [p]."""
        total: _Times = self.steady_ns.sum(axis=1)
        return total + self.first_ns if len(self.first_ns) else total


_Key = tuple[str, int, str, str]  # name, which of its name, leading to, stage
_Timed = dict[_Key, tuple[Piece, float]]


@dataclass(frozen=True, slots=True)
class ScaledPieces:
    """Pieces of p pipeline calls, calls multiplied with `factors`, one a row of the run's calls."""

    cut: Sequence[PipelinePieces]
    factors: Sequence[float]

    def tasks(self, phase: str) -> tuple[Task, ...]:
        """The tasks of `encode`, `step` or `decode`."""
        in_steps = phase == "step"
        table = [
            [self._timed(some) for some in (pieces.steps if in_steps else [getattr(pieces, phase)])]
            for pieces in self.cut
        ]
        longest_first = sorted((t for row in table for t in row), key=len, reverse=True)
        order = _merged(longest_first)
        pieces = {key: piece for row in table for timed in row for key, (piece, _) in timed.items()}
        return tuple(self._task(key, pieces[key], table, in_steps=in_steps) for key in order)

    def _timed(self, pieces: Sequence[Piece]) -> _Timed:
        """The pieces of one phase by what they are, with their times, in order."""
        found: _Timed = {}
        counts: dict[str, int] = {}
        of_call = _numbered(pieces)
        for piece in pieces:
            if piece.submodule is None:
                name, number = of_call.get(piece.call, ("", 0))
                key = (piece.name, number, name or "end", piece.stage)
                factor = 1.0
            else:
                number = counts.get(piece.name, 0)
                counts[piece.name] = number + 1
                key = (piece.name, number, "", "")
                factor = self.factors[piece.call]
            before = found[key][1] if key in found else 0.0
            found[key] = (piece, before + piece.duration_ns * factor)
        return found

    def _task(
        self, key: _Key, piece: Piece, table: Sequence[Sequence[_Timed]], *, in_steps: bool
    ) -> Task:
        times = np.array(
            [[round(timed[key][1]) if key in timed else 0 for timed in row] for row in table],
            dtype=np.int64,
        )
        return Task(
            name=piece.name,
            submodule=piece.submodule,
            stage=piece.stage,
            branch=piece.branch,
            device=piece.device,
            first_ns=times[:, 0] if in_steps else np.zeros(0, dtype=np.int64),
            steady_ns=times[:, 1:] if in_steps else times,
            of=key[2] if key[2] != "end" else "",
        )


def _numbered(pieces: Sequence[Piece]) -> dict[int, tuple[str, int]]:
    """The name of each call of a phase, and which of that name it is."""
    counts: dict[str, int] = {}
    found = {}
    for piece in pieces:
        if piece.submodule is not None:
            found[piece.call] = (piece.name, counts.get(piece.name, 0))
            counts[piece.name] = counts.get(piece.name, 0) + 1
    return found


def _merged(sequences: Iterable[Iterable[_Key]]) -> list[_Key]:
    """The keys of all, each once; one that earlier ones lack is directly behind the key before it
    in its own."""
    following: dict[_Key | None, _Key | None] = {None: None}  # None: the begin, and the end
    for keys in sequences:
        previous: _Key | None = None
        for key in keys:
            if key not in following:
                following[key] = following[previous]
                following[previous] = key
            previous = key
    order: list[_Key] = []
    place = following[None]
    while place is not None:
        order.append(place)
        place = following[place]
    return order
