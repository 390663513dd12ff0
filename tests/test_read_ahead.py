"""A file that is unpacked on a thread is what its reader would have unpacked, or left to it."""

import gzip
import os
import random

import pytest

from profiler.read_ahead import begin, unpacked

_TEXT = random.Random(0).randbytes(1 << 19)
_PACKED = gzip.compress(_TEXT, 1)


def _asked(path, begun=None):
    begin(begun or path)
    with path.open("rb") as file:
        return unpacked(file)


def test_a_whole_stream_is_there_once(tmp_path):
    """Who asks first gets the text, and nobody gets it twice."""
    path = tmp_path / "trace.json.gz"
    path.write_bytes(_PACKED)
    assert _asked(path) == _TEXT
    with path.open("rb") as file:
        assert unpacked(file) is None


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(_TEXT, id="not packed"),
        pytest.param(_PACKED[:-9], id="cut"),
        pytest.param(_PACKED[:-8] + bytes(8), id="wrong checksum"),
        pytest.param(_PACKED + gzip.compress(b"{}"), id="two members"),
        pytest.param(gzip.compress(b"{}"), id="too small to be worth it"),
        pytest.param(
            gzip.compress(bytes(97 << 20), 9) + bytes(1 << 18), id="more than is kept in memory"
        ),
    ],
)
def test_what_is_no_small_whole_stream_is_left_to_its_reader(tmp_path, content):
    """Its errors, limits and further members are the reader's."""
    path = tmp_path / "trace.json.gz"
    path.write_bytes(content)
    assert _asked(path) is None


def test_another_file_gets_nothing_of_it(tmp_path):
    """What was begun for one path is not taken for another, nor for one that was replaced."""
    path, other = tmp_path / "trace.json.gz", tmp_path / "other.json.gz"
    path.write_bytes(_PACKED)
    other.write_bytes(_PACKED)
    assert _asked(other, begun=path) is None
    begin(path)
    os.replace(other, path)  # noqa: PTH105
    path.write_bytes(gzip.compress(_TEXT[::-1], 1))
    with path.open("rb") as file:
        assert unpacked(file) in (None, _TEXT[::-1])


def test_what_is_no_file_harms_nobody(tmp_path):
    """A folder, a path that is not there and a pipe are left alone."""
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "trace.json.gz"
    path.write_bytes(_PACKED)
    for begun in (tmp_path, tmp_path / "none", tmp_path / "pipe"):
        assert _asked(path, begun=begun) is None
