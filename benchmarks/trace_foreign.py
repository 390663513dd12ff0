"""Traces of other producers, with debug annotations: their rate beside that of our own, and upb's.

    python benchmarks/trace_foreign.py [--slices 500000] [--rounds 5]

A slice has a name, a category and one annotation (`number`), or two (`mixed`: a number, a real, a
text, interned or inline, a truth value, under interned and inline names, some at its end). *own* is
the SD3.5 sample, repeated to as many commands. *upb* only parses the packets of the same bytes, in
C. All run in turn; figures are processor time.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import checkout  # noqa: F401 - finds the project
import trace_commands

from profiler.kineto.perfetto_file import trace_class
from profiler.trace.columns import read_bytes
from profiler.trace.writer import encode_call

NAMES = ("index", "rate", "who", "on")
BEGIN, END = 1, 2


def foreign(slices: int, *, mixed: bool) -> bytes:
    """A trace of so many slices on one track."""
    trace = trace_class()()
    head = trace.packet.add(trusted_packet_sequence_id=1, sequence_flags=1)
    for iid, name in enumerate(NAMES, 1):
        head.interned_data.debug_annotation_names.add(iid=iid, name=name)
    for iid in range(1, 40):
        head.interned_data.event_names.add(iid=iid, name=f"op{iid}")
        head.interned_data.debug_annotation_string_values.add(iid=iid, str=b"text %d" % iid)
    head.interned_data.event_categories.add(iid=1, name="category")
    track = trace.packet.add(trusted_packet_sequence_id=1).track_descriptor
    track.uuid, track.name = 7, "track"
    for number in range(slices):
        for kind in (BEGIN, END):
            time_ns = 1000 + 20 * number + 10 * (kind == END)
            packet = trace.packet.add(trusted_packet_sequence_id=1, timestamp=time_ns)
            packet.sequence_flags = 2
            event = packet.track_event
            event.type, event.track_uuid = kind, 7
            if kind == BEGIN:
                event.name_iid = 1 + number % 39
                event.category_iids.append(1)
                event.debug_annotations.add(name_iid=1, uint_value=number)
            if mixed:
                annotate(event, number, kind)
    return trace.SerializeToString()


def annotate(event: Any, number: int, kind: int) -> None:
    """Add one annotation more, by the number of the slice."""
    if kind == END:
        if number % 4 == 0:
            event.debug_annotations.add(name_iid=2, double_value=number * 0.5)
        return
    one = event.debug_annotations.add()
    choice = number % 4
    if choice == 0:
        one.name, one.string_value = "inline", f"text {number % 50}"
    elif choice == 1:
        one.name_iid, one.string_value_iid = 3, 1 + number % 39
    elif choice == 2:
        one.name_iid, one.bool_value = 4, bool(number & 4)
    else:
        one.name_iid, one.double_value = 2, number * 0.5


def seconds(function: Callable[[], Any]) -> float:
    """Processor time of one call; what it returns is freed before the next."""
    gc.collect()
    begin = time.process_time()
    result = function()
    end = time.process_time()
    del result
    return end - begin


def main() -> None:
    """Print the rates, and how much longer the others take."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    commands = trace_commands.gpu().repeated(asked.slices)
    own = encode_call(trace_commands.call_of(commands), commands)
    traces = {
        "number": foreign(asked.slices, mixed=False),
        "mixed": foreign(asked.slices, mixed=True),
    }
    ways: dict[str, Callable[[], Any]] = {"own": lambda: read_bytes(own)}
    for name, data in traces.items():
        ways[name] = lambda data=data: read_bytes(data)
        ways[f"upb, {name}"] = lambda data=data: trace_class().FromString(data)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(asked.rounds):
        for name, way in ways.items():
            times[name].append(seconds(way))
    print("| | M slices/s | time ÷ own | upb's parse ÷ it |\n|---|---|---|---|")
    for name in ("own", *traces):
        rate = asked.slices / median(times[name]) / 1e6
        parse = times.get(f"upb, {name}")
        cells = [f"{rate:.1f}", ratio(times[name], times["own"])]
        print(f"| {name} | {' | '.join(cells)} | {ratio(parse, times[name]) if parse else ''} |")


def ratio(times: list[float], base: list[float]) -> str:
    """The median of the ratios of each round."""
    return f"{median(a / b for a, b in zip(times, base, strict=True)):.2f}"


if __name__ == "__main__":
    main()
