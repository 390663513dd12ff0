"""How large the images or videos of a run are, and how large they shall be."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from msgspec import Struct

from profiler.analysis.roofline.call_costs import KindCost
from profiler.analysis.work.registry import Family
from profiler.errors import InputError
from profiler.trace.manifest_fields import Generation

__all__ = [
    "MOST_PIXELS",
    "ImageSize",
    "parse_size",
    "recorded_size",
    "size_by_decoder",
    "size_by_settings",
]

MOST_PIXELS = 16_384  # a side
_MULTIPLE = 8  # what latents have of the image's sides
_LEAST = 4  # rows and columns: less is a kernel
_SIZE = re.compile(r"(\d{1,6})(?:[x×](\d{1,6}))?")


class ImageSize(Struct, frozen=True):
    """Width and height in pixels."""

    width: int
    height: int

    @property
    def area(self) -> int:
        """Pixels in all."""
        return self.width * self.height

    def __str__(self) -> str:
        return f"{self.width}×{self.height}"


def parse_size(text: str) -> ImageSize:
    """`1024x768`, width first; `512` is a square. Raises InputError for what is no size."""
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
    """The size of the images of the pipeline calls `numbers`: that of the settings, unless the
    decoder, of whose commands `decoded` are the kinds, writes more than that. It writes less where
    it works in tiles. None where neither tells; raises InputError where sizes differ."""
    told, written = size_by_settings(generations, numbers), size_by_decoder(decoded)
    if told is None or written is None:
        return told or written
    return written if written.area > told.area else told


def size_by_settings(
    generations: Iterable[Generation], numbers: Collection[int]
) -> ImageSize | None:
    """The size that the settings of the pipeline calls `numbers` tell, None where they tell none.
    Raises InputError where their sizes differ."""
    sizes = {
        ImageSize(one.width, one.height)
        for one in generations
        if one.width and one.height and (not one.pipelines or {*one.pipelines} & {*numbers})
    }
    if len(sizes) > 1:
        told = ", ".join(sorted(map(str, sizes)))
        raise InputError(
            f"the pipeline calls made images of several sizes ({told}), so another one cannot be "
            "predicted from all of them: choose a call with --pipeline"
        )
    return next(iter(sizes), None)


def size_by_decoder(kinds: Iterable[KindCost]) -> ImageSize | None:
    """The largest rows and columns that a convolution of a decoder writes: those of its image.
    None where no convolution tells what it writes."""
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
