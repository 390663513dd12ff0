"""What fuzzing found, and traces made to cost much: read or refused by the core as Python sees it.

The same inputs run under AddressSanitizer and UBSan by `tests/fuzz/run.sh`.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.errors import InputError
from profiler.trace import _core, read_bytes
from tests.fuzz.bombs import BOMBS
from tests.fuzz.messages import field

_FUZZ = Path(__file__).parents[1] / "fuzz"
_FACTOR, _LEAST = 64, 64 << 20  # what `reader.py` promises, and what Python itself takes


def _inputs() -> list[bytes]:
    with zipfile.ZipFile(_FUZZ / "corpus.zip") as corpus:
        names = [name for name in corpus.namelist() if name.startswith("decode/")]
        return [corpus.read(name) for name in names if not name.endswith("/")]


def _readable(data: bytes) -> bool:
    try:
        trace = read_bytes(data)
    except InputError:
        return False
    assert (trace.slices.start_ns >= 0).all()
    assert (trace.slices.parent < np.arange(len(trace.slices))).all()
    return True


def test_corpus() -> None:
    """Every input that fuzzing kept is read or refused."""
    inputs = _inputs()
    assert len(inputs) > 100
    assert 0 < sum(map(_readable, inputs)) <= len(inputs)


def test_corpus_with_packed_packets() -> None:
    """The same where packed packets unpack to what the fuzzer gave them."""

    def unpack(how: str, data: bytes) -> bytes:
        return data if how == "zstd" else data[1:] * min(data[0] if data else 0, 4)

    for data in _inputs():
        found = _core.decode(data, unpack)
        assert len(found["slices"]["start_ns"]) == len(found["slices"]["track"])


@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS)
def test_bombs(make: Callable[[int], bytes]) -> None:
    """What costs most for its size is read or refused."""
    _readable(make(100_000))


def _megabytes_of(name: str) -> None:
    """Read a bomb where memory is bounded to what the reader promises."""
    data = BOMBS[name](4_000_000)
    with Path("/proc/self/statm").open() as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    limit = mapped + _FACTOR * len(data) + _LEAST
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    read_bytes(data)


@pytest.mark.skipif(sys.platform != "linux", reason="bounds its memory as Linux does")
@pytest.mark.parametrize("name", ["described_tracks", "sequences", "tracks_of_events"])
def test_memory_of_bombs(name: str) -> None:
    """Megabytes of tracks or sequences, which take most, are read within 64 times their size."""
    command = f"from {__name__} import _megabytes_of; _megabytes_of({name!r})"
    subprocess.run([sys.executable, "-c", command], check=True, cwd=_FUZZ.parents[1])


def _interned(iids: list[int], used: int) -> bytes:
    names = b"".join(field(2, field(1, iid) + field(2, b"name %d" % iid)) for iid in iids)
    start = field(10, 1) + field(13, 1) + field(12, names)
    event = field(8, 5) + field(10, 1) + field(11, field(9, 1) + field(10, used))
    return field(1, start) + field(1, event)


def test_iids_in_any_order() -> None:
    """A name whose iid is far from the others is found, however many come after it."""
    for used in (100, 1, 150):
        trace = read_bytes(_interned([100, *range(1, 99), *range(101, 200)], used))
        assert [trace.strings[name] for name in trace.slices.name] == [f"name {used}"]


def _encoder(**changed: Any) -> _core.TraceEncoder:
    """An encoder of two commands, of which some columns are replaced."""
    codes = ("track", "layer", "command_index", "op_type", "role", "shapes", "stage", "step")
    numbers = ("start_ns", "duration_ns", "bytes_read", "bytes_written", "flops")
    columns: dict[str, Any] = {name: np.zeros(2, np.int32) for name in codes}
    columns |= {name: np.zeros(2, np.int64) for name in numbers}
    columns |= {"strings": ("", "layer"), "flows": np.zeros((0, 2), np.int64)} | changed
    encoder = _core.TraceEncoder(1, ["compute"])
    encoder.set_commands(
        columns["strings"],
        [columns[name] for name in codes],
        [columns.get(name) for name in ("pipeline", "kernel", "module", "name")],
        [columns[name] for name in numbers],
        columns["flows"],
    )
    encoder.place(_core.TextTable([], 0))
    return encoder


@pytest.mark.parametrize(
    "changed",
    [
        {"layer": np.array([0], np.int32)},  # shorter than the others
        {"start_ns": np.zeros(3, np.int64)},
        {"layer": np.array([0, 2], np.int32)},  # no such string
        {"role": np.array([-1, 0], np.int32)},
        {"kernel": np.array([0, 2], np.int32)},
        {"module": np.array([0, -1], np.int32)},
        {"module": np.array([0], np.int32)},
        {"track": np.array([0, 1], np.int32)},  # no such track
        {"track": np.array([0, -1], np.int32)},
        {"duration_ns": np.array([-2, 0])},
        {"start_ns": np.array([1, 0]), "duration_ns": np.array([(1 << 63) - 1, 0])},
        {"flops": np.array([np.nan, 0.0])},  # no integers
        {"layer": np.array([0, 1 << 32])},
        {"start_ns": np.zeros(4, np.int64)[::2]},  # with gaps
        {"start_ns": np.zeros((2, 1), np.int64)},
        {"flows": np.array([[0, 2]])},  # no such row
        {"flows": np.array([[-1, 0]])},
        {"flows": np.zeros(2, np.int64)},
        {"strings": ["", "layer"]},
        {"strings": (1, 2)},
        {"step": None},
    ],
    ids=str,
)
def test_columns_that_are_none(changed: dict[str, Any]) -> None:
    """Columns that do not fit each other, or point nowhere, are refused."""
    _encoder()
    with pytest.raises((TypeError, ValueError)):
        _encoder(**changed)


def test_columns_before_the_epoch() -> None:
    """No trace starts before the epoch."""
    encoder = _encoder(start_ns=np.array([-5, 0]))
    with pytest.raises(ValueError, match="before the epoch"):
        encoder.start(b"", [1])


def test_encoder_out_of_turn() -> None:
    """Its steps follow each other: columns do not change once they are placed."""
    empty = _core.TraceEncoder(1, [])
    with pytest.raises(RuntimeError, match="not placed"):
        empty.start(b"", [])
    with pytest.raises(RuntimeError, match="not started"):
        empty.chunk()
    with pytest.raises(ValueError, match="no such track"):
        empty.add_slice(0, "call", 0, 1, b"")
    backwards, values = np.array([2, 1]), np.array([0, 0])
    with pytest.raises(ValueError, match="order of time"):
        empty.add_counter(1, backwards, values)
    encoder = _encoder()
    with pytest.raises(ValueError, match="uuid"):
        encoder.start(b"", [1, 2, 3])
    for again in (
        lambda: encoder.place(_core.TextTable([], 0)),
        lambda: encoder.add_slice(0, "call", 0, 1, b""),
        lambda: encoder.add_counter(1, values, values),
        lambda: encoder.set_commands((), [], [], [], np.zeros((0, 2), np.int64)),
    ):
        with pytest.raises(RuntimeError, match="placed already"):
            again()
