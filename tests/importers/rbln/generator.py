"""Traces as RBLN's profiler writes them, made from the documented rules.

No RBLN trace is public. What is written here follows what the documentation says and what programs
that read real traces rely on: thread tracks named after the command, `Slice Arguments` as a JSON
string, flows in fixed64 ids that are used again after they ended, absolute timestamps without a
clock snapshot, names of both grammars, one file a runtime call and one unnumbered aggregate.

    run = write_sd3(tmp_path, steps=28)     # 35 files and their aggregate, two devices
    run.files[6].commands[0].layer
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

STEM = "rbln_20260902_012906319"
Version = Literal["0.11", "0.12"]
Rows = Literal["processes", "unnamed", "pids", "threads", "chiplets"]

TEXT_ENCODERS = ("text_encoder", "text_encoder_2", "text_encoder_3")


@dataclass(frozen=True)
class Command:
    """One slice, and what it is: `duration` -1 never ends; `moved` in bytes, `cycles` -1 for none.

    `group` is the chiplet, "" for none; `flows_out` and `flows_in` are flow ids, of which those in
    `flows_in` end here.
    """

    device: int
    track: str
    layer: str
    index: int
    start: int
    duration: int
    moved: int = -1
    cycles: int = -1
    group: str = ""
    flows_out: tuple[int, ...] = ()
    flows_in: tuple[int, ...] = ()
    name: str = ""  # instead of one by the grammar
    arguments: str = ""  # instead of those by `moved` and `cycles`


@dataclass(frozen=True)
class File:
    """One numbered file and what it holds. `clock` is the device's time at which it begins."""

    submodule: str
    number: int
    commands: tuple[Command, ...]


@dataclass
class WrittenRun:
    folder: Path
    files: list[File] = field(default_factory=list)

    def path(self, number: int) -> Path:
        return self.folder / f"{STEM}_{number}.pb"

    @property
    def aggregate(self) -> Path:
        return self.folder / f"{STEM}.pb"


def command_name(
    command: Command, version: Version, sequence: int, call: int, instance: int
) -> str:
    """The slice's name; `instance` -1 outside Multi Stream files."""
    if command.name:
        return command.name
    tail = f"{command.layer}_{command.index}"
    if version == "0.11":
        return f"{sequence}_{tail}"
    first = f"i{instance}_" if instance >= 0 else ""
    workload = "" if command.track == "Host" else f"W{call}_"
    return f"{first}{sequence}_{workload}{tail}"


def slice_arguments(command: Command) -> str:
    """The JSON text of `Slice Arguments`, "" for a command without."""
    if command.arguments:
        return command.arguments
    entries: dict[str, list[str]] = {}
    if command.moved >= 0:
        half = command.moved // 2
        entries["transfer"] = [f"tensor_0:{half}Byte", f"tensor_1:{command.moved - half}Byte"]
    if command.cycles >= 0:
        entries["comp_cycle"] = [str(command.cycles)]
    return json.dumps(entries) if entries else ""


def runtime_call(
    device: int, start: int, layers: Sequence[str], *, seed: int = 0, arguments: bool = True
) -> tuple[Command, ...]:
    """What one runtime call executes: inputs in, each layer split in up to four, outputs out.

    The Task DMA waits for the inputs from the host, and the outputs for the last Task DMA; both
    use the same flow id, one after the other. Neural DMA is in no flow.
    """
    rng = random.Random(seed)
    time = start
    commands = [Command(device, "Host", "reshape", 0, time, 2_000)]
    time += 2_500
    commands.append(
        Command(device, "External HDMA", "input", 0, time, 4_000, 65_536, flows_out=(1,))
    )
    time += 4_100
    commands.append(Command(device, "Task DMA", "input", 0, time, 1_500, 65_536, flows_in=(1,)))
    time += 1_600
    for layer in layers:
        for index in range(rng.randint(1, 4)):
            length = rng.randint(1_000, 9_000)
            commands.append(
                Command(device, "Neural DMA", layer, index, time - 500, length // 2, 4_096 + index)
            )
            commands.append(
                Command(device, "Neural Engine Clusters", layer, index, time, length, cycles=length)
            )
            time += length + 700
    commands.append(Command(device, "Task DMA", "output", 0, time, 1_200, 8_192, flows_out=(1,)))
    time += 1_300
    commands.append(
        Command(device, "External HDMA", "output", 0, time, 3_000, 8_192, flows_in=(1,))
    )
    if not arguments:
        return tuple(replace(command, moved=-1, cycles=-1) for command in commands)
    return tuple(commands)


def trace_bytes(
    files: Sequence[Sequence[Command]],
    *,
    version: Version = "0.12",
    rows: Rows = "processes",
    first_call: int = 0,
    instances: Sequence[int] = (),
    workloads: Sequence[int] = (),
    interned: bool = False,
) -> bytes:
    """A trace of the commands of one call, or of several calls after each other.

    Events are written track by track, so their timestamps go back in the file, and each track is
    a packet sequence of its own. Names stand in the events, or are `interned`. With the `instances`
    of the calls it is a Multi Stream file; `workloads` are theirs, by default counted over all.
    """
    writer = _Writer(rows, interned)
    for position, commands in enumerate(files):
        call = first_call + position
        for sequence, command in enumerate(commands):
            instance = instances[position] if instances else -1
            workload = workloads[position] if workloads else call
            name = command_name(command, version, sequence, workload, instance)
            writer.add(command, name, position)
    return writer.encode()


def write_sd3(
    folder: Path,
    *,
    steps: int = 28,
    version: Version = "0.12",
    rows: Rows = "processes",
    warmup: int = 0,
    first_number: int = 0,
    aggregate: bool = True,
    second_device: int = 1,
    second_clock: int = 7_000_000_000_000,
) -> WrittenRun:
    """Every file of one SD3 image with guidance: six encoder calls, the steps, the VAE.

    The third text encoder runs on `second_device`, whose clock shows `second_clock` when that of
    device 0 shows `1_000_000_000`; `warmup` leading calls of the transformer are numbered too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    run = WrittenRun(folder)
    names = ["transformer"] * warmup
    names += [*TEXT_ENCODERS, *TEXT_ENCODERS, *["transformer"] * steps, "vae"]
    time = 1_000_000_000
    for position, submodule in enumerate(names):
        second = submodule == "text_encoder_3"
        device = second_device if second else 0
        skew = second_clock - 1_000_000_000 if second and second_device else 0
        layers = layers_of(submodule)
        seed = TEXT_ENCODERS.index(submodule) if submodule in TEXT_ENCODERS else 7
        commands = runtime_call(device, time + skew, layers, seed=seed)
        run.files.append(File(submodule, first_number + position, commands))
        time += max(c.start + c.duration for c in commands) - commands[0].start + 50_000
    for position, file in enumerate(run.files):
        data = trace_bytes([file.commands], version=version, rows=rows, first_call=position)
        run.path(file.number).write_bytes(data)
    if aggregate:
        write_aggregate(run, version=version, rows=rows)
    return run


def write_aggregate(
    run: WrittenRun,
    *,
    version: Version = "0.12",
    rows: Rows = "processes",
    per_instance: bool = False,
) -> None:
    """The unnumbered file that holds every call once more; in 0.12 it is a Multi Stream file, whose
    workloads count the calls of all instances, or those `per_instance`."""
    calls = [file.commands for file in run.files]
    names = [file.submodule for file in run.files]
    instances = [list(dict.fromkeys(names)).index(name) for name in names]
    own = [names[:position].count(name) for position, name in enumerate(names)]
    data = trace_bytes(
        calls,
        version=version,
        rows=rows,
        instances=instances if version == "0.12" else (),
        workloads=own if per_instance else (),
    )
    run.aggregate.write_bytes(data)


def layers_of(submodule: str) -> list[str]:
    """Layer names of a submodule: digits and underscores in them, and fused ones."""
    first = sum(map(ord, submodule)) % 90
    return [
        f"linear_{first}",
        f"fused(linear_{first + 1}+gelu_{first + 1})",
        f"SDPA_{first + 2}",
        f"conv_2d_{first + 3}",
    ]


@dataclass
class _Writer:
    """Collects events by track and encodes them with the `perfetto` package's own messages."""

    rows: Rows
    interned: bool
    tracks: dict[tuple[int, str, str], list[Any]] = field(default_factory=dict)

    def add(self, command: Command, name: str, call: int) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

        key = (command.device, command.group, command.track)
        events = self.tracks.setdefault(key, [])
        begin = pb.TrackEvent(type=pb.TrackEvent.TYPE_SLICE_BEGIN, name=name)
        begin.flow_ids.extend(call * 1_000 + flow for flow in command.flows_out)
        begin.terminating_flow_ids.extend(call * 1_000 + flow for flow in command.flows_in)
        text = slice_arguments(command)
        if text:
            begin.debug_annotations.add(name="Slice Arguments", string_value=text)
        events.append((command.start, 1, begin))
        if command.duration >= 0:
            end = pb.TrackEvent(type=pb.TrackEvent.TYPE_SLICE_END)
            events.append((command.start + command.duration, 0, end))

    def encode(self) -> bytes:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

        trace = pb.Trace()
        for sequence, (key, events) in enumerate(self.tracks.items(), 1):
            uuid = self._describe(trace, key, sequence)
            known: dict[str, int] = {}
            for time, _, event in sorted(events, key=lambda event: event[:2]):
                packet = trace.packet.add(timestamp=time, trusted_packet_sequence_id=sequence)
                packet.track_event.CopyFrom(event)
                packet.track_event.track_uuid = uuid
                if self.interned:
                    packet.sequence_flags = 2 if known else 1
                    _intern(packet, known)
        data: bytes = trace.SerializeToString()
        return data

    def _describe(self, trace: Any, key: tuple[int, str, str], sequence: int) -> int:
        device, group, track = key
        parent = 0
        for uuid, name, pid in self._above(device, group):
            row = trace.packet.add(trusted_packet_sequence_id=sequence).track_descriptor
            row.uuid = uuid
            if parent:
                row.parent_uuid = parent
            if pid:
                row.process.pid, row.process.process_name = pid, name
            else:
                row.name = name
            parent = uuid
        described = trace.packet.add(trusted_packet_sequence_id=sequence).track_descriptor
        described.uuid = 10_000 + sequence
        if parent and self.rows == "chiplets":
            described.parent_uuid = parent
        described.thread.pid = 1 if self.rows == "threads" else device + 1
        described.thread.tid = sequence + 100  # what Perfetto prints behind the command's name
        described.thread.thread_name = track
        return described.uuid

    def _above(self, device: int, group: str) -> Iterator[tuple[int, str, int]]:
        """The rows above a track: uuid, name, pid (0 for a plain row)."""
        if self.rows in ("threads", "pids"):
            return
        yield device + 1, f"Device {device}" if self.rows != "unnamed" else "ATOM", device + 1
        if self.rows == "chiplets" and group:
            yield 1_000 + device * 10 + int(group[-1]), group, 0


def _intern(packet: Any, known: dict[str, int]) -> None:
    """Move the texts of a packet's event into its sequence's interned data."""
    event, data = packet.track_event, packet.interned_data
    for holder, name, table in (
        (event, "name", data.event_names),
        *((note, "name", data.debug_annotation_names) for note in event.debug_annotations),
    ):
        text = getattr(holder, name)
        if text:
            key = f"{table is data.event_names}{text}"
            if key not in known:
                known[key] = len(known) + 1
                table.add(iid=known[key], name=text)
            holder.name_iid = known[key]
