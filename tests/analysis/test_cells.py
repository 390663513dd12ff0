"""Cells: what they add up, that no two have the same keys, and what they take of a page."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.cells import LIMIT, PLACE, SUMS, WORK, cells_of, packed_cells
from profiler.report.html.timeline import Strings
from profiler.run import CALLS, COMMANDS, COUNTERS, FLOWS, SPANS, Run, empty, schema
from profiler.trace import RunInfo
from tests.report.selections import split_run
from tests.runs import Command, make_call, make_run


def test_a_cell_sums_a_layer_of_a_call_on_a_device() -> None:
    """Two commands of one layer in one call on one device are one cell; another call, another
    device, and work of no call are cells of their own."""
    calls = [make_call(i, "transformer", 100 * i, 100 * i + 90, step=i) for i in (0, 1)]
    commands = [
        Command(0, "rbln:0", "C0", "compute", "ff", 0, 10, "Gemm"),
        Command(0, "rbln:0", "C1", "compute", "ff", 20, 15, "Gemm"),
        Command(0, "rbln:1", "C0", "compute", "ff", 40, 7, "Gemm"),
        Command(1, "rbln:0", "C0", "compute", "ff", 100, 12, "Gemm"),
        Command(-1, "cpu:0", "Host", "host", "scheduler", 195, 3, "", "denoise", 1),
    ]
    cells = cells_of(analyze(make_run(calls, commands)).inputs)
    keys = ["call", "step", "device", "layer", "host", "commands", "total_ns"]
    assert cells.select(keys).sort("total_ns").rows() == [
        (None, 1, "cpu:0", "scheduler", True, 1, 3),
        (0, 0, "rbln:1", "ff", False, 1, 7),
        (1, 1, "rbln:0", "ff", False, 1, 12),
        (0, 0, "rbln:0", "ff", False, 2, 25),
    ]


def test_cells_add_up_to_the_commands() -> None:
    """No two cells have the same keys, and together they have what the commands have."""
    analysis = analyze(split_run())
    cells, commands = cells_of(analysis.inputs), analysis.commands
    assert cells.columns == [*WORK, *PLACE, *SUMS]
    assert cells.select(*WORK, *PLACE).is_unique().all()
    moved = pl.sum_horizontal("bytes_read", "bytes_written")
    of_commands = commands.select(
        pl.len(), pl.col("duration_ns").clip(0).sum(), moved.sum(), pl.col("flops").sum()
    )
    assert cells.select(pl.col(SUMS).sum()).row(0) == of_commands.row(0)


def _large_run(steps: int, layers: int) -> Run:
    """Steps of a transformer, whose layers take times by chance."""
    number = np.arange(steps * layers)
    step, layer = number // layers, number % layers
    took = np.random.default_rng(0).integers(2000, 900_000, len(number))
    names = [f"transformer_blocks.{i // 25}.part_{i % 25}.linear" for i in range(layers)]
    start = np.cumsum(took) - took
    shapes = [f"in: bfloat16[1,{64 + i}] bfloat16[{64 + i},4096]" for i in range(layers)]

    def texts(values: list[str], codes: np.ndarray) -> pl.Series:
        return pl.Series(values, dtype=pl.Categorical()).gather(codes)

    commands = pl.DataFrame(
        {
            "call": step,
            "pipeline": number * 0 - 1,
            "stage": texts(["denoise"], number * 0),
            "step": step,
            "rank": number * 0 - 1,
            "device": texts(["cuda:0"], number * 0),
            "track": texts(["stream 7"], number * 0),
            "category": ["compute"] * len(number),
            "layer": texts(names, layer),
            "module": [None] * len(number),
            "command_index": number * 0,
            "op_type": texts(["aten::mm"], number * 0),
            "kernel": [None] * len(number),
            "role": [None] * len(number),
            "start_ns": start,
            "duration_ns": took,
            "recorded_ns": [None] * len(number),
            "bytes_read": [None] * len(number),
            "bytes_written": [None] * len(number),
            "flops": [None] * len(number),
            "shapes": texts(shapes, layer),
        }
    ).cast(dict(schema(COMMANDS)))
    ends = np.append(start[layers::layers], start[-1] + took[-1])
    begins = start[::layers]
    calls = [
        (i, -1, "denoise", "transformer", "batched", i, -1, -1, "cuda:0", int(begins[i]),
         int(ends[i] - begins[i]), None, None, True, "")
        for i in range(steps)
    ]  # fmt: skip
    frame = pl.DataFrame(calls, schema=schema(CALLS), orient="row")
    info = RunInfo(producer="test")
    return Run("large", frame, commands, empty(COUNTERS), empty(FLOWS), empty(SPANS), info)


@pytest.mark.parametrize(
    ("steps", "layers", "dropped"), [(28, 600, ()), (280, 600, ("layer", "block"))]
)
def test_packed_cells_stay_small(steps: int, layers: int, dropped: tuple[str, ...]) -> None:
    """28 steps of 600 layers keep a cell each; ten times as many are summed over layers."""
    cells = cells_of(analyze(_large_run(steps, layers)).inputs)
    assert len(cells) == steps * layers
    described, packed = packed_cells(cells, Strings())
    assert len(packed) <= LIMIT
    assert described["dropped"] == dropped
    kept = steps * (cells["role"].n_unique() if dropped else layers)
    assert described["tables"]["cells"]["rows"] == kept
