"""`profile-sd3 graph check`: what stops a graph compiler or costs time, and its repair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from profiler.cli.commands.graph import grouped, named, parse_sizes, tell_compared
from profiler.cli.subcommands import Subcommand, arg, cli_options, opt
from profiler.cli.terminal import check_documents, progress, tell, write_result
from profiler.errors import InputError
from profiler.pipelines.onnx_targets import TARGETS
from profiler.text import counted, duration, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profiler.graph.check import CheckResult
    from profiler.graph.compare import MeasuredFinding
    from profiler.graph.fix import FixResult
    from profiler.run.run import Run


@cli_options
class CheckOptions:
    """Options of `profile-sd3 graph check`."""

    models: list[Path] = arg("MODEL...  ONNX files, or folders of them.")
    target: str = opt(f"NAME  What is to compile or run it: {', '.join(TARGETS)}.", default="")
    static: bool = opt("Ask for static shapes of inputs and nodes.")
    fix: Path | None = opt(
        "--fix -o OUT  Write the model, or the folder, repaired if that is safe and outputs "
        "stay the same."
    )
    size: list[str] = opt(
        "NAME=N  With --fix: a symbolic dimension of the inputs that outputs are compared on; may "
        "be repeated.  [default: 2 for a batch, 8 for others]"
    )
    measured: Path | None = opt(
        "PATH  A run of the model, of any format that `import` reads: findings get the time of "
        "their nodes."
    )
    show_all: bool = opt("--all  Show each finding and output, not three nodes a rule.")
    json_file: Path | None = opt("--json FILE  Write all findings as JSON; -: to stdout.")


def check(options: CheckOptions) -> None:
    """Find what stops a graph compiler or costs time.

    Exits with 1 if there is an error. Looks for empty names of inputs that carry meaning, names
    of nodes, dynamic shapes, int64 and float64, opsets that a target lacks, constants that are not
    folded, operations in small pieces, needless pairs of nodes, weights stored twice, data that is
    missing. What needs no data reads none.
    """
    from profiler.graph.check import check_model
    from profiler.graph.model import model_files, refuse_unknown_sizes

    sizes = parse_sizes(options.size)
    files = (path for model in options.models for path in model_files(model))
    sources = list(dict.fromkeys(files))
    check_documents({"--json": options.json_file}, inputs=sources, outputs={"--fix": options.fix})
    if sizes and options.fix is None:
        raise InputError("--size is for the inputs that --fix compares on: give --fix OUT, too")
    refuse_unknown_sizes(sources, sizes)
    results: list[CheckResult] = []
    fixed: list[FixResult] = []
    with progress(f"repairing {options.models[0]}" if options.fix else "checking") as say:
        if options.fix is not None:
            fixed = _fix(options, sources, options.fix, sizes)
            results = [result.left for result in fixed]
        else:
            for path in sources:
                say(f"checking {path}")
                results.append(check_model(path, target=options.target, static=options.static))
    run = _loaded(options.measured)
    if write_result(options.json_file, "graph_check", lambda: _document(results, fixed, run)):
        for result in fixed:
            _print_fix(result, options.show_all)
        for checked in results:
            _print(checked, run, options.show_all)
    if any(result.count("error") for result in results):
        raise typer.Exit(1)


def _fix(
    options: CheckOptions, sources: list[Path], out: Path, sizes: dict[str, int]
) -> list[FixResult]:
    """Write the repaired model, or folder of models, to `out`."""
    from profiler.errors import require
    from profiler.graph.fix import fix_folder, fix_model

    require("graph", "graph check --fix", "onnxruntime")
    if len(options.models) > 1:
        raise InputError("--fix takes one model or one folder: repair them one by one")
    target, static = options.target, options.static
    if options.models[0].is_dir():
        return fix_folder(
            options.models[0], out, sources, target=target, static=static, sizes=sizes
        )
    return [fix_model(sources[0], out, target=target, static=static, sizes=sizes)]


def _loaded(path: Path | None) -> Run | None:
    """Return the run whose times findings get, None without a path."""
    if path is None:
        return None
    from profiler.tools.sources import load

    with progress(f"reading {path}"):
        return load(path)


def _findings(result: CheckResult, run: Run | None) -> list[MeasuredFinding]:
    """Return the findings, with the time of their nodes if a run was given."""
    from profiler.graph.compare import MeasuredFinding, measured

    if run is None:
        return [MeasuredFinding(finding, None, None, None) for finding in result.findings]
    return [*measured(result, run)]


def _document(
    results: Sequence[CheckResult], fixed: Sequence[FixResult], run: Run | None
) -> dict[str, Any]:
    entries = [{**result.to_json(), "run": None, "fixed": None} for result in results]
    if run is not None:
        for entry, checked in zip(entries, results, strict=True):
            entry["run"] = run.run_id
            entry["findings"] = [one.to_json() for one in _findings(checked, run)]
    for entry, result in zip(entries, fixed, strict=False):
        entry["fixed"] = result.to_json()
    return {"models": entries}


def _print_fix(result: FixResult, show_all: bool) -> None:
    repaired = ", ".join(f"{rule} {count}" for rule, count in result.repaired.items())
    tell(f"{result.out}: repaired: {repaired or 'nothing'}")
    tell_compared(result.differences, each=show_all)


def _print(result: CheckResult, run: Run | None, show_all: bool) -> None:
    counts = [(result.count(name), name) for name in ("error", "warning", "note")]
    total = ", ".join(counted(n, name) for n, name in counts if n) or "nothing found"
    nodes = counted(result.node_count, "node")
    tell(f"{result.path}: opset {result.opset}, {nodes}: {total}")
    for findings in grouped(_findings(result, run), _kind, each=show_all):
        first = findings[0].finding
        names = named(one.finding.node for one in findings) or "the model"
        tell(f"  {first.severity} {first.rule}: {names}")
        if run is not None:
            tell(f"    measured: {_times(findings)}")
        tell(f"    {first.evidence}")
        tell(f"    → {first.recommendation}{' (--fix does)' if first.fix else ''}")


def _times(findings: Sequence[MeasuredFinding]) -> str:
    """How long the nodes of these findings take in a call, the layers of several counted once."""
    known = {one.layer: one for one in findings if one.ns is not None}
    if not known:
        return "none of them is a layer of the run"
    total = sum(one.ns or 0 for one in known.values())
    share = sum(one.share or 0 for one in known.values())
    return f"{duration(total)} a call, {percent(share)} of what was measured"


def _kind(one: MeasuredFinding) -> tuple[object, ...]:
    finding = one.finding
    return finding.rule, finding.severity, finding.recommendation, finding.fix


SUBCOMMAND = Subcommand(check, place=20, needs="graph-base")
