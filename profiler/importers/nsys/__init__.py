"""Exports of Nsight Systems: the SQLite file that `nsys export --type sqlite` writes."""

from __future__ import annotations

from pathlib import Path

from profiler.importers.importer import SQLITE, Importer, Option, reader

_ACCEPTS = "an export of Nsight Systems (nsys export --type sqlite)"
_TABLES = (b"CUPTI_ACTIVITY_KIND_", b"NVTX_EVENTS", b"TARGET_INFO_SESSION_START_TIME")


def _recognises(_path: Path, head: bytes) -> bool:
    return head.startswith(SQLITE) and any(name in head for name in _TABLES)


IMPORTER = Importer(
    name="nsys",
    title="Nsight Systems",
    accepts=_ACCEPTS,
    recognises=_recognises,
    read=reader(__name__, _ACCEPTS),
    options=(
        Option(
            "submodules",
            str,
            "the NVTX ranges that are calls of submodules, with commas (text_encoder,dit,vae); "
            "ranges with the names that diffusers gives to components if it is left out",
        ),
    ),
    capabilities=frozenset({"timeline", "launches", "shapes", "bytes", "metrics", "memory"}),
    together=lambda paths: [[path] for path in paths],
    seen="2025.5 to 2026.2 (export schemas 3.24 and 3.25)",
)
