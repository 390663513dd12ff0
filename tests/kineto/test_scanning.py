"""What the core reads of torch.profiler's events in one pass is what msgspec reads, one by one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given

from profiler.errors import InputError
from profiler.kineto.arguments import NUMBERS
from profiler.kineto.events import EventColumns
from profiler.kineto.trace_file import read_kineto
from tests.kineto.documents import documents


def table(path):
    """All that is read of a file, or the sentence that refuses it."""
    try:
        trace = read_kineto(path)
    except InputError as error:
        return str(error)
    events, every = trace.events, np.arange(len(trace.events))
    return {
        "events": [(one.name, one.cat, one.pid, one.tid) for one in events],
        "times": (trace.start_ns.tolist(), trace.duration_ns.tolist()),
        "args": list(events.args),
        "numbers": {name: events.args.values(name, every) for name in NUMBERS},
        "memory": (trace.memory, trace.memory_ns.tolist()),
        "samples": (trace.samples.names, trace.samples.value.tolist()),
        "names": (trace.thread_names, trace.device_names),
        "left": (trace.dropped, trace.untimed.tolist(), trace.unfinished.tolist()),
        "negative": trace.negative.tolist(),
        "header": trace.header,
    }


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("scanning") / "trace.json"


@given(document=documents)
def test_events_are_those_that_are_decoded_one_by_one(file, document):
    """Times, names, threads, arguments, other events and refusals are the same either way, however
    numbers and texts are spelled."""
    file.write_bytes(document)
    scanned = table(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventColumns, "scan", lambda *_: None)
        decoded = table(file)
    assert scanned == decoded


def scan(events, **around):
    columns = EventColumns("out of range", lambda text: text)
    return columns.scan(json.dumps({**around, "traceEvents": events}).encode())


def test_times_are_exact():
    """µs with any number of decimals become the nearest ns, the even one of two; nothing is lost
    to floating point in times since the epoch."""
    text = b'{"traceEvents":[%b]}' % b",".join(
        b'{"ph":"X","ts":%b,"dur":0}' % time
        for time in (b"1773709742341309.123", b"0.0005", b"0.0015", b"0.00050001", b"12", b"-1.5")
    )
    found = EventColumns("out of range", lambda text: text).scan(text)
    assert found is not None
    assert found.start_ns.tolist() == [1773709742341309123, 0, 2, 1, 12_000, -1_500]


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "X", "ts": "5"},
        {"ph": "X", "ts": 1e30},
        {"ph": "X", "ts": 1, "name": 5},
        {"ph": "X", "ts": 1, "pid": [1]},
        {"ph": "X", "ts": 1, "args": [1]},
        {"ph": "X", "ts": 1, "args": {"stream": {}}},
        {"ph": "X", "ts": 1, "cat": "Operator"},
        {"ph": "X", "ts": 1, "cat": "mtia_ccp_events"},
    ],
)
def test_what_is_spelled_otherwise_is_left_to_the_decoder(event):
    """It knows more spellings and says what is wrong with the others."""
    assert scan([{"ph": "X", "ts": 1}]) is not None
    assert scan([{"ph": "X", "ts": 1}, event]) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"traceEvents":[{}', '{"traceEvents":[1]}'])
def test_what_is_no_document_is_left_to_the_decoder(text):
    assert EventColumns("out of range", lambda text: text).scan(text.encode()) is None


def test_arguments_that_are_alike_are_one_object():
    """A trace has millions; the numbers that differ are columns."""
    args = {"Input Dims": [[1]], "stream": 7}
    found = scan([{"ph": "X", "ts": 1, "args": {**args, "correlation": n}} for n in (1, 2, "3")])
    assert found is not None
    one, two, other = found.arguments
    assert one is two
    assert other.correlation == "3"
    assert found.arguments.integers("correlation", np.arange(2)).tolist() == [1, 2]
    assert found.arguments.values("correlation", np.arange(3)) == [1, 2, "3"]
    assert found.arguments.numbers("correlation", np.arange(3), -1).tolist() == [1, 2, 3]


def test_the_last_of_equal_keys_counts():
    """As everywhere in JSON, also if it is null."""
    text = (
        b'{"traceEvents":[{"ph":"X","ts":1,"args":'
        b'{"correlation":3,"stream":7,"correlation":null,"stream":null}}]}'
    )
    found = EventColumns("out of range", lambda text: text).scan(text)
    assert found is not None
    assert found.arguments.values("correlation", np.arange(1)) == [None]
    assert found.arguments.values("stream", np.arange(1)) == [None]
