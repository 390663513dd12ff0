"""VAE decoders among the operators of a trace without modules.

A decoder begins with a convolution from 4…32 channels and ends with one to 3. Decoders of frames
that follow each other are one: video is decoded in chunks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from profiler.importers.kineto.host_marks import Convolution, HostMarks, Part, within

__all__ = ["decoders_of", "with_images"]

_IMAGE = 3  # channels
_BETWEEN = 8  # operators from a decoder's first, narrow convolution to the one that widens


def decoders_of(marks: HostMarks) -> list[tuple[int, int]]:
    """From the last convolution of latents before one to an image, to that one."""
    eager = [one for one in marks.convolutions if not within(one.start_ns, marks.regions)]
    embedded = marks.embedded()
    found: list[tuple[int, int]] = []
    chunk_before = False  # whether the last decoder was of frames, and nothing began since
    begin: tuple[int, Convolution] | None = None
    for place, one in enumerate(eager):
        if one.embeds_latents:
            begin = (_first(marks, eager, place), one)
            chunk_before &= begin[0] == one.start_ns
        elif one.results == _IMAGE and begin is not None:
            end = marks.laid_out(one.end_ns)
            since = found[-1][1] if found else begin[0]
            begun_since = bisect_left(embedded, since) < bisect_left(embedded, begin[0])
            if chunk_before and one.video and not begun_since:
                found[-1] = (found[-1][0], end)
            else:
                found.append((begin[0], end))
            chunk_before, begin = one.video, None
    return found


def with_images(marks: HostMarks, decoders: Sequence[tuple[int, int]]) -> list[Part]:
    """Decoders with the images that each decoded at once."""
    images = {one.end_ns: one.batch for one in marks.convolutions if one.results == _IMAGE}
    ends = sorted(images)
    return [Part(begin, end, images[ends[bisect_right(ends, end) - 1]]) for begin, end in decoders]


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
