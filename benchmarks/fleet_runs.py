"""A data set of many simulated runs, written as compaction leaves it: a file of each table for each
partition, without adding the runs one by one. 1,000,000 runs with 22 metrics take about a minute.

    storage = write(folder, runs=1_000_000, rows=20)

Four kinds of hardware, two resolutions, 24 months; `denoise.step` and `elapsed` with 2 % noise, and
one step of 5 % in the middle; `rows` times by shape beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from profiler.fleet.add import metrics_frame, parquet_bytes, runs_frame
from profiler.fleet.storage import LocalStorage, batch_name, file_name, make_dataset, partition
from tests.fleet.simulated import DAY, EPOCH, addition

__all__ = ["write"]

HARDWARE = tuple(f"1 × card {number}" for number in range(4))
RESOLUTIONS = ("1024×1024", "512×512")


def write(folder: Path, runs: int, rows: int, months: int = 24) -> LocalStorage:
    """The data set at `folder`."""
    storage = LocalStorage(folder)
    make_dataset(storage)
    generator = np.random.default_rng(0)
    numbers = np.arange(runs)
    times = EPOCH + (numbers * (months * 30 * DAY / runs)).astype(np.int64)
    for kind, hardware in enumerate(HARDWARE):
        own = numbers % len(HARDWARE) == kind
        for place, chosen in _partitions(hardware, numbers[own], times[own]):
            batch = batch_name()
            keys = _hex(generator, len(chosen), 16)
            frames = {
                "metrics": _metrics(generator, keys, chosen >= runs // 2, batch, rows),
                "runs": _runs(generator, keys, chosen, times[chosen], hardware, batch),
            }
            for table, frame in frames.items():
                storage.create(file_name(table, place, batch), parquet_bytes(frame))
    return storage


def _partitions(
    hardware: str, numbers: np.ndarray, times: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    pipeline = str(addition(0).summary.run["pipeline"])
    days = times // DAY
    places = {int(day): partition(pipeline, hardware, int(day) * DAY) for day in np.unique(days)}
    folders = np.array([places[int(day)] for day in days])
    for folder in np.unique(folders):
        yield str(folder), numbers[folders == folder]


def _runs(
    generator: np.random.Generator,
    keys: list[str],
    numbers: np.ndarray,
    times: np.ndarray,
    hardware: str,
    batch: str,
) -> pl.DataFrame:
    model = runs_frame([addition(0, hardware=hardware)], batch, EPOCH)
    frame = pl.concat([model] * len(keys)).with_columns(
        run=pl.Series(keys),
        run_id=pl.Series([f"run{number}" for number in numbers]),
        time_ns=pl.Series(times),
        commit=pl.Series(_hex(generator, len(keys), 20)),
        resolution=pl.Series(np.array(RESOLUTIONS)[numbers // len(HARDWARE) % 2].tolist()),
        place=pl.Series([f"/bundles/run{number}" for number in numbers]),
    )
    return frame.select(model.columns)


def _metrics(
    generator: np.random.Generator, keys: list[str], slower: np.ndarray, batch: str, rows: int
) -> pl.DataFrame:
    """In the order in which files of metrics are sorted."""
    model = metrics_frame([addition(0)], batch).select(pl.all().first())
    order = np.argsort(np.array(keys))
    ordered = pl.Series("run", keys).gather(order)
    n = len(keys)
    names = [("elapsed", None, None, None), ("step", "denoise", None, None)]
    names += [("time", None, "transformer", shape) for shape in sorted(_shapes(rows))]
    blocks = []
    for metric, stage, submodule, shape in names:
        level = np.where(slower[order] & (metric != "time"), 1.05, 1.0)
        values = 5e6 * level * np.exp(generator.normal(0, 0.02, n))
        texts = {"metric": metric, "stage": stage, "submodule": submodule, "shape": shape}
        block = model.select(pl.all().repeat_by(n).explode()).with_columns(
            ordered,
            pl.Series("value", values),
            *(pl.lit(text, pl.String).alias(name) for name, text in texts.items()),
        )
        blocks.append(block.select(model.columns))
    return pl.concat(blocks)


def _shapes(rows: int) -> list[str]:
    return [f"mm {row}" for row in range(rows)]


def _hex(generator: np.random.Generator, count: int, size: int) -> list[str]:
    text = generator.bytes(count * size).hex()
    return [text[at : at + 2 * size] for at in range(0, len(text), 2 * size)]
