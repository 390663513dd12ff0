"""Prediction: what a run would take with other settings, sizes or placements."""

from profiler.plugins import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "scenario": "Assumption ImageSize PlacementNote Resizing Scenario Unknown",
        "workload": "Workload workload_of",
    },
)
