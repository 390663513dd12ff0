"""The columns of compilations."""

from __future__ import annotations

from profiler.run.columns import DATA_ONLY, INT32, INT64, STRING, Column

__all__ = ["COMPILATIONS"]


COMPILATIONS: tuple[Column, ...] = (
    Column("compilation", STRING, "", "the compiler's own number for the frame and its version"),
    Column("call", INT32, "", "the call in which it began; -1 in a pipeline call outside of calls"),
    Column("submodule", STRING, "", "submodule of the call", True),
    Column("step", INT32, "", "denoising step of the call; -1 outside denoise", kind="step"),
    Column("function", STRING, "", "what was compiled, by its name in the program"),
    Column("start_ns", INT64, "ns", "begin, on the run's clock", importance=3),
    Column("duration_ns", INT64, "ns", "how long it took"),
    Column(
        "recompile_reason",
        STRING,
        "",
        "why earlier compilations could not be used; null for a first compilation",
        True,
    ),
    Column("graph_breaks", INT64, "", "how often it ended a graph before the end of the code"),
    Column(
        "graph_break_reason",
        STRING,
        "",
        "why it ended them, and at which line of the program",
        True,
    ),
    Column(
        "failure", STRING, "", "why the compilation failed, so that the code ran as it is", True
    ),
    Column(
        "forgotten",
        INT64,
        "",
        "earlier compilations of which the compiler kept only the time",
        importance=DATA_ONLY,
    ),
    Column(
        "forgotten_ns",
        INT64,
        "ns",
        "total time of these earlier compilations",
        importance=DATA_ONLY,
    ),
)
