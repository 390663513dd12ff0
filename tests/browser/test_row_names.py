"""Names of rows on a narrow page: cut, and still told apart."""

from __future__ import annotations

import random

import pytest

from tests.browser.report_page import opened, page_of
from tests.runs import Command, make_run

pytestmark = pytest.mark.browser

_PHONE = {"width": 390, "height": 844}
_TRACKS = {
    "cuda:0": ("stream 7", "stream 7 memcpy", "stream 23 memcpy", "stream 203 collectives"),
    "cpu:0": ("process 144 thread 144", "process 144 thread 245", "process 144 sync"),
}


@pytest.fixture(scope="module")
def phone(chromium, tmp_path_factory):
    """The page of a run whose rows have long names that begin alike, on a phone."""
    commands = [
        Command(-1, f"rank{rank}/{device}", track, "compute", "kernel", 10 * number, 5)
        for rank in (0, 1)
        for device, tracks in _TRACKS.items()
        for number, track in enumerate(tracks)
    ]
    path = page_of(make_run(commands=commands), tmp_path_factory.mktemp("phone"))
    with opened(chromium, path, viewport=_PHONE) as report:
        yield report


def test_rows_of_a_band_are_told_apart(phone):
    """No label is wider than its room, and no two of a band read the same; the whole name stays in
    the page for those who hear it."""
    bands = phone.page.evaluate(
        """() => [...document.querySelectorAll(".labels > div")].map((band) =>
          [...band.querySelectorAll(".lane > span")].map((span) => {
            const seen = span.querySelector("[aria-hidden]") ?? span;
            const whole = span.querySelector(".hidden") ?? span;
            return [seen.textContent, whole.textContent, span.scrollWidth - span.clientWidth];
          }))"""
    )
    assert [len(band) for band in bands] == [3, 4, 3, 4, 4]
    for band in bands:
        assert len({seen for seen, _, _ in band}) == len(band)
        assert max(over for _, _, over in band) <= 0
    assert [whole for _, whole, _ in bands[1]] == [*_TRACKS["cuda:0"]]
    assert "…" in bands[1][1][0]
    headings = phone.page.locator(".labels .device .name").all_inner_texts()
    assert len({*headings}) == len(headings) == 5


def test_wide_rows_keep_their_names(chromium, phone):
    """Nothing is cut where there is room, and what was cut is whole again."""
    page = phone.page
    page.set_viewport_size({"width": 1280, "height": 844})
    page.wait_for_function("() => profileReport.timeline.labelColumn.offsetWidth > 200")
    names = page.locator(".labels .lane > span").all_inner_texts()
    page.set_viewport_size(_PHONE)
    assert {*names[:3]} == {*_TRACKS["cpu:0"]}
    assert not [name for name in names if "…" in name]


@pytest.mark.parametrize(
    ("names", "room", "expected"),
    [
        (["Calls", "Host"], 8, ["Calls", "Host"]),
        (["stream 7 copy", "stream 23 copy"], 10, ["…7 copy", "…23 copy"]),
        (
            ["stream 7", "stream 7 memcpy", "stream 7 copy"],
            9,
            ["stream 7", "…memcpy", "…copy"],
        ),
        (["cuda:0 busy share", "cuda:1 busy share"], 8, ["cuda:0…", "cuda:1…"]),
        (["CPUExecutionProvider", "Host"], 9, ["CPUE…ider", "Host"]),
        (["a" * 20 + "x" + "a" * 20, "a" * 20 + "y" + "a" * 20], 9, None),
        (["a" * 20, "a" * 21], 9, ["…1", "…2"]),  # no cut tells one from the other
        (["same name twice", "same name twice"], 8, ["same…ice", "same…ice"]),
    ],
)
def test_names_are_cut_where_they_are_alike(phone, names, room, expected):
    """A name that fits stays; else shared words go, then the middle, then all that is alike."""
    found = phone.page.evaluate(
        "([names, room]) => rowNames(names, (text) => text.length <= room)", [names, room]
    )
    if expected is None:
        assert [text.strip("…a") for text in found] == ["x", "y"]
    else:
        assert found == expected


def test_any_names_are_told_apart(phone):
    """Whatever rows are called and however little room they have, labels fit and differ as names
    do, and each has only what its name has."""
    made = random.Random(7)
    words = ("cuda:0", "cuda:1", "stream", "thread", "7", "13", "memcpy", "rank0/cpu:0", "x" * 30)
    cases = [
        [[" ".join(made.choices(words, k=made.randint(1, 5))) for _ in range(12)], room]
        for room in (6, 8, 11, 16)
        for _ in range(60)
    ]
    found = phone.page.evaluate(
        "(cases) => cases.map(([names, room]) => rowNames(names, (text) => text.length <= room))",
        cases,
    )
    for (names, room), texts in zip(cases, found, strict=True):
        assert max(map(len, texts)) <= room
        assert len({*texts}) == len({*names})
        for name, text in zip(names, texts, strict=True):
            at = 0
            for part in text.split("…") if not text[1:].isdigit() else ():
                at = name.index(part, at) + len(part)


def test_narrow_charts_name_rows_apart(phone):
    """Names of bars that a narrow chart would cut to the same end differ, too."""
    found = phone.page.evaluate(
        """() => {
          const rows = ["first.blocks.0.attention.to_q", "second.blocks.0.attention.to_q"];
          const layout = { yaxis: { ticktext: rows }, xaxis: {}, height: 100 };
          return fitted([], layout, 380).yaxis.ticktext;
        }"""
    )
    assert len({*found}) == 2
    assert max(map(len, found)) <= 20
