"""What differs between two runs of the same program, by name, and nothing else.

Numbers are never blurred in general; of floats in tables, 12 digits count. What is masked here is a
key of JSON, or a text with its label. `ENVIRONMENT` is what commands see instead of the user's.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

__all__ = ["ENVIRONMENT", "IMPORTED_AT", "environment", "masked", "settle", "without_chance"]

IMPORTED_AT = "2027-01-15T08:00:00+00:00"
"""The moment that is set into the manifest of what was imported, before it is analyzed."""

ENVIRONMENT = {
    "TZ": "UTC",  # of times that reports show
    "LANG": "C.UTF-8",
    "LINES": "50",
    "TERM": "xterm",  # dumb ones are asked for their width in another way
}
_KEY_BYTES = 16
_KEPT = ("PATH", "VIRTUAL_ENV", "POLARS_MAX_THREADS", "TMPDIR", "PYTHONHASHSEED")

_KEYS: tuple[tuple[str, str], ...] = (  # of JSON, with what stands for their value
    (r"created", '"<when written>"'),  # the clock, in manifests of imports
    (r"added|added_at|when_added", '"<when written>"'),  # the clock, in fleets
    (r"analyzed|analysed|written", '"<when written>"'),  # the clock, in summaries
    (r"profile-sd3|profiler_version|program_version", '"<version>"'),  # ours, as of setup
)
_MASKS: list[tuple[re.Pattern[str], str]] = [
    (re.compile(rf'("(?:{names})":\s*)"[^"]*"'), rf"\1{value}") for names, value in _KEYS
]
_MASKS += [
    # The policy of a page names the hashes of its scripts, which are compared themselves.
    (re.compile(r"'sha256-[A-Za-z0-9+/=]+'"), "'sha256-<script>'"),
    # Our version, in what documents say of who wrote them.
    (re.compile(r'("name": "profile-sd3",\n *"version": )"[^"]*"'), r'\1"<version>"'),
    # Our version, in a page's foot and head and in documents for other tools.
    (re.compile(r"(profile-sd3 )\d+\.\d+\.\d+[^\s<\"]*"), r"\1<version>"),
    # Names of temporary files that one command makes and removes again.
    (re.compile(r"profile-sd3-[a-z0-9_]{8}\b"), "profile-sd3-<temporary>"),
]


def environment(columns: int, home: Path) -> dict[str, str]:
    """The variables that commands see: the user's own could change what they say."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, **ENVIRONMENT, "COLUMNS": str(columns), "HOME": str(home)}


def settle(folder: Path) -> None:
    """Set fixed moments into all manifests below `folder`, a minute apart in the order of their
    paths: reports show when these were written, their hashes, and runs in that order."""
    for number, manifest in enumerate(sorted(folder.rglob("manifest.json"))):
        moment = IMPORTED_AT.replace("T08:00", f"T08:{number:02d}")
        text = manifest.read_text("utf-8")
        text = re.sub(r'("created":\s*)"[^"]*"', rf'\1"{moment}"', text)
        manifest.write_text(text, "utf-8")


def masked(text: str, folder: Path) -> str:
    """`text` with the working folder, the checkout and all that is named above masked."""
    checkout = str(Path(__file__).resolve().parents[2])
    for place, name in (
        (str(folder.resolve()), "<folder>"),
        (str(folder), "<folder>"),
        (checkout, "<checkout>"),
        (tempfile.gettempdir(), "<tmp>"),
    ):
        text = text.replace(place, name)
    for pattern, by in _MASKS:
        text = pattern.sub(by, text)
    return text


@contextmanager
def without_chance() -> Iterator[None]:
    """The system's source of chance held still: it numbers the texts of trace files (`secrets`) and
    is the key under which `share` replaces paths (16 bytes). Names of temporary files, of 8 bytes,
    stay different from one another."""
    count = itertools.count(1)

    def still(size: int) -> bytes:
        return bytes(size) if size == _KEY_BYTES else next(count).to_bytes(size, "big")

    with patch("os.urandom", still), patch("random._urandom", bytes):
        yield
