"""Arguments and options that several commands share, such as memory sizes and gates.

Memory sizes are `16GiB`, `17179869184` or `cuda:0=80GB`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from profiler.cli.main import complete_submodules
from profiler.errors import InputError
from profiler.options import parse_size

# --- Sizes of memory as they are given on the command line: `16GiB`, `17179869184`, `cuda:0=80GB`.


def device_sizes(texts: Iterable[str]) -> dict[str, int]:
    """Bytes by device, "" for devices that are not named; raises InputError for what is no size,
    or names a device twice."""
    found: dict[str, int] = {}
    for text in texts:
        device, named, number = text.rpartition("=")
        device = device.strip()
        size = parse_size(number)
        if size is None or (named and not device):
            raise InputError(
                f"--device-memory {text!r} is no size: "
                "write 16GiB, 80GB, a number of bytes, or cuda:0=80GB for one device"
            )
        if device in found:
            whose = f"of {device} " if device else ""
            raise InputError(f"--device-memory {whose}is given twice: give it once")
        found[device] = size
    return found


# --- The gate of a comparison: what `--fail-over` and `--metric` ask for.


def gate_limit(fail_over: str | None, metrics: Sequence[str] | None) -> float | None:
    """What `--fail-over` allows, as a share; None without a gate. Raises InputError for what is no
    limit, and for `--metric` without one."""
    from profiler.compare.compare import parse_limit

    if metrics and fail_over is None:
        raise InputError("--metric says what --fail-over looks at: give --fail-over 5% with it")
    return None if fail_over is None else parse_limit(fail_over)


# --- Arguments and options that several commands have.


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
