"""The scenario of a prediction: steps, batch, precision, guidance, placement, order.

It is checked against the run before any prediction.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.analysis.flop_shapes import Family, Tensor
from profiler.analysis.flops import CallCosts, KindCost, Ratio, Scaled, work_of
from profiler.analysis.role_kernel_names import Sort, operation_of
from profiler.errors import InputError
from profiler.prediction.workload import ORDERS, Order, Tokens, Workload, token_counts
from profiler.text import NoteCode
from profiler.trace.events import device_kind
from profiler.trace.manifest_fields import Generation

# --- Codes of predictions: closed sets.


class Assumption(NoteCode):
    """An assumption of a prediction."""

    OVERHEAD_CORRECTED = "overhead_corrected"  # factors: notes OVERHEAD_RATIO
    OVERHEAD_RATIO = "overhead_ratio"
    AS_TRACED = "as_traced"
    AS_TRACED_ELSEWHERE = "as_traced_elsewhere"
    AS_TRACED_AT = "as_traced_at"
    OVERLAPPING_CALLS = "overlapping_calls"
    ALONE = "alone"
    WITHOUT_SUBMODULES = "without_submodules"
    WITHOUT_GUIDANCE = "without_guidance"
    HALF_BATCH_MEASURED = "half_batch_measured"
    HALF_BATCH_ESTIMATED = "half_batch_estimated"
    TIMES_BATCH = "times_batch"
    ANOTHER_SIZE = "another_size"
    SAME_PRECISION = "same_precision"
    PRECISION_BY_RATES = "precision_by_rates"
    PRODUCTS_ALONE = "products_alone"
    SHARE_OF_STEPS = "share_of_steps"  # submodules: notes STEPS_OF
    STEPS_OF = "steps_of"
    SHARES_MULTIPLY = "shares_multiply"  # submodules: notes SHARE_OF_ALL, SHARE_OF_BATCHED
    SHARE_OF_ALL = "share_of_all"
    SHARE_OF_BATCHED = "share_of_batched"
    AS_MANY_LAUNCHES = "as_many_launches"
    HOST_AS_RECORDED = "host_as_recorded"
    HOST_UNTRACED = "host_untraced"
    HOST_WITH_STACKS = "host_with_stacks"
    HALF_BATCH_ON_DEVICE = "half_batch_on_device"
    PRECISION_ON_DEVICE = "precision_on_device"
    ONE_LAUNCH = "one_launch"
    NOT_CAPTURED = "not_captured"
    GRAPHS_KEEP = "graphs_keep"
    STALLS_STAY = "stalls_stay"
    FOLLOWED = "followed"
    FOLLOWED_WITHOUT = "followed_without"
    FUSED = "fused"
    SPANS_OF_CALLS = "spans_of_calls"
    INSTANCES_SEEN = "instances_seen"  # models: notes INSTANCES_OF
    INSTANCES_OF = "instances_of"
    NO_BATCHES = "no_batches"
    OTHER_REQUESTS = "other_requests"


class Reason(NoteCode):
    """A reason of a replayed request's time."""

    LESS_WORK = "less_work"
    HIDDEN_WORK = "hidden_work"
    LAUNCH_BOUND = "launch_bound"
    WITH_GRAPHS = "with_graphs"


class Unknown(NoteCode):
    """Something that a prediction does not know."""

    HALF_BATCH_GUESSED = "half_batch_guessed"
    BATCH_GUESSED = "batch_guessed"
    SIZE_GUESSED = "size_guessed"
    ACTIVATIONS_AS_RECORDED = "activations_as_recorded"
    WORK_OF_OPERATORS = "work_of_operators"
    PRECISION_OF = "precision_of"
    CALLS_OUTSIDE = "calls_outside"
    DROPPED = "dropped"
    NO_LAUNCHES = "no_launches"
    SCATTER = "scatter"
    SCATTER_BEYOND_ESTIMATES = "scatter_beyond_estimates"
    SCATTER_OF_CALLS = "scatter_of_calls"
    SCATTER_OF_RUNS = "scatter_of_runs"
    SCATTER_OF_SINGLE = "scatter_of_single"


class PlacementNote(NoteCode):
    """A note on devices and on what is placed on them."""

    NO_TRANSFER_TIME = "no_transfer_time"
    NO_INTERFERENCE = "no_interference"
    LIKE_OTHER_DEVICE = "like_other_device"
    LIKE_OTHER_CPU = "like_other_cpu"
    OTHER_HARDWARE = "other_hardware"
    LAUNCHES_ELSEWHERE = "launches_elsewhere"
    WEIGHTS_UNKNOWN = "weights_unknown"
    ACTIVATIONS_UNKNOWN = "activations_unknown"
    TOO_LARGE = "too_large"
    SEARCH_CUT = "search_cut"


# --- The size of a run's images or videos, and the size to predict.


MOST_PIXELS = 16_384  # a side
_MULTIPLE = 8  # sides must be multiples of it, as of latents
_LEAST = 4  # rows and columns: smaller ones are kernels
_SIZE = re.compile(r"(\d{1,6})(?:[x×](\d{1,6}))?")


class ImageSize(Struct, frozen=True):
    """Width and height in pixels."""

    width: int
    height: int

    @property
    def area(self) -> int:
        """The number of pixels."""
        return self.width * self.height

    def __str__(self) -> str:
        return f"{self.width}×{self.height}"


def parse_size(text: str) -> ImageSize:
    """Parse `1024x768`, width first; `512` is a square. Raises InputError for anything else."""
    found = _SIZE.fullmatch(text.strip())
    sides = [int(side) for side in found.groups(default=found[1])] if found else []
    if not sides or not all(_MULTIPLE <= side <= MOST_PIXELS for side in sides):
        raise InputError(
            f"--size {text!r} is no size in pixels: write 512, or WIDTHxHEIGHT such as 832x480, "
            f"sides of {_MULTIPLE} to {MOST_PIXELS:,}"
        )
    if any(side % _MULTIPLE for side in sides):
        raise InputError(
            f"--size {text} is no size that latents have: give multiples of {_MULTIPLE} pixels"
        )
    return ImageSize(*sides)


def recorded_size(
    generations: Iterable[Generation], numbers: Collection[int], decoded: Iterable[KindCost]
) -> ImageSize | None:
    """The size of the images of the pipeline calls `numbers`: from their settings, or the decoder's
    output (`decoded` are the kinds of its commands) if that is larger. It is smaller if the decoder
    works in tiles. None if neither is known; raises InputError if sizes differ."""
    by_setting, written = size_by_settings(generations, numbers), size_by_decoder(decoded)
    if by_setting is None or written is None:
        return by_setting or written
    return written if written.area > by_setting.area else by_setting


def size_by_settings(
    generations: Iterable[Generation], numbers: Collection[int]
) -> ImageSize | None:
    """The image size in the settings of the pipeline calls `numbers`, None if they have none.
    Raises InputError if their sizes differ."""
    sizes = {
        ImageSize(one.width, one.height)
        for one in generations
        if one.width and one.height and (not one.pipelines or {*one.pipelines} & {*numbers})
    }
    if len(sizes) > 1:
        text = ", ".join(sorted(map(str, sizes)))
        raise InputError(
            f"the pipeline calls made images of several sizes ({text}), so another one cannot be "
            "predicted from all of them: choose a call with --pipeline"
        )
    return next(iter(sizes), None)


def size_by_decoder(kinds: Iterable[KindCost]) -> ImageSize | None:
    """The largest rows and columns that a convolution of a decoder writes, which are its image's.
    None if no convolution's output is known."""
    sizes = [
        tensor.dims[-2:]
        for kind in kinds
        if kind.work is not None and kind.work.family == Family.CONVOLUTION
        for tensor in kind.work.writes or ()
        if len(tensor.dims) > 3 and min(tensor.dims[-2:]) >= _LEAST
    ]
    if not sizes:
        return None
    height, width = max(sizes, key=lambda size: (size[0] * size[1], size))
    return ImageSize(width, height)


# --- Another floating-point type: what calls would take, by the rates of their device.


PRECISIONS = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8",
    "fp64": "float64",
}
# The types that "float8" may mean: the first of these in the device's profile.
_FLOAT8 = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
_IN_FLOAT8 = (Sort.MATMUL, Sort.CONVOLUTION)  # the rest needs kernels of its own
_ON_GPU = ("float32", "bfloat16", "float16")
# The types that benchmark-device measures, by kind of device.
_MEASURED = {"cpu": ("float32",), "cuda": _ON_GPU, "rocm": _ON_GPU}


def precision(text: str) -> str:
    """The full name of a type (`float16` for `fp16`, or itself; `float8` is whichever the device
    has). Raises InputError for another text."""
    known = {**PRECISIONS, **{name: name for name in (*PRECISIONS.values(), *_FLOAT8)}}
    if text.strip().lower() not in known:
        raise InputError(f"--precision {text!r} is no type: write one of {', '.join(PRECISIONS)}")
    return known[text.strip().lower()]


def main_type(costs: CallCosts) -> str | None:
    """The floating-point type in which most of the time was spent, None if none is known."""
    times: Counter[str] = Counter()
    for kind in costs.kinds:
        found = kind.work.dtype if kind.work is not None else ""
        types = [found, *(tensor.dtype for tensor in kind.tensors)]
        floating = [name for name in types if name.startswith(("float", "bfloat"))]
        if floating:
            times[floating[0]] += round(kind.total_ns)
    return times.most_common(1)[0][0] if times else None


def at_precision(costs: CallCosts, device: str, dtype: str, overhead_ratio: float) -> Ratio:
    """The ratio of time in type `dtype` to time in the calls' own type. In 8 bits products alone
    run: attention and norms stay in that type.

    Raises InputError if the device's profile does not have the rates of both types.
    """
    now = main_type(costs)
    if now is None:
        raise InputError(f"the types of the operators on {device} are not in the trace")
    if now == dtype or (dtype == PRECISIONS["fp8"] and now in _FLOAT8):
        return Ratio(1.0, 1.0, 1.0)
    profile = costs.profile
    rates = profile.peak_flops if profile is not None else {}
    if dtype == PRECISIONS["fp8"]:
        dtype = next((name for name in _FLOAT8 if name in rates), dtype)
    missing = [name for name in dict.fromkeys((now, dtype)) if name not in rates]
    if missing:
        raise InputError(
            f"the rate of {device} for {' and '.join(missing)} is not known, so --precision cannot "
            f"be answered: {_advice(device, missing, (now, dtype))}"
        )
    faster = rates[now] / rates[dtype]
    width = _width(dtype) / _width(now)

    def scale(kind: KindCost) -> Scaled:
        if dtype in _FLOAT8 and operation_of(kind.op_type or "").sort not in _IN_FLOAT8:
            return Scaled(1.0, 1.0)
        if kind.work is None:
            return Scaled(width, 1.0, known=False, least=min(width, 1.0))
        if kind.work.dtype != now:
            return Scaled(1.0, 1.0)
        whole = sum(t.nbytes or 0 for t in kind.tensors)
        less = sum((t.nbytes or 0) * (width if t.dtype == now else 1.0) for t in kind.tensors)
        return Scaled(faster, less / whole if whole else width, alike=False)

    return costs.ratio(scale, overhead_ratio)


def _advice(device: str, missing: Sequence[str], both: Sequence[str]) -> str:
    """Say how to get missing rates: measure with `benchmark-device`, or give a device profile."""
    measured = _MEASURED.get(device_kind(device), ())
    if all(name in measured for name in missing):
        return "measure it with `profile-sd3 benchmark-device`"
    names = " and ".join(_FLOAT8[0] if name == PRECISIONS["fp8"] else name for name in both)
    return f"give a --device-profile whose peak_flops has {names}, with the maker's figures"


def _width(dtype: str) -> float:
    return float(Tensor(dtype, (1,)).nbytes or 1)


# --- The time of calls with images of another size: each operator's work with resized shapes.
#
# A grid is the image, its latents or their patches: the image's height and width, halved some
# times. The two last dims of a tensor (or the two before its channels) that equal a grid become
# those of the new size. A number of tokens is that of a grid, for videos times the latent frames,
# alone or with the text that is joined to it (`T + L`, if there are also tensors of `L` tokens), of
# one image or of the batch. A grid has tokens if its number is followed by channels (`[2, 4096,
# 1536]`); channels are the dims of weights and biases. Weights stay as they are. A grid whose rows
# and columns no tensor has, because the host packs patches, has tokens only if it is the largest:
# `[1, 512, 3072]` is text, though 512 are 16 × 32.
#
# A number may be both: FLUX at 1024 × 768 pixels has 3,072 patches of 3,072 channels. A last dim
# then counts as channels, except in operators that mix tokens (softmax, products without weights).
#
# With its new shapes the work of an operator follows from the same formulas (`analysis.work`):
# products grow with the tokens, attention with their square. An operator without a formula is
# assumed to grow as its largest tensor does.


_HALVINGS = 8  # of the image: 3 to latents, 1 or 2 to patches, some within a UNet
_PADS = (0, 1, 2)  # rows and columns of padding before a convolution
_FEW = 64  # channels of a group that are flattened with a grid
_FLAT = 4096  # elements: fewer may be channels
_SAME = Scaled(1.0, 1.0)
_Dims = tuple[int, ...]


def resized(
    costs: CallCosts, old: ImageSize, new: ImageSize, overhead_ratio: float
) -> tuple[Ratio, Ratio] | None:
    """The ratios of the calls' time and of their device time with images of `new` size; None if no
    operator has the shape of an image of `old` size."""
    resizing = Resizing.of(costs.kinds, old, new)
    if not resizing.grids:
        return None
    known = {id(kind): _scaled(kind, resizing) for kind in costs.kinds}
    scale: Callable[[KindCost], Scaled] = lambda kind: known[id(kind)]  # noqa: E731
    wall, busy = costs.ratio(scale, overhead_ratio), costs.on_device.ratio(scale)
    return _by_caches(costs, wall, resizing.area), _by_caches(costs, busy, resizing.area)


def _by_caches(costs: CallCosts, ratio: Ratio, area: float) -> Ratio:
    """Widen a ratio for caches: with less work a processor may also be less efficient, because its
    threads share fewer rows."""
    if area == 1.0:
        return ratio
    ratio = costs.beyond_caches(ratio, grows=area > 1.0)
    if area > 1.0:
        return ratio
    most = costs.beyond_caches(ratio, grows=True).high
    return replace(ratio, high=max(min(most, 1.0), ratio.high))


class Resizing(Struct, frozen=True):
    """How the shapes of a submodule change, new by old: `grids` are rows and columns, `counts`
    numbers of tokens; `channels` stay; `area` is new over old pixels."""

    grids: Mapping[_Dims, _Dims]
    counts: Mapping[int, int]
    channels: frozenset[int]
    area: float

    @classmethod
    def of(cls, kinds: Iterable[KindCost], old: ImageSize, new: ImageSize) -> Resizing:
        """Infer the resizing from the tensors of a submodule."""
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
        """Return `kind` with its resized shapes and work; itself if they stay."""
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
        """The positions of dims that are numbers of tokens, without the batch."""
        last = len(dims) - 1
        first = 1 if last > 1 and dims[1] != 1 else 0  # ahead of it is a batch
        found = {place for place in range(first, last) if dims[place] in self.counts}
        if self._last_of_tokens(dims, mixes):
            found.add(last)
        if mixes:
            return found
        return {p for p in found if dims[p] not in self.channels or not self._channels_at(dims, p)}

    def _last_of_tokens(self, dims: _Dims, mixes: bool) -> bool:
        """Whether the last dim counts tokens: in attention scores, and behind channels, as in the
        keys of attention."""
        before, last = dims[-2:]
        if last not in self.counts:
            return False
        if before == last:
            return mixes or len(dims) > 3 or last not in self.channels
        return before not in self.counts and (mixes or last not in self.channels)

    def _channels_at(self, dims: _Dims, place: int) -> bool:
        """Whether a number that may be tokens or channels means channels at this place: last,
        except in scores, or second if tokens (`[1, 512, 16384]`) or 1 × 1 pixels are behind it."""
        behind = dims[place + 1 :]
        if len(dims) < 4:
            return not behind or self._tokens_only(behind[0])
        return place == 1 and set(behind) == {1}

    def _first_of_tokens(self, dims: _Dims) -> bool:
        """Whether the first dim counts tokens, as in attention along the frames of a video (`[8192,
        16, 320]`: 2 × 64 × 64 patches, 16 frames)."""
        return len(dims) > 2 and self._tokens_only(dims[0])

    def _flattened(self, dim: int) -> bool:
        """Whether a dim is a grid flattened with some channels."""
        if dim < _FLAT or dim in self.channels:
            return False
        sizes = (rows * columns for rows, columns in self.grids)
        return any(dim % size == 0 and dim // size <= _FEW for size in sizes)


def _grids(old: ImageSize, new: ImageSize) -> dict[_Dims, _Dims]:
    """The image's rows and columns, halved repeatedly and also padded: new by old."""
    found: dict[_Dims, _Dims] = {}
    for pad, halvings in product(_PADS, range(_HALVINGS)):
        rows, columns, *others = (
            -(-size // (1 << halvings)) for size in (old.height, old.width, new.height, new.width)
        )
        if min(rows, columns) >= _LEAST:
            found.setdefault((rows + pad, columns + pad), (others[0] + pad, others[1] + pad))
    return found


def _place(dims: _Dims, grids: Mapping[_Dims, _Dims]) -> int | None:
    """The position of the last two adjacent dims that equal a grid, or None."""
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
    """The dims of weights and of one-dimensional tensors, which are channels."""
    alone = (t.dims for t, weights in tensors if weights or len(t.dims) == 1)
    return frozenset(dim for dims in alone for dim in dims)


def _mixing(kind: KindCost) -> tuple[Tensor, ...]:
    """The tensors of an attention or softmax; empty for other kinds."""
    families = (Family.ATTENTION, Family.SOFTMAX)
    return kind.tensors if kind.work is not None and kind.work.family in families else ()


def _mixes(kind: KindCost) -> bool:
    """Whether a kind mixes tokens: attention, a softmax, or a product without weights. A product of
    two squares does not count: states with as many channels as tokens, and weights expanded to the
    batch."""
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


# --- The scenario: how the predicted request differs from the run, checked against the run.


MOST_STEPS = 10_000
MOST_CONCURRENT = 1_000
MOST_BATCH = 1_000
GUIDED = ("uncond", "negative_prompt", "skip_layers", "batched")  # branches that guidance adds


class Scenario(Struct, frozen=True):
    """The changes to predict; fields with their default change nothing.

    `guidance` False is without classifier-free and skip-layer guidance. `drop` are submodules that
    are not called, `place` is where submodules go, `precision` a floating-point type by its full
    name. `concurrency` is the number of requests in flight, `order` how their tasks wait for one
    another, `devices` where the best placement is searched (empty: the run's), `memory` its bytes
    by device, "" for all that are not named. `cuda_graph` makes each call of a submodule one
    launch, `follow` names findings (`rule`, or `rule:submodule`) to apply. `untraced_ns` is the
    time of the unchanged request without the profiler, None if not known; then the host is as slow
    as recorded. `batch` is a factor on the images or videos per request, `size` their new size.
    """

    steps: int | None = None
    guidance: bool = True
    drop: tuple[str, ...] = ()
    place: Mapping[str, str] = field(default_factory=dict)
    precision: str | None = None
    concurrency: int | None = None
    order: Order | None = None
    devices: tuple[str, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict)
    cuda_graph: bool = False
    follow: tuple[str, ...] = ()
    untraced_ns: int | None = None
    batch: int | None = None
    size: ImageSize | None = None

    @property
    def changes_calls(self) -> bool:
        """Whether the scenario changes the calls of a request or their times."""
        given = (self.steps, self.precision, self.batch, self.size, self.untraced_ns)
        switched = self.cuda_graph or not self.guidance
        return switched or bool(self.drop or self.follow) or any(one is not None for one in given)

    @property
    def simulates(self) -> bool:
        """Whether the scenario needs a simulation of requests on devices."""
        return bool(
            self.place or self.concurrency or self.devices or self.memory or self.order is not None
        )


def parse_places(texts: Iterable[str]) -> dict[str, str]:
    """Parse `text_encoder_3=cpu:1`, several with commas. Raises InputError for anything else."""
    found: dict[str, str] = {}
    for text in texts:
        for part in text.split(","):
            submodule, equals, device = (word.strip() for word in part.partition("="))
            if not (submodule and equals and device):
                raise InputError(
                    f"--place {part.strip()!r} is no placement: write SUBMODULE=DEVICE, such as "
                    "text_encoder_3=cpu:1"
                )
            if submodule in found:
                raise InputError(f"--place names {submodule} twice: give it once")
            found[submodule] = device
    return found


def check(scenario: Scenario, workload: Workload) -> None:
    """Raise InputError if the workload cannot answer the scenario."""
    for option, given, what, most in (
        ("--steps", scenario.steps, "steps", MOST_STEPS),
        ("--concurrency", scenario.concurrency, "requests", MOST_CONCURRENT),
        ("--batch", scenario.batch, "times as many", MOST_BATCH),
    ):
        if given is not None and not 0 < given <= most:
            raise InputError(
                f"{option} {given} is no number of {what}: give one from 1 to {most:,}"
            )
    if scenario.order is not None and scenario.order not in ORDERS:
        raise InputError(f"--order {scenario.order!r} is no order: give {' or '.join(ORDERS)}")
    if scenario.precision is not None:
        precision(scenario.precision)
    _check_steps(scenario, workload)
    if scenario.batch is not None and not _grows(workload):
        raise InputError(
            "the run has no denoising steps, so which of its work a larger batch adds to is not "
            "known: leave out --batch"
        )
    _check_submodules(scenario, workload)
    branches = {task.branch for task in workload.tasks}
    if not scenario.guidance and not branches & {*GUIDED}:
        raise InputError(
            "the run is without guidance: it has no call for a negative prompt and no batched one, "
            "so leave out --guidance off"
        )


def _grows(workload: Workload) -> bool:
    """Whether a larger batch adds to the work of a submodule: of one in or after the steps."""
    return any(task.submodule is not None for task in (*workload.step, *workload.decode))


def _check_steps(scenario: Scenario, workload: Workload) -> None:
    if scenario.steps is not None and not workload.steps:
        raise InputError("the run has no denoising steps, so leave out --steps")
    steady = min((task.steady_ns.shape[1] for task in workload.step), default=0)
    if (scenario.steps or 1) > 1 and not steady and scenario.steps != workload.steps:
        raise InputError(
            "the run has one step, which pays for what happens once, so more cannot be predicted: "
            "record a run of at least two"
        )


def _check_submodules(scenario: Scenario, workload: Workload) -> None:
    known = ", ".join(workload.submodules)
    for option, names in (("--drop", scenario.drop), ("--place", scenario.place)):
        for name in names:
            if name not in workload.submodules:
                raise InputError(f"{option} {name!r} is no submodule that the run called: {known}")
    both = [name for name in scenario.place if name in scenario.drop]
    if both:
        raise InputError(f"--place and --drop both name {both[0]}: give one of them")
    if {*scenario.drop} >= {*workload.submodules}:
        raise InputError(f"--drop leaves nothing to run: keep one of {known}")
