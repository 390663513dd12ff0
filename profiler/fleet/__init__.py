"""Fleets: data sets of many runs, their histories, and the gate."""

from profiler.plugins import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "add": "commit_batch compact",
        "dataset": "Dataset",
        "storage": "LocalStorage make_dataset",
    },
)
