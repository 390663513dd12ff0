"""The core's files say what the slow writer's files say, read by Perfetto's definitions."""

from __future__ import annotations

import random
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.trace import (
    ROOT_DEVICE,
    Call,
    CommandColumns,
    Counter,
    Span,
    encode_call,
    encode_host,
    text_table,
)
from tests.trace import reference_writer
from tests.trace.reference_reading import Reading, read
from tests.trace.strategies import calls, command_columns, counters, spans
from tests.trace.writer_samples import EPOCH_NS, large_commands


def _assert_equal(found: Reading, expected: Reading) -> None:
    assert found.keys() == expected.keys()
    assert found.samples == expected.samples
    assert found.flows == expected.flows


def _large_call(commands: CommandColumns) -> Call:
    end_ns = int(commands.end_ns.max())
    return Call(
        3, "transformer", "denoise", "batched", 1, "cuda:0", EPOCH_NS, end_ns - EPOCH_NS, True
    )


@given(calls(), command_columns(), st.lists(counters(), max_size=2), st.booleans())
def test_call(call: Call, commands: CommandColumns, samples: list[Counter], of_a_run: bool) -> None:
    """Slices with all fields and parents, counter samples and flows of any call."""
    found = encode_call(call, commands, samples, texts=text_table(run=of_a_run))
    _assert_equal(read(found), read(reference_writer.encode_call(call, commands, samples)))


@given(spans(), command_columns())
def test_host(given_spans: list[Span], commands: CommandColumns) -> None:
    """Spans, however they overlap, and host work."""
    found = encode_host(given_spans, commands, ROOT_DEVICE)
    _assert_equal(
        read(found), read(reference_writer.encode_host(given_spans, commands, ROOT_DEVICE))
    )


@given(st.lists(command_columns(), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_concatenation(files: list[CommandColumns], order: random.Random) -> None:
    """Any files of a run, in any order, are one trace with the slices of them all."""
    texts = text_table(run=True)
    of_run = [Call(i, "part", "denoise", "", i, "x", 50, 9, True) for i in range(len(files))]
    parts = list(zip(of_run, files, strict=True))
    chosen = order.sample(parts, order.randint(1, len(parts)))
    found = read(b"".join(encode_call(*part, texts=texts) for part in chosen))
    expected = Reading()
    for part in parts:
        if part in chosen:
            alone = read(reference_writer.encode_call(*part))
            expected.slices += alone.slices
            expected.flows += alone.flows
    assert found.keys() == expected.keys()
    assert found.flows == expected.flows


@pytest.mark.parametrize(("tracks", "unit_ns"), [(1, 1000), (5, 1)])
def test_many_blocks(tracks: int, unit_ns: int) -> None:
    """Slices that stay open from one block to the next, on few lanes and on many."""
    commands = large_commands(10_000, tracks=tracks, unit_ns=unit_ns)
    call = _large_call(commands)
    found, expected = encode_call(call, commands), reference_writer.encode_call(call, commands)
    _assert_equal(read(found), read(expected))


def test_unsorted_commands() -> None:
    """Rows need not be in order of their start."""
    commands = large_commands(500, tracks=2)
    rows = list(range(500))
    random.Random(1).shuffle(rows)
    columns = {
        name: getattr(commands, name)[rows]
        for name in commands.__slots__
        if name not in ("tracks", "strings", "flows", "pipeline", "name")
    }
    place = {row: position for position, row in enumerate(rows)}
    flows = commands.flows.copy()
    flows[:] = [[place[source], place[target]] for source, target in flows.tolist()]
    shuffled = replace(commands, flows=flows, **columns)
    call = _large_call(commands)
    assert read(encode_call(call, shuffled)).keys() == read(encode_call(call, commands)).keys()


def test_columns_of_other_layout_and_width() -> None:
    """Strided columns and other integer types are taken as they are meant."""
    commands = large_commands(100)
    wide = {
        name: getattr(commands, name).astype("int64").repeat(2)[::2]
        for name in commands.__slots__
        if name not in ("tracks", "strings", "flows", "pipeline", "name")
    }
    call = _large_call(commands)
    assert encode_call(call, replace(commands, **wide)) == encode_call(call, commands)


def test_threads_share_texts() -> None:
    """Files of one run may be encoded at the same time."""
    texts = text_table(run=True)
    files = [large_commands(2000 + number) for number in range(4)]
    done: dict[int, bytes] = {}

    def encode(number: int) -> None:
        call = replace(_large_call(files[number]), index=number)
        done[number] = encode_call(call, files[number], texts=texts)

    threads = [threading.Thread(target=encode, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read(b"".join(done.values())).slices) == 4 + sum(map(len, files))
