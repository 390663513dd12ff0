"""`docs/privacy.md` lists every text of the manifest, and nothing that it does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import inspect

from profiler.trace.manifest import _Document

_DOC = Path(__file__).parents[2] / "docs" / "privacy.md"


def _texts(kind: inspect.Type, path: str = "") -> Iterator[str]:
    """The places of texts below a type, as `devices.*.hardware`."""
    if isinstance(kind, inspect.StrType):
        yield path
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _texts(one, path)
    elif isinstance(kind, inspect.StructType):
        if kind.cls.__name__ == "_Detail" and ".values" in path:  # notes within notes
            return
        for field in kind.fields:
            yield from _texts(field.type, f"{path}.{field.encode_name}".removeprefix("."))
    elif isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
        yield from _texts(kind.item_type, path)
    elif isinstance(kind, inspect.TupleType):
        for one in kind.item_types:
            yield from _texts(one, path)
    elif isinstance(kind, inspect.DictType):
        yield from _texts(kind.key_type, f"{path}.*")
        yield from _texts(kind.value_type, f"{path}.*")


def test_every_text_of_the_manifest_is_listed():
    """A field that is added to the manifest has to say whom it can identify."""
    text = _DOC.read_text(encoding="utf-8")
    listed = text[text.index("## Fields of the manifest") : text.index("Numbers (times")]
    rows = [line.split("|")[1] for line in listed.splitlines() if line.startswith("| `")]
    harmless = listed[listed.index("These are codes") :]
    said = re.findall(r"`([\w.*]+)`", "".join([*rows, harmless]))
    assert sorted(said) == sorted(set(_texts(inspect.type_info(_Document))))
