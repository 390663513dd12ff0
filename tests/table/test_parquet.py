"""A run as a folder of Parquet files, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from profiler.errors import InputError, OutputError
from profiler.run import Run, write_parquet
from profiler.run.columns import TABLES
from profiler.run.run import is_parquet_run, read_parquet
from profiler.tools.sources import load
from profiler.trace import NO_PIPELINE
from profiler.trace.events import NO_ITERATION
from tests.trace.samples import small_bundle


@pytest.fixture
def run(tmp_path: Path) -> Run:
    bundle = small_bundle(tmp_path)
    (bundle / "001_text_encoder_2.prompt.pb").unlink()
    return load(bundle)


def test_round_trip(run: Run, tmp_path: Path) -> None:
    """Frames, what is known of the run, and its drops come back equal."""
    folder = tmp_path / "parquet"
    write_parquet(run, folder)
    again = load(folder)
    for name in TABLES:
        assert getattr(again, name).equals(getattr(run, name))
        assert getattr(again, name).schema == getattr(run, name).schema
    assert run.drops
    assert (again.run_id, again.info, again.drops) == (run.run_id, run.info, run.drops)
    assert is_parquet_run(folder)


_LATER = ("pipeline", "kernel", "module", "iteration", "device_lag_ns", "device_duration_ns")


def test_folders_from_before_some_columns(run: Run, tmp_path: Path) -> None:
    """Frames without a column are read: what they hold belongs to no known pipeline call, ran no
    known kernel in no known module, is no pass of a loop, and no device noted it."""
    folder = tmp_path / "parquet"
    write_parquet(run, folder)
    for name in ("calls", "commands", "spans"):
        path = folder / f"{name}.parquet"
        pl.read_parquet(path).drop(_LATER, strict=False).write_parquet(path)
    again = read_parquet(folder)
    for name in ("calls", "commands", "spans"):
        assert set(getattr(again, name)["pipeline"]) == {NO_PIPELINE}
    unknown = again.commands.select(pl.col("kernel", "module").is_null().all()).row(0)
    assert unknown == (True, True)
    assert set(again.calls["iteration"]) == {NO_ITERATION}
    assert again.calls["device_duration_ns"].is_null().all()


def test_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    """A folder that holds anything is left as it is."""
    folder = tmp_path / "parquet"
    write_parquet(run, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(OutputError, match="is not empty"):
        write_parquet(run, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_place_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    """A file in the place of the folder is said in one sentence."""
    place = tmp_path / "file"
    place.touch()
    with pytest.raises(OutputError, match="cannot write"):
        write_parquet(run, place)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "calls.parquet").unlink(),
        lambda folder: (folder / "calls.parquet").write_bytes(b"PAR1 no"),
        lambda folder: (folder / "calls.parquet").write_bytes(
            (folder / "flows.parquet").read_bytes()
        ),
        lambda folder: (folder / "run.json").write_text("["),
        lambda folder: (folder / "run.json").write_text("[]"),
        lambda folder: (folder / "run.json").write_text('{"info": []}'),
        lambda folder: (folder / "run.json").write_text(
            json.dumps({"run_id": "", "info": {"command_line": [], "odd": 1}, "drops": []})
        ),
    ],
)
def test_damaged_folders(run: Run, tmp_path: Path, damage: Callable[[Path], object]) -> None:
    """A folder that lacks a file or holds another one is refused with the recommendation."""
    folder = tmp_path / "parquet"
    write_parquet(run, folder)
    damage(folder)
    with pytest.raises(InputError, match="export it again"):
        read_parquet(folder)
