"""Request latencies of a run with many pipeline calls: percentiles, queues and stages."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import numpy as np
import polars as pl

from profiler.analysis.commands import are_apart
from profiler.analysis.context import Inputs, shared
from profiler.analysis.document import Fact, Part, SectionGroup, SectionKind
from profiler.analysis.question import Table
from profiler.analysis.result import Analysis, ReportInput
from profiler.analysis.table_text import table
from profiler.analysis.timeline import stage_parts
from profiler.run.columns import INT32, INT64, NS, STEP, STRING, Column, col, empty, schema, typed
from profiler.run.intervals import Codes, Times, ends, positions, union_by
from profiler.text import count, duration, filled, joined, percent, said
from profiler.trace.events import STAGES

# --- What of a request was measured.


class RequestPart(StrEnum):
    """A part of a request, or of a call in it."""

    LATENCY = "latency"
    QUEUE = "queue"
    COMPUTE = "compute"
    ENCODE = "encode"
    DENOISE = "denoise"
    DECODE = "decode"


# --- The columns of requests and of their percentiles.


REQUESTS: tuple[Column, ...] = (
    col("pipeline", STEP, "number of the pipeline call", label="request"),
    col("name", STRING, "what was requested: the pipeline, or the server's model"),
    col("begin_ns", NS, "its start, relative to the first request's begin", importance=2),
    col(
        "latency_ns",
        NS,
        "from its start to the later of its end and that of its last work on a device",
    ),
    col(
        "queue_ns",
        NS,
        "time in which one of its calls waited in a queue; null if no queue was recorded",
        True,
        hide_if_zero=True,
    ),
    col(
        "compute_ns",
        NS,
        "time in which one of its calls computed or copied; null if no commands were recorded",
        True,
    ),
    col("encode_ns", NS, "time in its stage encode; null if it has none", True),
    col("denoise_ns", NS, "time in its stage denoise; null if it has none", True),
    col("decode_ns", NS, "time in its stage decode; null if it has none", True),
    col("in_flight", INT32, "requests in flight when it started, including itself", importance=1),
)

REQUEST_PERCENTILES: tuple[Column, ...] = (
    col("submodule", STRING, "submodule whose calls they are; null: whole requests", True),
    col("part", STRING, "what was measured", codes=RequestPart),
    col("requests", INT64, "number of requests, or calls, with that part", label="measured"),
    col("mean_ns", NS, "mean", importance=2),
    col("p50_ns", NS, "half of them took no longer"),
    col("p95_ns", NS, "95 of 100 took no longer"),
    col("p99_ns", NS, "99 of 100 took no longer"),
    col("max_ns", NS, "the longest", label="longest", importance=1),
)


# --- The tables of requests: pipeline calls of a run that has many.


QUEUE = "queue"  # op type of what waits in a scheduler's queue, on a track of category sync
_FEWEST = 2  # pipeline calls: a single one is in the other tables
_NO_WORK = ("host", "sync")


@shared
def call_parts(of: Inputs) -> pl.DataFrame:
    """Return for each call of the run, in order, how long it took, waited in a queue and computed:
    `pipeline`, `submodule`, `latency_ns`, `queue_ns`, `compute_ns`, null as in `requests`."""
    calls, commands = of.run.calls, of.run.commands
    place = positions(commands["call"].to_numpy(), calls["call"].to_numpy())
    queue, compute = _unions(commands, place, len(calls))
    return pl.DataFrame(
        {
            "pipeline": of.pipelines.number_of(calls),
            "submodule": calls["submodule"].cast(pl.String),
            "latency_ns": ends(calls) - calls["start_ns"].to_numpy(),
            "queue_ns": queue,
            "compute_ns": compute,
        }
    )


def _unions(commands: pl.DataFrame, place: Codes, groups: int) -> tuple[pl.Series, pl.Series]:
    """Return how long commands of each group waited in a queue, and how long any worked; all null
    if the run has no such commands."""
    start, end = commands["start_ns"].to_numpy(), ends(commands)
    category = commands["category"].cast(pl.String)
    kinds = commands["op_type"].cast(pl.String)
    found = []
    for rows in (
        ((category == "sync") & (kinds == QUEUE)).fill_null(value=False).to_numpy(),
        (~category.is_in(_NO_WORK)).fill_null(value=False).to_numpy(),
    ):
        codes = np.where(rows, place, -1).astype(np.int32)
        known = bool((codes >= 0).any())
        length = union_by(start, end, codes, groups) if known else [None] * groups
        found.append(pl.Series(length, dtype=pl.Int64))
    return found[0], found[1]


def _requests(of: Inputs) -> pl.DataFrame:
    run, pipelines = of.run, of.pipelines
    numbers = pipelines.numbers
    apart = are_apart(run.drops)
    if len(numbers) < _FEWEST or apart:  # timelines that were laid one behind the other
        return empty(REQUESTS)
    begin, end = pipelines.extents
    named = np.unique(pipelines.code_of_spans, return_index=True)[1]  # by the first of its spans
    queue, compute = _unions(run.commands, pipelines.code_of(run.commands), len(numbers))
    on_axis = pipelines.apart and not bool((_in_flight(begin, end) > 1).any())
    done = np.maximum(end, of.axis.last) if on_axis else end
    lasted = _stages(of, on_axis=on_axis)
    frame = pl.DataFrame(
        {
            "pipeline": numbers,
            "name": pipelines.spans["name"].cast(pl.String)[named],
            "begin_ns": begin - begin.min(),
            "latency_ns": done - begin,
            "queue_ns": queue,
            "compute_ns": compute,
            **{f"{name}_ns": _of_stage(lasted, numbers, name) for name in STAGES},
            "in_flight": _in_flight(begin, done),
        }
    )
    return frame.select(typed(REQUESTS))


def _stages(of: Inputs, *, on_axis: bool) -> pl.DataFrame:
    """Return how long each pipeline call was in each stage: columns `pipeline`, `stage`,
    `elapsed_ns`. That is on the devices' axis, or else by the spans of stages: on that axis
    concurrent pipeline calls wait for each other, or it is unknown which work belongs to which."""
    if on_axis:
        parts = stage_parts(of.run, of.pipelines, of.axis)
        begin, end = (parts[name].to_numpy() for name in ("start_ns", "end_ns"))
        timed = parts.with_columns(elapsed_ns=pl.Series(of.axis.counted.within(begin, end)))
        return timed.group_by("pipeline", "stage").agg(pl.col("elapsed_ns").sum())
    spans = of.run.spans.filter(pl.col("kind") == "stage")
    timed = spans.select(
        pipeline=pl.Series(of.pipelines.number_of(spans)),
        stage=pl.col("name").cast(pl.String),
        elapsed_ns=pl.Series(ends(spans)) - pl.col("start_ns"),
    )
    return timed.group_by("pipeline", "stage").agg(pl.col("elapsed_ns").sum())


def _of_stage(lasted: pl.DataFrame, numbers: Codes, name: str) -> pl.Series:
    """Return the time of one stage in each pipeline call; null if it has no such stage."""
    own = lasted.filter(pl.col("stage") == name).select("pipeline", "elapsed_ns")
    asked = pl.DataFrame({"pipeline": pl.Series(numbers, dtype=own.schema["pipeline"])})
    return asked.join(own, on="pipeline", how="left", maintain_order="left")["elapsed_ns"]


def _in_flight(begin: Times, end: Times) -> Codes:
    begun = np.searchsorted(np.sort(begin), begin, side="right")
    ended = np.searchsorted(np.sort(end), begin, side="right")
    found: Codes = np.maximum(begun - ended, 1).astype(np.int32)
    return found


def _percentiles(of: Inputs) -> pl.DataFrame:
    requests = of.table("requests")
    if requests.is_empty():
        return empty(REQUEST_PERCENTILES)
    rows = list(_rows(None, requests))
    if requests["queue_ns"].null_count() < len(requests):  # of a server: if they waited
        for (name,), calls in call_parts(of).group_by("submodule", maintain_order=True):
            rows += _rows(str(name), calls)
    return pl.DataFrame(rows, schema=schema(REQUEST_PERCENTILES), orient="row")


def _rows(submodule: str | None, frame: pl.DataFrame) -> Iterator[tuple[object, ...]]:
    """A row for each part that any of them has; a percentile is the time of one of them."""
    for part in RequestPart:
        column = f"{part.value}_ns"
        times = frame[column].drop_nulls().sort() if column in frame.columns else pl.Series()
        if not len(times):
            continue
        found = [times.quantile(q, "higher") for q in (0.5, 0.95, 0.99)]
        mean = round(float(times.to_numpy().mean()))
        whole = (int(time or 0) for time in (*found, times[-1]))
        yield (submodule, part.value, len(times), mean, *whole)


TABLES = (
    Table(
        name="requests",
        row="one pipeline call of several",
        section="requests",
        columns=REQUESTS,
        make=_requests,
        title="Requests, the slowest",
        about="Rows cover the whole run. The table is empty if the run has a single pipeline "
        "call. If calls of a request run side by side, the same moment may count in `queue_ns` "
        "and in `compute_ns`.",
        rank=("-latency_ns",),
    ),
    Table(
        name="request_percentiles",
        row="one part of requests, or of a submodule's calls in them",
        section="requests",
        columns=REQUEST_PERCENTILES,
        make=_percentiles,
        title="Percentiles",
        about="Rows without a submodule summarize [requests](#requests), rows with a submodule "
        "its calls. A percentile is the time of an actual request or call: the shortest that is "
        "not below the percentile.",
        reads=("requests",),
        shown=20,
    ),
)


# --- How long requests take: latencies, queues and stages of a run with several pipeline calls.


_HELD = 1000  # rows of a table


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
            REQUEST_PERCENTILES,
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
            REQUESTS,
            REQUESTS,
            requests,
            shown=of.rows(10),
            held=_HELD,
            sort="latency_ns",
        ),
    )


def _lead(requests: pl.DataFrame, percentiles: pl.DataFrame) -> str:
    """Return how many requests there are, how long they take, and how much of that is waiting."""
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
    template = said(
        "{requests} requests, at most {most} under way at once: half took up to {median}, 95 % "
        "up to {p95}, 99 % up to {p99}. No queue was recorded."
    )
    if requests["queue_ns"].null_count() < len(requests):
        template = said(
            "{requests} requests, at most {most} under way at once: half took up to {median}, 95 % "
            "up to {p95}, 99 % up to {p99}. In {share} of their time a call waited in a queue."
        )
        waited = int(requests["queue_ns"].sum()) / max(int(requests["latency_ns"].sum()), 1)
        values["share"] = percent(waited)
    return filled(template, values)


def of_requests(analysis: Analysis) -> bool:
    """Whether the run is of a server with several requests. Scenarios of a benchmark are not
    requests of one kind."""
    capabilities, requests = set(analysis.inputs.run.info.capabilities), analysis.requests
    alike = "stages" in capabilities and requests["name"].n_unique() == 1
    return (
        ("requests" in capabilities or alike) and not analysis.run.selection and len(requests) > 1
    )


def request_facts(analysis: Analysis) -> Iterator[Fact]:
    """Yield how long requests to a server took, and for which model they waited."""
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
    """Yield for what share of the requests' time a call waited in a queue, and for which model
    most."""
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
    32,
    said("Requests"),
    _parts,
    tables=("requests", "request_percentiles"),
    group=SectionGroup.MODEL,
)
