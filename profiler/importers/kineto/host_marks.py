"""What the operators of one thread show of the parts of a diffusion pipeline: convolutions, matrix
products, embeddings of tokens, compiled regions, blocking calls."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec import Struct, field

from profiler.importers.kineto.launch import OPERATORS, RUNTIME, launched_work
from profiler.importers.kineto.layers import input_dims
from profiler.kineto.events import Event
from profiler.kineto.names import is_operator
from profiler.kineto.ranges import Ranges
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s

__all__ = [
    "Convolution",
    "HostMarks",
    "Part",
    "Product",
    "begun",
    "host_marks",
    "launching_operators",
    "within",
]

_VOCABULARY = 20_000  # rows of an embedding of tokens; positions have fewer
_LATENT = range(4, 33)  # channels
_PACKED = range(16, 129)  # features of a patch of latents
_TOKENS = 64  # rows of latents, at least
_WIDER = 8  # times, from a patch to the width of a transformer
_LAYOUT = frozenset(
    f"aten::{name}"
    for name in ("reshape", "contiguous", "clone", "einsum", "permute", "flatten", "cat", "clamp_")
)
"""What puts the results of a last layer into their places."""

_REGION = "Torch-Compiled Region"
_CONVOLUTION = "aten::convolution"
_EMBEDDING = "aten::embedding"
_PRODUCTS = ("aten::linear", "aten::addmm", "aten::mm")
_DIMS = 64  # of a tensor, at most: torch's TensorIterator takes no more
_BLOCKING = frozenset(
    {"hipMemcpyWithStream", "cudaMemcpy", "hipMemcpy", "cudaStreamSynchronize"}
    | {"hipStreamSynchronize", "cudaDeviceSynchronize", "hipDeviceSynchronize"}
)


class Convolution(Struct, frozen=True):
    """`batch` inputs of so many `channels`, whose results have `results`; `patch` are the numbers
    that it reads for one of its results, `video` where its inputs have frames."""

    start_ns: int
    end_ns: int
    batch: int
    channels: int
    results: int
    patch: int
    video: bool

    @property
    def of_latents(self) -> bool:
        """Whether its inputs have as many channels as latents."""
        return self.channels in _LATENT

    @property
    def embeds_latents(self) -> bool:
        """Whether it makes more channels of latents than latents have."""
        return self.of_latents and self.results > _LATENT[-1]


class Product(Struct, frozen=True):
    """`rows` of `features` times a matrix → `rows` of `results`; `batch` as the inputs tell."""

    start_ns: int
    end_ns: int
    batch: int
    rows: int
    features: int
    results: int

    @property
    def embeds_latents(self) -> bool:
        """Whether it makes the width of a transformer of patches of latents."""
        wide = self.results >= _WIDER * self.features
        return self.features in _PACKED and wide and self.rows >= _TOKENS


class Part(NamedTuple):
    """The range of a call, with how many inputs it had at once, 0 where not known."""

    start_ns: int
    end_ns: int
    inputs: int = 0


class HostMarks(Struct, frozen=True):
    """Of one thread, each in order of time: begins, ends and names of outermost operators that
    launched a kernel, times of blocking calls, and what else the module's docstring names. `end_ns`
    is when the last of its operators ended."""

    thread: int
    end_ns: int
    begins: list[int]
    ends: list[int]
    names: list[str]
    blocking: list[int]
    convolutions: list[Convolution] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    regions: list[tuple[int, int]] = field(default_factory=list)
    embeddings: list[tuple[int, str]] = field(default_factory=list)

    def last_end(self, begin_ns: int, limit_ns: int, without: Collection[str] = frozenset()) -> int:
        """When the last operator ended that began from `begin_ns` on and before `limit_ns`, which
        stands where there is none; behind it there may be operators of the names in `without`."""
        index = bisect_left(self.begins, limit_ns) - 1
        while index >= 0 and self.begins[index] > begin_ns and self.names[index] in without:
            index -= 1
        known = index >= 0 and self.begins[index] >= begin_ns
        return min(self.ends[index], limit_ns) if known else limit_ns

    def launching(self, begin_ns: int, end_ns: int) -> int:
        """How many outermost operators began in a range and launched kernels."""
        return bisect_left(self.begins, end_ns) - bisect_left(self.begins, begin_ns)

    def before(self, time_ns: int) -> int:
        """The place of the last operator that launched a kernel and began before a time, or -1."""
        return bisect_left(self.begins, time_ns) - 1

    def laid_out(self, end_ns: int) -> int:
        """The end of what lays out results that were ready at a time."""
        place = bisect_left(self.begins, end_ns)
        while place < len(self.begins) and self.names[place] in _LAYOUT:
            end_ns = self.ends[place]
            place += 1
        return end_ns

    def embedded(self) -> list[int]:
        """When products embedded latents, and when tokens were embedded, ascending."""
        latents = [one.start_ns for one in self.products if one.embeds_latents]
        return sorted([*latents, *(begin for begin, _ in self.embeddings)])


def host_marks(trace: KinetoTrace, threads: Collection[int]) -> Iterator[HostMarks]:
    """The marks of each of these threads, ascending."""
    nested = trace.ranges(trace.rows_of(OPERATORS))
    outer = _launching(trace, nested.outermost())
    telling = nested.select(trace.events.named(nested.row, _tells))
    runtime = trace.rows_of(*RUNTIME)
    blocking = runtime[trace.events.named(runtime, _BLOCKING.__contains__)]
    blocking = blocking[np.lexsort((trace.start_ns[blocking], trace.thread[blocking]))]
    for thread in sorted(threads):
        first, last = np.searchsorted(outer.thread, (thread, thread + 1))
        waits = np.searchsorted(trace.thread[blocking], (thread, thread + 1))
        own = slice(*np.searchsorted(nested.thread, (thread, thread + 1)))
        marks = HostMarks(
            thread,
            end_ns=int(nested.end_ns[own].max(initial=0)),
            begins=outer.start_ns[first:last].tolist(),
            ends=outer.end_ns[first:last].tolist(),
            names=[trace.events.name_of(row) for row in outer.row[first:last].tolist()],
            blocking=trace.start_ns[blocking[slice(*waits)]].tolist(),
        )
        some = slice(*np.searchsorted(telling.thread, (thread, thread + 1)))
        columns = (one[some].tolist() for one in (telling.row, telling.start_ns, telling.end_ns))
        for row, start, end in zip(*columns, strict=True):
            _note(marks, trace.events[row], start, end)
        yield marks


def launching_operators(trace: KinetoTrace) -> Ranges:
    """The outermost operators that launched a kernel, in order of thread and time."""
    rows = trace.rows_of(OPERATORS)
    ranges = (rows, trace.thread[rows], trace.start_ns[rows], trace.end_ns[rows])
    return _launching(trace, Ranges.outermost_of(*ranges))


def _tells(name: str) -> bool:
    return name in (_CONVOLUTION, _EMBEDDING, *_PRODUCTS) or name.startswith(_REGION)


def _launching(trace: KinetoTrace, outer: Ranges) -> Ranges:
    launches = _kernel_launches(trace)
    busy = np.searchsorted(launches, outer.start_ns) < np.searchsorted(launches, outer.end_ns)
    return outer.select(busy & trace.events.named(outer.row, is_operator))


def _kernel_launches(trace: KinetoTrace) -> Int64s:
    """When each kernel was launched, ascending; those that a capture kept from running as well."""
    work, launch = launched_work(trace)
    kernels = trace.events.of_category(work, "kernel")
    runtime = trace.rows_of(*RUNTIME)
    asked = runtime[trace.events.named(runtime, lambda name: "LaunchKernel" in name)]
    return np.sort(trace.start_ns[np.union1d(launch[kernels & (launch >= 0)], asked)])


def _note(marks: HostMarks, event: Event, start: int, end: int) -> None:
    """Add what one operator shows; parents come before what lies in them."""
    if event.name.startswith(_REGION):
        if not marks.regions or start >= marks.regions[-1][1]:
            marks.regions.append((start, end))
        return
    dims = input_dims(event.args)
    if event.name == _CONVOLUTION:
        if len(dims) >= 2 and len(dims[0]) in (4, 5) and len(dims[1]) in (4, 5):
            patch = prod(dims[1][1:])
            batch, channels = dims[0][:2]
            found = Convolution(
                start, end, batch, channels, dims[1][0], patch, video=len(dims[0]) == 5
            )
            marks.convolutions.append(found)
    elif event.name == _EMBEDDING:
        if dims and len(dims[0]) == 2 and dims[0][0] >= _VOCABULARY:
            marks.embeddings.append((start, "x".join(map(str, dims[0]))))
    elif not marks.products or start >= marks.products[-1].end_ns:
        product = _product(event.name, dims, start, end)
        if product is not None:
            marks.products.append(product)


def _product(name: str, dims: list[list[int]], start: int, end: int) -> Product | None:
    """`linear` has its matrix as [results, features], the others as [features, results]."""
    transposed = name == "aten::linear"
    factors = dims[1:3] if name == "aten::addmm" else dims[:2]
    if len(factors) != 2 or len(factors[0]) > _DIMS or len(factors[1]) != 2:
        return None
    one, other = factors
    results = other[0] if transposed else other[1]
    batch = one[0] if len(one) > 2 else 0
    return Product(start, end, batch, prod(one[:-1]), one[-1], results)


_Mark = TypeVar("_Mark", Convolution, Product)


def begun(marks: Sequence[_Mark], after_ns: int, before_ns: int) -> Sequence[_Mark]:
    """Those of marks in order of time that began after one time and before another."""
    first = bisect_right(marks, after_ns, key=_start)
    return marks[first : bisect_left(marks, before_ns, first, key=_start)]


def _start(mark: Convolution | Product) -> int:
    return mark.start_ns


def within(time_ns: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether a time lies in one of ranges that are in order and do not overlap."""
    index = bisect_right(ranges, (time_ns, 1 << 63)) - 1
    return index >= 0 and time_ns < ranges[index][1]
