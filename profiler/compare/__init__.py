"""Comparison of runs: `diff`, baselines and gates."""

from profiler.plugins import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "compare": "Compared check_gate compare_runs",
        "side_by_side": "columns_report",
    },
)
