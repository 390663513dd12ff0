"""`profile-sd3 predict`: what would it take if."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from profiler.cli.main import complete_placements, complete_runs, complete_submodule
from profiler.cli.options import DeviceProfileFile, ImportOptions, KeptImport
from profiler.cli.run_report import load_as_recorded, opened, other_runs
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import (
    STDOUT,
    check_documents,
    keep_to_the_end,
    progress,
    tell,
    write_json,
)
from profiler.errors import InputError
from profiler.options import name_list

if TYPE_CHECKING:
    from profiler.prediction.predict import Prediction
    from profiler.prediction.scenario import Order, Scenario
    from profiler.run.run import Run
    from profiler.sources import Source


_MOST_UNTRACED_MS = 86_400_000.0


_Path = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="A bundle, a folder of bundles (the newest is taken), a Parquet run, or what "
        "`import` takes.",
        autocompletion=complete_runs,
    ),
]
_Steps = Annotated[int | None, typer.Option(metavar="N", help="Denoising steps.")]
_Guidance = Annotated[
    str | None, typer.Option(metavar="off", help="off: without classifier-free guidance.")
]
_Drop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SUBMODULE",
        help="Do not call it; may be repeated.",
        autocompletion=complete_submodule,
    ),
]
_Place = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SUBMODULE=DEVICE",
        help="Run it there: text_encoder_3=cpu:1; may be repeated.",
        autocompletion=complete_placements,
    ),
]
_Precision = Annotated[
    str | None,
    typer.Option(metavar="TYPE", help="Compute with it: fp32, fp16, bf16, fp8 or fp64."),
]
_CudaGraph = Annotated[
    bool,
    typer.Option(
        "--cuda-graph",
        help="Launch each call of a submodule at once, as a CUDA or HIP graph does.",
    ),
]
_Batch = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Make N times as many images or videos of a prompt at once.",
    ),
]
_Size = Annotated[
    str | None,
    typer.Option(
        metavar="WxH",
        help="Make images or videos of that many pixels: 832x480, or 512 for a square.",
    ),
]
_Untraced = Annotated[
    float | None,
    typer.Option(
        metavar="MS",
        help="What the run takes without the profiler, from its first call to the end of its "
        "last, in ms: the host is then as fast as that.",
    ),
]
_Concurrency = Annotated[
    int | None, typer.Option(metavar="N", help="Requests in flight at the same time.")
]
_Order = Annotated[
    str | None,
    typer.Option(
        metavar="ORDER",
        help="pipeline: a thread a request, one call after the other, as diffusers does; "
        "graph: a call begins when its inputs are there, which needs a scheduler such as "
        "Triton's ensembles.  [default: pipeline]",
    ),
]
_Devices = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DEVICES",
        help="Search the best placement on these, as cpu:0,cpu:1.  [default: those in use]",
    ),
]
_DeviceMemory = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[DEVICE=]SIZE",
        help="Memory of a device, 16GiB or cpu:0=4GiB: what is placed there must fit; may be "
        "repeated.",
    ),
]
_Pipeline = Annotated[
    int | None,
    typer.Option(metavar="N", help="Number of the pipeline call to start from.  [default: all]"),
]
_JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the prediction as JSON; -: to stdout, and only that.",
    ),
]


def predict(
    path: _Path = Path("traces"),
    steps: _Steps = None,
    guidance: _Guidance = None,
    drop: _Drop = None,
    place: _Place = None,
    precision: _Precision = None,
    cuda_graph: _CudaGraph = False,
    untraced: _Untraced = None,
    batch: _Batch = None,
    size: _Size = None,
    concurrency: _Concurrency = None,
    order: _Order = None,
    devices: _Devices = None,
    device_memory: _DeviceMemory = None,
    device_profile: DeviceProfileFile = None,
    pipeline: _Pipeline = None,
    importing: ImportOptions = None,
    out: KeptImport = None,
    json_file: _JsonFile = None,
) -> None:
    """Predict a request with other steps, devices or load.

    Estimates it from the parts that a run measured; options combine."""
    keep_to_the_end()
    what = (steps, _guidance(guidance), _names("--drop", drop))
    many = (precision, concurrency, cast("Order | None", order))  # checked with the run
    where = (place or [], _names("--devices", devices), _sizes(device_memory))
    scenario = _scenario(what, many, where, (cuda_graph, _untraced(untraced), batch), size)
    check_documents({"--json": json_file})
    with (
        progress(f"reading {path}") as say,
        opened([path], importing, out) as ((found,), imports),
    ):
        notes: list[str] = []
        run = load_as_recorded(found.newest, imports, notes)
        say("predicting")
        prediction = _of(run, found.newest, scenario, pipeline, device_profile)
    _write(prediction, json_file, [*notes, *other_runs(found)])


def _scenario(
    what: tuple[int | None, bool, tuple[str, ...]],
    many: tuple[str | None, int | None, Order | None],
    where: tuple[list[str], tuple[str, ...], dict[str, int]],
    how: tuple[bool, int | None, int | None],
    size: str | None,
) -> Scenario:
    from profiler.prediction.scenario import Scenario, parse_places, parse_size

    places, devices, memory = where
    pixels = None if size is None else parse_size(size)
    return Scenario(*what, parse_places(places), *many, devices, memory, *how, pixels)


def _of(
    run: Run, source: Source, scenario: Scenario, pipeline: int | None, measured: Path | None
) -> Prediction:
    """What the scenario makes of the run, with the profiles in the file `measured`."""
    from profiler.analysis.analyze import analyze
    from profiler.analysis.device_profiles import find_profiles, read_profiles
    from profiler.prediction.predict import predict as answer

    profiles = read_profiles(measured) if measured else find_profiles(source.path)
    return answer(run, analyze(run, measured=profiles), scenario, pipeline)


def _sizes(texts: list[str] | None) -> dict[str, int]:
    """Bytes by device."""
    from profiler.cli.options import device_sizes

    return device_sizes(texts or ())


def _guidance(text: str | None) -> bool:
    """Whether guidance stays."""
    if text not in (None, "off"):
        raise InputError(f"--guidance {text!r} cannot be predicted: give off, or leave it out")
    return text is None


def _untraced(milliseconds: float | None) -> int | None:
    """In ns. Raises InputError for what is no time."""
    if milliseconds is None:
        return None
    if not 0 < milliseconds <= _MOST_UNTRACED_MS:
        raise InputError(
            f"--untraced {milliseconds:g} is no time in ms: give one above 0, at most a day"
        )
    return round(milliseconds * 1e6)


def _names(option: str, texts: list[str] | None) -> tuple[str, ...]:
    """Names of several options, each with commas. Raises InputError for options without a name."""
    found = name_list(texts or ())
    if texts and not found:
        raise InputError(f"{option} {texts[0]!r} names nothing: give a name, or leave it out")
    return found


def _write(prediction: Prediction, json_file: Path | None, notes: Iterable[str]) -> None:
    if json_file is not None:
        from profiler.prediction.report import prediction_to_json

        write_json(json_file, prediction_to_json(prediction))
    if json_file != STDOUT:
        from profiler.cli.terminal import terminal
        from profiler.prediction.report import prediction_report
        from profiler.report.terminal import print_report

        print_report(terminal(), prediction_report(prediction))
    for line in notes:
        tell(line, err=True)


SUBCOMMAND = Subcommand(predict, place=60, about_runs=True)
