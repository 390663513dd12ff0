"""The JSON of a trace in parts: each event once and in order, wherever the text is cut."""

from __future__ import annotations

import json

import msgspec
import pytest

from profiler.kineto import json_text
from profiler.kineto.json_text import in_parts

EVENTS = [
    {"ph": "X", "name": 'a quote \\" and }, {"ph"', "args": {"of": [{"a": 1}, {"b": 2}]}},
    {"ph": "X", "name": "}, {", "args": {}},
    {"ph": "M", "name": "\\", "args": {"x": [[1], [{"c": "], ["}]]}},
] * 40


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(json_text, "_PART", 64)


def parts_of(text, size):
    chunks = [text[first : first + size] for first in range(0, len(text), size)]
    return [found for found, _ in in_parts(chunks, msgspec.json.decode, _events)]


def _events(text):
    found = msgspec.json.decode(text)
    if found.keys() != {"traceEvents"}:
        raise msgspec.ValidationError("more than events")
    return found


@pytest.mark.parametrize("size", [1, 7, 50, 333, 1 << 20])
@pytest.mark.parametrize("around", [{}, {"last": [{"a": 1}, {"b": 2}], "base": 5}])
def test_events_are_those_of_the_whole(size, around):
    """Strings that look like JSON, objects within events and what follows the events do not
    matter; what stands around the events comes with the last part."""
    document = {"first": [{"id": 0}, {"id": 1}], "traceEvents": EVENTS, **around}
    parts = parts_of(json.dumps(document).encode(), size)
    assert [event for part in parts for event in part["traceEvents"]] == EVENTS
    assert {**parts[-1], "traceEvents": 0} == {**document, "traceEvents": 0}
    assert len(parts) > 1 or size > 1000


def test_a_word_within_a_text_or_an_object_is_not_the_key():
    """`traceEvents` counts where it is a key of the file itself."""
    document = {
        "note": '"traceEvents": [',
        "other": {"traceEvents": [{"ph": "X"}]},
        "traceEvents": EVENTS,
    }
    parts = parts_of(json.dumps(document).encode(), 100)
    assert [event for part in parts for event in part["traceEvents"]] == EVENTS


@pytest.mark.parametrize("text", [b"[1, 2, 3]", b'{"x": [1, 2]}', b"{}"])
def test_what_has_no_events_is_one_part(text):
    """It is decoded as it is."""
    assert parts_of(text, 2) == [json.loads(text)]


@pytest.mark.parametrize("cut", [30, 500, 2000])
def test_what_is_cut_raises_what_the_decoder_says(cut):
    """Parts that were whole come first."""
    text = json.dumps({"traceEvents": EVENTS}).encode()[:cut]
    with pytest.raises(msgspec.DecodeError):
        parts_of(text, 100)
