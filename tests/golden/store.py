"""Goldens on disk: a file a bundle, packed JSON of name → text; and how two of them differ."""

from __future__ import annotations

import difflib
import json
import lzma
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version

__all__ = ["FROZEN", "differences", "environment_differs", "read", "write", "write_environment"]

FROZEN = Path(__file__).parent / "frozen"
_ENVIRONMENT = Path(__file__).parent / "environment.txt"
_PACKAGES = ("polars", "numpy", "plotly", "rich", "pyarrow", "typer", "click", "duckdb", "msgspec")
_LINES = 30  # of each difference


def write(name: str, outputs: Mapping[str, str]) -> None:
    """Freeze the outputs of a bundle."""
    FROZEN.mkdir(exist_ok=True)
    text = json.dumps(dict(sorted(outputs.items())), ensure_ascii=False, indent=0)
    packed = lzma.compress(text.encode("utf-8", "surrogatepass"), preset=9)
    (FROZEN / f"{name}.json.xz").write_bytes(packed)


def read(name: str) -> dict[str, str]:
    """The frozen outputs of a bundle by name; empty where none were recorded."""
    path = FROZEN / f"{name}.json.xz"
    if not path.is_file():
        return {}
    found: dict[str, str] = json.loads(lzma.decompress(path.read_bytes()))
    return found


def differences(frozen: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The name of each output that differs, and the begin of a unified diff."""
    for name in sorted({*frozen, *now}):
        if name not in now:
            yield name, "is no longer there"
        elif name not in frozen:
            yield name, f"is new:\n{now[name][:500]}"
        elif frozen[name] != now[name]:
            sides = (frozen[name].splitlines(), now[name].splitlines())
            lines = [*difflib.unified_diff(*sides, "frozen", "now", lineterm="", n=1)]
            shown = [line[:400] for line in lines[:_LINES]]
            left = len(lines) - len(shown)
            yield name, "\n".join([*shown, *([f"… {left} more lines"] if left else [])])


def environment_differs() -> str:
    """One sentence where Python or a library is not the one of the goldens, else empty."""
    if not _ENVIRONMENT.is_file():
        return ""
    then, now = _ENVIRONMENT.read_text("utf-8").splitlines(), _environment()
    changed = [f"{a} → {b}" for a, b in zip(then, now, strict=False) if a != b]
    if not changed:
        return ""
    return f"Recorded in another environment, so outputs may differ: {', '.join(changed)}."


def write_environment() -> None:
    """Note the versions of Python and of what formats numbers, tables and figures."""
    _ENVIRONMENT.write_text("\n".join(_environment()) + "\n", "utf-8")


def _environment() -> list[str]:
    return [f"python {python_version()}", *(f"{name} {_version(name)}" for name in _PACKAGES)]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
