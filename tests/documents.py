"""Hold documents of `--json` to their schemas, by a validator that is none of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"


def conforms(document: dict[str, Any]) -> dict[str, Any]:
    """The document, which has the keys of its kind's schema and no others, of their types."""
    text = (SCHEMAS / f"{document['kind']}.json").read_text("utf-8")
    jsonschema.Draft202012Validator(_closed(json.loads(text))).validate(document)
    return document


def _closed(schema: Any) -> Any:
    """The schema, by which an object whose keys are listed has no others."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _closed(part) for name, part in schema.items()}
    listed = isinstance(found.get("properties"), dict) and isinstance(found.get("type"), str | list)
    return {"additionalProperties": False, **found} if listed else found
