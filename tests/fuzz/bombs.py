"""Traces that cost as much as traces can: each of about a given size, the same thing over and over.

    python -m tests.fuzz.bombs FOLDER [--size BYTES]

writes one file a bomb. Fuzzing finds short inputs; these show what grows faster than its input.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from tests.fuzz.messages import field

__all__ = ["BOMBS"]

_BEGIN, _END, _COUNTER = field(9, 1), field(9, 2), field(9, 4)
_FAR = 1 << 21  # ids from here on take four bytes


def _packet(content: bytes) -> bytes:
    return field(1, content)


def _event(content: bytes, time: int = 5) -> bytes:
    return _packet(field(8, time) + field(10, 1) + field(11, content))


def _up_to(size: int, parts: Iterator[bytes]) -> bytes:
    data = bytearray()
    for part in parts:
        data += part
        if len(data) >= size:
            break
    return bytes(data)


def _iids_that_double(size: int) -> bytes:
    """Interned ids, each as far as the table could still be dense."""
    filled, entries = 0, bytearray()
    for _ in range(40):
        iid = 2 * filled + 16
        entries += field(2, field(1, iid) + field(2, b"a"))
        filled = iid + 1
    return _packet(field(10, 1) + field(13, 1) + field(12, bytes(entries)))


def _sequences(size: int) -> bytes:
    return _up_to(size, (_packet(field(10, number)) for number in count(_FAR)))


def _generations(size: int) -> bytes:
    packet = _packet(field(10, 1) + field(13, 1))
    late = _event(_BEGIN, 9) + _event(_END, 3)
    return late + _up_to(size, (packet for _ in count()))


def _described_tracks(size: int) -> bytes:
    return _up_to(size, (_packet(field(60, field(1, uuid))) for uuid in count(_FAR)))


def _tracks_of_events(size: int) -> bytes:
    return _up_to(size, (_event(_BEGIN + field(11, uuid)) for uuid in count(_FAR)))


def _processes(size: int) -> bytes:
    return _up_to(size, (_packet(field(43, field(1, pid))) for pid in count(_FAR)))


def _threads(size: int) -> bytes:
    start = _packet(field(10, 1) + field(13, 1))
    threads = (
        _packet(field(10, 1) + field(44, field(1, tid) + field(2, tid))) for tid in count(_FAR)
    )
    return start + _up_to(size, threads)


def _threads_of_one_id(size: int) -> bytes:
    thread = field(4, field(1, 4) + field(2, 5))
    return _up_to(size, (_packet(field(60, field(1, uuid) + thread)) for uuid in count(_FAR)))


def _async_tracks(size: int) -> bytes:
    legacy = (field(6, field(2, ord("b")) + field(6, number)) for number in count(_FAR))
    return _up_to(size, (_event(event) for event in legacy))


def _slices(size: int) -> bytes:
    return _up_to(size, (_event(_BEGIN) for _ in count()))


def _instants(size: int) -> bytes:
    return _up_to(size, (_event(field(9, 3)) for _ in count()))


def _deep_stacks(size: int) -> bytes:
    """A slice of known end below many that are open: each begin looks through all of them."""
    thread = field(4, field(1, 4) + field(2, 5))
    track = _packet(field(10, 1) + field(13, 1)) + _packet(
        field(10, 1) + field(60, field(1, 7) + thread)
    )
    whole = field(6, field(2, ord("X")) + field(3, 1 << 40))
    return track + _event(whole) + _up_to(size, (_event(_BEGIN + field(11, 7)) for _ in count()))


def _backwards(size: int) -> bytes:
    return _up_to(size, (_event(_BEGIN, time) for time in range(size, 0, -1)))


def _counters(size: int) -> bytes:
    track = _packet(field(60, field(1, 7) + field(8, b"") + field(2, b"c")))
    sample = _COUNTER + field(11, 7) + field(30, 1)
    return track + _up_to(size, (_event(sample, time) for time in range(size, 0, -1)))


def _extra_counters(size: int) -> bytes:
    track = _packet(field(10, 1) + field(13, 1) + field(60, field(1, 7) + field(8, b"")))
    defaults = _packet(field(10, 1) + field(59, field(11, field(31, 7) * (size // 6))))
    event = _event(_BEGIN + field(12, 1))
    return track + defaults + _up_to(size // 2, (event for _ in count()))


def _described(messages: bytes, package: bytes = b"p") -> bytes:
    return _packet(field(72, field(1, field(1, field(2, package) + messages))))


def _ours() -> bytes:
    """That TrackEvent's fields 9900 to 9902 are ours."""
    fields = b""
    for number, name in enumerate((b"Command", b"Call", b"Span"), 9900):
        extension = field(2, b".perfetto.protos.TrackEvent") + field(3, number) + field(5, 11)
        fields += field(7, extension + field(6, b".profile_sd3.trace." + name))
    return _described(fields)


def _calls(size: int) -> bytes:
    return _ours() + _up_to(size, (_event(_BEGIN + field(9901, b"")) for _ in count()))


def _call_inputs(size: int) -> bytes:
    return _ours() + _event(_BEGIN + field(9901, field(8, b"") * (size // 2)))


def _calls_among_slices(size: int) -> bytes:
    """Each call is without end, so its last slice is looked for."""
    begin = _BEGIN + field(11, 7)
    calls = (_event(begin + field(9901, field(1, number))) for number in count())
    return _ours() + _slices(size // 2) + _up_to(size // 2, calls)


def _spans(size: int) -> bytes:
    return _ours() + _up_to(size, (_event(_BEGIN + field(9902, b"")) for _ in count()))


def _commands(size: int) -> bytes:
    """The last of many slices has all columns."""
    numbers = b"".join(field(number, 1) for number in (2, 5, 6, 7, 10))
    texts = b"".join(field(number, b"") for number in (3, 4, 8, 9))
    return _ours() + _slices(size) + _event(_BEGIN + field(9900, numbers + texts))


def _flows(size: int) -> bytes:
    ids = (field(36, number) for number in count(1 << 14))
    return _event(_BEGIN + _up_to(size, ids)) + _event(_BEGIN + field(36, 1 << 14))


def _same_flow(size: int) -> bytes:
    return _event(_BEGIN + field(36, 1) * (size // 3))


def _legacy_flows(size: int) -> bytes:
    legacy = (
        field(6, field(2, ord("f")) + field(6, number)) + field(11, 7) for number in count(_FAR)
    )
    return _up_to(size, (_event(event) for event in legacy))


def _strings(size: int) -> bytes:
    names = (field(2, field(1, iid) + field(2, b"%d" % iid)) for iid in count(1))
    return _packet(field(10, 1) + field(13, 1) + field(12, _up_to(size, names)))


def _sparse_iids(size: int) -> bytes:
    names = (field(2, field(1, iid)) for iid in range(1 << 27, 1 << 28, 99))
    return _packet(field(10, 1) + field(13, 1) + field(12, _up_to(size, names)))


def _source_locations(size: int) -> bytes:
    location = field(4, field(1, 1))
    return _packet(field(10, 1) + field(13, 1) + field(12, location * (size // len(location))))


def _annotation(size: int, value: bytes) -> bytes:
    return _event(_BEGIN + field(4, field(10, b"k") + value))


def _array(size: int) -> bytes:
    return _annotation(size, field(12, field(4, 1)) * (size // 4))


def _dictionary(size: int) -> bytes:
    entries = (field(11, field(10, b"%x" % number) + field(4, 1)) for number in count())
    return _annotation(size, _up_to(size, entries))


def _nested_annotations(size: int) -> bytes:
    value = field(12, field(4, 1)) * 40
    for _ in range(60):
        value = field(12, value)
    return _up_to(size, (_annotation(size, value) for _ in count()))


def _annotations(size: int) -> bytes:
    one = field(4, field(10, b"k") + field(4, 1))
    return _event(_BEGIN + one * (size // len(one)))


def _json(size: int) -> bytes:
    return _annotation(size, field(9, b"[" + b"1," * (size // 2) + b"1]"))


def _json_arrays(size: int) -> bytes:
    return _annotation(size, field(9, b"[" + b"[1]," * (size // 4) + b"1]"))


def _json_long_key(size: int) -> bytes:
    key = b'{"' + b"k" * 4000 + b'":['
    return _annotation(size, field(9, key + b"1," * (size // 2) + b"1]}"))


def _json_nested(size: int) -> bytes:
    return _annotation(size, field(9, b"[" * size))


def _categories(size: int) -> bytes:
    return _event(_BEGIN + field(22, b"") * (size // 3))


def _types(size: int) -> bytes:
    types = (field(4, field(1, b"%x" % number)) for number in count())
    return _described(_up_to(size, types))


def _types_with_fields(size: int) -> bytes:
    types = (field(4, field(1, b"%x" % number) + field(2, field(3, 1))) for number in count())
    return _described(_up_to(size, types))


def _types_with_long_names(size: int) -> bytes:
    inner = _up_to(size, (field(3, field(1, b"%x" % number)) for number in count()))
    return _described(field(4, field(1, b"n" * 1000) + inner))


def _types_in_a_long_package(size: int) -> bytes:
    types = _up_to(size // 2, (field(4, field(1, b"%x" % number)) for number in count()))
    return _described(types, b"p" * (size // 2))


def _enums(size: int) -> bytes:
    enums = (field(5, field(1, b"%x" % number) + field(2, field(2, 1))) for number in count())
    return _described(_up_to(size, enums))


def _enum_values(size: int) -> bytes:
    values = (field(2, field(2, number)) for number in count(1 << 7))
    return _described(field(5, field(1, b"E") + _up_to(size, values)))


def _text_values(size: int) -> bytes:
    values = (field(2, field(1, b"%x" % number) + field(2, number)) for number in count(1 << 7))
    return _described(field(5, field(1, b"Text") + _up_to(size, values)), b"profile_sd3.trace")


def _described_sets(size: int) -> bytes:
    sets = (field(72, field(1, field(1, field(2, b"%x" % number)))) for number in count())
    return _up_to(size, (_packet(one) for one in sets))


def _extension(kind: int, options: bytes = b"") -> bytes:
    """A message type `M` below TrackEvent's field 2000, with one repeated field `f`."""
    part = field(1, b"f") + field(3, 1) + field(4, 3) + field(5, kind) + options
    extension = field(1, b"x") + field(2, b".perfetto.protos.TrackEvent") + field(3, 2000)
    extension += field(5, 11) + field(6, b".p.M")
    return _described(field(4, field(1, b"M") + field(2, part)) + field(7, extension))


def _packed_arguments(size: int) -> bytes:
    definition = _extension(5, field(8, field(2, 1)))
    event = _event(_BEGIN + field(2000, field(1, b"\x01" * 5000)))
    return definition + _up_to(size, (event for _ in count()))


def _repeated_arguments(size: int) -> bytes:
    event = _event(_BEGIN + field(2000, field(1, 1) * 5000))
    return _extension(5) + _up_to(size, (event for _ in count()))


def _bytes_arguments(size: int) -> bytes:
    events = (_event(_BEGIN + field(2000, field(1, b"%06d" % number * 50))) for number in count())
    return _extension(12) + _up_to(size, events)


def _unresolved_types(size: int) -> bytes:
    """Fields of a type that is looked up in each of many scopes, and found in none."""
    scope = b"a." * 500 + b"M"
    parts = _up_to(
        size // 2,
        (field(2, field(3, number) + field(5, 11) + field(6, b"q")) for number in count(1)),
    )
    extension = field(1, b"x") + field(2, b".perfetto.protos.TrackEvent") + field(3, 2000)
    extension += field(5, 11) + field(6, b"." + scope)
    definition = _described(field(4, field(1, b"M") + parts) + field(7, extension), scope[:-2])
    events = (_event(_BEGIN + field(2000, field(number, b""))) for number in count(1))
    return definition + _up_to(size // 2, events)


def _snapshot(clocks: dict[int, int]) -> bytes:
    return _packet(
        field(10, 1)
        + field(6, b"".join(field(1, field(1, c) + field(2, t)) for c, t in clocks.items()))
    )


def _clocks(size: int) -> bytes:
    return _up_to(size, (_snapshot({6: 5, clock: 5}) for clock in count(1 << 14)))


def _clock_readings(size: int) -> bytes:
    return _up_to(size, (_snapshot({6: time, 3: time}) for time in count()))


def _clock_searches(size: int) -> bytes:
    """Each event looks for a way from its clock to the trace's among all others."""
    numbers = (number for number in range(1 << 16, 128, -1))
    graph = _snapshot({6: 5, 7: 5})
    graph += _up_to(size // 2, (_snapshot({3: 5, number: 5}) for number in numbers))
    event = _packet(field(8, 1) + field(58, 3) + field(10, 1) + field(11, _BEGIN))
    return graph + _up_to(size // 2, (event for _ in count()))


def _clock_conversions(size: int) -> bytes:
    """Between any two events a snapshot makes what is known about clocks void."""
    graph = _up_to(size // 2, (_snapshot({3: 5, clock: 5}) for clock in count(1 << 14)))
    both = _snapshot({6: 5, 3: 5})
    event = _packet(field(8, 1) + field(58, 3) + field(10, 1) + field(11, _BEGIN))
    return graph + _up_to(size // 2, (both + event for _ in count()))


def _deferred(size: int) -> bytes:
    event = _packet(field(8, 1) + field(58, 3) + field(10, 1) + field(11, _BEGIN))
    return _up_to(size, (event for _ in count()))


def _track_chain(size: int) -> bytes:
    """Tracks each below the one before."""
    chain = (_packet(field(60, field(1, uuid + 1) + field(5, uuid))) for uuid in count(_FAR))
    return _up_to(size, chain)


def _nameless_chain(size: int) -> bytes:
    """Counter samples on a track below 98 others."""
    chain = b"".join(
        _packet(field(60, field(1, uuid) + field(5, uuid - 1 if uuid > 1 else 0) + field(2, b"n")))
        for uuid in range(1, 98)
    )
    chain += _packet(field(60, field(1, 98) + field(5, 97) + field(8, b"") + field(2, b"c")))
    late = _event(_BEGIN, 9) + _event(_END, 3)
    sample = _event(_COUNTER + field(11, 98) + field(30, 1))
    return chain + late + _up_to(size, (sample for _ in count()))


def _empty_packets(size: int) -> bytes:
    return _event(_BEGIN) + b"\x0a\x00" * (size // 2)


BOMBS: dict[str, Callable[[int], bytes]] = {
    name[1:]: make
    for name, make in list(globals().items())
    if getattr(make, "__annotations__", None) == {"size": "int", "return": "bytes"}
}


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=1 << 20)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, make in BOMBS.items():
        (arguments.folder / f"{name}.pb").write_bytes(make(arguments.size))


if __name__ == "__main__":
    _main()
