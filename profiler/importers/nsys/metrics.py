"""GPU metrics that Nsight Systems sampled (`--gpu-metrics-devices`), as counters of the devices."""

from __future__ import annotations

import numpy as np

from profiler.importers.gpu.activity import NO_TIME, in_time
from profiler.importers.gpu.distinct import distinct
from profiler.importers.sqlite_file import SqliteFile
from profiler.trace.columns import Counter

__all__ = ["read_metrics"]

_DEVICE = 0xFF  # the bits of a metric's type that are the number of the GPU
_LONGEST = 200  # characters of a name


def read_metrics(database: SqliteFile, base_ns: int) -> tuple[Counter, ...]:
    """A counter for each metric of each device, in its own unit; `base_ns` is added to times."""
    columns = {"timestamp": NO_TIME, "typeId": 0, "metricId": -1, "value": 0}
    found = database.numbers("GPU_METRICS", columns)
    kept = in_time(found["timestamp"], found["timestamp"])
    if not kept.any():
        return ()
    found = {name: column[kept] for name, column in found.items()}
    named = database.rows("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName"))
    names = {(str(kind), str(metric)): str(name)[:_LONGEST] for kind, metric, name in named}
    metrics, place = distinct(found["typeId"], found["metricId"])
    counters = []
    for number, (kind, metric) in enumerate(metrics):
        rows = np.flatnonzero(place == number)
        rows = rows[np.argsort(found["timestamp"][rows], kind="stable")]
        counters.append(
            Counter(
                device=f"cuda:{kind & _DEVICE}",
                name=names.get((str(kind), str(metric)), f"metric {metric}"),
                unit="count",
                times_ns=found["timestamp"][rows] + base_ns,
                values=found["value"][rows],
            )
        )
    return tuple(counters)
