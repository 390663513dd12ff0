"""Reading Kineto's JSON: exact times, tolerated oddities, hostile files."""

from __future__ import annotations

import gzip
import json

import pytest

from profiler.errors import InputError
from profiler.importers.importing import import_all_with
from profiler.importers.kineto import IMPORTER
from profiler.kineto.trace_file import read_kineto
from profiler.trace.manifest_fields import HealthRule

from .traces import BASE_NS, Trace, flux


def test_times_are_exact_nanoseconds(tmp_path):
    """Three decimals of a microsecond survive beside a base of the present day."""
    trace = Trace()
    trace.op("aten::mm", 2915995397672.546, 1195141.047)
    read = read_kineto(trace.write(tmp_path))
    assert read.start_ns.tolist() == [BASE_NS + 2_915_995_397_672_546]
    assert read.duration_ns.tolist() == [1_195_141_047]


@pytest.mark.parametrize("ns", range(0, 1000, 37))
def test_times_are_exact_to_the_end_of_a_quarter(tmp_path, ns):
    """Kineto counts from a base up to three months back: 7.9e12 µs, of which a float64 holds a
    little less than single nanoseconds."""
    trace = Trace()
    trace.op("aten::mm", float(f"7861234567890.{ns:03}"), 1)
    read = read_kineto(trace.write(tmp_path))
    assert read.start_ns.tolist() == [BASE_NS + 7_861_234_567_890_000 + ns]


def test_times_since_the_epoch_are_exact_too(tmp_path):
    """Without a base the file counts from the epoch, where a float64 holds no nanoseconds."""
    text = (
        '{"traceEvents": [{"ph": "i", "ts": 1},'
        '{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1712867402348256.123, "dur": 2.001}]}'
    )
    (tmp_path / "trace.json").write_text(text)
    read = read_kineto(tmp_path / "trace.json")
    assert read.start_ns.tolist() == [1_712_867_402_348_256_123]
    assert read.duration_ns.tolist() == [2001]


def test_times_since_the_epoch_are_exact_in_a_file_with_faults(tmp_path):
    """What is put right to be decoded is put right for exact times as well."""
    text = (
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a\n", "ts": 1712867402348256.123,'
        ' "dur": 2, "args": {"bandwidth": inf}}]}'
    )
    (tmp_path / "trace.json").write_text(text)
    assert read_kineto(tmp_path / "trace.json").start_ns.tolist() == [1_712_867_402_348_256_123]


def test_a_file_with_known_faults_of_kineto_is_read(tmp_path):
    """Infinite bandwidths, raw control characters and numbers as strings do not matter."""
    path = flux().write(tmp_path)
    text = path.read_text().replace('"args": {}', '"args": {"bandwidth": inf, "x": -nan}')
    text = text.replace("CLIPTextModel_0", "CLIPTextModel_0\n").replace('"ts": 20,', '"ts": "20",')
    path.write_text(text)
    assert len(read_kineto(path).events) == len(flux().events)


def test_pids_and_tids_may_be_strings(tmp_path):
    """Kineto's own spans have words where others have numbers."""
    trace = flux()
    trace.event("Trace", "PyTorch Profiler (0)", 0, 10, pid="Spans", tid="PyTorch Profiler")
    assert read_kineto(trace.write(tmp_path)).threads[-1] == ("Spans", "PyTorch Profiler")


def test_gzip_is_recognised_whatever_the_name(tmp_path):
    """The content decides, not the suffix."""
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(json.dumps(flux().document()).encode()))
    assert len(read_kineto(path).events) == len(flux().events)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"\x00\x01\x02", "is not JSON"),
        (b"{}", "is not a torch.profiler trace"),
        (b"[1, 2, 3]", "is not a torch.profiler trace"),
        (b'{"traceEvents": 3}', "is not a torch.profiler trace"),
        (b'{"traceEvents": [{"ph": "X", "name": 3}]}', "is not a torch.profiler trace"),
        (b'{"traceEvents": [{"ph": "X"', "is not valid JSON"),
        (b'{"traceEvents": [' + b"[" * 100_000, "is not"),
        (b'{"traceEvents": [], "x": "\xff\xfe"}', "holds no operator"),
        (b'{"traceEvents": []}', "holds no operator"),
        (b'{"traceEvents": [{"ph": "X", "ts": 1e300}]}', "out of range"),
        (b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1e18}]}', "out of range"),
        (b'{"traceEvents": [{"ph": "X", "ts": -5}]}', "out of range"),
        (b'{"traceEvents": [], "baseTimeNanoseconds": "soon"}', "baseTimeNanoseconds"),
        (b'{"traceEvents": [], "baseTimeNanoseconds": 1e40}', "baseTimeNanoseconds"),
    ],
)
def test_what_is_no_trace_gets_one_sentence(tmp_path, content, sentence):
    """Every unusable file ends in an InputError that names it, and leaves no bundle behind."""
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=sentence) as caught:
        import_all_with(IMPORTER, [path], {}, tmp_path / "traces")
    assert str(path) in str(caught.value)
    assert not (tmp_path / "traces").exists()


def test_a_cut_gzip_is_read_as_far_as_it_goes(tmp_path):
    """A download that stopped gives the events before that place, and a note; one of which nothing
    is left is refused."""
    path = flux().write(tmp_path, "trace.json.gz")
    packed, events = path.read_bytes(), len(read_kineto(path).events)
    path.write_bytes(packed[: len(packed) * 4 // 5])
    cut = read_kineto(path)
    assert 0 < len(cut.events) < events
    assert [note.rule for note in cut.health] == [HealthRule.BROKEN_OFF]
    path.write_bytes(packed[:12])
    with pytest.raises(InputError, match="is cut at its beginning"):
        read_kineto(path)


def test_a_damaged_gzip_is_refused(tmp_path):
    """A wrong byte in the compressed stream is named as such."""
    path = flux().write(tmp_path, "trace.json.gz")
    data = bytearray(path.read_bytes())
    data[30] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"is (damaged|not)"):
        read_kineto(path)


def test_a_gzip_bomb_is_refused_before_it_fills_memory(tmp_path):
    """What decompresses to more than the limit is refused while reading."""
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b"{" + b" " * 20_000_000))
    with pytest.raises(InputError, match="larger than the limit of 10,000,000 bytes"):
        read_kineto(path, limit=10_000_000)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    """Paths that cannot be opened give the reason."""
    with pytest.raises(InputError, match="No such file"):
        read_kineto(tmp_path / "absent.json")
    with pytest.raises(InputError, match="directory"):
        read_kineto(tmp_path)
