"""Perfetto traces of any producer, if somebody says which of their tracks are devices."""

from __future__ import annotations

from pathlib import Path

from profiler.importers.importer import Importer, Option, reader

_ACCEPTS = "a Perfetto trace of any producer, with --import device=REGEX"


def _recognises(_path: Path, head: bytes) -> bool:
    return head[:1] == b"\n"


IMPORTER = Importer(
    name="perfetto",
    title="Perfetto with device=REGEX",
    accepts=_ACCEPTS,
    recognises=_recognises,
    read=reader(__name__, _ACCEPTS),
    options=(
        Option(
            "device",
            str,
            "a regular expression that finds the tracks of devices by their names; its first "
            "group, if it has one, is the number of the device: GPU ([0-9]+)",
        ),
        Option(
            "submodules",
            str,
            "the slices that are calls of submodules, with commas; slices with the names that "
            "diffusers gives to components if it is left out",
        ),
    ),
    capabilities=frozenset({"timeline", "launches"}),
    seen="traces of track events; those with GPU render stages are read as torch.profiler's",
    if_asked=True,
)
