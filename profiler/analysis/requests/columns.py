"""The columns of requests and of their percentiles."""

from __future__ import annotations

from profiler.analysis.requests.codes import RequestPart
from profiler.run.columns import INT32, INT64, STRING, Column

__all__ = ["REQUESTS", "REQUEST_PERCENTILES"]


REQUESTS: tuple[Column, ...] = (
    Column("pipeline", INT32, "", "number of the pipeline call", label="request", kind="step"),
    Column("name", STRING, "", "what was requested: the pipeline, or the server's model"),
    Column(
        "begin_ns", INT64, "ns", "its begin, relative to the first request's begin", importance=2
    ),
    Column(
        "latency_ns",
        INT64,
        "ns",
        "from its begin to the later of its end and that of its last work on a device",
    ),
    Column(
        "queue_ns",
        INT64,
        "ns",
        "time in which one of its calls waited in a queue; null where no queue was recorded",
        True,
    ),
    Column(
        "compute_ns",
        INT64,
        "ns",
        "time in which one of its calls computed or copied; null where no commands were recorded",
        True,
    ),
    Column("encode_ns", INT64, "ns", "time in its stage encode; null where it has none", True),
    Column("denoise_ns", INT64, "ns", "time in its stage denoise; null where it has none", True),
    Column("decode_ns", INT64, "ns", "time in its stage decode; null where it has none", True),
    Column(
        "in_flight",
        INT32,
        "",
        "requests in flight when it began, including itself",
        label="in flight",
        importance=1,
    ),
)

REQUEST_PERCENTILES: tuple[Column, ...] = (
    Column("submodule", STRING, "", "submodule whose calls they are; null: whole requests", True),
    Column("part", STRING, "", "what was measured", codes=RequestPart),
    Column("requests", INT64, "", "number of requests, or calls, with that part", label="measured"),
    Column("mean_ns", INT64, "ns", "mean", label="mean", importance=2),
    Column("p50_ns", INT64, "ns", "half of them took no longer", label="p50"),
    Column("p95_ns", INT64, "ns", "95 of 100 took no longer", label="p95"),
    Column("p99_ns", INT64, "ns", "99 of 100 took no longer", label="p99"),
    Column("max_ns", INT64, "ns", "the longest", label="longest", importance=1),
)
