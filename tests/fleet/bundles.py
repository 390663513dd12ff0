"""Bundles that differ: the tiny run, begun at different times, of different length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from profiler.trace import ROOT_DEVICE, BundleWriter, CommandBuilder, CommandColumns, Track
from profiler.trace.manifest import info_document, parse_info
from tests.runs import EPOCH, TINY_CALLS, TINY_COMMANDS, TINY_INFO, TINY_SPANS

HOUR = 3_600_000_000_000


def write_bundle(parent: Path, number: int, factor: float = 1, **info) -> Path:
    """The tiny run, begun `number` hours after `EPOCH`, all in it `factor` times as long; `info`
    replaces what its manifest says."""
    begin = EPOCH + number * HOUR

    def moved(one):
        start = begin + round((one.start_ns - EPOCH) * factor)
        return replace(one, start_ns=start, duration_ns=round(one.duration_ns * factor))

    with BundleWriter.create(parent, f"run{number:03d}", sync="never") as bundle:
        for call in TINY_CALLS:
            bundle.write_call(moved(call), _commands(call.index, begin, factor))
        spans = [moved(span) for span in TINY_SPANS]
        bundle.write_host(spans, _commands(-1, begin, factor), ROOT_DEVICE)
        return bundle.finish(parse_info({**info_document(TINY_INFO), **info}))


def write_bundles(parent: Path, count: int) -> list[Path]:
    """So many of them."""
    return [write_bundle(parent, number) for number in range(count)]


def _commands(call: int, begin: int, factor: float) -> CommandColumns:
    builder = CommandBuilder()
    for command in TINY_COMMANDS:
        if command.call == call:
            track = Track(command.device, command.track, command.category)
            where = {"stage": command.stage, "step": command.step} if call == -1 else {}
            start, length = round(command.start * factor), round(command.duration * factor)
            names = {"kernel": command.kernel, "module": command.module}
            builder.add(
                track, command.layer, command.op_type, begin + start, length, **where, **names
            )
    return builder.build()
