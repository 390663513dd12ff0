"""How an operation may be cut, and how many parts it gets: by their number or by their bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["CannotSplitError", "SmallEnough", "Target", "Way", "ways_in_order"]


class CannotSplitError(Exception):
    """An operation cannot be split; the message is the reason, without the operation's name."""


class SmallEnough(Exception):  # nothing is wrong
    """An operation has no more bytes than asked for, and stays as it is."""


@dataclass(frozen=True, slots=True)
class Way:
    """One axis by which an operation can be cut.

    `what` names what lies on the axis (`columns`, `heads`), `size` how many there are, None where
    only a run tells. `cut_bytes` has the largest tensor that is cut, `kept_bytes` the largest that
    every part takes whole; None where that is not known. `make` gets the lengths of the portions
    and rewrites the graph; it raises CannotSplitError before it has changed anything.
    """

    what: str
    size: int | None
    cut_bytes: int | None
    kept_bytes: int | None
    make: Callable[[list[int]], Any]


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked for: `parts` of each operation, or at most `max_bytes` a part."""

    parts: int | None = None
    max_bytes: int | None = None

    def lengths(self, way: Way) -> list[int]:
        """Portions of the way's axis, as even as can be.

        Raises CannotSplitError and SmallEnough.
        """
        if way.size is None:
            raise CannotSplitError(f"how many {way.what} it has is only known when it runs")
        count = self._count(way, way.size) if self.parts is None else min(self.parts, way.size)
        if count < 2:
            raise CannotSplitError(f"it has too few {way.what}: {way.size}")
        least, longer = divmod(way.size, count)
        return [least + (position < longer) for position in range(count)]

    def _count(self, way: Way, size: int) -> int:
        """How many portions have at most `max_bytes` each."""
        assert self.max_bytes is not None
        if way.cut_bytes is None or way.kept_bytes is None:
            raise CannotSplitError(
                "its bytes are only known when it runs: give --size for its symbolic dimensions, "
                "or --parts"
            )
        if max(way.cut_bytes, way.kept_bytes) <= self.max_bytes:
            raise SmallEnough
        if way.kept_bytes > self.max_bytes:
            raise CannotSplitError(
                f"each part by {way.what} would need an operand of {way.kept_bytes} bytes whole"
            )
        fitting = self.max_bytes * size // way.cut_bytes
        if not fitting:
            each = -(-way.cut_bytes // max(size, 1))
            raise CannotSplitError(f"a part by {way.what} has at least {each} bytes")
        return -(-size // fitting)


def ways_in_order(target: Target, ways: Sequence[Way]) -> list[tuple[Way, list[int]]]:
    """The ways that are possible and their portions: those that reach the number of parts asked
    for, in their order, then those with most parts. Raises CannotSplitError with the reasons where
    there is none, and SmallEnough."""
    possible, reasons = [], []
    for way in ways:
        try:
            possible.append((way, target.lengths(way)))
        except CannotSplitError as reason:
            reasons.append(str(reason))
    if not possible:
        raise CannotSplitError("; ".join(dict.fromkeys(reasons)))
    if target.parts is not None:
        possible.sort(key=lambda found: -len(found[1]))  # stable
    return possible
