"""Colours: apart for every viewer, readable on their surface, the same everywhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from profiler.analysis import SURFACE, submodule_colours
from profiler.analysis.document import (
    CATEGORY_COLOURS,
    DEVICE_COLOURS,
    MUTED,
    PAGE,
    ROLE_COLOURS,
    SERIES,
    TEXT,
)

# Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB.
VIEWERS = {
    "normal": np.eye(3),
    "protan": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deutan": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritan": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


def contrast(a, b):
    """WCAG contrast of two "#rrggbb" colours, from 1 to 21."""
    darker, lighter = sorted((luminance(a), luminance(b)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def oklab(colour, viewer):
    """Perceived colour (Ottosson 2020) of "#rrggbb" for a viewer."""
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(viewer @ linear, 0, 1)
    cones = np.cbrt(
        np.array(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ]
        )
        @ seen
    )
    return (
        np.array(
            [
                [0.2104542553, 0.7936177850, -0.0040720468],
                [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660],
            ]
        )
        @ cones
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("viewer", VIEWERS)
def test_series_stay_apart(theme, viewer):
    """Any two series colours differ clearly, for every kind of colour vision."""
    seen = [oklab(colour.on(theme), VIEWERS[viewer]) for colour in SERIES]
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)]
    assert min(distances) > 0.08


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("viewer", ["normal", "protan", "deutan"])
def test_roles_stay_apart(theme, viewer):
    """Any two roles differ for readers with each common kind of colour vision."""
    seen = [oklab(colour.on(theme), VIEWERS[viewer]) for colour in ROLE_COLOURS.values()]
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)]
    assert min(distances) > 0.08


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_hues_belong_to_roles(theme):
    """Submodules are greys and roles are not, so that no colour is both; `other` is no role."""

    def chroma(colour):
        return np.linalg.norm(oklab(colour.on(theme), VIEWERS["normal"])[1:])

    roles = {name: chroma(colour) for name, colour in ROLE_COLOURS.items() if name != "other"}
    submodules = submodule_colours([f"part_{number}" for number in range(9)]).values()
    assert max(map(chroma, submodules)) < 0.04
    assert min(roles.values()) > 0.06
    known = submodule_colours(["transformer", "text_encoder", "text_encoder_2", "vae"])
    shades = {colour.on(theme) for colour in (*submodules, *known.values())}
    assert shades.isdisjoint(colour.on(theme) for colour in ROLE_COLOURS.values())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_colour_has_one_meaning(theme):
    """Devices are greys, as computing is; what is a category and a role has its colour."""
    submodules = submodule_colours([f"part_{number}" for number in range(9)]).values()
    host = oklab(CATEGORY_COLOURS["host"].on(theme), VIEWERS["normal"])
    shades = [oklab(colour.on(theme), VIEWERS["normal"]) for colour in submodules]
    assert min(np.linalg.norm(shade - host) for shade in shades) > 0.04
    greys = [*DEVICE_COLOURS, CATEGORY_COLOURS["compute"], CATEGORY_COLOURS["host"]]
    for colour in greys:
        assert np.linalg.norm(oklab(colour.on(theme), VIEWERS["normal"])[1:]) < 0.04
    assert len({colour.on(theme) for colour in DEVICE_COLOURS}) == len(DEVICE_COLOURS)
    assert min(contrast(colour.on(theme), SURFACE.on(theme)) for colour in DEVICE_COLOURS) >= 3
    assert CATEGORY_COLOURS["collective"] == ROLE_COLOURS["collective"]
    assert CATEGORY_COLOURS["dma"] == ROLE_COLOURS["data_movement"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_series_stand_out_from_the_surface(theme):
    """A bar has the contrast that WCAG asks of graphics, its label that of text."""
    submodules = submodule_colours([f"part_{number}" for number in range(9)]).values()
    for colour in (*SERIES, *ROLE_COLOURS.values(), *submodules):
        assert contrast(colour.on(theme), SURFACE.on(theme)) >= 3
        inks = (SURFACE.light, SURFACE.dark)
        assert max(contrast(ink, colour.on(theme)) for ink in inks) >= 4.2


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable(theme):
    """Text, quiet text and alerts reach WCAG AA on every ground they stand on."""
    for ground in ("surface", "raised", "band"):
        for text in (TEXT, MUTED, PAGE["alert"]):
            assert contrast(text.on(theme), PAGE[ground].on(theme)) >= 4.5
    assert contrast(PAGE["alert"].on(theme), PAGE["alert-ground"].on(theme)) >= 4.5


def test_a_submodule_keeps_its_colour():
    """Known submodules have their colour in any company, and the order of names is no matter."""
    names = ["vae", "refiner", "transformer", "text_encoder"]
    colours = submodule_colours(names)
    assert colours == submodule_colours(reversed(names))
    assert submodule_colours(["transformer"])["transformer"] == colours["transformer"]
    assert len({colour.light for colour in colours.values()}) == len(names)


def test_many_submodules_all_have_a_colour():
    """From six on shades repeat rather than run out."""
    names = [f"expert_{i}" for i in range(30)]
    assert set(submodule_colours(names)) == set(names)
