"""`profile-sd3 predict`: how long a request takes with other steps, devices or load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from profiler.cli import options as shared
from profiler.cli import terminal
from profiler.cli.main import complete_placements, complete_runs, complete_submodule
from profiler.cli.runs import load_as_recorded, opened, other_runs, refuse_damaged
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.errors import InputError
from profiler.text import name_list

if TYPE_CHECKING:
    from profiler.prediction.scenario import Scenario
    from profiler.prediction.workload import Order


_MOST_UNTRACED_MS = 86_400_000.0


@cli_options
class PredictOptions:
    """Options of `profile-sd3 predict`."""

    path: Path = arg(
        "PATH  A bundle, a folder of bundles (the newest is taken), a Parquet run, or what "
        "`import` takes.",
        default=Path("traces"),
        autocompletion=complete_runs,
    )
    steps: int | None = opt("N  Denoising steps.")
    guidance: str | None = opt("off  off: without classifier-free guidance.")
    drop: list[str] = opt(
        "SUBMODULE  Skip its calls; may be repeated.", autocompletion=complete_submodule
    )
    place: list[str] = opt(
        "SUBMODULE=DEVICE  Run it there: text_encoder_3=cpu:1; may be repeated.",
        autocompletion=complete_placements,
    )
    precision: str | None = opt("TYPE  Compute in this type: fp32, fp16, bf16, fp8 or fp64.")
    cuda_graph: bool = opt("Launch each call of a submodule as one CUDA or HIP graph.")
    follow: list[str] = opt(
        "RULE[:SUBMODULE]  Do what a finding with a known effect advises: negative_prompt, "
        "norm_chains:transformer; may be repeated."
    )
    untraced: float | None = opt(
        "MS  Time of the run without the profiler in ms, from its first call to the end of its "
        "last: sets how fast the host is."
    )
    batch: int | None = opt("N  N times as many images or videos per prompt, in one batch.")
    size: str | None = opt("WxH  Size of images or videos in pixels: 832x480, or 512 for a square.")
    concurrency: int | None = opt("N  Requests in flight at the same time.")
    order: str | None = opt(
        "ORDER  pipeline: a thread a request, one call after the other, as diffusers does; graph: "
        "a call starts when its inputs are there, which needs a scheduler such as Triton's "
        "ensembles.  [default: pipeline]"
    )
    devices: list[str] = opt(
        "DEVICES  Search the best placement on these, as cpu:0,cpu:1.  [default: those in use]"
    )
    device_memory: list[str] = opt(
        "[DEVICE=]SIZE  Memory of a device, 16GiB or cpu:0=4GiB: what is placed there must fit; "
        "may be repeated."
    )
    device_profile: Path | None = shared.DEVICE_PROFILE_FILE
    pipeline: int | None = opt("N  Number of the pipeline call to start from.  [default: all]")
    importing: list[str] = shared.IMPORT_OPTIONS
    out: Path | None = shared.KEPT_IMPORT
    json_file: Path | None = opt(
        "--json FILE  Write the prediction as JSON; -: to stdout, and only that."
    )


def predict(options: PredictOptions) -> None:
    """Predict a request with other steps, devices or load.

    Estimates it from the parts that a run measured; options combine. Without any it prints what
    to do first: the changes that gain most, alone and together."""
    terminal.keep_to_the_end()
    scenario = _scenario(options)
    terminal.check_documents({"--json": options.json_file})
    with (
        terminal.progress(f"reading {options.path}") as say,
        opened([options.path], options.importing, options.out) as ((found,), imports),
    ):
        from profiler.analysis.analyze import analyze
        from profiler.analysis.device_profiles import find_profiles, read_profiles
        from profiler.prediction.ladder import asks_nothing, ladder_of
        from profiler.prediction.ladder_section import ladder_report
        from profiler.prediction.predict import predict as predicted
        from profiler.prediction.predict import recorded_by_server
        from profiler.prediction.report import prediction_report, prediction_to_json
        from profiler.report.terminal import print_report

        notes: list[str] = []
        run = load_as_recorded(found.newest, imports, notes)
        refuse_damaged(found.newest.place, run.info, "so predictions from it would be wrong")
        say("predicting")
        file = options.device_profile
        profiles = read_profiles(file) if file else find_profiles(found.newest.path)
        analysis = analyze(run, measured=profiles)
        prediction = predicted(run, analysis, scenario, options.pipeline)
        ladder = None
        if asks_nothing(scenario) and not recorded_by_server(run):
            say("replaying changes")
            ladder = ladder_of(run, analysis, scenario, options.pipeline)
    if options.json_file is not None:
        terminal.write_json(options.json_file, prediction_to_json(prediction, ladder))
    if options.json_file != terminal.STDOUT:
        report = prediction_report(prediction) if ladder is None else ladder_report(ladder)
        print_report(terminal.terminal(), report)
    for line in [*notes, *other_runs(found)]:
        terminal.tell(line, err=True)


def _scenario(options: PredictOptions) -> Scenario:
    """Return the scenario of the options; names and types are checked later, with the run."""
    from profiler.prediction.scenario import Scenario, parse_places, parse_size

    if options.guidance not in (None, "off"):
        raise InputError(
            f"--guidance {options.guidance!r} cannot be predicted: give off, or leave it out"
        )
    if options.untraced is not None and not 0 < options.untraced <= _MOST_UNTRACED_MS:
        raise InputError(
            f"--untraced {options.untraced:g} is no time in ms: give one above 0, at most a day"
        )
    return Scenario(
        steps=options.steps,
        guidance=options.guidance is None,
        drop=_names("--drop", options.drop),
        devices=_names("--devices", options.devices),
        memory=shared.device_sizes(options.device_memory),
        untraced_ns=None if options.untraced is None else round(options.untraced * 1e6),
        size=None if options.size is None else parse_size(options.size),
        place=parse_places(options.place),
        precision=options.precision,
        concurrency=options.concurrency,
        order=cast("Order | None", options.order),
        cuda_graph=options.cuda_graph,
        follow=_names("--follow", options.follow),
        batch=options.batch,
    )


def _names(option: str, texts: list[str]) -> tuple[str, ...]:
    """Split the names of an option at commas. Raises InputError if there is none."""
    found = name_list(texts)
    if texts and not found:
        raise InputError(f"{option} {texts[0]!r} names nothing: give a name, or leave it out")
    return found


SUBCOMMAND = Subcommand(
    predict,
    place=60,
    about_runs=True,
    examples=(
        ("profile-sd3 predict", "what to do first, by replay of the newest run"),
        ("profile-sd3 predict --steps 8 --cuda-graph", "fewer steps, launched as graphs"),
        ("profile-sd3 predict --devices cpu:0,cpu:1", "the best placement on two devices"),
    ),
    panels={
        "What to change": "steps guidance drop precision cuda_graph follow batch size untraced",
        "Devices": "place devices device_memory device_profile",
        "Requests": "concurrency order",
        "Files": "json_file out",
    },
)
