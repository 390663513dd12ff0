"""The table of times that diffusers' own benchmarks write."""

from __future__ import annotations

from pathlib import Path

from profiler.importers.importer import Importer, reader

_COLUMNS = (b"scenario", b"model_cls", b"time_plain_s")


def _recognises(_path: Path, head: bytes) -> bool:
    names = [name.strip(b' "\r') for name in head.split(b"\n", 1)[0].split(b",")]
    return all(name in names for name in _COLUMNS)


IMPORTER = Importer(
    name="diffusers_csv",
    title="diffusers' benchmarks",
    accepts="the CSV of diffusers' benchmarks (benchmarks/benchmarking_*.py)",
    recognises=_recognises,
    read=reader(__name__),
    capabilities=frozenset({"stages"}),
    seen="those of diffusers 0.35 and 0.36",
)
