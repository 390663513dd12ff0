"""`Run` ↔ a folder of Parquet files: one file per frame, the manifest beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import structs

from profiler.errors import InputError, OutputError
from profiler.events import NO_ITERATION, NO_PIPELINE, NO_RANK
from profiler.files import appearing, not_writable, write_atomically
from profiler.json_text import json_text
from profiler.table.columns import ARGS, TABLES, Column, schema
from profiler.table.run import Run
from profiler.trace.manifest import FORMAT_VERSION, info_document, parse_info

__all__ = ["FILES", "is_parquet_run", "read_parquet", "write_parquet"]

_RUN_NAME = "run.json"
_ARGS_NAME = "args.parquet"
FILES = frozenset({_RUN_NAME, _ARGS_NAME, *(f"{name}.parquet" for name in TABLES)})
_LATER = {  # columns, by what is unknown
    "pipeline": NO_PIPELINE,
    "kernel": None,
    "module": None,
    "rank": NO_RANK,
    "iteration": NO_ITERATION,
    "device_lag_ns": None,
    "device_duration_ns": None,
}
_WRONG_DOCUMENT = (KeyError, TypeError, ValueError, AttributeError)
_UNREADABLE = (OSError, pl.exceptions.PolarsError, *_WRONG_DOCUMENT)


def is_parquet_run(path: Path) -> bool:
    """Whether `write_parquet` wrote this folder."""
    return (path / _RUN_NAME).is_file() and (path / "commands.parquet").is_file()


def write_parquet(run: Run, directory: Path) -> None:
    """Write `run` to a new or empty `directory`. Raises OutputError where that cannot be."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise OutputError(
                f"{directory} is not empty: give a new folder, nothing is overwritten"
            )
        for name in TABLES:
            _write_frame(getattr(run, name), directory / f"{name}.parquet")
        _write_frame(run.args.collect(), directory / _ARGS_NAME)
        info = info_document(structs.replace(run.info, drops=run.drops))
        document = {"format_version": FORMAT_VERSION, "run_id": run.run_id, "info": info}
        write_atomically(directory / _RUN_NAME, json_text(document, indent=None).encode())
    except OSError as error:
        raise not_writable(directory, error) from error


def _write_frame(frame: pl.DataFrame, path: Path) -> None:
    with appearing(path) as file:
        frame.write_parquet(file)


def _numbered(frame: pl.DataFrame, columns: Sequence[Column]) -> pl.DataFrame:
    """A frame with the dtypes of its declaration; of columns that older exports lack, nothing is
    known."""
    expected = schema(columns)
    lacking = [name for name in _LATER if name in expected and name not in frame.columns]
    frame = frame.with_columns(pl.lit(_LATER[name], expected[name]).alias(name) for name in lacking)
    return frame.select(expected.names()).cast(expected)


def read_parquet(directory: Path) -> Run:
    """Read what `write_parquet` wrote. Raises InputError where a file is missing or foreign."""
    try:
        document = json.loads((directory / _RUN_NAME).read_text(encoding="utf-8"))
        version = document.get("format_version", 1)
        if version != FORMAT_VERSION:
            raise ValueError(f"format {version!r:.40}, this one reads {FORMAT_VERSION}")
        info = parse_info(document["info"])
        frames: dict[str, Any] = {
            name: _numbered(pl.read_parquet(directory / f"{name}.parquet"), columns)
            for name, columns in TABLES.items()
        }
        args = pl.scan_parquet(directory / _ARGS_NAME).cast(schema(ARGS))
        return Run(
            run_id=str(document["run_id"]),
            info=structs.replace(info, drops=()),
            drops=info.drops,
            args=args,
            **frames,
        )
    except _UNREADABLE as error:
        message = f"{directory} is not a run written as Parquet ({error}): export it again"
        raise InputError(message) from error
