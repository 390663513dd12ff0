"""Capture: hooks around each call of a submodule, and what they record."""

from profiler.plugins import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "calls": "Invocation PipelineCall RunClock",
        "operator_source": "Gaps SourceSummary",
        "overhead": "EventCost",
        "pipelines.pipeline_hooks": "PipelineHooks",
        "profile": "FakeClock",
        "process": "SwitchedOn open_session",
        "recorder": "Recorder",
        "session": "Session",
        "settings": "Options Settings",
    },
)
