"""Colours: apart for every viewer, readable on their surface, the same everywhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from profiler.analysis import SURFACE, Bound, submodule_colours
from profiler.analysis.activity import OfDevice
from profiler.analysis.document import (
    BOUND_COLOURS,
    CATEGORY_COLOURS,
    DEVICE_COLOURS,
    HOST,
    MUTED,
    PAGE,
    ROLE_COLOURS,
    SERIES,
    TEXT,
    Colour,
)
from profiler.report.charts.style import _FILLS
from profiler.report.charts.time import _CAUSES

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


def cielab(colour, viewer):
    """Perceived colour of "#rrggbb" for a viewer as L*, a*, b* (D65)."""
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    primaries = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175]]
    matrix = np.array([*primaries, [0.0193339, 0.119192, 0.9503041]])
    xyz = matrix @ np.clip(viewer @ linear, 0, 1) / np.array([0.95047, 1, 1.08883])
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def ciede2000(one, other):
    """How different two colours look (Sharma, Wu, Dalal 2005): 1 is just seen side by side."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * np.sqrt(mean**7 / (mean**7 + 25.0**7))
    c1, c2 = np.hypot(stretch * a1, b1), np.hypot(stretch * a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, stretch * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2))
    middle = h1 + h2 if c1 * c2 == 0 else (h1 + turn / 2) % 360
    chroma, light = (c1 + c2) / 2, (l1 + l2) / 2 - 50
    waves = ((0.17, 1, -30), (-0.24, 2, 0), (-0.32, 3, 6), (0.2, 4, -63))
    t = 1 - sum(part * np.cos(np.radians(n * middle + by)) for part, n, by in waves)
    by_light = (l2 - l1) / (1 + 0.015 * light**2 / np.sqrt(20 + light**2))
    by_chroma, by_hue = (c2 - c1) / (1 + 0.045 * chroma), hue / (1 + 0.015 * chroma * t)
    near_blue = np.sin(np.radians(60 * np.exp(-(((middle - 275) / 25) ** 2))))
    twist = -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7)) * near_blue
    return np.sqrt(by_light**2 + by_chroma**2 + by_hue**2 + twist * by_chroma * by_hue)


# Pairs 1, 7, 13, 17, 25 and 34 of the data that its authors published to check implementations.
@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 0, 0), (50, -1, 2), 2.3669),
        ((50, 2.49, -0.001), (50, -2.49, 0.0009), 7.1792),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_differences_are_those_of_the_standard(one, other, expected):
    """The formula gives the published distances."""
    assert ciede2000(one, other) == pytest.approx(expected, abs=5e-5)


# Roles of which a reader sees few, or one at a time: what they look like matters less.
_RARE = {"router", "adapter", "sampling", "random", "optimizer", "other"}
_LEAST = {"common": (16, 10), "rare": (11, 6.5)}  # CIEDE2000 seen normally and otherwise


def twins(colours, theme):
    """Pairs of names whose colours look alike to somebody: the distance, viewer and names."""
    found = []
    for (one, first), (other, second) in itertools.combinations(colours.items(), 2):
        least = _LEAST["rare" if {one, other} & _RARE else "common"]
        for viewer, sees in VIEWERS.items():
            seen = [cielab(colour.on(theme), sees) for colour in (first, second)]
            distance = ciede2000(*seen)
            if distance < least[viewer != "normal"]:
                found.append((round(float(distance), 1), viewer, one, other))
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_roles_stay_apart(theme):
    """Any two roles differ visibly, those of most runs clearly, for every kind of colour vision."""
    assert twins(ROLE_COLOURS, theme) == []


def test_no_common_role_looks_like_an_alarm():
    """On a light page red is for lost data: the residual's red was 9 from it. Dark alarms are text
    with a frame, on a page whose roles are pale."""
    roles = {name: colour for name, colour in ROLE_COLOURS.items() if name not in _RARE}
    alert, *seen = [
        cielab(colour.light, VIEWERS["normal"]) for colour in (PAGE["alert"], *roles.values())
    ]
    assert min(ciede2000(alert, one) for one in seen) > 12


@pytest.mark.parametrize(
    ("one", "other"),
    [("#325cc4", "#6a72e2"), ("#a34100", "#c15b00"), ("#518759", "#67a273")],
)
def test_twins_of_before_are_noticed(one, other):
    """Attention and data movement, mlp and collective, embedding and residual looked alike."""
    pair = {"attention": Colour(one, one), "mlp": Colour(other, other)}
    viewers = {viewer for _, viewer, _, _ in twins(pair, "light")}
    assert {"normal", "tritan"} <= viewers


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_greys_of_one_screen_stay_apart(theme):
    """What is grey and filled differs in lightness by meaning: work, what runs on a host, names of
    submodules, what is around others. All else is dots, lines or an outline, which can be seen."""

    def seen(colour):
        return cielab(colour.on(theme), VIEWERS["normal"])

    known = ["transformer", "text_encoder", "text_encoder_2", "text_encoder_3", "vae"]
    submodules = submodule_colours(known).values()
    solid = [PAGE["busy"], HOST, PAGE["parent"], ROLE_COLOURS["other"]]
    distances = [ciede2000(seen(a), seen(b)) for a, b in itertools.combinations(solid, 2)]
    assert min(distances) > 15
    least = {PAGE["busy"]: 11, HOST: 7, PAGE["parent"]: 14}
    for colour, distance in least.items():
        assert min(ciede2000(seen(colour), seen(shade)) for shade in submodules) > distance
    for ground in ("surface", "band"):
        assert contrast(PAGE["frame"].on(theme), PAGE[ground].on(theme)) >= 3
    assert contrast(PAGE["wait-line"].on(theme), SURFACE.on(theme)) >= 3


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_curves_stand_out_from_their_ground(theme):
    """Curves of busy devices and of counters, and totals of a waterfall, have the contrast of
    graphics on each ground, and a counter looks like nothing else that is filled."""
    for filled, ground in itertools.product(("busy", "counter", "whole"), ("surface", "band")):
        assert contrast(PAGE[filled].on(theme), PAGE[ground].on(theme)) >= 3
    known = ["transformer", "text_encoder", "text_encoder_2", "text_encoder_3", "vae"]
    greys = [PAGE["busy"], HOST, PAGE["parent"], *submodule_colours(known).values()]
    counter, *others = [
        cielab(colour.on(theme), VIEWERS["normal"])
        for colour in (PAGE["counter"], *greys, *ROLE_COLOURS.values())
    ]
    assert min(ciede2000(counter, other) for other in others) > 9


def test_a_look_has_one_meaning_in_a_chart():
    """No two causes of waiting, and no two kinds of time in a stage, have one colour and shape."""
    for looks in (
        [(colour, shape) for _, _, colour, shape in _CAUSES],
        [*_FILLS.values()],
    ):
        assert len({(colour.light, shape) for colour, shape in looks}) == len(looks)


def test_what_was_not_recorded_has_dots():
    """In the charts of stages and of idle devices, as on the first screen."""
    (dots,) = [(colour, shape) for name, _, colour, shape in _CAUSES if name == "unrecorded_ns"]
    assert dots == _FILLS[OfDevice.UNRECORDED] == (PAGE["frame"], ".")


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


def test_each_bound_has_its_colour():
    """The page's timeline asks for one of each, whatever the run has."""
    assert [*BOUND_COLOURS] == [*Bound]
