"""`profile-sd3 export`: a run in another tool's format (OpenTelemetry)."""

from __future__ import annotations

from pathlib import Path

from profiler.cli import options as shared
from profiler.cli.runs import opened
from profiler.cli.subcommands import Subcommand, cli_options, command_group, opt
from profiler.cli.terminal import STDOUT, check_documents, progress, tell, write_json


@cli_options
class OtlpOptions:
    """Options of `profile-sd3 export otlp`."""

    run: Path = shared.TRACED_RUN
    out: Path = opt("FILE  Write the JSON of OTLP; -: to stdout.", default=...)
    importing: list[str] = shared.IMPORT_OPTIONS


def otlp(options: OtlpOptions) -> None:
    """Write pipeline calls, stages, steps and calls as OpenTelemetry spans, with the names of the
    conventions for generative AI (gen_ai.*) if these have any."""
    from profiler.files import json_text
    from profiler.tools.export import is_of_epoch, otlp_document
    from profiler.tools.sources import load_source

    check_documents({"--out": options.out}, inputs=[options.run])
    with (
        progress("reading the run"),
        opened([options.run], options.importing, None) as (found, imports),
    ):
        loaded = load_source(imports.ready(found[0].newest))
        document = otlp_document(loaded)
    write_json(options.out, json_text(document, indent=None) + "\n")
    if not is_of_epoch(loaded):
        tell(
            "times of this run do not count from 1970: backends show them at another day", err=True
        )
    if options.out != STDOUT:
        spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
        tell(f"wrote {options.out}: {len(spans):,} spans")


_GROUP = command_group(
    "export",
    "Write a run in the formats of other tools.",
    otlp=Subcommand(otlp, about_runs=True),
)

SUBCOMMAND = Subcommand(_GROUP, place=105, advanced=True)
