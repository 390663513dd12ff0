"""Arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from profiler.errors import InputError

__all__ = [
    "DeviceProfileFile",
    "ImportOptions",
    "ModelPath",
    "OutPath",
    "ResultFile",
    "Sizes",
    "import_options",
]

DeviceProfileFile = Annotated[
    Path | None,
    typer.Option(
        "--device-profile",
        metavar="FILE",
        help="What calibrate-device measured.  [default: device_profiles.json in the bundle or "
        "beside it; else published figures]",
    ),
]
ImportOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="KEY=VALUE",
        help="An option of `import`, where another profiler wrote what is given: pipeline=sd3; may "
        "be repeated.",
    ),
]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX file, or a folder of them.")]
OutPath = Annotated[Path, typer.Argument(metavar="OUT", help="File, or folder, to write.")]
ResultFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; -: to stdout."),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        metavar="NAME=N",
        help="A symbolic dimension of the inputs that outputs are compared on; may be "
        "repeated.  [default: 2 for a batch, 8 for others]",
    ),
]


def import_options(texts: Iterable[str] | None) -> dict[str, str]:
    """The options of importers by name. Raises InputError for a text that is no KEY=VALUE, or a
    key that is given twice."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, _, value = text.partition("=")
        if not key or not value:
            raise InputError(f"--import {text!r} is no KEY=VALUE: write --import pipeline=sd3")
        if key in found:
            raise InputError(f"--import {key} is given twice: give it once")
        found[key] = value
    return found
