"""A bundle that appears whole: written in a folder that nobody looks into, then moved."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from profiler.errors import OutputError
from profiler.files import folder_mode, not_writable, write_atomically
from profiler.trace.manifest import MANIFEST_NAME, read_manifest

__all__ = ["place_bundle"]


def place_bundle(bundle: Path, parent: Path) -> Path:
    """Move a finished bundle into `parent`, on the same file system, under its name or `NAME-2`, …
    where that is taken, which its manifest then says; its new place. Raises OutputError."""
    try:
        for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
            target = parent / f"{bundle.name}{suffix}"
            try:
                target.mkdir(folder_mode())  # which takes the name
            except FileExistsError:
                continue
            if suffix:
                manifest = replace(read_manifest(bundle / MANIFEST_NAME), run_id=target.name)
                write_atomically(bundle / MANIFEST_NAME, manifest.to_json().encode())
            if os.name == "nt":
                target.rmdir()
            bundle.replace(target)
            return target
    except OSError as error:
        raise not_writable(parent, error) from error
    raise OutputError(f"{parent} holds 999 runs named {bundle.name}: choose another --out folder")
