"""A recorded run as tables: columns, loading, intervals, the time of each device."""

from profiler.plugins import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "columns": "CALLS COMMANDS COUNTERS Column FLOWS SPANS empty schema",
        "load": "load_bundle",
        "run": "Run write_parquet",
    },
)
