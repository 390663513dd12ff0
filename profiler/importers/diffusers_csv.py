"""The CSV of diffusers' benchmarks → a bundle without commands.

A row is a scenario (`black-forest-labs/FLUX.1-dev-bf16`): a pipeline call and a submodule with the
model's mean time, and one for the compiled model, so that histories keep scenarios apart.
Source of the format: huggingface/diffusers, benchmarks/benchmarking_utils.py. Collated tables have
the earlier time behind the new one, `0.074 (0.079)`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

from profiler.errors import InputError
from profiler.importers.foreign_run import (
    ForeignRunBuilder,
    RequestTimes,
    StageTime,
    nanoseconds,
    stage_run,
)
from profiler.importers.importer import content_of, only_path, real
from profiler.trace.events import DropKind, DropReason

_TIMES = {"time_plain_s": "", "time_compile_s": ".compiled"}
_MEMORY = {"time_plain_s": "mem_plain_GB", "time_compile_s": "mem_compile_GB"}
_LARGEST_FILE = 64 << 20
_LONGEST = 200


def read_run(paths: Sequence[Path]) -> ForeignRunBuilder:
    """Read one file. Raises InputError if no row has a time."""
    path = only_path(paths, "one CSV")
    text = content_of(path, _LARGEST_FILE).decode("utf-8", "replace")
    try:
        rows = [*csv.DictReader(StringIO(text))]
    except csv.Error as error:
        raise InputError(f"{path} is no CSV ({error}): run the benchmarks anew") from error
    names = [(row.get("scenario") or "scenario")[:_LONGEST] for row in rows]
    named_rows = zip(names, rows, strict=True)
    found = (RequestTimes(name, tuple(_stages(name, row))) for name, row in named_rows)
    requests = [one for one in found if one.stages]
    if not requests:
        raise InputError(
            f"{path} holds no time of a model (time_plain_s): run the benchmarks of diffusers anew"
        )
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    run = stage_run("diffusers_csv", name, paths, requests)
    unread = len(rows) - len(requests)
    run.drop(DropKind.DROPPED_EVENTS, unread, "rows", DropReason.NO_TIME)
    models = {row.get("model_cls") or "" for row in rows}
    run.model = models.pop()[:_LONGEST] if len(models) == 1 else ""
    return run


def _stages(name: str, row: dict[str, str]) -> Iterator[StageTime]:
    for column, suffix in _TIMES.items():
        seconds, memory = (
            real((row.get(one) or "").partition("(")[0]) for one in (column, _MEMORY[column])
        )
        time = nanoseconds(seconds * 1e3)
        if time is not None:
            peak = round(memory * (1 << 30)) if 0 <= memory < 1e6 else -1
            yield StageTime(f"{name}{suffix}", time, peak_bytes=peak)
