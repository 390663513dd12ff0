"""Arguments and options that several commands share, such as memory sizes and gates.

Memory sizes are `16GiB`, `17179869184` or `cuda:0=80GB`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer

from profiler.cli.main import complete_submodules
from profiler.cli.subcommands import arg, opt
from profiler.cli.terminal import Titles, tell
from profiler.errors import InputError
from profiler.text import parse_size

# --- Sizes of memory as they are given on the command line: `16GiB`, `17179869184`, `cuda:0=80GB`.


def device_sizes(texts: Iterable[str]) -> dict[str, int]:
    """Return bytes by device, "" for devices that are not named. Raises InputError for a text that
    is no size, or names a device twice."""
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


# --- The gate of a comparison: `--fail-over` and `--metric`.


def gate_limit(fail_over: str | None, metrics: Sequence[str] | None) -> float | None:
    """Return the limit of `--fail-over` as a share; None without a gate. Raises InputError for an
    invalid limit, and for `--metric` without one."""
    from profiler.compare.compare import parse_limit

    if metrics and fail_over is None:
        raise InputError("--metric says what --fail-over looks at: give --fail-over 5% with it")
    return None if fail_over is None else parse_limit(fail_over)


# --- Arguments and options that several commands have.


class Language(StrEnum):
    """The languages of pages, as in `report.language.LANGUAGES`."""

    EN = "en"
    KO = "ko"


ANSWER_CSV = opt("FILE  Write CSV, over FILE if it exists; -: to stdout.")
ANSWER_JSON = opt("FILE  Write the rows as a JSON document, over FILE if it exists; -: to stdout.")
ANSWER_PARQUET = opt("FILE  Write Parquet, over FILE if it exists.")
ANSWER_ROWS = opt("N  Rows to print; 0: all.  [default: 40 on a terminal, all if piped]", min=0)
ANSWER_TIMEOUT = opt("SECONDS  How long a query may compute; 0: no limit.", default=60, min=0)
DEVICE_PROFILE_FILE = opt(
    "FILE  What benchmark-device measured.  [default: device_profiles.json in the bundle or beside "
    "it; else published figures]"
)
IMPORT_OPTIONS = opt(
    "--import KEY=VALUE  An option for the importer of another profiler's trace: pipeline=sd3; may "
    "be repeated."
)
KEPT_IMPORT = opt(
    "DIR  Keep the bundle made from another profiler's trace in DIR.  [default: removed when the "
    "command ends]"
)
MAX_SIZE = opt("SIZE  Limit of what a run writes (500MB, 2GiB): later calls have no operators.")
KEEP_PROMPTS = opt("Record prompts and paths of images as they are given, not their lengths.")
MEMORY = opt("Record torch's allocations, which takes 5 % more time.")
CALL_STAGES = opt("NAME  Only these stages, with commas.")
CALL_SUBMODULES = opt(
    "NAME  Only these submodules, with commas.", autocompletion=complete_submodules
)
CALL_DEVICES = opt("NAME  Only these devices, with commas.")
CALL_STEPS = opt("STEPS  Only these steps: 7, 0-3,7 or last.")
RUN_NAME = opt("NAME  Name of the run.  [default: its time]")
BUNDLE_FOLDER = opt("DIR  Folder of bundles; the run gets its own.", default=Path("traces"))
COMPRESS = opt("METHOD  Pack the packets of all files: none, deflate or zstd.", default="none")
MEASURE_OVERHEAD = opt("Leave every fourth step untraced, to measure the profiling overhead.")
MODEL_PATH = arg("MODEL  ONNX file, or a folder of them.")
OUT_PATH = arg("OUT  File, or folder, to write.")
PAGE_LANGUAGE = opt(
    "Language in which the page opens; its button changes it.  [default: its reader's]"
)
RESULT_FILE = opt("--json FILE  Write the result as JSON; -: to stdout.")
STRICT = opt("Exit with 3 if the recording is damaged: parts of it are lost or cannot be right.")
SIZES = opt(
    "NAME=N  A symbolic dimension of the inputs that outputs are compared on; may be repeated.  "
    "[default: 2 for a batch, 8 for others]"
)
TRACED_RUN = arg("RUN  A bundle, a folder of them, or what `import` takes.")

DATASET_PLACE = arg("DATASET  Folder of the data set, or a URL that fsspec knows (s3://…).")
WHERE_RUNS = opt(
    "KEY=VALUE  Only runs whose column, `time` or `label.NAME` is so: =, !=, <, <=, >, >=, ~ "
    "(contains), and the value `unknown`; may be repeated."
)
ASSUME_SAME = opt(
    "FIELD  Take this field of the identity to agree if nobody recorded it; may be repeated."
)
BAD_QUALITY = opt("Take runs with drops, residual or costly tracing, too.")
LOCAL_WORKERS = opt("N  Work in N processes of this machine; 0: in this one.", default=0, min=0)
SCHEDULER = opt(
    "ADDRESS  Work on the Dask cluster of this scheduler, such as tcp://head:8786: one you trust, "
    "whose workers see the same paths.",
    default="",
)


def list_option(titles: Titles) -> Any:
    """Declare `--list-sections`, which prints the key and the heading of each section, and ends."""

    def list_sections(wanted: bool) -> None:
        if wanted:
            known = titles()
            width = max(map(len, known))
            for key, title in known.items():
                tell(f"{key:<{width}}  {title}")
            raise typer.Exit

    meaning = "--list-sections  List the sections and exit."
    return opt(meaning, callback=list_sections, is_eager=True)
