"""A comparison as one JSON document; `docs/diff.md` describes every key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from profiler.analysis.comparison.compare import Comparison
from profiler.analysis.comparison.gate import Gate
from profiler.analysis.comparison.noise import CONFIDENCE, RESAMPLES, SEED
from profiler.json_text import json_text

__all__ = ["DIFF_VERSION", "diff_document", "diff_to_json"]

DIFF_VERSION = 1  # rises when a key goes or changes its meaning


def diff_document(comparison: Comparison, gates: Sequence[Gate] = ()) -> dict[str, Any]:
    """The comparison as plain values: mappings, lists, text, numbers, booleans, None."""
    return {
        "version": DIFF_VERSION,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "seed": SEED,
        "runs": comparison.runs.to_dicts(),
        "calibrated": [*comparison.calibrated],
        "notes": [*comparison.notes],
        "gates": [asdict(gate) for gate in gates],
        "metrics": comparison.metrics.to_dicts(),
    }


def diff_to_json(comparison: Comparison, gates: Sequence[Gate] = ()) -> str:
    """The document as JSON text that ends with a newline; no NaN, no Infinity."""
    document = diff_document(comparison, gates)
    return json_text(document) + "\n"
