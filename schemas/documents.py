"""Write the schemas of all `--json` documents: `python schemas/documents.py [--since COMMIT]`.

A file for each kind, `schemas/KIND.json`, in JSON Schema 2020-12: the keys that docs/json.md lists
with their types, and the tables as their columns are declared. With `--since` nothing is written:
it names the keys of that commit's schemas that are gone or have another type although the version
of their document is the same, and ends with exit code 1 if there are any.

A heading of docs/json.md is the place of an object, its list has an item a key: name, type,
meaning. Headings of `analysis` stand without it (`run.selection`), those of other kinds begin with
their kind. A type is one of `_TYPES`, the heading of another object, or a list of either; `null`
and units stand behind it, with commas.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from profiler.analysis.question import tables
from profiler.analysis.table_text import worded_tables_by_name
from profiler.compare.tables import TABLES as COMPARED
from profiler.report.files import IDENTIFIED
from profiler.run.columns import Column
from profiler.text import NoteCode
from profiler.trace.documents import VERSIONS, envelope

SCHEMAS = Path(__file__).resolve().parent
PAGE = SCHEMAS.parent / "docs" / "json.md"
_ROOT = "analysis"
_TYPES = {
    "text": "string",
    "integer": "integer",
    "number": "number",
    "true/false": "boolean",
    "object": "object",
    "list": "array",
}
_PLURALS = {"integers": "integer", "numbers": "number", "objects": "object", "lists": "list"}
_PARTS = {"diff": ("diff", "comparison"), "diffs.comparisons": ("diffs.comparisons", "comparison")}
"""Objects whose keys stand below several headings."""
_MEASURED = ("run.overhead",)  # it has the keys that its producer measured
Schema = dict[str, Any]
Keys = dict[str, tuple[str, str]]


def sections(text: str) -> dict[str, Keys]:
    """Heading → key → type and meaning, as the page lists them."""
    found: dict[str, Keys] = {}
    title = ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"#+ (.+)", line):
            title = heading[1]
        elif row := re.fullmatch(r"- `(\w+)` \((.*?)\): (.+)", line):
            found.setdefault(title, {})[row[1]] = (row[2], row[3])
    return found


def schemas() -> dict[str, Schema]:
    """Kind → its schema."""
    listed = sections(PAGE.read_text(encoding="utf-8"))
    made = {}
    for kind in VERSIONS:
        own = _object(kind, listed)
        head = _object("envelope", listed)
        properties = {**head["properties"], **own["properties"]}
        constant = envelope(kind)
        for name in ("schema", "kind", "version"):
            properties[name] = {**properties[name], "const": constant[name]}
        made[kind] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": constant["schema"],
            "type": "object",
            "properties": properties,
            "required": [*properties],
        }
    return made


def _object(title: str, listed: dict[str, Keys]) -> Schema:
    properties: dict[str, Schema] = {}
    for part in _PARTS.get(title, (title,)):
        for key, (words, meaning) in listed.get(part, {}).items():
            place = key if part == _ROOT else f"{part}.{key}"
            properties[key] = {**_value(words, place, listed), "description": meaning}
        properties |= _tables(part)
    if title in _MEASURED:
        return {"type": "object", "properties": properties, "additionalProperties": True}
    return {"type": "object", "properties": properties, "required": [*properties]}


def _value(words: str, place: str, listed: dict[str, Keys]) -> Schema:
    """The schema of a value whose type the page gives in `words`."""
    kind, *more = words.split(", ")
    if kind.startswith("list of "):
        of = kind.removeprefix("list of ")
        made: Schema = {"type": "array", "items": _value(_PLURALS.get(of, of), place, listed)}
    elif kind.startswith("object of "):
        of = kind.removeprefix("object of ")
        made = {"type": "object", "additionalProperties": _value(of, place, listed)}
    elif kind == "object" and (place in listed or place in _PARTS):
        made = _object(place, listed)
    elif kind in _TYPES:
        made = {"type": _TYPES[kind]}
    else:
        made = _object(kind, listed)
    if "null" in more:
        made["type"] = [made["type"], "null"]
    return made


def _tables(title: str) -> dict[str, Schema]:
    """The tables of an object, as their columns are declared."""
    if title == "comparison":
        return {name: _table(name, columns) for name, columns in COMPARED.items()}
    if title != _ROOT:
        return {}
    nested = worded_tables_by_name()  # docs/json.md lists their keys
    return {
        each.name: _table(each.name, each.columns) for each in tables() if each.name not in nested
    }


def _table(name: str, columns: Sequence[Column]) -> Schema:
    properties = {"id": {"type": "string"}} if name in IDENTIFIED else {}
    for column in columns:
        properties[column.name] = _column(column)
        if column.codes is not None and issubclass(column.codes, NoteCode):
            properties[column.name] = {"type": "array", "items": {"type": "object"}}
            properties[f"{column.name}_text"] = {"type": "string"}
    row = {"type": "object", "properties": properties, "required": [*properties]}
    return {"type": "array", "items": row}


def _column(column: Column) -> Schema:
    dtype = column.dtype
    kind = "string"
    if dtype.is_nested():
        kind = "array"
    elif dtype == pl.Boolean:
        kind = "boolean"
    elif dtype.is_numeric():
        kind = "integer" if dtype.is_integer() else "number"
    made: Schema = {"type": [kind, "null"] if column.nullable else kind}
    unit = "" if column.name.endswith(f"_{column.unit}") else column.unit
    return {**made, "description": f"{column.meaning} ({unit})" if unit else column.meaning}


# --- Two schemas of one document: what a program that reads the older would no longer find.


def broken(old: Schema, new: Schema, place: str = "") -> Iterator[str]:
    """The places whose key is gone, or may have a value of a type that it had not."""
    before, after = _kinds(old), _kinds(new)
    if not after <= before:
        yield f"{place}: {'/'.join(sorted(before))} is {'/'.join(sorted(after))}"
    if "items" in old:
        yield from broken(old["items"], new.get("items", {}), f"{place}[]")
    for key, value in old.get("properties", {}).items():
        where = f"{place}.{key}" if place else key
        if key not in new.get("properties", {}):
            yield f"{where}: gone"
        else:
            yield from broken(value, new["properties"][key], where)


def _kinds(schema: Schema) -> set[str]:
    given = schema.get("type", ["any"])
    found = {given} if isinstance(given, str) else {*given}
    return found | {"integer"} if "number" in found else found


def breaks(old: dict[str, Schema], new: dict[str, Schema]) -> list[str]:
    """What is broken without a higher version of its document."""
    found = []
    for kind, schema in old.items():
        if kind not in new:
            found.append(f"{kind}: gone")
        elif _version(new[kind]) <= _version(schema):
            found += [f"{kind}: {place}" for place in broken(schema, new[kind])]
    return found


def _version(schema: Schema) -> int:
    return int(schema["properties"]["version"]["const"])


def of_commit(commit: str) -> dict[str, Schema]:
    """The schemas as a commit has them; none before there were any."""
    git = ["git", "-C", str(SCHEMAS), "ls-tree", "--name-only", commit, "./"]
    names = subprocess.run(git, check=True, capture_output=True, text=True).stdout.split()
    found = {}
    for name in (Path(name).name for name in names if name.endswith(".json")):
        git = ["git", "-C", str(SCHEMAS), "show", f"{commit}:./{name}"]
        text = subprocess.run(git, check=True, capture_output=True, text=True).stdout
        found[name.removesuffix(".json")] = json.loads(text)
    return found


def as_text(schema: Schema) -> str:
    """The file of a schema."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the schemas, or compare those in the folder with a commit's."""
    if arguments[:1] == ["--since"]:
        here = {path.stem: json.loads(path.read_text("utf-8")) for path in SCHEMAS.glob("*.json")}
        found = breaks(of_commit(arguments[1]), here)
        for line in found:
            print(f"{line}: give the document a higher version (profiler/trace/documents.py)")
        return 1 if found else 0
    for kind, schema in schemas().items():
        (SCHEMAS / f"{kind}.json").write_text(as_text(schema), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
