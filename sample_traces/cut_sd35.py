"""Make `sd35_mi300x_cut/` again: `python sample_traces/cut_sd35.py` from the repository's root.

Imports the public Stable Diffusion 3.5 trace of `../shared/corpus` and keeps what a small sample
needs: every call, span and piece of host work with its true times, and the commands of `KEPT`.
`sd35_mi300x_cut.md` says what that leaves out.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from profiler.drop_reasons import DropReason
from profiler.events import ROOT_DEVICE, Drop, DropKind, Track
from profiler.importers.importing import import_trace
from profiler.notes import Note
from profiler.trace.bundle import HOST_NAME, BundleWriter
from profiler.trace.columns import CommandBuilder, CommandColumns, TraceColumns
from profiler.trace.manifest import MANIFEST_NAME, read_manifest
from profiler.trace.manifest_fields import Recording
from profiler.trace.reader import read_trace

FOLDER = Path(__file__).resolve().parent
NAME = "sd35_mi300x_cut"
SOURCE = Path("../shared/corpus/torch/sd35_mi300x.json.gz")
KEPT = {0: {"launches", "shapes"}, 7: set(), 10: {"shapes"}}  # call → what is kept of commands
LIMIT = 700_000  # bytes


def main() -> None:
    """Import, cut and write; ends with the size."""
    with tempfile.TemporaryDirectory() as scratch:
        whole = import_trace(FOLDER.parent / SOURCE, Path(scratch), NAME)
        shutil.rmtree(FOLDER / NAME, ignore_errors=True)
        cut = _cut(whole)
    size = sum(path.stat().st_size for path in cut.iterdir())
    sys.stdout.write(f"{cut}: {size:,} bytes\n")
    if size > LIMIT:
        raise SystemExit(f"larger than {LIMIT:,} bytes: keep fewer commands")


def _cut(whole: Path) -> Path:
    manifest = read_manifest(whole / MANIFEST_NAME)
    drops: list[Drop] = []
    with BundleWriter.create(FOLDER, NAME) as bundle:
        for entry in manifest.calls:
            number = entry.call.index
            commands = CommandBuilder().build()
            if number in KEPT:
                commands = _commands(read_trace(whole / entry.file), KEPT[number])
            bundle.write_call(replace(entry.call, ops_traced=number in KEPT), commands)
            lost = entry.commands - len(commands)
            if lost:
                what = "host launches" if number in KEPT else "commands"
                detail = Note.of(DropReason.OMITTED, what=what)
                drops.append(Drop(DropKind.DROPPED_EVENTS, entry.file, lost, "events", detail))
        host = read_trace(whole / HOST_NAME)
        bundle.write_host(host.spans, _commands(host, {"launches", "shapes"}), ROOT_DEVICE)
        kept = tuple(entry.file for entry in manifest.calls if entry.call.index in KEPT)
        info = structs.replace(
            manifest.info,
            command_line=("profile-sd3", "import", SOURCE.as_posix()),
            recording=structs.replace(manifest.info.recording or Recording(), commands_of=kept),
            drops=tuple(drops),
        )
        return bundle.finish(info)


def _commands(trace: TraceColumns, kept: set[str]) -> CommandColumns:
    """The commands of a file as they were before they were written."""
    slices, strings, tracks = trace.slices, trace.strings, trace.tracks
    builder = CommandBuilder()
    rows: dict[int, int] = {}
    for row in range(len(slices)):
        track = tracks[slices.track[row]]
        category = strings[slices.category[row]]
        if category == "host" and "launches" not in kept:
            continue
        rows[row] = builder.add(
            Track(tracks[track.parent].name, track.name, category),
            strings[slices.layer[row]],
            strings[slices.op_type[row]],
            int(slices.start_ns[row]),
            int(slices.duration_ns[row]),
            shapes=strings[slices.shapes[row]] if "shapes" in kept else "",
            stage=strings[slices.stage[row]],
            step=int(slices.step[row]),
            bytes_read=int(slices.bytes_read[row]),
            bytes_written=int(slices.bytes_written[row]),
        )
    for source, target in trace.flows.tolist():
        if source in rows and target in rows:
            builder.link(rows[source], rows[target])
    return builder.build()


if __name__ == "__main__":
    main()
