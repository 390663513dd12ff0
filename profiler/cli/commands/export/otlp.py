"""`profile-sd3 export otlp`: a run as OpenTelemetry spans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from profiler.cli.options import ImportOptions, TracedRun
from profiler.cli.run_report import opened
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import STDOUT, check_documents, progress, tell, write_json

_Out = Annotated[
    Path, typer.Option("--out", metavar="FILE", help="Write the JSON of OTLP; -: to stdout.")
]


def otlp(run: TracedRun, out: _Out, importing: ImportOptions = None) -> None:
    """Write pipeline calls, stages, steps and calls as OpenTelemetry spans, with the names of the
    conventions for generative AI (gen_ai.*) where these have any."""
    from profiler.export import is_of_epoch, otlp_document
    from profiler.files import json_text
    from profiler.sources import load_source

    check_documents({"--out": out}, inputs=[run])
    with progress("reading the run"), opened([run], importing, None) as (found, imports):
        loaded = load_source(imports.ready(found[0].newest))
        document = otlp_document(loaded)
    write_json(out, json_text(document, indent=None) + "\n")
    if not is_of_epoch(loaded):
        tell(
            "times of this run do not count from 1970: backends show them at another day", err=True
        )
    if out != STDOUT:
        tell(f"wrote {out}: {len(document['resourceSpans'][0]['scopeSpans'][0]['spans']):,} spans")


SUBCOMMAND = Subcommand(otlp, place=10, about_runs=True)
