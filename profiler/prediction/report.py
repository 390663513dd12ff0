"""The prediction report: before and after by part, throughput, assumptions; and its JSON.

    print_report(Console(highlight=False), prediction_report(prediction))

`docs/predict.md` describes every key of the JSON document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis.document import Figure, Report, Section, Summary, TableView
from profiler.analysis.document import Part as SectionPart
from profiler.analysis.table_text import (
    Sentences,
    add_sentences,
    label,
    table,
    why_not,
    worded_note,
)
from profiler.files import plain
from profiler.prediction.changes import DeviceSpan
from profiler.prediction.ladder import Ladder
from profiler.prediction.ladder_section import ladder_document
from profiler.prediction.placement import BestPlacement
from profiler.prediction.predict import Measured, Part, Prediction, RecordedLatency
from profiler.prediction.requests import Simulation
from profiler.prediction.scenario import Assumption, PlacementNote, Reason, Unknown, precision
from profiler.prediction.workload import Order
from profiler.run.columns import FLOAT64, NS, RATIO, SHARE, STRING, Column, col, schema
from profiler.text import Note, counted, duration, percent
from profiler.trace.bootstrap import PREDICTED_CONFIDENCE, RESAMPLES, SEED
from profiler.trace.documents import document_text, envelope

# --- A prediction as one JSON document; `docs/predict.md` describes every key.


PERCENTILES = (50, 90, 99)
_SCENARIO_KEYS = {"memory": "device_memory_bytes", "size": "size_pixels"}


def prediction_document(prediction: Prediction, ladder: Ladder | None = None) -> dict[str, Any]:
    """The prediction as plain values: mappings, lists, text, numbers, booleans, None. `ladder` is
    given if no scenario was."""
    scenario, request = prediction.scenario, prediction.request
    notes: dict[str, Any] = {}
    for name in ("reasons", "assumes", "unknown"):
        own = getattr(prediction, name)
        notes[name] = [str(worded_note(note)) for note in own]
        notes[f"{name}_codes"] = [note.as_json() for note in own]
    return {
        **envelope("prediction"),
        "confidence": PREDICTED_CONFIDENCE,
        "resamples": RESAMPLES,
        "seed": SEED,
        "run": prediction.run_id,
        "scenario": {
            **{_SCENARIO_KEYS.get(name, name): value for name, value in plain(scenario).items()},
            "size_pixels": scenario.size and [scenario.size.width, scenario.size.height],
        },
        "measured": _rounded(prediction.measured),
        "predicted": {
            "ns": round(request.ns),
            "low_ns": None if request.low is None else round(request.low),
            "high_ns": None if request.high is None else round(request.high),
            "resampled": request.resampled,
            "once_ns": round(request.once_ns),
        },
        "device_span": prediction.device and _rounded(prediction.device),
        "stages": [_rounded(part) for part in prediction.stages],
        "submodules": [_rounded(part) for part in prediction.submodules],
        "simulation": _simulation(prediction.simulation),
        "recorded": _recorded(prediction.recorded),
        "too_large": str(why_not(prediction.too_large)) or None,
        "too_large_code": prediction.too_large and prediction.too_large.as_json(),
        "best_placement": _best(prediction.best),
        **notes,
        "ladder": ladder_document(ladder),
    }


def _rounded(times: Measured | DeviceSpan | Part) -> dict[str, Any]:
    values: dict[str, Any] = plain(times)
    return {n: round(value) if isinstance(value, float) else value for n, value in values.items()}


def _simulation(simulation: Simulation | None) -> dict[str, Any] | None:
    if simulation is None:
        return None
    return {
        "concurrency": simulation.concurrency,
        "order": simulation.order,
        "requests": simulation.requests,
        "window_ns": simulation.window_ns,
        "requests_per_s": simulation.throughput,
        "low_requests_per_s": simulation.low,
        "high_requests_per_s": simulation.high,
        "latency_ns": {f"p{p}": simulation.latency(p) for p in PERCENTILES},
        "utilization": dict(simulation.utilization),
        "queue_wait_ns": {name: round(ns) for name, ns in simulation.queue_wait_ns.items()},
    }


def _recorded(recorded: RecordedLatency | None) -> dict[str, Any] | None:
    if recorded is None:
        return None
    return {
        "requests": len(recorded.latency_ns),
        "in_flight": recorded.in_flight,
        "requests_per_s": recorded.throughput,
        "latency_ns": {f"p{p}": recorded.latency(p) for p in PERCENTILES},
    }


def _best(best: BestPlacement | None) -> dict[str, Any] | None:
    if best is None:
        return None
    return {
        "placement": dict(best.placement),
        "possible": best.possible,
        "considered": best.considered,
        "simulated": best.simulated,
        "exhaustive": best.exhaustive,
        "simulation": _simulation(best.simulation),
    }


def prediction_to_json(prediction: Prediction, ladder: Ladder | None = None) -> str:
    """The document as JSON text that ends with a newline; no NaN, no Infinity."""
    return document_text(prediction_document(prediction, ladder))


# --- The report of a prediction: before and after by part, requests at once, what it rests on.


_AS_PLACED, _BEST = "as placed", "best placement"
_ROWS = 100
_BETTER = 1.01  # times the throughput: below is no gain
_NAMED = 4  # moved submodules that are named
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
    col("measured_ns", NS, "its mean time in a request of the run"),
    col("predicted_ns", NS, "its time in a request of the scenario"),
    Column(
        "change", FLOAT64, "ratio", "predicted / measured - 1", True, kind="change", importance=1
    ),
    col("share", SHARE, "of the predicted request", True, importance=2),
)
_SIMULATIONS = (
    col("placement", STRING, "as the submodules are placed, or the best placement found"),
    Column("throughput", FLOAT64, "1/s", "requests/s", label="requests/s", kind="number"),
    Column("low", FLOAT64, "1/s", "lower end of its 90 % interval", True, kind="number"),
    Column("high", FLOAT64, "1/s", "upper end of its 90 % interval", True, kind="number"),
    *(col(f"p{p}_ns", NS, f"latency that {p} % of the requests stay below") for p in PERCENTILES),
    col("busiest", STRING, "the busiest device, or the host", importance=1),
)
_DEVICES = (
    col("device", STRING, "a device, or the host"),
    col("utilized", RATIO, "share of the time in which it is busy, as placed", True),
    col("queue_wait_ns", NS, "mean time for which a request waits for it", True),
    col("best_utilized", RATIO, "its utilization in the best placement", True),
)
_PLACEMENT = (
    col("submodule", STRING, "a submodule"),
    col("device", STRING, "where the best placement has it"),
)


def prediction_report(prediction: Prediction) -> Report:
    """Report measured and predicted times, by part, under load, and what they rest on."""
    parts = (
        *_times(prediction),
        *_simulations(prediction),
        *_notes("Why", prediction.reasons),
        *_notes("What it assumes", prediction.assumes),
        *_notes("What is not known", prediction.unknown),
    )
    asked, best, basis = headline(prediction), best_line(prediction), _basis(prediction)
    summary = Summary(best or asked, accounting=f"{asked}. {basis}" if best else basis)
    return Report(summary, (Section("prediction", parts=parts),))


def headline(prediction: Prediction) -> str:
    """Format the headline: `"1.76 s → 286 ms, 90 % interval 271 ms to 301 ms (4 steps, guidance
    off)"`; with several requests at once, throughput and latency come first."""
    before, request = prediction.measured.ns, prediction.request
    text = f"{duration(before)} → {duration(request.ns)}"
    if request.low is None or request.high is None:
        text += ", no interval"
    else:
        ends = f"{duration(request.low)} to {duration(request.high)}"
        text += f", {percent(PREDICTED_CONFIDENCE)} interval {ends}"
    asked, found = ", ".join(_asked(prediction)), prediction.simulation
    if prediction.too_large or found is None or found.concurrency == 1:
        text += f" ({asked or 'nothing changed'})"
        return f"does not fit into memory; if it did: {text}" if prediction.too_large else text
    each = f"{found.throughput:,.2f} requests/s, half of them within {duration(found.latency(50))}"
    alone = f"{text} ({asked})" if asked else text
    return f"{counted(found.concurrency, 'request')} at once: {each}; one alone: {alone}"


def best_line(prediction: Prediction) -> str:
    """Say which placement is best and what it gains, or that none does; "" unless devices were
    given or the current placement does not fit."""
    best, now = prediction.best, prediction.simulation
    if best is None or not (prediction.scenario.devices or prediction.too_large):
        return ""
    if now is None:
        where = _placed(best.placement, {})
        return f"Best placement that fits: {where}, {_speed(best.simulation)}"
    moved = _placed(best.placement, prediction.placement)
    one = now.concurrency == 1
    gain = best.simulation.throughput / now.throughput if now.throughput > 0 else 1.0
    at_once = "one request at a time" if one else f"{counted(now.concurrency, 'request')} at once"
    if not moved or gain < _BETTER:
        return f"No placement on these devices helps {at_once}: it stays at {_speed(now)}"
    return (
        f"Best placement: {moved}, {_speed(now)} → {_speed(best.simulation)} ({gain:.2f}×, "
        f"{at_once})"
    )


def _placed(placement: Mapping[str, str], now: Mapping[str, str]) -> str:
    """List the submodules that `placement` moves away from `now`, each with its device."""
    moved = [f"{name} on {on}" for name, on in placement.items() if now.get(name) != on]
    more = len(moved) - _NAMED
    return ", ".join([*moved[:_NAMED], *([f"{more} more"] if more > 0 else [])])


def _speed(found: Simulation) -> str:
    """Format the time of a request, or with several at once the requests per second."""
    if found.concurrency == 1:
        return duration(found.latency(50))
    return f"{found.throughput:,.2f} requests/s"


def _asked(prediction: Prediction) -> Iterator[str]:
    """Yield the parts of the scenario as text."""
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
        yield "each call as a graph"
    for name in scenario.follow:
        yield f"{name} followed"
    if scenario.concurrency is not None and prediction.simulation is None:
        yield f"{counted(scenario.concurrency, 'request')} at once"


def _basis(prediction: Prediction) -> str:
    """Say what was measured, and what the interval includes."""
    measured, request = prediction.measured, prediction.request
    count = len(measured.pipelines)
    calls = f"the mean of {count} pipeline calls" if count > 1 else "one pipeline call"
    text = f"Measured {duration(measured.recorded_ns)} end to end, {calls} of {prediction.run_id}"
    text += f" with {counted(measured.steps, 'step')}" if measured.steps else ""
    if measured.corrected:
        text += f"; {duration(measured.ns)} without the profiling overhead"
    elif measured.ns != measured.recorded_ns:
        text += f"; {duration(measured.ns)} alone, by a replay"
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
        why = worded_note(prediction.too_large)
        text += f" As placed it does not fit into memory: {why}."
    return text


def _times(prediction: Prediction) -> Iterator[SectionPart]:
    total = Part("end to end", prediction.measured.ns, prediction.request.ns)
    figure = Figure("prediction", "prediction", (prediction,))
    for noun, shares in (("stage", prediction.stages), ("submodule", prediction.submodules)):
        columns = (col(noun, STRING, f"a {noun}; `host` is work between calls"), *_PARTS)
        rows, whole = (_share_rows(some, total, columns) for some in (shares, [total]))
        name = f"prediction_{noun}s"
        made = table(name, f"{noun}s", columns, columns, rows, shown=_ROWS, totals=whole)
        yield SectionPart(f"By {noun}", figure=figure if noun == "submodule" else None, table=made)


def _share_rows(shares: Iterable[Part], total: Part, columns: Sequence[Column]) -> pl.DataFrame:
    rows = [
        (
            share.name or "outside",
            round(share.before_ns),
            round(share.after_ns),
            share.after_ns / share.before_ns - 1 if share.before_ns else None,
            share.after_ns / total.after_ns if total.after_ns else None,
        )
        for share in shares
    ]
    return pl.DataFrame(rows, schema=schema(columns), orient="row")


def _simulations(prediction: Prediction) -> Iterator[SectionPart]:
    """The simulations as placed and in the best placement, the devices, and that placement."""
    best = prediction.best
    both = {_AS_PLACED: prediction.simulation, _BEST: best.simulation if best else None}
    shown = {name: one for name, one in both.items() if one is not None}
    if shown:
        first = next(iter(shown.values()))
        title = f"{counted(first.concurrency, 'request')} at once, {_ORDERS[first.order]}"
        yield SectionPart(title, table=_simulated(shown, prediction.recorded), notes=(_LATENCIES,))
        yield SectionPart("Devices", table=_devices(shown), notes=(_UTILIZED,))
    if best is not None:
        frame = pl.DataFrame([*best.placement.items()], schema=schema(_PLACEMENT), orient="row")
        view = table("placement", "submodules", _PLACEMENT, _PLACEMENT, frame, shown=_ROWS)
        yield SectionPart("Best placement found", table=view, notes=(_searched(best),))


def _simulated(
    shown: Mapping[str, Simulation], recorded: RecordedLatency | None
) -> TableView | None:
    """The table of simulations, below what a server recorded."""
    rows: list[tuple[object, ...]] = []
    if recorded is not None:
        latencies = (recorded.latency(p) for p in PERCENTILES)
        name = f"recorded, {recorded.in_flight:.1f} at once"
        rows.append((name, recorded.throughput, None, None, *latencies, ""))
    for name, one in shown.items():
        latencies = (one.latency(p) for p in PERCENTILES)
        rows.append((name, one.throughput, one.low, one.high, *latencies, one.bottleneck))
    frame = pl.DataFrame(rows, schema=schema(_SIMULATIONS), orient="row")
    return table("simulations", "placements", _SIMULATIONS, _SIMULATIONS, frame)


def _devices(shown: Mapping[str, Simulation]) -> TableView | None:
    """The table of devices: utilization in each placement, and the wait for each as placed."""
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


def _notes(title: str, notes: Sequence[Note]) -> Iterator[SectionPart]:
    if notes:
        lines = tuple(f"- {worded_note(note)}" for note in notes)
        yield SectionPart(title, notes=lines, always=True)


# --- Sentences of predictions: assumptions, what is not known, devices and memory.


FACTORS: Sentences = {
    Assumption: {
        Assumption.TIMES_BATCH: "{submodule} takes {share} times as long ({low_share} to "
        "{high_share}) with the larger batch, by the work of each operator",
        Assumption.ANOTHER_SIZE: "{submodule} takes {share} times as long ({low_share} to "
        "{high_share}) at {size} in place of {before}, by the work of each operator",
        Assumption.PRECISION_BY_RATES: "{submodule} takes {share} times as long ({low_share} to "
        "{high_share}) at {dtype}, by the rates of {device}; kernels of that type may reach less",
        Assumption.PRECISION_ON_DEVICE: "the device works {share} times as long ({low_share} to "
        "{high_share}) for {submodule} at {dtype}, by the rates of {device}; kernels of that type "
        "may reach less",
        Assumption.SHARE_OF_ALL: "{submodule} {share} times ({low_share} to {high_share})",
        Assumption.SHARE_OF_BATCHED: "batched calls of {submodule} {share} times ({low_share} to "
        "{high_share})",
    }
}

SENTENCES: Sentences = {
    Assumption: {
        Assumption.OVERHEAD_CORRECTED: "times are without the overhead of recording operators "
        "where it is known ({factors})",
        Assumption.OVERHEAD_RATIO: "{submodule} times {ratio}",
        Assumption.AS_TRACED: "times are as recorded and include the overhead of recording "
        "operators, which is not known: for times without it, record with --measure-overhead, or "
        "with --ops none",
        Assumption.AS_TRACED_ELSEWHERE: "times are as recorded and include what the profiler cost, "
        "which its trace does not tell",
        Assumption.AS_TRACED_AT: "times are as recorded and include the overhead of recording "
        "operators: {share} of the run, which is not known by submodule or lies within noise "
        "there; for times without it, record with --measure-overhead, or with --ops none",
        Assumption.OVERLAPPING_CALLS: "pipeline calls of the run overlapped: their times include "
        "what they waited for another",
        Assumption.ALONE: "it runs alone, before and after the change: as recorded it began while "
        "the device still worked for another pipeline call, which hid what its host did meanwhile",
        Assumption.INSTANCES_SEEN: "each model runs as many requests at once as it was seen to: "
        "{models}",
        Assumption.INSTANCES_OF: "{submodule} {instances}",
        Assumption.NO_BATCHES: "each request computes alone, for as long as its batch did: {calls} "
        "recorded calls shared theirs with others",
        Assumption.OTHER_REQUESTS: "{requests} requests that called other models, or called them "
        "more or less often, are left out",
        Assumption.WITHOUT_SUBMODULES: "without {submodules} its calls and the host's time before "
        "each of them are left out; nothing stands in for what they made",
        Assumption.WITHOUT_GUIDANCE: "without guidance no negative prompt is encoded and no uncond "
        "call is made",
        Assumption.HALF_BATCH_MEASURED: "{submodule} takes {share} of a batched call, as measured "
        "in its cond calls",
        Assumption.HALF_BATCH_ESTIMATED: "{submodule} takes {share} ({low_share} to {high_share}) "
        "of a batched call, by halving the batch of each operator",
        Assumption.TIMES_BATCH: "{submodule} takes {share} ({low_share} to {high_share}) of its "
        "time with the larger batch, by the work of each operator",
        Assumption.ANOTHER_SIZE: "{submodule} takes {share} ({low_share} to {high_share}) of its "
        "time at {size} in place of {before}, by the work of each operator",
        Assumption.SAME_PRECISION: "{submodule} computes in {dtype} already",
        Assumption.PRECISION_BY_RATES: "{submodule} takes {share} ({low_share} to {high_share}) of "
        "its time at {dtype}, by the rates of {device}; kernels of that type may reach less",
        Assumption.PRODUCTS_ALONE: "only products and convolutions run in {dtype}: attention, "
        "norms and all else would need kernels of their own",
        Assumption.SHARE_OF_STEPS: "some calls do not happen in all of {steps} steps "
        "({submodules}): of fewer or more steps the same share has them",
        Assumption.STEPS_OF: "{submodule} in {steps}",
        Assumption.SHARES_MULTIPLY: "what is said of one submodule multiplies: {submodules}",
        Assumption.SHARE_OF_ALL: "{submodule} {share} ({low_share} to {high_share})",
        Assumption.SHARE_OF_BATCHED: "batched calls of {submodule} {share} ({low_share} to "
        "{high_share})",
        Assumption.AS_MANY_LAUNCHES: "launches are replayed: calls launch as much as they did, and "
        "the host takes as long for it; unchanged, the replay has a device span of {replayed_ns}, "
        "and {recorded_ns} were recorded",
        Assumption.SPANS_OF_CALLS: "a request lasts from its first call to its last one: the run "
        "was killed before it could tell more",
        Assumption.HOST_AS_RECORDED: "the host is as slow as it was while it was recorded: without "
        "the profiler, launches come sooner; to correct for that, give --untraced the time that "
        "the run takes without it",
        Assumption.HOST_UNTRACED: "within calls the host takes {share} of its recorded time, so "
        "that the run takes as long as --untraced says",
        Assumption.HOST_WITH_STACKS: "the host is as slow as it was while Python stacks were "
        "recorded (with_stack), which slow it: without the profiler, launches come sooner; to "
        "correct for that, give --untraced the time that the run takes without it",
        Assumption.HALF_BATCH_ON_DEVICE: "the device works {share} ({low_share} to {high_share}) "
        "as long on half a batch of {submodule}, which is launched as before",
        Assumption.PRECISION_ON_DEVICE: "the device works {share} ({low_share} to {high_share}) as "
        "long for {submodule} at {dtype}, by the rates of {device}; kernels of that type may reach "
        "less",
        Assumption.ONE_LAUNCH: "each call of {submodules} is launched at once, as a graph: its "
        "shapes stay the same, and recording the graph takes no time",
        Assumption.NOT_CAPTURED: "{submodules} are launched as before: their calls wait for the "
        "device, which no graph can",
        Assumption.GRAPHS_KEEP: "inputs are copied into graphs, and these take a moment to launch: "
        "the interval has {share} of the gain at least, less than graphs that were recorded on an "
        "H200 kept",
        Assumption.STALLS_STAY: "{stalls_ns} in which the host launched nothing stay: no graph "
        "prevents a garbage collection or the loading of a library or of data",
        Assumption.FOLLOWED: "{rule} is followed: {submodules} has {less_ns} less to do, and fewer "
        "launches",
        Assumption.FOLLOWED_WITHOUT: "{rule} is followed: {submodules} are not called for {branch}",
        Assumption.FUSED: "how much less of the host's time {submodules} takes once compiled is "
        "not known: the interval goes down to one launch a call",
    },
    Reason: {
        Reason.LESS_WORK: "in {submodule} the device has {less_ns} less to do than in as many "
        "steps without that change; the run gains {gained_ns} of that",
        Reason.HIDDEN_WORK: "in {submodule} the device has {less_ns} less to do than in as many "
        "steps without that change; the run gains nothing of that",
        Reason.LAUNCH_BOUND: "{submodule} is launch-bound: in the replay, where work begins as "
        "soon as it is launched and its stream is free, the device is idle for {idle_ns} of the "
        "{elapsed_ns} of its calls",
        Reason.WITH_GRAPHS: "what would remove that bound is one launch a call (`--cuda-graph`): "
        "{predicted_ns} then, with a device span of {device_span_ns}; less work on the device "
        "would not",
    },
    Unknown: {
        Unknown.BATCH_GUESSED: "how long {submodule} takes with a larger batch: its operators were "
        "not traced",
        Unknown.SIZE_GUESSED: "how long {submodule} takes with images of another size: no operator "
        "in the trace tells; its time is taken to go with the pixels, at most with their square",
        Unknown.ACTIVATIONS_AS_RECORDED: "how much memory activations need then: they are counted "
        "as recorded",
        Unknown.HALF_BATCH_GUESSED: "what half a batch takes of {submodule}: none of its calls was "
        "traced with operators; half is taken, and all of it as the upper bound",
        Unknown.WORK_OF_OPERATORS: "the work of {share} of the operators' time of {submodule}",
        Unknown.PRECISION_OF: "what {dtype} does to {submodule}: the types of its operators are "
        "not in the trace; it is taken to stay as it is",
        Unknown.CALLS_OUTSIDE: "what {calls} calls in no pipeline call are for: they are left out",
        Unknown.DROPPED: "what is not in the trace ({kind}, see `profile-sd3 analyze`)",
        Unknown.NO_LAUNCHES: "what {devices} waited for: the trace has no launches, so time in "
        "which a device waits for the host is taken to become less with its work",
        Unknown.SCATTER: "how much it scatters: nothing in the run was measured twice, so no "
        "interval is given",
        Unknown.SCATTER_BEYOND_ESTIMATES: "how much it scatters: nothing in the run was measured "
        "twice, so the interval has the bounds of what was estimated alone",
        Unknown.SCATTER_OF_CALLS: "how much one pipeline call differs from the next beyond its "
        "steps: one was measured, so times of several may lie outside of the interval; record "
        "several",
        Unknown.SCATTER_OF_RUNS: "how runs differ from one another: the interval has what varied "
        "within this run, and equal runs minutes apart on a shared machine differ by more",
        Unknown.SCATTER_OF_SINGLE: "how much what was measured once scatters, {share} of the "
        "predicted time: it is taken to scatter as the steps do",
    },
    PlacementNote: {
        PlacementNote.NO_TRANSFER_TIME: "moving tensors between devices takes no time beside that "
        "of calls",
        PlacementNote.NO_INTERFERENCE: "calls take what they were measured to take, whatever runs "
        "on other devices",
        PlacementNote.LIKE_OTHER_DEVICE: "{device} is not in the run and assumed to be like "
        "{other}",
        PlacementNote.LIKE_OTHER_CPU: "{device} is not in the run and assumed to be like {other}, "
        "with as many cores of its own; where it takes cores away from other devices, these slow "
        "down",
        PlacementNote.OTHER_HARDWARE: "{device} is other hardware than {measured_on}, and their "
        "rates do not tell the time there; record a run with that device, or measure both with "
        "`profile-sd3 benchmark-device`",
        PlacementNote.LAUNCHES_ELSEWHERE: "{device} is other hardware than {measured_on}, and how "
        "fast a host launches there is not known, so the time there is not; record a run with that "
        "device",
        PlacementNote.WEIGHTS_UNKNOWN: "weights of {submodules} are not known and count as nothing",
        PlacementNote.ACTIVATIONS_UNKNOWN: "activations of {submodules} are not known and count as "
        "nothing",
        PlacementNote.TOO_LARGE: "{device} has {memory_bytes} and would hold {required_bytes} of "
        "{submodules} ({weights_bytes} of weights, {activations_bytes} of activations)",
        PlacementNote.SEARCH_CUT: "the search ended after {simulations} simulations; others may be "
        "better",
    },
}
add_sentences(SENTENCES, FACTORS)
