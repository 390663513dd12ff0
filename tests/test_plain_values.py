"""The leaves that every layer uses: sizes, names of runs, JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest

from profiler.errors import InputError
from profiler.files import json_text, plain
from profiler.text import (
    check_run_name,
    name_list,
    parse_size,
    run_name_of,
    step_range,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("17179869184", 1 << 34),
        ("16GiB", 1 << 34),
        ("16G", 1 << 34),
        ("16 gi", 1 << 34),
        (" 16gib ", 1 << 34),
        ("80GB", 80 * 10**9),
        ("1.5 GB", 1_500_000_000),
        ("0.1KiB", 102),
        ("8b", 8),
        ("2T", 2 << 40),
        ("1PiB", 1 << 50),
    ],
)
def test_sizes(text, size):
    """One parser reads plain bytes, binary and decimal units, exactly."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "0", "-1", "GiB", "16XB", "16 iB", "16i", "1e9", "nan", "٣GB", "9" * 18 + "P", "16GiB/s"],
)
def test_what_is_no_size(text):
    """What is no size above 0, or beyond all memory, is None."""
    assert parse_size(text) is None


@pytest.mark.parametrize("name", ["run", "sd3-1.5_a+b", "층", "x" * 200])
def test_names_of_runs(name):
    """Letters of any script, digits and a few signs name a run."""
    assert check_run_name(name) == name
    assert run_name_of(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "a b", "a\n", "a\x00", "x" * 201]
)
def test_what_cannot_name_a_run(name):
    """What leads elsewhere, hides or is too long for a folder is one sentence."""
    with pytest.raises(InputError, match="cannot name a run: use") as caught:
        check_run_name(name)
    assert "\n" not in str(caught.value)


def test_a_name_from_a_file():
    """A file's name becomes the closest name of a run, which passes the check, or nothing."""
    assert run_name_of(".my trace (1).") == "my-trace-1"
    assert run_name_of("../..") == ""
    assert check_run_name(run_name_of("층" * 100)) == "층" * 66


class _Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class _Part:
    name: str
    parts: tuple[object, ...]


def test_json_of_anything():
    """Dataclasses, enums, sets, NumPy's numbers and what JSON lacks become plain JSON."""
    document = {
        "part": _Part("층", (_Part("inner", ()), _Colour.RED)),
        _Colour.RED: float("nan"),
        3: [float("inf"), np.float32(0.5), np.int64(7), np.array([1, 2])],
        "set": {"b", "a"},
        "path": Path("a/b"),
        "time": datetime(2026, 1, 1, tzinfo=UTC),
        "decimal": Decimal("1.5"),
        "truth": [True, None, np.bool_(1)],
    }
    found = {
        "part": {"name": "층", "parts": [{"name": "inner", "parts": []}, "red"]},
        "red": None,
        "3": [None, 0.5, 7, [1, 2]],
        "set": ["a", "b"],
        "path": "a/b",
        "time": "2026-01-01 00:00:00+00:00",
        "decimal": 1.5,
        "truth": [True, None, True],
    }
    assert plain(document) == found
    assert json.loads(json_text(document)) == found
    assert json_text([1, {"a": 2}], indent=None) == '[1, {"a": 2}]'


@pytest.mark.parametrize(
    "document",
    [
        {"a": [], "b": {}, "c": [[], [{"d": 1e16}]], "층": 'é\n"', "big": 1 << 70},
        {"part": _Part("x", (_Colour.RED, Path("y"), Decimal("0.5"))), "set": {2, 1}},
        {"not a number": [float("nan"), 1.5], 4: np.float32(2)},
        {1.5: (), 2: True},
    ],
)
@pytest.mark.parametrize("indent", [1, None])
def test_json_is_as_the_standard_library_indents_it(document, indent):
    """Whatever is in the document: only the way to it is another."""
    usual = json.dumps(plain(document), indent=indent, ensure_ascii=False)
    assert json_text(document, indent=indent) == usual


def test_names_that_are_no_utf8_become_text_that_is():
    """A JSON document is UTF-8: a byte of a file's name that is none becomes a replacement."""
    assert (
        json_text({"name of a file": "\udc80.pb"}, indent=None) == '{"name of a file": "\ufffd.pb"}'
    )


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("vae", ("vae",)),
        (" vae , transformer,vae,", ("vae", "transformer")),
        (["0-3,7", "last"], ("0-3", "7", "last")),
        (7, ("7",)),
        ([0, "1,2"], ("0", "1", "2")),
        ("", ()),
        ((), ()),
    ],
)
def test_lists_of_names(given, names):
    """One text or several, with commas: each name once, in order."""
    assert name_list(given) == names


@pytest.mark.parametrize(
    ("text", "between"),
    [("7", (7, 7)), ("0-3", (0, 3)), (" 2-2 ", (2, 2)), ("3-0", None), ("-1", None), ("٣", None)],
)
def test_ranges_of_steps(text, between):
    """A step, or a range with both ends; a range that ends before it begins is none."""
    assert step_range(text) == between
