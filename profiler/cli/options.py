"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["DeviceProfileFile", "ModelPath", "OutPath", "ResultFile", "Sizes"]

DeviceProfileFile = Annotated[
    Path | None,
    typer.Option(
        "--device-profile",
        metavar="FILE",
        help="What calibrate-device measured.  [default: device_profiles.json in the bundle or "
        "beside it; else published figures]",
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
