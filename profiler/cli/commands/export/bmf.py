"""`profile-sd3 export bmf`: a run's metrics in Bencher's metric format."""

from __future__ import annotations

from pathlib import Path

from profiler.cli.options import IMPORT_OPTIONS, TRACED_RUN
from profiler.cli.run_report import opened
from profiler.cli.subcommands import Subcommand, cli_options, opt
from profiler.cli.terminal import STDOUT, check_documents, progress, tell, write_json


@cli_options
class BmfOptions:
    """Options of `profile-sd3 export bmf`."""

    run: Path = TRACED_RUN
    out: Path = opt("--out FILE  Write the JSON; -: to stdout.", default=...)
    importing: list[str] = IMPORT_OPTIONS


def bmf(options: BmfOptions) -> None:
    """Write a run's metrics for Bencher: times of the run, stages, submodules and the step with
    their intervals, roles and memory; steps and shapes one by one are left out."""
    from profiler.export import bmf as document_of
    from profiler.files import json_text
    from profiler.metrics import full_name, summarized

    check_documents({"--out": options.out}, inputs=[options.run])
    with (
        progress("reading the run"),
        opened([options.run], options.importing, None) as (found, imports),
    ):
        measures = summarized(imports.ready(found[0].newest)).metrics
    rows = []
    for each in measures:
        if each.step is None and each.shape is None:
            named = {name: getattr(each, name) for name in each.__struct_fields__}
            rows.append((full_name(named), each.value, each.low, each.high, each.unit))
    write_json(options.out, json_text(document_of(rows)) + "\n")
    if options.out != STDOUT:
        tell(f"wrote {options.out}: {len(rows):,} metrics")


SUBCOMMAND = Subcommand(bmf, place=20, about_runs=True)
