"""`profile-sd3 export bmf`: a run's metrics in Bencher's metric format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from profiler.cli.options import ImportOptions, TracedRun
from profiler.cli.run_report import opened
from profiler.cli.subcommands import Subcommand
from profiler.cli.terminal import STDOUT, check_documents, progress, tell, write_json

_Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="Write the JSON; -: to stdout.")]


def bmf(run: TracedRun, out: _Out, importing: ImportOptions = None) -> None:
    """Write a run's metrics for Bencher: times of the run, stages, submodules and the step with
    their intervals, roles and memory; steps and shapes one by one are left out."""
    from profiler.export import bmf as document_of
    from profiler.files import json_text
    from profiler.metrics import full_name, summarized

    check_documents({"--out": out}, inputs=[run])
    with progress("reading the run"), opened([run], importing, None) as (found, imports):
        measures = summarized(imports.ready(found[0].newest)).metrics
    rows = []
    for each in measures:
        if each.step is None and each.shape is None:
            named = {name: getattr(each, name) for name in each.__struct_fields__}
            rows.append((full_name(named), each.value, each.low, each.high, each.unit))
    write_json(out, json_text(document_of(rows)) + "\n")
    if out != STDOUT:
        tell(f"wrote {out}: {len(rows):,} metrics")


SUBCOMMAND = Subcommand(bmf, place=20, about_runs=True)
