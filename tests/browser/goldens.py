"""Small pictures of a page's sections, and how far two of them are apart.

Each section is photographed to a limited height, made ten times smaller and blurred: what remains
are places and colours of headings, figures and tables, which other fonts hardly move. All sections
of a view stand below each other in one image, a *sheet*; sheets of a commit lie in `goldens/`.

    pytest tests/browser/test_screenshots.py --refresh-goldens

writes them anew; look at them before they are committed. Other fonts (DejaVu Sans, DejaVu Serif,
Liberation Sans Narrow in place of Liberation Sans) move a section by at most 2.7 on average and by
13.4 in one place; without a figure it differs by 51 in one place, without its timeline by 69,
without a table of five rows by 17.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

__all__ = ["GOLDENS", "MOST", "MOST_OF_CELL", "apart", "sheet"]

GOLDENS = Path(__file__).parent / "goldens"
MOST = 3.0  # mean difference of a section, of 255
MOST_OF_CELL = 14.0  # and of one of its cells of 12 x 12 small pixels
_TALL = 900  # px of a section
_SCALE = 10
_BLUR = 1.6  # small pixels
_CELL = 12
_PLACES = """() => [...document.querySelectorAll("main > section")].map((section) => {
  const { left, top, width, height } = section.getBoundingClientRect();
  return [left + scrollX, top + scrollY, width, height];
})"""


def sheet(page: Any) -> Image.Image:
    """The sections that `page` (playwright's) shows, each as wide as the page is."""
    shot = page.screenshot(full_page=True, animations="disabled")
    parts = []
    with Image.open(io.BytesIO(shot)) as whole:
        for left, top, wide, tall in page.evaluate(_PLACES):
            place = (left, top, left + wide, top + min(tall, _TALL))
            part = whole.crop(tuple(map(round, place))).convert("RGB")
            padded = Image.new("RGB", (part.width, _TALL), part.getpixel((1, 1)))
            padded.paste(part)
            small = padded.resize((part.width // _SCALE, _TALL // _SCALE), Image.Resampling.BOX)
            parts.append(small.filter(ImageFilter.GaussianBlur(_BLUR)))
    made = Image.new("RGB", (max(part.width for part in parts), _TALL // _SCALE * len(parts)))
    for number, part in enumerate(parts):
        made.paste(part, (0, number * _TALL // _SCALE))
    return made


def apart(taken: Image.Image, golden: Image.Image) -> list[str]:
    """What differs by more than fonts do, a line a section; empty where nothing does."""
    if taken.size != golden.size:
        tall = _TALL // _SCALE
        numbers = f"{taken.height // tall} sections of {taken.width}, {golden.height // tall} of"
        return [f"the page has {numbers} {golden.width} expected"]
    first, second = (np.asarray(image, dtype=np.float64) for image in (taken, golden))
    found = []
    for number, part in enumerate(np.split(np.abs(first - second).mean(axis=2), _sections(taken))):
        tall, wide = (length // _CELL * _CELL for length in part.shape)
        cells = part[:tall, :wide].reshape(tall // _CELL, _CELL, wide // _CELL, _CELL)
        mean, worst = part.mean(), cells.mean(axis=(1, 3)).max()
        if mean > MOST or worst > MOST_OF_CELL:
            found.append(f"section {number}: {mean:.1f} on average, {worst:.1f} in one place")
    return found


def _sections(image: Image.Image) -> int:
    return image.height // (_TALL // _SCALE)
