"""A comparison as one JSON document; `docs/diff.md` describes every key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from profiler.analysis.comparison.compare import Comparison
from profiler.analysis.comparison.gate import Gate
from profiler.analysis.comparison.side_by_side import Compared
from profiler.bootstrap import CONFIDENCE, RESAMPLES, SEED
from profiler.files import json_text
from profiler.report.sentences.worded import worded

__all__ = [
    "DIFF_VERSION",
    "diff_document",
    "diff_to_json",
    "side_by_side_document",
    "side_by_side_to_json",
]

DIFF_VERSION = 1  # rises when a key goes or changes its meaning


def diff_document(comparison: Comparison, gates: Sequence[Gate] = ()) -> dict[str, Any]:
    """The comparison as plain values: mappings, lists, text, numbers, booleans, None."""
    return {**_method(), **_found(comparison, gates)}


def side_by_side_document(base: str, columns: Sequence[Compared]) -> dict[str, Any]:
    """Comparisons with the side that is called `base`, each as that of two sides."""
    found = [{"name": each.name, **_found(each.comparison, each.gates)} for each in columns]
    return {**_method(), "base": base, "comparisons": found}


def side_by_side_to_json(base: str, columns: Sequence[Compared]) -> str:
    """That document as JSON text that ends with a newline; no NaN, no Infinity."""
    return json_text(side_by_side_document(base, columns)) + "\n"


def _method() -> dict[str, Any]:
    return {
        "version": DIFF_VERSION,
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "seed": SEED,
    }


def _found(comparison: Comparison, gates: Sequence[Gate]) -> dict[str, Any]:
    return {
        "runs": comparison.runs.to_dicts(),
        "level": comparison.level.value,
        "corrected": [*comparison.corrected],
        "notes": [str(worded(note)) for note in comparison.notes],
        "note_codes": [note.as_json() for note in comparison.notes],
        "gates": [asdict(gate) for gate in gates],
        "metrics": comparison.metrics.to_dicts(),
        "reasons": [note.as_json() for note in comparison.reasons],
        "tree": comparison.tree.to_dicts(),
        "waterfall": comparison.waterfall.to_dicts(),
        "shapes": comparison.shapes.to_dicts(),
        "kernels": comparison.kernels.to_dicts(),
        "nodes": comparison.nodes.to_dicts(),
    }


def diff_to_json(comparison: Comparison, gates: Sequence[Gate] = ()) -> str:
    """The document as JSON text that ends with a newline; no NaN, no Infinity."""
    document = diff_document(comparison, gates)
    return json_text(document) + "\n"
