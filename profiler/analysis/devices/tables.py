"""The table of devices."""

from __future__ import annotations

import polars as pl

from profiler.analysis.devices.columns import DEVICES
from profiler.analysis.devices.device_table import device_table
from profiler.analysis.inputs import Inputs
from profiler.analysis.memory.weights import device_weights
from profiler.analysis.roles.tables import cell_partials
from profiler.analysis.submodules.partials import call_parts
from profiler.analysis.table import Table
from profiler.analysis.waiting.dropped_calls import dropped_tiles

__all__ = ["TABLES"]


def _devices(of: Inputs) -> pl.DataFrame:
    info = of.run.info
    weights = device_weights(info.submodules, info.devices)
    missing = dropped_tiles(of.run)
    return device_table(of.calls, of.commands, of.run, of.axis, missing, info.devices, weights)


TABLES = (
    Table(
        name="devices",
        row="one device",
        section="devices",
        columns=DEVICES,
        make=_devices,
        title="Devices",
        about="There is one for each device that has calls or commands, by name.",
        partials=lambda of: (cell_partials(of), call_parts(of)),
    ),
)
