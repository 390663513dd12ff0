"""One colour per submodule, category and role, the same in every figure, page and notebook.

Each colour is a pair for light and dark surfaces. The eight series colours were searched for so
that any two of them stay apart for protan, deutan and tritan viewers as well, and each has a
contrast of at least 3:1 with its surface; `tests/report/test_html_palette.py` holds them to that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

__all__ = [
    "BOUND_COLOURS",
    "CATEGORY_COLOURS",
    "HOST",
    "IDLE",
    "LINE",
    "MUTED",
    "PAGE",
    "PEAK_COLOURS",
    "ROLE_COLOURS",
    "SERIES",
    "SURFACE",
    "TEXT",
    "Colour",
    "Theme",
    "submodule_colours",
]

Theme = Literal["light", "dark"]


class Colour(Struct, frozen=True):
    """The same thing on a light and on a dark surface, each "#rrggbb"."""

    light: str
    dark: str

    def on(self, theme: Theme) -> str:
        return self.light if theme == "light" else self.dark


_BLUE = Colour("#2b63c4", "#70a8fe")
_TEAL = Colour("#4da391", "#4cd8c9")
_OCHRE = Colour("#b08e09", "#d6b53e")
_VIOLET = Colour("#592685", "#896ec7")
_RUST = Colour("#a13a1c", "#c85f3f")
_PINK = Colour("#b05193", "#f5868c")
_GREEN = Colour("#688352", "#b3db91")
_SLATE = Colour("#4e5661", "#7c96c1")

SERIES = (_BLUE, _TEAL, _OCHRE, _VIOLET, _RUST, _PINK, _GREEN, _SLATE)
SURFACE = Colour("#ffffff", "#14171c")
TEXT = Colour("#1b1f24", "#e4e7eb")
MUTED = Colour("#5c6570", "#9aa4b0")
LINE = Colour("#e3e6ea", "#2b3139")
HOST = Colour("#8b919b", "#7d8590")
IDLE = Colour("#dfe3e8", "#333a43")

PAGE = {  # custom properties of the HTML page
    "surface": SURFACE,
    "raised": Colour("#ffffff", "#1c2026"),
    "text": TEXT,
    "muted": MUTED,
    "line": LINE,
    "edge": Colour("#cfd5dc", "#3c444e"),
    "band": Colour("#f4f6f8", "#1c2127"),
    "counter": Colour("#a9b9d6", "#40557a"),
    "veil": Colour("#ffffffa6", "#14171cb3"),
    "focus": Colour("#2b63c4", "#70a8fe"),
    "alert": Colour("#a3180f", "#ff9a8d"),
    "warning": Colour("#b08e09", "#d6b53e"),
    "alert-ground": Colour("#fdf0ee", "#2c1a1a"),
    "part-fill": Colour("#9db7e4", "#3f5e90"),
}

_KNOWN = {
    "transformer": _BLUE,
    "unet": _BLUE,
    "text_encoder": _TEAL,
    "text_encoder_2": _OCHRE,
    "text_encoder_3": _VIOLET,
    "vae": _RUST,
    "vae_decoder": _RUST,
    "controlnet": _PINK,
    "vae_encoder": _GREEN,
    "image_encoder": _GREEN,
}

CATEGORY_COLOURS = {
    "host": HOST,
    "compute": _BLUE,
    "dma": _OCHRE,
    "copy": _TEAL,
    "collective": _PINK,
    "sync": _RUST,
    "other": _VIOLET,
}

BOUND_COLOURS = {"compute": _BLUE, "memory": _OCHRE, "launch": _RUST, "host": HOST}

PEAK_COLOURS = (  # from little of the peak to much of it, apart by lightness alone
    Colour("#d5e0f5", "#26344d"),
    Colour("#a5bfec", "#365480"),
    Colour("#6b93dc", "#4a78ba"),
    Colour("#2b63c4", "#70a8fe"),
    Colour("#173c7c", "#bdd7ff"),
)

ROLE_COLOURS = {
    "attention": _BLUE,
    "qkv_projection": Colour("#7f9fdc", "#a9ccff"),
    "mlp": _RUST,
    "norm": _OCHRE,
    "modulation": _VIOLET,
    "embedding": _GREEN,
    "convolution": _TEAL,
    "resample": Colour("#2f6b5f", "#a3efe6"),
    "rope": _PINK,
    "residual": _SLATE,
    "adapter": Colour("#1f6e12", "#58b82a"),
    "sampling": Colour("#ef5f71", "#f04581"),
    "optimizer": Colour("#601cef", "#8c14f4"),
    "data_movement": HOST,
    "collective": Colour("#ca2df3", "#f074d8"),
    "matmul": Colour("#243a5d", "#4061b3"),
    "elementwise": Colour("#652528", "#c9a78f"),
    "other": Colour("#b3b9c1", "#59626d"),
}


def submodule_colours(names: Iterable[str]) -> dict[str, Colour]:
    """A colour for each of `names`: the known ones always theirs, others what is left.

    The result depends on the set of names only, not on their order; from nine different colours
    on they repeat.
    """
    wanted = sorted(set(names))
    colours = {name: _KNOWN[name] for name in wanted if name in _KNOWN}
    free = [colour for colour in reversed(SERIES) if colour not in colours.values()] or [*SERIES]
    others = [name for name in wanted if name not in _KNOWN]
    return colours | {name: free[i % len(free)] for i, name in enumerate(others)}
