"""Seeds for the fuzz targets: small traces and profiles of all kinds, and a dictionary.

    python -m tests.fuzz.seeds FOLDER

writes FOLDER/decode, FOLDER/encode, FOLDER/profile, FOLDER/kineto, FOLDER/columns and
FOLDER/trace.dict.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from hypothesis import errors
from hypothesis import strategies as st

from profiler.trace import ROOT_DEVICE, encode_call, encode_host
from tests.corpus import PERFETTO_TESTS
from tests.fuzz.messages import field, varint
from tests.fuzz.profiles import WORDS, profiles
from tests.importers.test_sqlite_file import written
from tests.kineto.documents import documents
from tests.trace import wire
from tests.trace.samples import awkward_trace, small_calls, small_host
from tests.trace.strategies import hostile_traces
from tests.trace.trace_strategies import foreign_traces

_EXAMPLES = 60
_DEFLATE, _ZSTD = 50, 133  # TracePacket's fields of packed packets

# Fields by message; a dictionary holds tags, for fields above 15 two bytes or three.
_VARINTS = {
    "TracePacket": (8, 10, 13, 41, 42, 58),
    "TrackEvent": (1, 2, 3, 9, 10, 11, 12, 16, 17, 20, 30, 31, 34, 36, 42, 45, 52, 54),
    "LegacyEvent": (1, 2, 3, 6, 8, 10, 11, 12, 13, 14, 18, 19),
}
_MESSAGES = {
    "TracePacket": (6, 11, 12, 43, 44, 50, 54, 59, 60, 72, 133),
    "TrackEvent": (4, 5, 6, 21, 22, 23, 25, 28, 33, 47, 48, 53, 1001, 9900, 9901, 9902),
    "TrackDescriptor": (2, 3, 4, 6, 7, 8, 10, 14),
    "DebugAnnotation": (6, 8, 9, 10, 11, 12, 14, 16),
    "InternedData": (1, 2, 3, 4, 20, 25, 27, 29, 43),
}
_FIXED = {"TrackEvent": (44, 46, 47, 48)}
_WORDS = (
    ".perfetto.protos.TrackEvent",
    ".perfetto.protos.DebugAnnotation",
    "profile_sd3.trace",
    "Text",
    "thread_name",
    "process_name",
)


def _packed(data: bytes, *, repeats: int = 0) -> bytes:
    """A packet whose content is `data`, packed as `decode_target.cpp` unpacks it."""
    return field(1, field(_DEFLATE, bytes([repeats]) + data) if repeats else field(_ZSTD, data))


def _examples(strategy: st.SearchStrategy[bytes]) -> Iterator[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.NonInteractiveExampleWarning)
        for _ in range(_EXAMPLES):
            yield strategy.example()


def _traces() -> Iterator[bytes]:
    for path in PERFETTO_TESTS:
        yield path.read_bytes()
    for call, commands, counters in small_calls():
        yield encode_call(call, commands, counters)
    spans, commands = small_host()
    yield encode_host(spans, commands, ROOT_DEVICE)
    yield encode_call(*awkward_trace())
    yield from _events()
    yield from _typed_arguments()
    for strategy in (hostile_traces(), foreign_traces()):
        yield from _examples(strategy.map(lambda trace: trace.SerializeToString()))


def _events() -> Iterator[bytes]:
    """Traces of one event each, with fields that few producers write."""
    for phase in b"BEXiInbeSTpFstfMR":
        legacy = field(2, phase) + field(3, 5) + field(6, 7) + field(7, b"scope")
        legacy += field(8, 3) + field(13, 3) + field(18, 4) + field(19, 5)
        yield _trace(field(6, legacy) + field(23, b"name") + field(22, b"category"))
    for number, value in enumerate(_annotations()):
        named = field(10, b"a.b[0]") if number % 2 else field(1, 1)
        yield _trace(field(9, 1) + field(11, 5) + field(4, named + value))
    logged = field(1, 1) + field(2, 1) + field(3, 4)
    for rare in (field(21, logged), field(28, field(4, 1)), field(54, 1), field(1001, field(2, 1))):
        thread_track = field(11, 7)
        yield _trace(field(9, 1) + thread_track + rare)
    for extension in (field(1001, field(2, 3)), field(50, field(1, b"\xff\xd8")), field(34, 1)):
        yield _trace(field(9, 3) + field(5, field(1, 1)) + field(21, field(2, 1)) + extension)
    yield _trace(field(9, 4) + field(11, 6) + field(30, 9) + field(31, 6) + field(12, 2))
    yield _trace(
        field(9, 1) + field(36, 1) + field(42, 2) + field(1, 5) + field(2, 5) + field(8, 5)
    )


def _typed_arguments() -> Iterator[bytes]:
    """Events with an extension of each of protobuf's types, repeated and packed."""
    eight, four = bytes(range(8)), bytes(range(4))
    plain = {1: eight, 2: four, 6: eight, 7: four, 15: four, 16: eight, 9: b"text", 12: b"bytes"}
    for kind in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18):
        for is_packed in (False, True):
            value = plain.get(kind, b"\x03")
            wire_type = {8: 1, 4: 5}.get(len(value)) if kind not in (9, 12) else 2
            inline = varint(1 << 3 | (wire_type or (2 if kind == 11 else 0)))
            one = field(1, value * 3) if is_packed or kind in (9, 11, 12) else inline + value
            yield _typed(kind, is_packed) + _trace(field(9, 1) + field(11, 5) + field(2000, one))


def _typed(kind: int, is_packed: bool) -> bytes:
    """A type `a.N` with one field of `kind`, below TrackEvent's field 2000."""
    part = field(1, b"f") + field(3, 1) + field(4, 3) + field(5, kind) + field(6, b"E")
    message = field(1, b"N") + field(2, part + field(8, field(2, int(is_packed))))
    numbers = field(1, b"E") + field(2, field(1, b"THREE") + field(2, 3))
    extension = field(1, b"n") + field(2, b".perfetto.protos.TrackEvent") + field(3, 2000)
    extension += field(5, 11) + field(6, b".a.N")
    file = field(2, b"a") + field(4, message) + field(5, numbers) + field(7, extension)
    return field(1, field(72, field(1, field(1, file))))


def _annotations() -> Iterator[bytes]:
    yield from (field(number, 1) for number in (2, 3, 4, 7, 17))
    yield field(6, b"text")
    yield field(9, b'{"a": null, "b": [null, "\\b\\f\\n\\r\\t\\u0041\\ud83d\\ude00"]}')
    yield field(9, b'{"a": [1, 2.5e3, {"b": null}], "c\\u00e9": "d", "e": true}')
    yield field(11, field(10, b"k") + field(3, 1)) * 2
    yield field(12, field(4, 1) + field(12, field(4, 2))) * 2
    inner = field(1, 2) + field(4, field(5, 1)) + field(4, field(8, b"x"))
    yield field(8, field(1, 1) + field(2, b"k") + field(3, inner))
    yield field(16, b"a.M") + field(14, field(1, 1) + field(2, b"\x01\x02") + field(3, b""))


def _trace(event: bytes) -> bytes:
    """A trace of `event`, after what it may refer to."""
    names = b"".join(
        field(number, field(1, 1) + field(2, b"interned") + field(3, b"f") + field(4, 9))
        for number in (1, 2, 3, 4, 20, 25, 27, 29, 43)
    )
    snapshot = field(1, field(1, 6) + field(2, 10)) + field(1, field(1, 64) + field(2, 5))
    thread = field(1, 7) + field(4, field(1, 4) + field(2, 5) + field(5, b"t") + field(6, 1))
    kinds = (field(3, 2) + field(4, 3) + field(5, 13) + field(8, field(2, 1))) + field(1, b"g")
    message = (
        field(1, b"M") + field(2, field(1, b"f") + field(3, 1) + field(5, 5)) + field(2, kinds)
    )
    kinds = field(1, b"h") + field(3, 3) + field(5, 11) + field(6, b"M")
    message += field(2, kinds)
    extension = field(1, field(1, field(2, b"a") + field(4, message)))
    counter = field(1, 6) + field(8, field(3, 1) + field(4, 3) + field(5, 1))
    packets = (
        field(6, snapshot),
        field(13, 1) + field(12, names) + field(59, field(58, 64) + field(11, field(11, 5))),
        field(72, extension),
        field(60, thread),
        field(60, field(1, 5) + field(5, 7) + field(2, b"track")),
        field(60, counter),
        field(8, 20) + field(58, 6) + field(11, event),
        field(8, 3) + field(11, field(9, 2)),
    )
    return b"".join(field(1, field(10, 1) + packet) for packet in packets)


def _decode_seeds() -> Iterator[bytes]:
    for number, data in enumerate(_traces()):
        yield data
        ends = [end for *_, end in wire.fields(data)] if data else []
        if len(ends) > 2:
            yield data[: ends[-2]]
            yield data[: ends[len(ends) * 2 // 3]]
        if number % 4 == 0 and data:
            yield _packed(data)
            yield _packed(data[: next(wire.fields(data))[2]], repeats=200)
            yield data + _packed(data, repeats=3) + data


def _encode_seeds() -> Iterator[bytes]:
    source = random.Random(0)
    for size in (8, 40, 200, 1000, 4000):
        yield source.randbytes(size)
        yield bytes(source.choice((0, 0, 0, 1, 2, 100)) for _ in range(size))


def _dictionary() -> Iterator[str]:
    for fields, kind in ((_VARINTS, 0), (_MESSAGES, 2), (_FIXED, 1)):
        for message, numbers in fields.items():
            for number in numbers:
                tag = "".join(f"\\x{byte:02x}" for byte in varint(number << 3 | kind))
                yield f'{message}_{number}_{kind}="{tag}"'
    for number, word in enumerate((*_WORDS, *WORDS)):
        yield f'word_{number}="{word.replace(chr(34), chr(92) + chr(34))}"'
    for bits in (31, 32, 63, 64):
        largest = "".join(f"\\x{byte:02x}" for byte in varint((1 << bits) - 1))
        yield f'largest_{bits}="{largest}"'


def _columns() -> Iterator[bytes]:
    """CSV, files of SQLite with pages of 512 bytes, and what few changed bytes make of these."""
    chance = random.Random(1)
    fields = ("1", "-7", "", "12345678901234567890", '"a, ""b"""', "x\r", '"', "é\n")
    for _ in range(_EXAMPLES):
        rows = (",".join(chance.choices(fields, k=chance.choice((3, 4, 4, 4)))) for _ in range(6))
        yield "\n".join(rows).encode()
    for count in (0, 1, 3, 12):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.sqlite"
            written(path, [(n, n * n, "x" * (n * 70), n) for n in range(count)], 512, more=False)
            file = path.read_bytes()
        yield file
        for _ in range(_EXAMPLES // 3):
            changed = bytearray(file)
            for at in chance.choices(range(16, len(file)), k=chance.randint(1, 6)):
                changed[at] = chance.randrange(256)
            yield bytes(changed)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    targets = {
        "decode": _decode_seeds(),
        "encode": _encode_seeds(),
        "profile": profiles(),
        "kineto": _examples(documents),
        "columns": _columns(),
    }
    for name, seeds in targets.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for data in seeds:
            (folder / name / hashlib.sha1(data).hexdigest()).write_bytes(data)
    (folder / "trace.dict").write_text("\n".join(_dictionary()) + "\n")


if __name__ == "__main__":
    _main()
