"""How long requests take: latencies, queues and stages of a run with several pipeline calls."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.requests.codes import RequestPart
from profiler.analysis.requests.columns import REQUEST_PERCENTILES, REQUESTS
from profiler.analysis.result import Analysis
from profiler.report.model import Fact, Part, ReportInput, SectionKind
from profiler.report.views import table
from profiler.text import count, duration, joined, percent, said

__all__ = ["SECTION", "of_requests", "request_facts"]

_HELD = 1000  # rows of a table
_COLUMNS = tuple(column.name for column in REQUESTS)
_PERCENTILES = tuple(column.name for column in REQUEST_PERCENTILES)


def _parts(of: ReportInput) -> Iterator[Part]:
    requests, percentiles = of.analysis.requests, of.analysis.request_percentiles
    if requests.is_empty():
        return
    yield Part(
        said("Percentiles"),
        lead=_lead(requests, percentiles),
        table=table(
            "request_percentiles",
            "parts of requests",
            _PERCENTILES,
            REQUEST_PERCENTILES,
            percentiles,
            shown=of.rows(12),
        ),
    )
    yield Part(
        said("Requests, the slowest first"),
        table=table(
            "requests",
            "requests",
            _COLUMNS,
            REQUESTS,
            requests,
            shown=of.rows(10),
            held=_HELD,
            sort="latency_ns",
        ),
    )


def _lead(requests: pl.DataFrame, percentiles: pl.DataFrame) -> str:
    """How many there are, how long they take, and what of that is waiting."""
    whole = percentiles.filter(pl.col("submodule").is_null())
    rows = whole.filter(pl.col("part") == RequestPart.LATENCY.value)
    if rows.is_empty():
        return ""
    row = rows.row(0, named=True)
    values = {
        "requests": count(len(requests)),
        "most": count(int(requests["in_flight"].to_numpy().max())),
        "median": duration(row["p50_ns"]),
        "p95": duration(row["p95_ns"]),
        "p99": duration(row["p99_ns"]),
    }
    if requests["queue_ns"].null_count() == len(requests):
        return said(
            "{requests} requests, at most {most} under way at once: half took up to {median}, "
            "95 % up to {p95}, 99 % up to {p99}. No queue was recorded.",
            **values,
        )
    waited = int(requests["queue_ns"].sum()) / max(int(requests["latency_ns"].sum()), 1)
    return said(
        "{requests} requests, at most {most} under way at once: half took up to {median}, 95 % "
        "up to {p95}, 99 % up to {p99}. In {share} of their time a call waited in a queue.",
        share=percent(waited),
        **values,
    )


def of_requests(analysis: Analysis) -> bool:
    """Whether the run is of a server that was asked several times; scenarios of a benchmark are no
    requests of one kind."""
    told, requests = set(analysis.inputs.run.info.capabilities), analysis.requests
    alike = "stages" in told and requests["name"].n_unique() == 1
    return ("requests" in told or alike) and not analysis.run.selection and len(requests) > 1


def request_facts(analysis: Analysis) -> Iterator[Fact]:
    """How long requests to a server took, and for which model they waited."""
    whole = pl.col("submodule").is_null() & (pl.col("part") == RequestPart.LATENCY.value)
    if not of_requests(analysis):
        return
    for row in analysis.request_percentiles.filter(whole).iter_rows(named=True):
        notes = [
            said(
                "p50 {p50}, p95 {p95}, p99 {p99}",
                p50=duration(row["p50_ns"]),
                p95=duration(row["p95_ns"]),
                p99=duration(row["p99_ns"]),
            ),
            *_queued(analysis),
        ]
        yield Fact(said("Requests"), count(len(analysis.requests)), joined("; ", notes))


def _queued(analysis: Analysis) -> Iterator[str]:
    """What share of the requests' time a call waited in a queue, most of it for which model."""
    requests = analysis.requests
    waited, whole = (int(requests[name].sum()) for name in ("queue_ns", "latency_ns"))
    calls = analysis.request_percentiles.filter(
        pl.col("submodule").is_not_null(), pl.col("part") == RequestPart.QUEUE.value
    ).sort("p95_ns", descending=True, nulls_last=True)
    if waited and whole and len(calls):
        yield said(
            "{share} of their time in queues, p95 {p95} for {model}",
            share=percent(waited / whole),
            p95=duration(calls["p95_ns"][0]),
            model=calls["submodule"][0],
        )


SECTION = SectionKind(
    "requests",
    22,
    said("Requests"),
    _parts,
    tables=("requests", "request_percentiles"),
)
