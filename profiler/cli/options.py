"""Arguments and options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from profiler.cli.completion import complete_submodules

__all__ = [
    "AnswerCsv",
    "AnswerJson",
    "AnswerParquet",
    "AnswerRows",
    "AnswerTimeout",
    "BundleFolder",
    "CallDevices",
    "CallStages",
    "CallSteps",
    "CallSubmodules",
    "Compress",
    "DeviceProfileFile",
    "ImportOptions",
    "KeptImport",
    "Language",
    "MaxSize",
    "MeasureOverhead",
    "Memory",
    "ModelPath",
    "OutPath",
    "PageLanguage",
    "ResultFile",
    "RunName",
    "Sizes",
    "TracedRun",
]


class Language(StrEnum):
    """Languages of the pages, as `report.language.LANGUAGES` has them."""

    EN = "en"
    KO = "ko"


AnswerCsv = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="Write CSV, over FILE if it exists; -: to stdout."),
]
AnswerJson = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write a JSON list of rows, over FILE if it exists; -: to stdout.",
    ),
]
AnswerParquet = Annotated[
    Path | None,
    typer.Option("--parquet", metavar="FILE", help="Write Parquet, over FILE if it exists."),
]
AnswerRows = Annotated[
    int | None,
    typer.Option(
        "--rows",
        metavar="N",
        min=0,
        help="Rows to print; 0: all.  [default: 40 on a terminal, all where piped]",
    ),
]
AnswerTimeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0, help="How long a query may compute; 0: no limit."
    ),
]
DeviceProfileFile = Annotated[
    Path | None,
    typer.Option(
        "--device-profile",
        metavar="FILE",
        help="What benchmark-device measured.  [default: device_profiles.json in the bundle or "
        "beside it; else published figures]",
    ),
]
ImportOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="KEY=VALUE",
        help="An option for the importer of another profiler's trace: pipeline=sd3; may be "
        "repeated.",
    ),
]
KeptImport = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Keep the bundle that is made of another profiler's trace in DIR.  [default: it is "
        "removed when the command ends]",
    ),
]
MaxSize = Annotated[
    str | None,
    typer.Option(
        "--max-size",
        metavar="SIZE",
        help="Limit of what a run writes (500MB, 2GiB): later calls have no operators.",
    ),
]
Memory = Annotated[
    bool, typer.Option("--memory", help="Record torch's allocations, which takes 5 % more time.")
]
CallStages = Annotated[
    list[str] | None,
    typer.Option("--stage", metavar="NAME", help="Only these stages, with commas."),
]
CallSubmodules = Annotated[
    list[str] | None,
    typer.Option(
        "--submodule",
        metavar="NAME",
        help="Only these submodules, with commas.",
        autocompletion=complete_submodules,
    ),
]
CallDevices = Annotated[
    list[str] | None,
    typer.Option("--device", metavar="NAME", help="Only these devices, with commas."),
]
CallSteps = Annotated[
    list[str] | None,
    typer.Option("--step", metavar="STEPS", help="Only these steps: 7, 0-3,7 or last."),
]
RunName = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Name of the run.  [default: its time]"),
]
BundleFolder = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder of bundles; the run gets its own.")
]
Compress = Annotated[
    str,
    typer.Option(
        "--compress",
        metavar="METHOD",
        help="Pack the packets of all files: none, deflate or zstd.",
    ),
]
MeasureOverhead = Annotated[
    bool,
    typer.Option(
        "--measure-overhead",
        help="Leave every fourth step untraced, to measure what tracing costs.",
    ),
]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX file, or a folder of them.")]
OutPath = Annotated[Path, typer.Argument(metavar="OUT", help="File, or folder, to write.")]
PageLanguage = Annotated[
    Language | None,
    typer.Option(
        "--language",
        help="Language in which the page opens; its button changes it.  [default: its reader's]",
    ),
]
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
TracedRun = Annotated[
    Path, typer.Argument(metavar="RUN", help="A bundle, a folder of them, or what `import` takes.")
]
