"""Denoisers among the operators of a trace without modules.

A denoiser begins by embedding latents: a convolution from 4…32 channels, or a product of 64 rows
or more that widens 16…128 features eight times; it ends where as many come out again. Where
nothing embeds latents around all that `torch.compile` compiled, its outermost regions are the
denoiser.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

from profiler.importers.kineto.host_marks import (
    Convolution,
    HostMarks,
    Part,
    Product,
    begun,
    within,
)

__all__ = ["denoiser_class", "denoisers_of"]

_MANY_CONVOLUTIONS = 10  # of a UNet; a transformer has one, of its patches
_PRODUCTS_OF_A_BLOCK = 12
"""Matrix products between two that embed latents from which on a block of a denoiser lies between
them. FLUX's have fourteen where text and image are apart; what is embedded beside latents and the
condition of a ControlNet (timestep, guidance and pooled text by two products each, the text by one)
has seven."""


def denoisers_of(
    marks: HostMarks, decoders: Sequence[tuple[int, int]], edges: Sequence[int]
) -> list[Part]:
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
        found.append(Part(one.start_ns, end or marks.last_end(one.start_ns, limit), one.batch))
    last = decoders[-1][0]
    regions = [region for region in marks.regions if region[0] < last]
    ranges = [(one.start_ns, one.end_ns) for one in found]
    if all(within(begin, ranges) for begin, _ in regions):
        return found
    return [Part(*region) for region in regions if not within(region[0], decoders)]


def _embedding_latents(
    marks: HostMarks, decoders: Sequence[tuple[int, int]]
) -> Sequence[Convolution] | Sequence[Product]:
    """What embeds latents for a denoiser: convolutions, or products where no convolution does."""
    aside = [*marks.regions]
    convolutions = [
        one
        for one in marks.convolutions
        if one.embeds_latents
        and not within(one.start_ns, aside)
        and not within(one.start_ns, decoders)
    ]
    if convolutions:
        return convolutions
    found: list[Product] = []
    since = 0  # place of the last one found
    for place, one in enumerate(marks.products):
        if not one.embeds_latents or within(one.start_ns, aside) or within(one.start_ns, decoders):
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
    if last - first >= _PRODUCTS_OF_A_BLOCK:
        return True
    one, other = marks.products[first], marks.products[last]
    came_out = any(each.results == one.features for each in marks.products[first + 1 : last])
    region = bisect_right(marks.regions, one.start_ns, key=itemgetter(0))
    compiled = region < len(marks.regions) and marks.regions[region][0] < other.start_ns
    return came_out or compiled


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
    return min(marks.laid_out(max(ends)), limit_ns) if ends else 0


def denoiser_class(marks: HostMarks, denoisers: Sequence[Part]) -> str:
    """What kind of model denoises, "" where none does."""
    if not denoisers:
        return ""
    first = denoisers[0]
    inside = len(begun(marks.convolutions, first.start_ns - 1, first.end_ns))
    return "UNet" if inside >= _MANY_CONVOLUTIONS else "Transformer"
