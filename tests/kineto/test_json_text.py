"""Traces whose text is no JSON: every event that is whole is read, and what is skipped is said."""

from __future__ import annotations

import json
import random
from io import BytesIO
from pathlib import Path

import pytest

from profiler.errors import InputError
from profiler.kineto import json_text
from profiler.kineto.trace_file import read_kineto, read_kineto_file
from profiler.trace.manifest_fields import HealthRule
from tests.corpus import CORPUS, needs_corpus
from tests.importers.kineto.traces import Trace

DAMAGED = CORPUS / "damaged"
DAMAGES = {
    "quotes": ('"mm"', '"{"device": "cpu", "dtype": "f"}(12): run"'),
    "backslash": ('"mm"', '"C:\\Users\\me\\x.py(3): f"'),
    "word": ('"mm"', "N/A"),
    "colon": ('"name": "mm"', '"name" "mm"'),
    "type": ('"mm"', "[1, 2]"),
    "brace": ("}}, ", ", "),
}


def trace(events):
    """A trace of operators at 10, 20, … µs, each 5 µs long."""
    made = Trace(record_shapes=1)
    for number in range(events):
        made.op("mm", 10.0 * (number + 1), 5, **{"Input Dims": [[number, 2], []]})
    return made


def read(text):
    return read_kineto_file(Path("trace.json"), BytesIO(text))


def note_of(found, rule):
    return next(note for note in found.health if note.rule is rule)


def damaged(count, kind, seed, events=60):
    """A trace with one kind of damage in some of its events, and the starts of the others, µs."""
    texts = [json.dumps(event) + ", " for event in trace(events).events]
    chosen = sorted(random.Random(seed).sample(range(events - 1), count))
    old, new = DAMAGES[kind]
    for number in chosen:
        texts[number] = texts[number].replace(old, new)
    head = json.dumps(trace(0).document())[: -len("]}")]
    left = [10 * (number + 1) for number in range(events) if number not in chosen]
    text = head + "".join(texts)[: -len(", ")] + '], "traceName": "t"}'
    return text.encode(), left, len(head) + len("".join(texts[: chosen[0]]))


@pytest.mark.parametrize(
    ("old", "new", "skipped"),
    [
        ("}}", ",},}", 0),
        ('"mm"', r'"mm\ud83d"', 0),
        ("}}, ", '}}, null, 5, "x", [], ', 59),
        ("]}", "]}\nSaved the trace in 3 s.", 0),
    ],
)
def test_what_is_between_and_in_whole_events_costs_none(old, new, skipped):
    """Commas too many, halves of surrogate pairs, other values in the list, and text after it."""
    listed = json.dumps(trace(60).document())
    text = listed.removesuffix(old) + new if listed.endswith(old) else listed.replace(old, new)
    found = read(text.encode())
    assert (found.start_ns % 1_000_000).tolist() == [10_000 * (1 + number) for number in range(60)]
    assert [(note.rule, note.count) for note in found.health] == [
        (HealthRule.NO_JSON, skipped)
    ] * bool(skipped)


def test_a_long_string_without_an_end_costs_one_event():
    """256 KiB of quotes in a string whose closing one is lost: read once, not from each of them."""
    events = json.dumps(trace(20).document()).removesuffix("]}")
    lost = '{"ph": "X", "name": "a", "ts": 1, "args": {"text": "' + r"\"k\":1," * 32_768 + "}}"
    last = events[events.rindex('{"ph"') :]
    found = read(f"{events}, {lost}, {last}]}}".encode())
    assert len(found.events) == 21
    assert note_of(found, HealthRule.NO_JSON).count == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [kind for kind in DAMAGES if kind != "brace"])
def test_the_events_around_damaged_ones_are_read(monkeypatch, kind, seed):
    """As many are skipped as were damaged, the rest has its times and shapes, in parts, too."""
    monkeypatch.setattr(json_text, "_PART", 700)
    text, left, first = damaged(1 + 3 * seed, kind, seed)
    found = read(text)
    base_ns = int(found.header.base_ns)
    assert ((found.start_ns - base_ns) // 1000).tolist() == left
    note = note_of(found, HealthRule.NO_JSON)
    assert (note.count, note.total) == (60 - len(left), 60)
    assert note.at_byte == first
    shapes = [json.loads(bytes(event.args.dims))[0][0] for event in found.events]
    assert shapes == [start // 10 - 1 for start in left]
    assert found.header.record_shapes == 1


def test_two_events_are_skipped_if_one_has_no_end():
    """An event without its closing brace is text of the next one, which is lost with it if they
    cannot be told apart: no event is read twice, and none is made of two."""
    text, left, _ = damaged(1, "brace", 3)
    found = read(text)
    assert len(found.events) == len(left)
    assert note_of(found, HealthRule.NO_JSON).count == 1


@pytest.mark.parametrize("form", ["object", "list"])
def test_a_file_that_breaks_off_is_read_to_there(form):
    """Wherever it is cut: the events that end before."""
    document = trace(12).document()
    whole = json.dumps(document if form == "object" else document["traceEvents"])
    ends = []
    place = 0
    for event in document["traceEvents"]:
        place = whole.index(json.dumps(event), place) + len(json.dumps(event))
        ends.append(place)
    for cut in range(ends[0] + 1, ends[-1] + 1, 7):
        found = read(whole[:cut].encode())
        assert len(found.events) == sum(end <= cut for end in ends)
        note = note_of(found, HealthRule.BROKEN_OFF)
        assert (note.count, note.at_byte) == (len(found.events), cut - 1)
        assert len(found.health) == 1


def test_text_that_is_not_utf_8_costs_no_event():
    """Bytes that are none become the sign for that, and nothing was skipped."""
    text, _, _ = damaged(1, "quotes", 0)
    sound = json.dumps(trace(3).document()).replace('"mm"', '"mm\udcff"', 1)
    found = read(sound.encode("utf-8", "surrogateescape"))
    assert found.events.names == ("mm\N{REPLACEMENT CHARACTER}", "mm")
    assert not found.health
    assert read(text).health


def test_a_list_of_events_and_a_byte_order_mark_are_read_as_they_are():
    """Neither is damage."""
    document = trace(4).document()
    for text in (json.dumps(document["traceEvents"]), "\ufeff" + json.dumps(document)):
        found = read(text.encode())
        assert len(found.events) == 4
        assert not found.health


@pytest.mark.parametrize(
    "text",
    [b'{"traceEvents": [{"ph": 3}, {"ph": 4}]}', b'{"traceEvents": [{"ph": "X"', b"[1, 2, {]"],
)
def test_without_one_readable_event_it_is_no_trace(text):
    """Then the sentence is the one about the whole file."""
    with pytest.raises(InputError, match="is not"):
        read(text)


@pytest.mark.parametrize("between", ["], ", '], "traceName": "t", ', "]} {", "]}\n{"])
def test_all_lists_of_events_are_read(monkeypatch, between):
    """A second list, of the same object or of another one behind it, would replace the first."""
    monkeypatch.setattr(json_text, "_PART", 300)
    document = trace(20).document()
    events = [json.dumps(event) for event in document.pop("traceEvents")]
    halves = (", ".join(events[:12]), ", ".join(events[12:]))
    lists = between.join(f'"traceEvents": [{half}' for half in halves)
    found = read(f"{json.dumps(document)[:-1]}, {lists}]}}".encode())
    assert (
        found.start_ns.tolist() == read(json.dumps(trace(20).document()).encode()).start_ns.tolist()
    )
    assert found.header.record_shapes == 1
    assert found.health == ()


def test_what_stands_after_the_events_is_read(monkeypatch):
    """Newer recorders write the base of times behind them."""
    monkeypatch.setattr(json_text, "_PART", 300)
    document = trace(20).document()
    base = document.pop("baseTimeNanoseconds")
    document["baseTimeNanoseconds"] = base
    text = json.dumps(document).replace('"mm"', '"m"m"', 1).encode()
    assert int(read(text).start_ns[0]) == base + 20_000


@needs_corpus
@pytest.mark.parametrize(
    ("name", "events", "kernels", "rule"),
    [
        ("00_base_correct", 182, 34, None),
        ("c1_unescaped_quote", 181, 34, HealthRule.NO_JSON),
        ("c2_backslash", 181, 34, HealthRule.NO_JSON),
        ("c3_NA", 182, 34, None),
        ("c4_nonutf8", 182, 34, None),
        ("c5_truncated", 109, 20, HealthRule.BROKEN_OFF),
        ("c6_array", 182, 34, None),
        ("c6c_bom", 182, 34, None),
    ],
)
def test_traces_of_the_corpus(name, events, kernels, rule):
    """As many events of all kinds as the healthy one has, and as many kernels."""
    found = read_kineto(DAMAGED / f"{name}.json")
    assert len(found.rows_of("kernel")) == kernels
    assert [note.rule for note in found.health] == ([rule] if rule else [])
    if rule is HealthRule.NO_JSON:
        (note,) = found.health
        assert note.total - note.count == events
    elif rule is HealthRule.BROKEN_OFF:
        (note,) = found.health
        assert (note.count, note.at_byte) == (events, 17_645)
