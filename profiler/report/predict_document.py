"""A prediction as one JSON document; `docs/predict.md` describes every key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiler.analysis.prediction.placement import BestPlacement
from profiler.analysis.prediction.result import Part, Prediction, RecordedLatency
from profiler.analysis.prediction.simulation import Simulation
from profiler.bootstrap import PREDICTED_CONFIDENCE, RESAMPLES, SEED
from profiler.files import json_text
from profiler.report.sentences.worded import why_not, worded
from profiler.text import Note

__all__ = ["PERCENTILES", "PREDICT_VERSION", "prediction_document", "prediction_to_json"]

PREDICT_VERSION = 1  # rises when a key goes or changes its meaning
PERCENTILES = (50, 90, 99)


def prediction_document(prediction: Prediction) -> dict[str, Any]:
    """The prediction as plain values: mappings, lists, text, numbers, booleans, None."""
    scenario, measured, request = prediction.scenario, prediction.measured, prediction.request
    return {
        "version": PREDICT_VERSION,
        "confidence": PREDICTED_CONFIDENCE,
        "resamples": RESAMPLES,
        "seed": SEED,
        "run": prediction.run_id,
        "scenario": {
            "steps": scenario.steps,
            "guidance": scenario.guidance,
            "drop": [*scenario.drop],
            "place": dict(scenario.place),
            "precision": scenario.precision,
            "concurrency": scenario.concurrency,
            "order": scenario.order,
            "devices": [*scenario.devices],
            "device_memory": dict(scenario.memory),
            "cuda_graph": scenario.cuda_graph,
            "untraced_ns": scenario.untraced_ns,
            "batch": scenario.batch,
            "size": scenario.size and [scenario.size.width, scenario.size.height],
        },
        "measured": {
            "pipelines": [*measured.pipelines],
            "steps": measured.steps,
            "recorded_ns": round(measured.recorded_ns),
            "ns": round(measured.ns),
            "low_ns": round(measured.low_ns),
            "high_ns": round(measured.high_ns),
            "corrected": measured.corrected,
        },
        "predicted": {
            "ns": round(request.ns),
            "low_ns": None if request.low is None else round(request.low),
            "high_ns": None if request.high is None else round(request.high),
            "resampled": request.resampled,
            "once_ns": round(request.once_ns),
        },
        "device_span": prediction.device
        and {
            "recorded_ns": round(prediction.device.recorded_ns),
            "replayed_ns": round(prediction.device.replayed_ns),
            "ns": round(prediction.device.ns),
        },
        "stages": [_part(part) for part in prediction.stages],
        "submodules": [_part(part) for part in prediction.submodules],
        "simulation": _simulation(prediction.simulation),
        "recorded": _recorded(prediction.recorded),
        "too_large": str(why_not(prediction.too_large)) or None,
        "too_large_code": prediction.too_large and prediction.too_large.as_json(),
        "best_placement": _best(prediction.best),
        "reasons": _sentences(prediction.reasons),
        "reasons_codes": _codes(prediction.reasons),
        "assumes": _sentences(prediction.assumes),
        "assumes_codes": _codes(prediction.assumes),
        "unknown": _sentences(prediction.unknown),
        "unknown_codes": _codes(prediction.unknown),
    }


def _sentences(notes: Sequence[Note]) -> list[str]:
    return [str(worded(note)) for note in notes]


def _codes(notes: Sequence[Note]) -> list[dict[str, Any]]:
    return [note.as_json() for note in notes]


def _part(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "before_ns": round(part.before_ns),
        "after_ns": round(part.after_ns),
    }


def _simulation(simulation: Simulation | None) -> dict[str, Any] | None:
    if simulation is None:
        return None
    return {
        "concurrency": simulation.concurrency,
        "order": simulation.order,
        "requests": simulation.requests,
        "window_ns": simulation.window_ns,
        "throughput": simulation.throughput,
        "throughput_low": simulation.low,
        "throughput_high": simulation.high,
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
        "throughput": recorded.throughput,
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


def prediction_to_json(prediction: Prediction) -> str:
    """The document as JSON text that ends with a newline; no NaN, no Infinity."""
    document = prediction_document(prediction)
    return json_text(document) + "\n"
