"""The table of devices."""

from __future__ import annotations

import polars as pl

from profiler.analysis.devices.columns import DEVICES
from profiler.analysis.devices.device_table import Ran, device_table
from profiler.analysis.inputs import Inputs
from profiler.analysis.memory.weights import device_weights
from profiler.analysis.roles.tables import cell_partials
from profiler.analysis.submodules.partials import call_parts
from profiler.analysis.table import Table
from profiler.analysis.waiting.dropped_calls import dropped_tiles
from profiler.analysis.waiting.tables import busy_of
from profiler.run.device_timeline import Busy, work_axes

__all__ = ["TABLES"]


def _devices(of: Inputs) -> pl.DataFrame:
    info = of.run.info
    weights = device_weights(info.submodules, info.devices)
    missing = dropped_tiles(of.run)
    ran = Ran(of.commands, _busy(of))
    return device_table(of.calls, ran, of.run, of.axis, missing, info.devices, weights)


def _busy(of: Inputs) -> dict[str, Busy]:
    """When the selected commands ran."""
    if not of.selection:
        return busy_of(of)
    return {name: axis.busy for name, axis in work_axes(of.commands).items()}


TABLES = (
    Table(
        name="devices",
        row="one device",
        section="devices",
        columns=DEVICES,
        make=_devices,
        title="Devices",
        about="There is a row for each device that has calls or commands, in order of names.",
        partials=lambda of: (cell_partials(of), call_parts(of)),
    ),
)
