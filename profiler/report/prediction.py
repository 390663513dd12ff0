"""The report of a prediction: before and after by part, requests at once, what it rests on.

print_report(Console(highlight=False), prediction_report(prediction))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from profiler.analysis.prediction.placement import BestPlacement
from profiler.analysis.prediction.precision import precision
from profiler.analysis.prediction.request_graph import Order
from profiler.analysis.prediction.result import Part as Share
from profiler.analysis.prediction.result import Prediction, RecordedLatency
from profiler.analysis.prediction.simulation import Simulation
from profiler.bootstrap import PREDICTED_CONFIDENCE
from profiler.report.model import Figure, Part, Report, Section, Summary, TableView
from profiler.report.predict_document import PERCENTILES
from profiler.report.sentences.worded import label, worded
from profiler.report.views import table
from profiler.run.columns import FLOAT64, INT64, STRING, Column, schema
from profiler.text import Note, counted, duration, percent

__all__ = ["headline", "prediction_report"]

_NO_STAGE = "outside"
_RECORDED = "recorded"
_AS_PLACED, _BEST = "as placed", "best placement"
_ROWS = 100
_ORDERS: Mapping[Order, str] = {
    "pipeline": "the calls of each one after the other",
    "graph": "a call of each as soon as its inputs are there",
}
_LATENCIES = (
    "Latencies are of simulated requests that draw from what was measured; the interval of a "
    "single request is wider, for it also has how far the measured mean may be off."
)
_UTILIZED = (
    "A device is utilized as long as a call has it, also while it waits within the call; a request "
    "waits in queues for the time given."
)

_PARTS = (
    Column("measured_ns", INT64, "ns", "its mean time in a request of the run"),
    Column("predicted_ns", INT64, "ns", "its time in a request of the scenario"),
    Column(
        "change", FLOAT64, "ratio", "predicted / measured - 1", True, kind="change", importance=1
    ),
    Column("share", FLOAT64, "ratio", "of the predicted request", True, kind="share", importance=2),
)
_SIMULATIONS = (
    Column("placement", STRING, "", "as the submodules are placed, or the best placement found"),
    Column("throughput", FLOAT64, "1/s", "requests/s", label="requests/s", kind="number"),
    Column("low", FLOAT64, "1/s", "lower end of its 90 % interval", True, kind="number"),
    Column("high", FLOAT64, "1/s", "upper end of its 90 % interval", True, kind="number"),
    *(
        Column(f"p{p}_ns", INT64, "ns", f"latency that {p} % of the requests stay below")
        for p in PERCENTILES
    ),
    Column("busiest", STRING, "", "the busiest device, or the host", importance=1),
)
_DEVICES = (
    Column("device", STRING, "", "a device, or the host"),
    Column("utilized", FLOAT64, "ratio", "share of the time in which it is busy, as placed", True),
    Column("queue_wait_ns", INT64, "ns", "mean time for which a request waits for it", True),
    Column("best_utilized", FLOAT64, "ratio", "its utilization in the best placement", True),
)
_PLACEMENT = (
    Column("submodule", STRING, "", "a submodule"),
    Column("device", STRING, "", "where the best placement has it"),
)


def prediction_report(prediction: Prediction) -> Report:
    """What was measured and is predicted, its parts, requests at once, and what it rests on."""
    parts = (
        *_times(prediction),
        *_simulations(prediction),
        *_notes("Why", prediction.reasons),
        *_notes("What it assumes", prediction.assumes),
        *_notes("What is not known", prediction.unknown),
    )
    summary = Summary(headline(prediction), accounting=_basis(prediction))
    return Report(summary, (Section("prediction", parts=parts),))


def headline(prediction: Prediction) -> str:
    """`"1.76 s → 286 ms, 90 % interval 271 ms to 301 ms (4 steps, guidance off)"`; of several
    requests at once what all get and what one takes among them comes first."""
    before, request = prediction.measured.ns, prediction.request
    text = f"{duration(before)} → {duration(request.ns)}"
    if request.low is None or request.high is None:
        text += ", no interval"
    else:
        ends = f"{duration(request.low)} to {duration(request.high)}"
        text += f", {percent(PREDICTED_CONFIDENCE)} interval {ends}"
    asked = ", ".join(_asked(prediction))
    if prediction.too_large:
        return f"does not fit into memory; if it did: {text} ({asked or 'nothing changed'})"
    found = prediction.simulation
    if found is None or found.concurrency == 1:
        return f"{text} ({asked or 'nothing changed'})"
    each = f"{found.throughput:,.2f} requests/s, half of them within {duration(found.latency(50))}"
    alone = f"{text} ({asked})" if asked else text
    return f"{counted(found.concurrency, 'request')} at once: {each}; one alone: {alone}"


def _asked(prediction: Prediction) -> Iterator[str]:
    """The scenario in words."""
    scenario = prediction.scenario
    if scenario.steps is not None:
        yield counted(scenario.steps, "step")
    if not scenario.guidance:
        yield "guidance off"
    if scenario.batch is not None:
        yield f"{scenario.batch} times the batch"
    if scenario.size is not None:
        yield f"{scenario.size} pixels"
    if scenario.drop:
        yield f"without {', '.join(scenario.drop)}"
    for submodule, device in scenario.place.items():
        yield f"{submodule} on {device}"
    if scenario.precision is not None:
        yield precision(scenario.precision)
    if scenario.cuda_graph:
        yield "a CUDA graph a call"
    if scenario.concurrency is not None and prediction.simulation is None:
        yield f"{counted(scenario.concurrency, 'request')} at once"


def _basis(prediction: Prediction) -> str:
    """What was measured, and what the interval is made of."""
    measured, request = prediction.measured, prediction.request
    count = len(measured.pipelines)
    calls = f"the mean of {count} pipeline calls" if count > 1 else "one pipeline call"
    text = f"Measured {duration(measured.recorded_ns)} end to end, {calls} of {prediction.run_id}"
    text += f" with {counted(measured.steps, 'step')}" if measured.steps else ""
    if measured.corrected:
        text += f"; {duration(measured.ns)} without the cost of tracing"
    elif count > 1:
        text += f"; {duration(measured.low_ns)} to {duration(measured.high_ns)}"
    text += "."
    if prediction.device is not None:
        text += (
            f" Device span, by a replay of launches: {duration(prediction.device.recorded_ns)} "
            f"recorded, {duration(prediction.device.ns)} predicted."
        )
    if request.resampled:
        text += (
            " The interval is that of a single request, by drawing from the measured "
            f"{label(request.resampled)}."
        )
    elif request.low is not None:
        text += " The interval has the bounds of what was estimated; nothing was measured twice."
    if prediction.too_large:
        why = worded(prediction.too_large)
        text += f" As placed it does not fit into memory: {why}."
    return text


def _times(prediction: Prediction) -> Iterator[Part]:
    total = Share("end to end", prediction.measured.ns, prediction.request.ns)
    figure = Figure("prediction", "prediction", (prediction,))
    for noun, shares in (("stage", prediction.stages), ("submodule", prediction.submodules)):
        columns = (Column(noun, STRING, "", f"a {noun}; `host` is work between calls"), *_PARTS)
        made = table(
            f"prediction_{noun}s",
            f"{noun}s",
            columns,
            columns,
            _share_rows(shares, total, columns),
            shown=_ROWS,
            totals=_share_rows([total], total, columns),
        )
        yield Part(f"By {noun}", figure=figure if noun == "submodule" else None, table=made)


def _share_rows(shares: Iterable[Share], total: Share, columns: Sequence[Column]) -> pl.DataFrame:
    rows = [
        (
            share.name or _NO_STAGE,
            round(share.before_ns),
            round(share.after_ns),
            share.after_ns / share.before_ns - 1 if share.before_ns else None,
            share.after_ns / total.after_ns if total.after_ns else None,
        )
        for share in shares
    ]
    return pl.DataFrame(rows, schema=schema(columns), orient="row")


def _simulations(prediction: Prediction) -> Iterator[Part]:
    """Requests at once as placed and as the best placement has them, devices, that placement."""
    best = prediction.best
    both = {_AS_PLACED: prediction.simulation, _BEST: best.simulation if best else None}
    shown = {name: one for name, one in both.items() if one is not None}
    if shown:
        first = next(iter(shown.values()))
        title = f"{counted(first.concurrency, 'request')} at once, {_ORDERS[first.order]}"
        yield Part(title, table=_simulated(shown, prediction.recorded), notes=(_LATENCIES,))
        yield Part("Devices", table=_devices(shown), notes=(_UTILIZED,))
    if best is not None:
        frame = pl.DataFrame([*best.placement.items()], schema=schema(_PLACEMENT), orient="row")
        view = table("placement", "submodules", _PLACEMENT, _PLACEMENT, frame, shown=_ROWS)
        yield Part("Best placement found", table=view, notes=(_searched(best),))


def _simulated(
    shown: Mapping[str, Simulation], recorded: RecordedLatency | None
) -> TableView | None:
    """What is predicted, below what a server recorded."""
    rows: list[tuple[object, ...]] = []
    if recorded is not None:
        latencies = (recorded.latency(p) for p in PERCENTILES)
        name = f"{_RECORDED}, {recorded.in_flight:.1f} at once"
        rows.append((name, recorded.throughput, None, None, *latencies, ""))
    rows += [
        (
            name,
            one.throughput,
            one.low,
            one.high,
            *(one.latency(p) for p in PERCENTILES),
            one.bottleneck,
        )
        for name, one in shown.items()
    ]
    frame = pl.DataFrame(rows, schema=schema(_SIMULATIONS), orient="row")
    return table("simulations", "placements", _SIMULATIONS, _SIMULATIONS, frame)


def _devices(shown: Mapping[str, Simulation]) -> TableView | None:
    """Of each device its utilization in each placement, and the wait for it as placed."""
    placed, best = shown.get(_AS_PLACED), shown.get(_BEST)
    waits = (placed or shown[_BEST]).queue_wait_ns
    names = dict.fromkeys(name for one in shown.values() for name in one.utilization)
    rows = [
        (
            name,
            placed.utilization.get(name) if placed else None,
            round(waits[name]) if name in waits else None,
            best.utilization.get(name) if best else None,
        )
        for name in names
    ]
    frame = pl.DataFrame(rows, schema=schema(_DEVICES), orient="row")
    return table("prediction_devices", "devices", _DEVICES, _DEVICES, frame, shown=_ROWS)


def _searched(best: BestPlacement) -> str:
    what = f"Of {counted(best.possible, 'placement')} {best.considered:,} were considered"
    if not best.exhaustive:
        return f"{what} and {best.simulated:,} simulated: not all."
    ruled_out = ", the others ruled out by a bound" if best.simulated < best.considered else ""
    return f"{what} and {best.simulated:,} simulated{ruled_out}: none is more than 1 % better."


def _notes(title: str, notes: Sequence[Note]) -> Iterator[Part]:
    if notes:
        yield Part(title, notes=tuple(f"- {worded(note)}" for note in notes), always=True)
