"""`profile-sd3 predict`: what would it take if."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from profiler.cli.documents import STDOUT, check_documents, write_json
from profiler.cli.options import DeviceProfileFile, ImportOptions, import_options
from profiler.cli.progress import progress
from profiler.cli.subcommands import Subcommand
from profiler.cli.trace_files import load_whole, other_runs
from profiler.errors import InputError
from profiler.filters import name_list

if TYPE_CHECKING:
    from profiler.analysis.prediction.request_graph import Order
    from profiler.analysis.prediction.result import Prediction

__all__ = ["SUBCOMMAND", "predict"]


def predict(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A bundle, a folder of bundles (the newest is taken), a Parquet run, or what "
            "`import` takes.",
        ),
    ] = Path("traces"),
    steps: Annotated[int | None, typer.Option(metavar="N", help="Denoising steps.")] = None,
    guidance: Annotated[
        str | None, typer.Option(metavar="off", help="off: without classifier-free guidance.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="SUBMODULE", help="Do not call it; may be repeated."),
    ] = None,
    place: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SUBMODULE=DEVICE", help="Run it there: text_encoder_3=cpu:1; may be repeated."
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Compute with it: fp32, fp16, bf16, fp8 or fp64."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Requests in flight at the same time.")
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="ORDER",
            help="pipeline: a thread a request, one call after the other, as diffusers does; "
            "graph: a call begins when its inputs are there, which needs a scheduler such as "
            "Triton's ensembles.  [default: pipeline]",
        ),
    ] = None,
    devices: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DEVICES",
            help="Search the best placement on these, as cpu:0,cpu:1.  [default: those in use]",
        ),
    ] = None,
    device_memory: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[DEVICE=]SIZE",
            help="Memory of a device, 16GiB or cpu:0=4GiB: what is placed there must fit; may be "
            "repeated.",
        ),
    ] = None,
    device_profile: DeviceProfileFile = None,
    pipeline: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Number of the pipeline call to start from.  [default: all]"
        ),
    ] = None,
    importing: ImportOptions = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write the prediction as JSON; -: to stdout, and only that.",
        ),
    ] = None,
) -> None:
    """Predict a request with other steps, devices or load.

    What it would take, from the parts that a run measured; options combine.
    """
    from profiler.analysis.analyze import analyze
    from profiler.analysis.prediction.predict import predict as answer
    from profiler.analysis.prediction.scenario import Scenario, parse_places
    from profiler.analysis.roofline.device_profiles import find_profiles, read_profiles
    from profiler.cli.device_memory import device_sizes
    from profiler.sources.imports import Imports
    from profiler.sources.resolve import resolve

    scenario = Scenario(
        steps=steps,
        guidance=_guidance(guidance),
        drop=_names("--drop", drop),
        place=parse_places(place or ()),
        precision=precision,
        concurrency=concurrency,
        order=cast("Order | None", order),  # checked with the run
        devices=_names("--devices", devices),
        memory=device_sizes(device_memory or ()),
    )
    check_documents({"--json": json_file})
    (found,) = resolve([[path]], import_options(importing))
    source = found.newest
    profiles = read_profiles(device_profile) if device_profile else find_profiles(source.path)
    with Imports() as imports, progress(f"reading {source.path}") as say:
        run = load_whole(source, imports)
        say("predicting")
        prediction = answer(run, analyze(run, measured=profiles), scenario, pipeline)
    _write(prediction, json_file)
    for line in other_runs(found):
        typer.echo(line, err=True)


def _guidance(text: str | None) -> bool:
    """Whether guidance stays."""
    if text not in (None, "off"):
        raise InputError(f"--guidance {text!r} cannot be predicted: give off, or leave it out")
    return text is None


def _names(option: str, texts: list[str] | None) -> tuple[str, ...]:
    """Names of several options, each with commas. Raises InputError for options without a name."""
    found = name_list(texts or ())
    if texts and not found:
        raise InputError(f"{option} {texts[0]!r} names nothing: give a name, or leave it out")
    return found


def _write(prediction: Prediction, json_file: Path | None) -> None:
    if json_file is not None:
        from profiler.report.predict_document import prediction_to_json

        write_json(json_file, prediction_to_json(prediction))
    if json_file != STDOUT:
        from profiler.cli.terminal import terminal
        from profiler.report.predict_text import print_prediction

        print_prediction(terminal(), prediction)


SUBCOMMAND = Subcommand(predict, place=60)
