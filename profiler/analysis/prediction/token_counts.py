"""Which numbers in the shapes of a submodule are numbers of an image's or a video's tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import product

from msgspec import Struct

__all__ = ["Tokens", "token_counts"]

_FRAMES = 4  # different numbers of latent frames that are looked at
_Dims = tuple[int, ...]


class Tokens(Struct, frozen=True):
    """Dims that may be numbers of tokens: those right `ahead` of channels, `inner` ones that are
    neither first nor last, among them of heads, and those among which attention is `mixed`."""

    ahead: frozenset[int]
    inner: frozenset[int]
    mixed: frozenset[int]

    @classmethod
    def of(cls, shapes: Iterable[_Dims], channels: Collection[int], mixed: Iterable[int]) -> Tokens:
        """Those of `shapes` without rows and columns."""
        shapes = list(shapes)
        rows = [tuple(dim for dim in dims if dim != 1) for dims in shapes]
        ahead = frozenset(d[-2] for d in rows if len(d) in (2, 3) and d[-1] in channels)
        inner = ahead | {dim for d in shapes for dim in d[1:-1]}
        return cls(ahead, inner, frozenset(mixed))


def token_counts(
    grids: Mapping[_Dims, _Dims],
    seen: Collection[_Dims],
    tokens: Tokens,
    shapes: Collection[_Dims],
) -> dict[int, int]:
    """Numbers of tokens by those they had, of the `grids` (new by old) that have tokens.

    Of grids that no tensor has as rows and columns (they are not `seen`), as where the host packs
    patches, only the largest has tokens: a number that a smaller one has is of something else.
    """
    batches = _batches(shapes)
    have: list[tuple[_Dims, int]] = []
    for grid, count in product(grids, sorted(_frames(shapes, grids, batches))):
        was = grid[0] * grid[1] * count
        if was in tokens.inner and any(was * batch in tokens.ahead for batch in batches):
            have.append((grid, count))
    largest = max((grid for grid, _ in have), key=lambda grid: grid[0] * grid[1], default=None)
    found: dict[int, int] = {}
    for grid, count in have:
        if grid not in seen and grid != largest:
            continue
        was, becomes = (rows * columns * count for rows, columns in (grid, grids[grid]))
        joined = sorted({one - was for one in tokens.mixed} & tokens.ahead)
        for text, batch in product((0, *joined), sorted(batches)):
            found.setdefault((was + text) * batch, (becomes + text) * batch)
    return found


def _frames(
    shapes: Collection[_Dims], grids: Mapping[_Dims, _Dims], batches: Collection[int]
) -> set[int]:
    """One, and the latent frames that most tensors of videos have: ahead of rows and columns, or
    flattened with the batch."""
    on_grid = [dims for dims in shapes if dims[-2:] in grids]
    ahead = Counter(dims[-3] for dims in on_grid if len(dims) > 4)
    flat = Counter(dims[0] for dims in on_grid if len(dims) == 4)
    flattened = product((count for count, _ in flat.most_common(_FRAMES)), batches)
    return {
        1,
        *(count for count, _ in ahead.most_common(_FRAMES)),
        *(count // batch for count, batch in flattened if count % batch == 0),
    }


def _batches(shapes: Collection[_Dims]) -> set[int]:
    """One, and the first dims that most tensors of three dims or more, and of videos, have."""
    ranks = (Counter(dims[0] for dims in shapes if len(dims) > rank) for rank in (2, 4))
    most = (max(sizes, key=lambda n: (sizes[n], -n), default=1) for sizes in ranks)
    return {1, *most}
