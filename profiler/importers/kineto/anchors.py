"""Calls of a diffusion pipeline whose trace has no modules, guessed from its operators.

- A text encoder begins with an embedding of 20,000 rows or more, with the blocking copy of its
  tokens where that comes directly before it. It ends with the last operator that launched a kernel
  before the next begin, or before a blocking call that comes when a dozen matrix products have run;
  what puts encoded prompts together is the pipeline's.
- A VAE decoder begins with a convolution from 4…32 channels and ends with one to 3. Decoders of
  frames that follow each other are one: video is decoded in chunks.
- A denoiser begins by embedding latents: a convolution from 4…32 channels, or a product of 64 rows
  or more that widens 16…128 features eight times; it ends where as many come out again. Where
  nothing embeds latents around all that `torch.compile` compiled, its outermost regions are the
  denoiser.

Without a decoder it is no diffusion, and nothing is guessed. What lies in the capture of a graph
did not run, and what ran directly before for the same capture was its warm-up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter

import numpy as np
from msgspec import Struct, structs

from profiler.importers.kineto.calls import CallRange, Ran
from profiler.importers.kineto.graph_capture import Window, capture_windows
from profiler.importers.kineto.host_marks import (
    Convolution,
    HostMarks,
    Product,
    begun,
    host_marks,
    within,
)
from profiler.kineto.trace_file import KinetoTrace

__all__ = ["anchored_calls"]

_LATENT = range(4, 33)  # channels
_IMAGE = 3  # channels
_PACKED = range(16, 129)  # features of a patch of latents
_TOKENS = 64  # rows of latents, at least
_WIDER = 8  # times, from a patch to the width of a transformer
_MANY_CONVOLUTIONS = 10  # of a UNet; a transformer has one, of its patches
_LAYERED = 12  # products, two layers of an encoder: what waits before lies within it
_AHEAD_NS = 1_000_000  # of an embedding, at which the copy of its tokens may lie
_BETWEEN = 8  # operators from a decoder's first, narrow convolution to the one that widens
_LAYOUT = frozenset(
    f"aten::{name}"
    for name in ("reshape", "contiguous", "clone", "einsum", "permute", "flatten", "cat", "clamp_")
)
"""What puts the results of a last layer into their places."""

_PUT_TOGETHER = frozenset(
    f"aten::{name}"
    for name in ("cat", "pad", "stack", "repeat", "zeros", "new_zeros", "zeros_like", "randn")
)
"""What a pipeline makes of encoded prompts, and its first noise: of no submodule."""


class _Range(Struct, frozen=True):
    """Of a call, with how many inputs it had at once, 0 where not known."""

    start_ns: int
    end_ns: int
    inputs: int = 0


def anchored_calls(trace: KinetoTrace) -> list[CallRange]:
    """The calls in order of time; none where nothing decodes an image."""
    rows = trace.rows_of("cpu_op")
    convolving = rows[trace.events.named(rows, "aten::convolution".__eq__)]
    windows = capture_windows(trace)
    for marks in host_marks(trace, np.unique(trace.thread[convolving]).tolist()):
        decoders = _decoders(marks)
        if decoders:
            here = [window for window in windows if window.thread == marks.thread]
            edges = _edges(marks, here)
            denoisers = _denoisers(marks, decoders, edges)
            stops = [one.start_ns for one in denoisers] + [begin for begin, _ in decoders]
            calls = _encoders(marks, sorted(stops + edges))
            ranges = [(one.start_ns, one.end_ns) for one in denoisers]
            calls += _named(marks, denoisers, "denoiser", _denoiser_class(marks, ranges))
            calls += _named(marks, _with_images(marks, decoders), "vae", "Decoder")
            calls.sort(key=lambda call: call.start_ns)
            return list(_captured(calls, here))
    return []


def _named(
    marks: HostMarks, ranges: Sequence[_Range], instance: str, class_name: str
) -> list[CallRange]:
    return [
        CallRange(
            marks.thread,
            one.start_ns,
            one.end_ns,
            instance,
            class_name,
            is_autoencoder=instance == "vae",
            modules=(),
            told=False,
            guessed=True,
            inputs=one.inputs,
        )
        for one in ranges
    ]


def _edges(marks: HostMarks, windows: Sequence[Window]) -> list[int]:
    """Begins and ends of the captures of whole parts: of those in which something begins."""
    begins = sorted(
        [one.start_ns for one in marks.convolutions if one.channels in _LATENT] + _embedded(marks)
    )
    held = [
        window
        for window in windows
        if bisect_left(begins, window.start_ns) < bisect_left(begins, window.end_ns)
    ]
    return sorted(time for window in held for time in (window.start_ns, window.end_ns))


def _captured(calls: Sequence[CallRange], windows: Sequence[Window]) -> Iterator[CallRange]:
    """The calls, with what was captured, and what warmed up for it: the calls of the same part
    since the capture before, or since one of another part."""
    ranges = [(window.start_ns, window.end_ns) for window in windows]
    holds = [within(call.start_ns, ranges) for call in calls]
    upcoming = ""
    found: list[CallRange] = []
    for call, inside in zip(reversed(calls), reversed(holds), strict=True):
        if inside:
            upcoming = call.instance
            ran = Ran.CAPTURED
        elif call.instance == upcoming:
            ran = Ran.WARM_UP
        else:
            upcoming = ""
            ran = Ran.EXECUTED
        found.append(structs.replace(call, ran=ran))
    yield from reversed(found)


def _decoders(marks: HostMarks) -> list[tuple[int, int]]:
    """From the last convolution of latents before one to an image, to that one."""
    eager = [one for one in marks.convolutions if not within(one.start_ns, marks.regions)]
    embedded = _embedded(marks)
    found: list[tuple[int, int]] = []
    chunk_before = False  # whether the last decoder was of frames, and nothing began since
    begin: tuple[int, Convolution] | None = None
    for place, one in enumerate(eager):
        if one.channels in _LATENT and one.results > _LATENT[-1]:
            begin = (_first(marks, eager, place), one)
            chunk_before &= begin[0] == one.start_ns
        elif one.results == _IMAGE and begin is not None:
            end = _laid_out(marks, one.end_ns)
            since = found[-1][1] if found else begin[0]
            begun_since = bisect_left(embedded, since) < bisect_left(embedded, begin[0])
            if chunk_before and one.video and not begun_since:
                found[-1] = (found[-1][0], end)
            else:
                found.append((begin[0], end))
            chunk_before, begin = one.video, None
    return found


def _with_images(marks: HostMarks, decoders: Sequence[tuple[int, int]]) -> list[_Range]:
    """Decoders with the images that each decoded at once."""
    images = {one.end_ns: one.batch for one in marks.convolutions if one.results == _IMAGE}
    ends = sorted(images)
    return [
        _Range(begin, end, images[ends[bisect_right(ends, end) - 1]]) for begin, end in decoders
    ]


def _first(marks: HostMarks, convolutions: Sequence[Convolution], place: int) -> int:
    """When a decoder began: with a convolution of latents to latents where one comes directly
    before the one that widens them."""
    one = convolutions[place]
    if place:
        before = convolutions[place - 1]
        narrow = before.channels == before.results == one.channels
        if narrow and marks.launching(before.end_ns, one.start_ns) <= _BETWEEN:
            return before.start_ns
    return one.start_ns


def _embedded(marks: HostMarks) -> list[int]:
    """When products embedded latents, and when tokens were embedded, ascending."""
    latents = [one.start_ns for one in marks.products if _embeds(one)]
    return sorted([*latents, *(begin for begin, _ in marks.embeddings)])


def _denoisers(
    marks: HostMarks, decoders: Sequence[tuple[int, int]], edges: Sequence[int]
) -> list[_Range]:
    """From what embeds latents to where as many features come out, or to the next begin; compiled
    regions before the last decoder where these are not all in such ranges."""
    begins = _embedding_latents(marks, decoders)
    stops = sorted([one.start_ns for one in begins] + [begin for begin, _ in decoders])
    stops = sorted([*stops, *edges, *(begin for begin, _ in marks.embeddings)])
    found = []
    for one in begins:
        place = bisect_right(stops, one.start_ns)
        limit = stops[place] if place < len(stops) else marks.end_ns + 1
        end = _come_out(marks, one, limit)
        found.append(_Range(one.start_ns, end or marks.last_end(one.start_ns, limit), one.batch))
    last = decoders[-1][0]
    regions = [region for region in marks.regions if region[0] < last]
    ranges = [(one.start_ns, one.end_ns) for one in found]
    if all(within(begin, ranges) for begin, _ in regions):
        return found
    return [_Range(*region) for region in regions if not within(region[0], decoders)]


def _embedding_latents(
    marks: HostMarks, decoders: Sequence[tuple[int, int]]
) -> Sequence[Convolution] | Sequence[Product]:
    """What embeds latents for a denoiser: convolutions, or products where no convolution does."""
    aside = [*marks.regions]
    convolutions = [
        one
        for one in marks.convolutions
        if one.channels in _LATENT
        and one.results > _LATENT[-1]
        and not within(one.start_ns, aside)
        and not within(one.start_ns, decoders)
    ]
    if convolutions:
        return convolutions
    found: list[Product] = []
    since = 0  # place of the last one found
    for place, one in enumerate(marks.products):
        if not _embeds(one) or within(one.start_ns, aside) or within(one.start_ns, decoders):
            continue
        if (found and not _layers(marks, since, place)) or _of_an_adapter(marks, place):
            continue
        found.append(one)
        since = place
    return found


def _layers(marks: HostMarks, first: int, last: int) -> bool:
    """Whether the layers of a denoiser ran from one product on and before another, both of which
    embed latents, by their places: many products, a compiled region, or what comes out at the end.
    A ControlNet embeds its condition directly behind the latents."""
    if last - first >= _LAYERED:
        return True
    one, other = marks.products[first], marks.products[last]
    came_out = any(each.results == one.features for each in marks.products[first + 1 : last])
    region = bisect_right(marks.regions, one.start_ns, key=itemgetter(0))
    compiled = region < len(marks.regions) and marks.regions[region][0] < other.start_ns
    return came_out or compiled


def _embeds(one: Product) -> bool:
    wide = one.results >= _WIDER * one.features
    return one.features in _PACKED and wide and one.rows >= _TOKENS


def _of_an_adapter(marks: HostMarks, place: int) -> bool:
    """Whether a product widens again what the one directly before narrowed, to what a layer before
    both has made of the same rows, as LoRA does."""
    if place < 2:
        return False
    layer, before, one = marks.products[place - 2 : place + 1]
    narrowed = before.results == one.features and layer.results == one.results
    directly = marks.before(one.start_ns) <= marks.before(before.end_ns)
    return narrowed and directly and layer.rows == before.rows == one.rows


def _come_out(marks: HostMarks, first: Convolution | Product, limit_ns: int) -> int:
    """When what was embedded came out again, in its place: the last time before `limit_ns`; 0 where
    it did not. A denoiser that estimates variances has twice as many results."""
    if isinstance(first, Convolution):
        sizes = {first.patch, 2 * first.patch}
        channels = {first.channels, 2 * first.channels}
    else:
        sizes, channels = {first.features, 2 * first.features}, set()
    products = begun(marks.products, first.start_ns, limit_ns)
    convolutions = begun(marks.convolutions, first.start_ns, limit_ns)
    ends = [one.end_ns for one in products if one.results in sizes]
    ends += [one.end_ns for one in convolutions if one.results in channels]
    return min(_laid_out(marks, max(ends)), limit_ns) if ends else 0


def _laid_out(marks: HostMarks, end_ns: int) -> int:
    """The end of what lays out results that were ready at a time."""
    place = bisect_left(marks.begins, end_ns)
    while place < len(marks.begins) and marks.names[place] in _LAYOUT:
        end_ns = marks.ends[place]
        place += 1
    return end_ns


def _denoiser_class(marks: HostMarks, denoisers: Sequence[tuple[int, int]]) -> str:
    if not denoisers:
        return ""
    begin, end = denoisers[0]
    inside = sum(begin <= one.start_ns < end for one in marks.convolutions)
    return "UNet" if inside >= _MANY_CONVOLUTIONS else "Transformer"


def _encoders(marks: HostMarks, stops: Sequence[int]) -> list[CallRange]:
    """Text encoders: from each embedding of tokens to the next anchor or blocking call."""
    calls: list[CallRange] = []
    outside = [one for one in marks.embeddings if not within(one[0], marks.regions)]
    begins = sorted([*(begin for begin, _ in outside), *stops])
    for begin, size in outside:
        at = bisect_left(marks.blocking, begin) - 1
        before = marks.blocking[at] if at >= 0 else begin
        place = bisect_right(begins, begin)
        reached = begins[place - 2] if place > 1 else 0  # nothing is of two parts
        first = before if begin - before <= _AHEAD_NS and before >= reached else begin
        limit = begins[place] if place < len(begins) else marks.end_ns
        end = marks.last_end(begin, _blocked(marks, begin, limit), _PUT_TOGETHER)
        name = f"embedding {size}"
        calls.append(
            CallRange(
                marks.thread, first, end, name, "TextEncoder", False, (), told=False, guessed=True
            )
        )
    return calls


def _blocked(marks: HostMarks, begin_ns: int, limit_ns: int) -> int:
    """The first blocking call behind two layers of an encoder, or `limit_ns`. Where no layers are
    seen the first one of all."""
    products = begun(marks.products, begin_ns - 1, limit_ns)
    layered = products[_LAYERED - 1].end_ns if len(products) >= _LAYERED else begin_ns
    place = bisect_right(marks.blocking, layered)
    return min(marks.blocking[place], limit_ns) if place < len(marks.blocking) else limit_ns
