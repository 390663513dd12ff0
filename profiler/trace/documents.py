"""The documents that `--json` writes: their kinds, their versions, and their common first keys.

    text = document_text({**envelope("analysis"), "run": {…}})

`schemas/KIND.json` has the keys of each kind. Names come from foreign traces, so texts are cut here
to a limit, for all documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from profiler.files import json_text, plain
from profiler.trace import __version__

VERSIONS = {
    "analysis": 2,
    "diff": 2,
    "diffs": 1,
    "summary_diff": 1,
    "prediction": 2,
    "doctor": 1,
    "fleet_compare": 1,
    "fleet_gate": 1,
    "fleet_history": 1,
    "graph_annotate": 1,
    "graph_check": 1,
    "graph_compare": 1,
    "graph_export": 1,
    "graph_optimize": 1,
    "graph_split": 1,
    "query": 1,
}
"""The kinds of documents with their versions: one rises when a key of it goes, is called otherwise,
or has values of another type."""
_NUMBERS = frozenset((int, float, bool, type(None)))
LONGEST = 10_000  # characters of a text, such as the name of a layer


def envelope(kind: str) -> dict[str, Any]:
    """Return the keys with which a document starts."""
    version = VERSIONS[kind]
    return {
        "schema": f"urn:profile-sd3:{kind}:{version}",
        "kind": kind,
        "version": version,
        "producer": {"name": "profile-sd3", "version": __version__},
    }


def document_text(document: Mapping[str, Any]) -> str:
    """Return the document as JSON text that ends with a newline; no NaN, no Infinity, no text of
    more than `LONGEST` characters."""
    return json_text(bounded(document)) + "\n"


def bounded(value: Any) -> Any:
    """Return `value` with its texts and keys cut to `LONGEST` characters. A cut text gets an ending
    that distinguishes it from others with the same start."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else _cut(value)
    if isinstance(value, dict):  # most values are numbers in rows of tables
        return {
            bounded(name): part if type(part) in _NUMBERS else bounded(part)
            for name, part in value.items()
        }
    if isinstance(value, list):
        return [part if type(part) in _NUMBERS else bounded(part) for part in value]
    return value if type(value) in _NUMBERS else bounded(plain(value))


def _cut(text: str) -> str:
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{text[:LONGEST]}… ({len(text) - LONGEST:,} more characters, SHA-256 {digest}…)"
