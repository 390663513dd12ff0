"""Fleets: data sets of many runs, their histories, and the gate."""

from profiler.plugins import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "dataset": "Dataset commit_batch compact",
        "storage": "LocalStorage make_dataset",
    },
)
