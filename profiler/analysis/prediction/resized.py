"""What calls take with images of another size: the work of each operator by its shapes, resized.

A grid is the image, its latents or their patches: the image's height and width, halved some times.
Two last dims of a tensor (or the two ahead of its channels) that are those of a grid become those
of the other size. A number of tokens is that of a grid, for videos times the latent frames, alone
or with the text that is joined to it (`T + L`, where `L` tokens stand somewhere, too), one image's
or the batch's. Which grids have tokens is seen where channels stand behind them (`[2, 4096, 1536]`)
and channels are what weights and biases have. Weights stay as they are. A grid whose rows and
columns no tensor has, as where the host packs patches, has tokens only if it is the largest:
`[1, 512, 3072]` is text, though 512 are 16 × 32.

A number may be both: FLUX at 1024 × 768 pixels has 3,072 patches of 3,072 channels. A last dim is
then one of channels, but for operators that mix tokens (softmax, products without weights).

With its new shapes the work of an operator follows from the same formulas (`analysis.work`):
products grow with the tokens, attention with their square. Where there is no formula an operator
is taken to grow as its largest tensor does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from profiler.analysis.prediction.image_sizes import ImageSize
from profiler.analysis.prediction.token_counts import Tokens, token_counts
from profiler.analysis.roofline.call_costs import CallCosts, KindCost, Ratio, Scaled
from profiler.analysis.work.formulas import work_of
from profiler.analysis.work.registry import Family
from profiler.analysis.work.shapes import Tensor

__all__ = ["Resizing", "resized"]

_HALVINGS = 8  # of the image: 3 to latents, 1 or 2 to patches, some within a UNet
_PADS = (0, 1, 2)  # rows and columns that are added ahead of a convolution
_LEAST = 4  # rows and columns of a grid: less is a kernel
_FEW = 64  # channels of a group that are flattened with a grid
_FLAT = 4096  # elements: fewer may be channels
_SAME = Scaled(1.0, 1.0)
_Dims = tuple[int, ...]


def resized(
    costs: CallCosts, old: ImageSize, new: ImageSize, overhead_ratio: float
) -> tuple[Ratio, Ratio] | None:
    """What calls take of their time, and of their device time, with images of `new` size; None
    where no operator has the shape of an image of `old` size."""
    resizing = Resizing.of(costs.kinds, old, new)
    if not resizing.grids:
        return None
    known = {id(kind): _scaled(kind, resizing) for kind in costs.kinds}
    scale: Callable[[KindCost], Scaled] = lambda kind: known[id(kind)]
    wall, busy = costs.ratio(scale, overhead_ratio), costs.on_device.ratio(scale)
    return _by_caches(costs, wall, resizing.area), _by_caches(costs, busy, resizing.area)


def _by_caches(costs: CallCosts, ratio: Ratio, area: float) -> Ratio:
    """A processor may also do less work less well: its threads share fewer rows."""
    if area == 1.0:
        return ratio
    ratio = costs.beyond_caches(ratio, grows=area > 1.0)
    if area > 1.0:
        return ratio
    most = costs.beyond_caches(ratio, grows=True).high
    return replace(ratio, high=max(min(most, 1.0), ratio.high))


class Resizing(Struct, frozen=True):
    """How the shapes of a submodule change: `grids` are rows and columns, `counts` numbers of
    tokens, by those they had; `channels` stay; `area` is new over old pixels."""

    grids: Mapping[_Dims, _Dims]
    counts: Mapping[int, int]
    channels: frozenset[int]
    area: float

    @classmethod
    def of(cls, kinds: Iterable[KindCost], old: ImageSize, new: ImageSize) -> Resizing:
        """What their tensors tell."""
        tensors = [pair for kind in kinds if kind.work is not None for pair in _tensors(kind)]
        channels = _channels(tensors)
        moving = [tensor.dims for tensor, weights in tensors if not weights]
        every = _grids(old, new)
        mixed = {d for kind in kinds for t in _mixing(kind) for d in t.dims[1:]}
        placed = {d: _place(d, every) for d in moving}
        tokens = Tokens.of([d for d in moving if placed[d] is None], channels, mixed)
        seen = {d[p : p + 2] for d, p in placed.items() if p is not None}
        counts = token_counts(every, seen, tokens, moving)
        used = {grid for grid in every if grid in seen or grid[0] * grid[1] in counts}
        return cls(
            grids={grid: every[grid] for grid in used},
            counts=counts,
            channels=channels,
            area=new.area / old.area,
        )

    def kind(self, kind: KindCost) -> KindCost:
        """It with the shapes and the work that it has then; itself where they stay."""
        mixes = _mixes(kind)
        both = [(t, t if weights else self._tensor(t, mixes)) for t, weights in _tensors(kind)]
        if kind.shapes is None or all(old == new for old, new in both):
            return kind
        others, count = tuple(new for _, new in both), len(kind.shapes.inputs)
        outputs = None if kind.shapes.outputs is None else others[count:]
        shapes = replace(kind.shapes, inputs=others[:count], outputs=outputs)
        work = work_of(kind.op_type, shapes) if kind.work is not None else None
        return replace(kind, shapes=shapes, work=work)

    def _tensor(self, tensor: Tensor, mixes: bool) -> Tensor:
        on_grid = None if mixes else self._on_grid(tensor.dims)  # scores of 16 frames are 16 x 16
        dims = on_grid or self._of_tokens(tensor.dims, mixes)
        return tensor if dims == tensor.dims else tensor.like(*dims)

    def _on_grid(self, dims: _Dims) -> _Dims | None:
        place = _place(dims, self.grids)
        if place is None or any(self._tokens_only(d) for d in dims[1:place]):
            return None
        return (*dims[:place], *self.grids[dims[place : place + 2]], *dims[place + 2 :])

    def _tokens_only(self, dim: int) -> bool:
        return dim in self.counts and dim not in self.channels

    def _of_tokens(self, dims: _Dims, mixes: bool) -> _Dims:
        if len(dims) < 2:
            return dims
        places = self._places_of_tokens(dims, mixes)
        if not places and self._first_of_tokens(dims):
            places = {0}
        found = [self.counts[d] if place in places else d for place, d in enumerate(dims)]
        if len(dims) - 1 not in places and self._flattened(dims[-1]):
            found[-1] = max(round(dims[-1] * self.area), 1)
        return tuple(found)

    def _places_of_tokens(self, dims: _Dims, mixes: bool) -> set[int]:
        """The places of numbers of tokens behind the batch."""
        last = len(dims) - 1
        first = 1 if last > 1 and dims[1] != 1 else 0  # ahead of it is a batch
        found = {place for place in range(first, last) if dims[place] in self.counts}
        if self._last_of_tokens(dims, mixes):
            found.add(last)
        if mixes:
            return found
        return {p for p in found if dims[p] not in self.channels or not self._channels_at(dims, p)}

    def _last_of_tokens(self, dims: _Dims, mixes: bool) -> bool:
        """Whether a last dim is of tokens: those of scores are, and those behind channels, as in
        the keys of attention."""
        before, last = dims[-2:]
        if last not in self.counts:
            return False
        if before == last:
            return mixes or len(dims) > 3 or last not in self.channels
        return before not in self.counts and (mixes or last not in self.channels)

    def _channels_at(self, dims: _Dims, place: int) -> bool:
        """Whether a number of tokens that is one of channels, too, is that at this place: last but
        in scores, or second where tokens (`[1, 512, 16384]`) or 1 × 1 pixels stand behind it."""
        behind = dims[place + 1 :]
        if len(dims) < 4:
            return not behind or self._tokens_only(behind[0])
        return place == 1 and set(behind) == {1}

    def _first_of_tokens(self, dims: _Dims) -> bool:
        """Whether a first dim is of tokens: those of attention along the frames of a video are
        (`[8192, 16, 320]`: 2 × 64 × 64 patches, 16 frames)."""
        return len(dims) > 2 and self._tokens_only(dims[0])

    def _flattened(self, dim: int) -> bool:
        """Whether it is of a grid flattened with some of its channels."""
        if dim < _FLAT or dim in self.channels:
            return False
        sizes = (rows * columns for rows, columns in self.grids)
        return any(dim % size == 0 and dim // size <= _FEW for size in sizes)


def _grids(old: ImageSize, new: ImageSize) -> dict[_Dims, _Dims]:
    """The image's rows and columns, halved and halved again, also padded; new by old."""
    found: dict[_Dims, _Dims] = {}
    for pad, halvings in product(_PADS, range(_HALVINGS)):
        rows, columns, *others = (
            -(-size // (1 << halvings)) for size in (old.height, old.width, new.height, new.width)
        )
        if min(rows, columns) >= _LEAST:
            found.setdefault((rows + pad, columns + pad), (others[0] + pad, others[1] + pad))
    return found


def _place(dims: _Dims, grids: Mapping[_Dims, _Dims]) -> int | None:
    """Where two dims of a tensor are those of a grid: the last such."""
    places = range(len(dims) - 2, 0, -1)
    return next((place for place in places if dims[place : place + 2] in grids), None)


def _tensors(kind: KindCost) -> Iterator[tuple[Tensor, bool]]:
    """Inputs and outputs of a command, and whether each is weights."""
    if kind.shapes is None:
        return
    weights = _weights(kind)
    for place, tensor in enumerate(kind.shapes.inputs):
        yield tensor, place in weights
    for tensor in kind.shapes.outputs or ():
        yield tensor, False


def _weights(kind: KindCost) -> frozenset[int]:
    """The places of the inputs that are weights or biases."""
    inputs = kind.shapes.inputs if kind.shapes else ()
    found = {place for place, tensor in enumerate(inputs) if place and len(tensor.dims) == 1}
    family = kind.work.family if kind.work else None
    if family == Family.CONVOLUTION:
        found.add(1)
    elif family == Family.MATMUL:
        adds = any(name in (kind.op_type or "") for name in ("addm", "baddbmm"))  # c + a @ b
        right = 2 if adds else 1
        if right < len(inputs) and len(inputs[right].dims) == 2:
            found.add(right)
    return frozenset(found)


def _channels(tensors: Iterable[tuple[Tensor, bool]]) -> frozenset[int]:
    """The dims of weights and of what has a single one."""
    alone = (t.dims for t, weights in tensors if weights or len(t.dims) == 1)
    return frozenset(dim for dims in alone for dim in dims)


def _mixing(kind: KindCost) -> tuple[Tensor, ...]:
    """The tensors of attention, of its parts where it runs in parts."""
    families = (Family.ATTENTION, Family.SOFTMAX)
    return kind.tensors if kind.work is not None and kind.work.family in families else ()


def _mixes(kind: KindCost) -> bool:
    """Whether it is one of the parts of attention: a softmax, or a product without weights. Two
    squares are states of as many channels as tokens, and weights expanded to the batch."""
    if kind.work is None or kind.shapes is None:
        return False
    if kind.work.family == Family.MATMUL:
        both = [tensor.dims for tensor in kind.shapes.inputs if tensor.dims]
        return all(len(d) > 2 for d in both) and any(d[-2] != d[-1] for d in both)
    return kind.work.family in (Family.ATTENTION, Family.SOFTMAX)


def _scaled(kind: KindCost, resizing: Resizing) -> Scaled:
    then = resizing.kind(kind)
    if then is kind:
        return _SAME
    new, old = (max(tensor.size for tensor, _ in _tensors(one)) for one in (then, kind))
    grown = new / max(old, 1)
    if then.work is None:
        return Scaled(grown, grown, False, min(grown, 1.0), max(grown, 1.0))
    flops = then.flops / kind.flops if kind.flops else grown
    nbytes = then.nbytes / kind.nbytes if kind.nbytes else grown
    return Scaled(flops, nbytes, True, min(flops, nbytes, 1.0), max(flops, nbytes, 1.0))
